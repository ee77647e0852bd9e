// kernels.cu -- the kernels of one operation (LOOM_OP, by number), for every type or for one (LOOM_TYPE):
// combinations of what lies in memory, for zero copy, and whole collectives over links, for the kernel
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

/// Calls body(first, stride) for the vectors, or other units, of this thread, several at a time: first,
/// first + stride, and so on.
template <class Body>
__device__ void for_vectors(std::size_t vectors, Body&& body) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t first = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; first < vectors;
       first += stride * steps::kUnroll)
    body(first, stride);
}

/// Several vectors of all operands at a time. A Buffer assembles those that are partial or not aligned as
/// vectors. An element is stored when the thread has read it of all operands that it overwrites.
template <class T>
__device__ void combine(const CombineArgs& args) {
  using steps::Buffer;
  using steps::kUnroll;
  using steps::Vector;
  const std::size_t vectors = divide_up(args.count, steps::elems_in<T, Vector>);
  const bool folds = args.how == CombineArgs::How::kFold, excludes = args.how == CombineArgs::How::kExscan;
  for_vectors(vectors, [&](std::size_t first, std::size_t stride) {
    Vector value[kUnroll];
    const auto store = [&](int k) {
      const Buffer<T, Vector> out(static_cast<T*>(args.out[k]), args.count);
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        if (first + u * stride < vectors) out.store(first + u * stride, value[u]);
    };
    for (int k = 0; k < args.operands; ++k) {
      const Buffer<const T, Vector> in(static_cast<const T*>(args.in[k]), args.count);
      Vector next[kUnroll] = {};
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        if (first + u * stride < vectors) next[u] = in.load(first + u * stride);
      if (excludes && k > 0) store(k);
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        value[u] = k == 0 ? next[u] : steps::combine<Operation, T>(value[u], next[u]);
      if (!folds && !excludes) store(k);
    }
    for (int k = 0; folds && k < args.results; ++k) store(k);
  });
}

/// Neighbours by neighbouring threads. Both are aligned for Unit.
template <class Unit>
__device__ void copy(const void* from, void* to, std::size_t bytes) {
  using steps::kUnroll;
  const auto* const in = static_cast<const Unit*>(from);
  auto* const out = static_cast<Unit*>(to);
  const std::size_t units = bytes / sizeof(Unit);
  for_vectors(units, [&](std::size_t first, std::size_t stride) {
    Unit value[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (first + u * stride < units) value[u] = in[first + u * stride];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (first + u * stride < units) out[first + u * stride] = value[u];
  });
  // What is left is shorter than a unit.
  const std::size_t i = units * sizeof(Unit) + std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < bytes) static_cast<std::uint8_t*>(to)[i] = static_cast<const std::uint8_t*>(from)[i];
}

/// Blocks, one after the other, in the longest units for which both places are aligned.
template <class Byte>
__device__ void copy_all(const CombineArgs& args) {
  for (int k = 0; k < args.operands; ++k) {
    const void* const from = args.in[k];
    void* const to = args.out[k];
    const std::size_t bytes = args.counts[k];
    const std::uintptr_t bits = reinterpret_cast<std::uintptr_t>(from) | reinterpret_cast<std::uintptr_t>(to);
    if (bits % 16 == 0)
      copy<steps::Vector>(from, to, bytes);
    else if (bits % 8 == 0)
      copy<std::uint64_t>(from, to, bytes);
    else if (bits % 4 == 0)
      copy<std::uint32_t>(from, to, bytes);
    else if (bits % 2 == 0)
      copy<std::uint16_t>(from, to, bytes);
    else
      copy<Byte>(from, to, bytes);
  }
}

/// Rows that lie apart, from or to the packed buffer. Threads of a block take columns, and what is left of
/// them rows, so that neither needs a division.
template <class Unit>
__device__ void move_units(const CombineArgs& args) {
  const auto* const table = static_cast<const PackedRows*>(args.in[0]);
  char* const packed = static_cast<char*>(args.out[0]);
  const bool packs = args.how == CombineArgs::How::kPack;
  const unsigned log2_blocks = static_cast<unsigned>(args.results);
  const std::size_t shares = static_cast<std::size_t>(args.operands) << log2_blocks;
  for (std::size_t share = blockIdx.x; share < shares; share += gridDim.x) {
    const PackedRows& rows = table[share >> log2_blocks];
    const std::size_t units = rows.row_bytes / sizeof(Unit), number = rows.rows;
    unsigned log2_columns = 0;
    while (log2_columns < 9 && (std::size_t{1} << log2_columns) < units) ++log2_columns;
    const unsigned columns = 1U << log2_columns, rows_at_once = blockDim.x >> log2_columns;
    const std::size_t part = share & ((std::size_t{1} << log2_blocks) - 1);
    const std::size_t stride = std::size_t{rows_at_once} << log2_blocks;
    for (std::size_t row = part * rows_at_once + (threadIdx.x >> log2_columns); row < number; row += stride) {
      auto* const apart =
          reinterpret_cast<Unit*>(rows.first + static_cast<std::ptrdiff_t>(row) * rows.distance);
      auto* const together = reinterpret_cast<Unit*>(packed + rows.packed + row * rows.packed_distance);
      for (std::size_t i = threadIdx.x & (columns - 1); i < units; i += columns)
        packs ? together[i] = apart[i] : apart[i] = together[i];
    }
  }
}

template <class T>
__device__ void move_rows(const CombineArgs& args) {
  switch (args.count) {
    case 16:
      return move_units<steps::Vector>(args);
    case 8:
      return move_units<std::uint64_t>(args);
    case 4:
      return move_units<std::uint32_t>(args);
    case 2:
      return move_units<std::uint16_t>(args);
    default:
      return move_units<T>(args);
  }
}

/// By one thread of each block, after a barrier. Whether all other blocks have come here before: then it sees
/// what they have written.
__device__ bool is_last(Word* arrived) {
  Word before;
  asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], 1;" : "=l"(before) : "l"(arrived) : "memory");
  return before == gridDim.x - 1;
}

/// By all threads of a block, at their end. The host waits for the word, and not for the kernel: once it is
/// there, all that the kernel has written is, for everybody. (What a block has written for the next kernel
/// alone is there for it, because that one waits for this one.)
__device__ void tell_end(const LaunchWords& words) {
  if (words.ended == nullptr) return;
  __syncthreads();
  if (threadIdx.x != 0 || !is_last(words.arrived)) return;
  *words.arrived = 0;  // for the next launch, which begins when this one has ended
  steps::store_release(words.ended, words.launch);
}

template <class T>
__device__ void perform(const CombineArgs& args) {
  if constexpr (LOOM_OP == kMove) switch (args.how) {
      case CombineArgs::How::kCopies:
        copy_all<T>(args);
        return tell_end(args.words);
      case CombineArgs::How::kPack:
      case CombineArgs::How::kUnpack:
        move_rows<T>(args);
        return tell_end(args.words);
      default:
        break;
    }
  combine<T>(args);
  tell_end(args.words);
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
  const steps::Outcome outcome = steps::perform<Operation, T>(group, group.number(), args.task, channel,
                                                              args.form, {args.abandoned, args.patience});
  __syncthreads();
  for (unsigned i = threadIdx.x; i < kWords; i += blockDim.x) in_memory[i] = words[i];
  if (group.index() == 0) {
    if (outcome == steps::Outcome::kAbandoned) steps::store_release(args.failed, 1);
    if (outcome == steps::Outcome::kLeft) steps::store_release(args.left, 1);
  }
  tell_end(args.words);
}

}  // namespace
}  // namespace loom::device::cuda

// One by one, for their names. Where there is none for the type, a kernel does nothing and is never launched.
// clang-format off
#define LOOM_JOINED(kind, op, type) loom_##kind##_##op##_##type
#define LOOM_NAME(kind, op, type) LOOM_JOINED(kind, op, type)
#define LOOM_KERNELS(type)                                                                                     \
  extern "C" __global__ void __launch_bounds__(loom::device::cuda::kCombineThreads)                            \
      LOOM_NAME(combine, LOOM_OP, type)(__grid_constant__ const loom::device::cuda::CombineArgs args) {        \
    if constexpr (loom::device::cuda::has_kernel<LOOM_OP, type>)                                               \
      loom::device::cuda::perform<loom::device::cuda::TypeOf<type>>(args);                                     \
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
