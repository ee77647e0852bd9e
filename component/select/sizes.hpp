// sizes.hpp -- the sizes that the limits (limits.cpp) and the costs (costs.cpp) of the algorithms depend on.
// bytes: device::shared_bytes(), of the message or of a block.
#pragma once

#include <bit>
#include <cstddef>

#include "component/select/algorithms.hpp"

namespace loom::sizes {

inline constexpr std::size_t kKiB = 1024, kMiB = 1024 * 1024;

/// What a host could send while a step waits for its data: 1.5 us at 100 Gbit/s, 0.13 ms at 1 Gbit/s.
inline constexpr std::size_t kBytesPerStep = 16 * kKiB;

/// Of the bytes that a rank receives. While buffers are in the peers' caches one copy is faster than two.
/// Beyond, the kernel's copy is slower than one that bypasses the caches (2 cores with 2 MiB of L2 cache
/// each, loom_bench of each collective with coll_loom_single_copy 0 and 1).
inline constexpr std::size_t kMostSingleCopyBytes = 32 * kMiB;
/// The same for a broadcast, whose two copies are made by two ranks at once.
inline constexpr std::size_t kMostSingleCopyBroadcast = 128 * kKiB;

/// Bytes that a rank offers to the others.
inline std::size_t offered(const Conditions& conditions, device::Collective collective, std::size_t bytes) {
  return device::offered_bytes(collective, bytes, conditions.shape.ranks);
}
inline std::size_t received(const Conditions& conditions, device::Collective collective, std::size_t bytes) {
  const std::size_t all = offered(conditions, collective, bytes);
  return collective == device::Collective::kAllGather ? all * static_cast<std::size_t>(conditions.shape.ranks)
                                                      : all;
}
/// All blocks together.
inline std::size_t whole(const Conditions& conditions, device::Collective collective, std::size_t bytes) {
  return whole_message(collective, conditions.shape.ranks, bytes);
}

/// One rank reads all of what another offers.
inline bool rooted_between_two(device::Collective collective, int ranks) {
  return collective == device::Collective::kBroadcast ||
         (collective == device::Collective::kReduce && ranks == 2);
}

/// Of a tree over the hosts.
inline std::size_t depth_of(const connect::Shape& shape) {
  return static_cast<std::size_t>(std::bit_width(static_cast<std::size_t>(shape.hosts) - 1));
}
/// The flat ring, where hosts differ, goes round all ranks.
inline std::size_t ring_size(const connect::Shape& shape) {
  return static_cast<std::size_t>(shape.ranks_per_host > 0 ? shape.hosts : shape.ranks);
}

}  // namespace loom::sizes
