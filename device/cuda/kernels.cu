// kernels.cu -- the kernels of one operation (LOOM_OP, by number), for every type or for one (LOOM_TYPE):
// reductions of what lies in memory, for the host-driven executor, and whole collectives, for the kernel
// executor. Compiled by nvcc or clang, to images that the driver loads. Never run on a GPU so far.
#ifdef __CUDA__  // clang
#include "device/cuda/without_toolkit.hpp"
#endif

#include "device/cuda/kernel_args.hpp"

namespace loom::device::cuda {
namespace {

using Operation = OperationOf<LOOM_OP>;

/// Warps of a block as a group that performs step code: all of them, or one of `groups` equal parts.
class Warps {
 public:
  static constexpr int kLanes = 8;  ///< 16 bytes each

  __device__ explicit Warps(int groups)
      : size_(static_cast<int>(blockDim.x) / groups), number_(static_cast<int>(threadIdx.x) / size_) {}

  __device__ int number() const { return number_; }
  __device__ int index() const { return static_cast<int>(threadIdx.x) - number_ * size_; }
  __device__ int size() const { return size_; }
  __device__ bool any(bool condition) {
    int result;
    // Barrier 0 is that of the whole block. Waits have parted the lanes of a warp: not `.aligned`.
    asm volatile(
        "{\n\t.reg .pred holds;\n\tsetp.ne.s32 holds, %1, 0;\n\t"
        "barrier.red.or.pred holds, %2, %3, holds;\n\tselp.s32 %0, 1, 0, holds;\n\t}"
        : "=r"(result)
        : "r"(static_cast<int>(condition)), "r"(number_ + 1), "r"(size_)
        : "memory");
    return result != 0;
  }
  __device__ bool all_lanes(bool condition) { return __all_sync(lanes(), condition) != 0; }
  __device__ void join_lanes() { __syncwarp(lanes()); }
  __device__ void pause() {}

 private:
  __device__ static unsigned lanes() { return 0xffU << (threadIdx.x % 32 / kLanes * kLanes); }

  int size_, number_;
};

/// Reduces several vectors at a time. A Buffer assembles those that are partial or not aligned as vectors.
template <class T>
__device__ void reduce(const ReduceArgs& args) {
  using steps::Buffer;
  using steps::Vector;
  const std::size_t vectors = divide_up(args.count, steps::elems_in<T, Vector>),
                    stride = std::size_t{gridDim.x} * blockDim.x;
  const auto operand = [&](int k) {
    return Buffer<const T, Vector>(static_cast<const T*>(args.in[k]), args.count);
  };
  const Buffer<T, Vector> out(static_cast<T*>(args.out), args.count);
  for (std::size_t first = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; first < vectors;
       first += stride * steps::kUnroll) {
    Vector value[steps::kUnroll];
    for (int k = 0; k < args.operands; ++k) {
      const auto from = operand(k);
      Vector next[steps::kUnroll] = {};
#pragma unroll
      for (int u = 0; u < steps::kUnroll; ++u)
        if (first + u * stride < vectors) next[u] = from.load(first + u * stride);
#pragma unroll
      for (int u = 0; u < steps::kUnroll; ++u)
        value[u] = k == 0 ? next[u] : steps::combine<Operation, T>(value[u], next[u]);
    }
#pragma unroll
    for (int u = 0; u < steps::kUnroll; ++u)
      if (first + u * stride < vectors) out.store(first + u * stride, value[u]);
  }
}

/// By one thread of each block, after a barrier. Whether all other blocks have come here before: then it sees
/// what they have written.
__device__ bool is_last(Word* arrived) {
  Word before;
  asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], 1;" : "=l"(before) : "l"(arrived) : "memory");
  return before == gridDim.x - 1;
}

template <class T>
__device__ void collective(const CollectiveArgs& args) {
  constexpr unsigned kWords = sizeof(steps::Channel) / sizeof(Word);
  static_assert(sizeof(steps::Channel) % sizeof(Word) == 0);
  __shared__ Word words[kWords];  // a Channel has initial values, which shared memory cannot have
  auto& channel = *reinterpret_cast<steps::Channel*>(words);
  Word* const in_memory = reinterpret_cast<Word*>(args.channels + blockIdx.x);
  for (unsigned i = threadIdx.x; i < kWords; i += blockDim.x) words[i] = in_memory[i];
  __syncthreads();
  Warps group(steps::groups_of(args.task.algorithm));
  const steps::Outcome outcome = steps::perform<Operation, T>(
      group, group.number(), args.task, channel, args.form, {args.abandoned, args.patience});
  __syncthreads();
  for (unsigned i = threadIdx.x; i < kWords; i += blockDim.x) in_memory[i] = words[i];
  if (group.index() == 0) {
    if (outcome == steps::Outcome::kAbandoned) steps::store_release(args.failed, 1);
    if (outcome == steps::Outcome::kLeft) steps::store_release(args.left, 1);
  }
  __syncthreads();
  // The host waits for the word, and not for the kernel: once it is there, all results are, for everybody, and
  // so are the words that say how the launch went. (The channels, which the block has just written, are there
  // for the next kernel, which waits for this one.)
  if (threadIdx.x == 0 && is_last(args.arrived)) {
    *args.arrived = 0;  // for the next launch, which begins when this one has ended
    steps::store_release(args.ended, args.launch);
  }
}

}  // namespace
}  // namespace loom::device::cuda

// One by one, for their names. Where there is none for the type, a kernel does nothing and is never launched.
// clang-format off
#define LOOM_JOINED(kind, op, type) loom_##kind##_##op##_##type
#define LOOM_NAME(kind, op, type) LOOM_JOINED(kind, op, type)
#define LOOM_KERNELS(type)                                                                                     \
  extern "C" __global__ void __launch_bounds__(loom::device::cuda::kReduceThreads)                             \
      LOOM_NAME(reduce, LOOM_OP, type)(__grid_constant__ const loom::device::cuda::ReduceArgs args) {          \
    if constexpr (loom::device::cuda::has_kernel<LOOM_OP, type>)                                               \
      loom::device::cuda::reduce<loom::device::cuda::TypeOf<type>>(args);                                      \
  }                                                                                                            \
  extern "C" __global__ void __launch_bounds__(loom::device::cuda::kCollectiveThreads,                         \
                                               loom::device::cuda::kCollectiveBlocks)                          \
      LOOM_NAME(collective, LOOM_OP, type)(__grid_constant__ const loom::device::cuda::CollectiveArgs args) {  \
    if constexpr (loom::device::cuda::has_kernel<LOOM_OP, type>)                                               \
      loom::device::cuda::collective<loom::device::cuda::TypeOf<type>>(args);                                  \
  }

#ifdef LOOM_TYPE
static_assert(loom::device::cuda::has_kernel<LOOM_OP, LOOM_TYPE>);
LOOM_KERNELS(LOOM_TYPE)
#else
LOOM_KERNELS(0) LOOM_KERNELS(1) LOOM_KERNELS(2) LOOM_KERNELS(3) LOOM_KERNELS(4) LOOM_KERNELS(5) LOOM_KERNELS(6)
LOOM_KERNELS(7) LOOM_KERNELS(8) LOOM_KERNELS(9) LOOM_KERNELS(10) LOOM_KERNELS(11) LOOM_KERNELS(12)
LOOM_KERNELS(13) LOOM_KERNELS(14) LOOM_KERNELS(15) LOOM_KERNELS(16) LOOM_KERNELS(17) LOOM_KERNELS(18)
LOOM_KERNELS(19) LOOM_KERNELS(20) LOOM_KERNELS(21) LOOM_KERNELS(22) LOOM_KERNELS(23)
#endif
// clang-format on
