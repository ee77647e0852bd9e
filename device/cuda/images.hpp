// images.hpp -- the compiled kernels of this build (kernel_args.hpp), as the driver loads them.
#pragma once

#include <string>

#include "device/reduce/operations.hpp"

namespace loom::device::cuda {

/// In the order in which their images are tried: the driver need not compile nvcc's, but an older driver or
/// GPU may not take them.
enum class Compiler { kNvcc, kClang };
inline constexpr Compiler kCompilers[] = {Compiler::kNvcc, Compiler::kClang};

/// With the kernels of an operation (kMove, too) on a type, and maybe on others: machine code, or PTX, which
/// ends with a 0. nullptr: this build has none.
const char* kernel_image(Compiler compiler, int op, Type type);
/// "nvcc 13.0 for sm_90 and later", "" where this build has none.
std::string kernels_by(Compiler compiler);

bool has_kernels();
/// "nvcc 13.0 for sm_90 and later; clang PTX 6.0 for sm_70 and later", or "none".
std::string all_kernels();

}  // namespace loom::device::cuda
