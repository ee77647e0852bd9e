// image_bytes.hpp -- the images that the build has compiled (loom_embed_images in cmake/LoomKernels.cmake),
// as the bytes loom_kernels_NAME, with a 0 behind them. For one source of a program.
#pragma once

#ifdef LOOM_IMAGES
#define LOOM_IMAGE(name, file)                                                                       \
  asm(".pushsection .rodata\n.balign 64\n.globl loom_kernels_" #name "\n.hidden loom_kernels_" #name \
      "\nloom_kernels_" #name ":\n.incbin \"" file "\"\n.byte 0\n.popsection\n");                    \
  extern "C" const char loom_kernels_##name[];
#include LOOM_IMAGES
#undef LOOM_IMAGE
#endif
