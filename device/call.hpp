// call.hpp -- one collective call on host memory, as the executors of one host see it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/host/streaming.hpp"
#include "device/reduce/reduce.hpp"

namespace loom::device {

enum class Collective {
  kAllreduce,
  kReduce,
  kReduceScatter,
  kBroadcast,
  kAllGather,
  kAllToAll,
  kBarrier,
  kReduceScatterV,
  kScan,
  kExscan,
  kGather,
  kGatherV,
  kScatter,
  kScatterV,
  kAllGatherV,
  kAllToAllV,
  kAllToAllW
};
inline constexpr std::size_t kCollectiveCount = static_cast<std::size_t>(Collective::kAllToAllW) + 1;

/// Those whose blocks are listed one by one: Call::in_blocks and out_blocks.
constexpr bool lists_blocks(Collective collective) {
  return collective >= Collective::kGather;
}
constexpr bool is_reduction(Collective collective) {
  return collective <= Collective::kReduceScatter || collective == Collective::kReduceScatterV ||
         collective == Collective::kScan || collective == Collective::kExscan;
}
/// Each rank's result is its part of the message.
constexpr bool scatters_result(Collective collective) {
  return collective == Collective::kReduceScatter || collective == Collective::kReduceScatterV;
}

/// A block of bytes; without `data` where the buffer is not contiguous.
struct Block {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

/// A buffer that is not contiguous, and whose layout only its owner knows.
struct Packer {
  /// Packs the next `bytes` of a block to `packed`, or unpacks them from there: each block from its first
  /// byte to its last, in as many steps as it takes. Never throws.
  void (*move)(void* context, int block, std::byte* packed, std::size_t bytes) = nullptr;
  void* context = nullptr;
};

/// All ranks give the same collective, count, elem_bytes, reduce, bounds and root. n: ranks.
///
///   collective       in                     out                    count
///   kAllreduce       count                  count                  elements of the message
///   kReduce          count                  count, at the root     elements of the message
///   kBroadcast       count, at the root     count, elsewhere       elements of the message
///   kReduceScatter   n * count              count                  elements of a block
///   kReduceScatterV  bounds[n]              own part               elements of all parts
///   kScan, kExscan   count                  count                  elements of the message
///   kAllGather       count                  n * count              elements of a block
///   kAllToAll        n * count              n * count              elements of a block
///   kBarrier         --                     --                     0
///
/// `in` may be `out`, and for an all-gather this rank's block of `out`.
///
/// And of those that list their blocks (count: all bytes of in_blocks):
///
///   collective            in_blocks         out_blocks
///   kGather, kGatherV     1                 n, at the root
///   kScatter, kScatterV   n, at the root    1
///   kAllGatherV           1                 n
///   kAllToAllV, W         n                 n
///
/// What rank a sends to rank b has as many bytes as what b receives from a; nobody else need know how many.
struct Call {
  Collective collective = Collective::kBarrier;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t count = 0;
  std::size_t elem_bytes = 1;
  ReduceFn reduce = nullptr;
  int root = 0;
  const Packer* in_packer =
      nullptr;  ///< the operand is not contiguous, and `in` or the blocks' data are nothing
  const Packer* out_packer = nullptr;
  const Block* in_blocks = nullptr;
  const Block* out_blocks = nullptr;
  bool owns_its_block = false;  ///< what this rank would send itself is in its place already (with blocks)
  const std::uint64_t* bounds =
      nullptr;  ///< kReduceScatterV: rank r's part is elements [bounds[r], bounds[r + 1])
  /// Of a buffer that is contiguous whose bytes come and go during the call; only executors of CICO buffers
  /// and of grids of ranks look at it.
  Streaming* streaming = nullptr;

  std::size_t bytes() const noexcept { return count * elem_bytes; }
};

/// What all ranks know of the size of a call: the bytes of its message, or of a block where it has blocks; of
/// an all-gather of listed blocks, of all of them. 0 of other calls with listed blocks.
constexpr std::size_t shared_bytes(const Call& call, int ranks) {
  if (!lists_blocks(call.collective)) return call.bytes();
  std::size_t bytes = 0;
  for (int rank = 0; rank < ranks && call.collective == Collective::kAllGatherV; ++rank)
    bytes += call.out_blocks[rank].bytes;
  return bytes;
}

/// Bytes that the busiest rank lays out for the others in such a call, at the most.
constexpr std::size_t offered_bytes(Collective collective, std::size_t bytes, int ranks) {
  const bool blocks = collective == Collective::kReduceScatter || collective == Collective::kAllToAll;
  return blocks ? bytes * static_cast<std::size_t>(ranks) : bytes;
}

}  // namespace loom::device
