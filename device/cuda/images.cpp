#include "device/cuda/images.hpp"

#include "device/cuda/kernel_args.hpp"

#ifdef LOOM_KERNEL_IMAGES

#define LOOM_IMAGE(which)                                                                                    \
  asm(".pushsection .rodata\n.balign 64\n.globl loom_kernel_image_" #which                                   \
      "\n.hidden loom_kernel_image_" #which "\nloom_kernel_image_" #which ":\n.incbin \"" LOOM_KERNEL_IMAGES \
      "/kernels_" #which ".fatbin\"\n.popsection\n");                                                        \
  extern "C" const char loom_kernel_image_##which[];

LOOM_IMAGE(0)
LOOM_IMAGE(1)
LOOM_IMAGE(2)
LOOM_IMAGE(3)
LOOM_IMAGE(4)
LOOM_IMAGE(5)
LOOM_IMAGE(6)
LOOM_IMAGE(7)
LOOM_IMAGE(8)
LOOM_IMAGE(9)
LOOM_IMAGE(10)
LOOM_IMAGE(11)
LOOM_IMAGE(12)

namespace loom::device::cuda {

const void* kernel_image(int which) noexcept {
  static const char* const images[] = {loom_kernel_image_0, loom_kernel_image_1,  loom_kernel_image_2,
                                       loom_kernel_image_3, loom_kernel_image_4,  loom_kernel_image_5,
                                       loom_kernel_image_6, loom_kernel_image_7,  loom_kernel_image_8,
                                       loom_kernel_image_9, loom_kernel_image_10, loom_kernel_image_11,
                                       loom_kernel_image_12};
  static_assert(sizeof(images) / sizeof(*images) == kImages);
  return images[which];
}

}  // namespace loom::device::cuda

#else

namespace loom::device::cuda {

const void* kernel_image(int) noexcept {
  return nullptr;
}

}  // namespace loom::device::cuda

#endif
