// host_job.hpp -- one collective call on host memory, as the executors of one host see it.
#pragma once

#include <cstddef>

#include "device/reduce.hpp"

namespace loom::device {

enum class Collective { kAllreduce, kReduce, kReduceScatter, kBroadcast, kAllGather, kAllToAll, kBarrier };

/// All ranks give the same collective, count, elem_bytes, reduce and root. n: ranks.
///
///   collective       in                     out                    count
///   kAllreduce       count                  count                  elements of the message
///   kReduce          count                  count, at the root     elements of the message
///   kBroadcast       count, at the root     count, elsewhere       elements of the message
///   kReduceScatter   n * count              count                  elements of a block
///   kAllGather       count                  n * count              elements of a block
///   kAllToAll        n * count              n * count              elements of a block
///   kBarrier         --                     --                     0
///
/// `in` may be `out`, and for an all-gather this rank's block of `out`.
struct HostJob {
  Collective collective = Collective::kBarrier;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t count = 0;
  std::size_t elem_bytes = 1;
  ReduceFn reduce = nullptr;
  int root = 0;

  std::size_t bytes() const noexcept { return count * elem_bytes; }
};

/// Bytes that the busiest rank lays out for the others in such a call, at the most.
constexpr std::size_t offered_bytes(Collective collective, std::size_t bytes, int ranks) {
  const bool blocks = collective == Collective::kReduceScatter || collective == Collective::kAllToAll;
  return blocks ? bytes * static_cast<std::size_t>(ranks) : bytes;
}

}  // namespace loom::device
