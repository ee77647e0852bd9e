#include "device/cuda/images.hpp"

#include <string_view>

#include "base/format.hpp"
#include "device/cuda/image_bytes.hpp"

#ifndef LOOM_IMAGES
#define LOOM_NVCC_KERNELS ""
#define LOOM_CLANG_KERNELS ""
#endif

namespace loom::device::cuda {
namespace {

struct Image {
  std::string_view name;
  const char* at = nullptr;
};
constexpr Image kImages[] = {
#ifdef LOOM_IMAGES
#define LOOM_IMAGE(name, file) {#name, loom_kernels_##name},
#include LOOM_IMAGES
#endif
    {}};

}  // namespace

const char* kernel_image(Compiler compiler, int op, Type type) {
  const std::string name = compiler == Compiler::kNvcc
                               ? loom::format("nvcc_{}", op)
                               : loom::format("clang_{}_{}", op, static_cast<int>(type));
  for (const Image& image : kImages)
    if (image.name == name) return image.at;
  return nullptr;
}

std::string kernels_by(Compiler compiler) {
  return compiler == Compiler::kNvcc ? LOOM_NVCC_KERNELS : LOOM_CLANG_KERNELS;
}

bool has_kernels() {
  return std::size(kImages) > 1;
}

std::string all_kernels() {
  std::string all;
  for (const Compiler compiler : kCompilers)
    if (const std::string kernels = kernels_by(compiler); !kernels.empty())
      all += (all.empty() ? "" : "; ") + kernels;
  return all.empty() ? "none" : all;
}

}  // namespace loom::device::cuda
