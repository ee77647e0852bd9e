// images.hpp -- the compiled kernels of this build (kernel_args.hpp), as the driver loads them.
#pragma once

namespace loom::device::cuda {

/// nullptr: this build was made without a CUDA compiler.
const void* kernel_image(int which) noexcept;

}  // namespace loom::device::cuda
