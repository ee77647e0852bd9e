// shared_layout.hpp -- the form of what ranks share: FIFOs, whose slots both ends count, and segments. Equal
// on all ranks.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "device/host/cico_executor.hpp"
#include "device/host/immediate_exchange.hpp"
#include "device/link/shared_fifo.hpp"

namespace loom {

// Half a MiB, so that a slice is still in the receiver's reach of the sender's L2 cache when it is taken.
inline constexpr device::FifoShape kSharedFifo{.slot_bytes = 64 * 1024, .slot_count = 8};
// Enough in flight for 100 Gbit/s at 20 us; short enough slots that a ring of few hosts is a pipeline.
inline constexpr device::FifoShape kNetFifo{
    .slot_bytes = 63 * 1024, .slot_count = 16, .releases_per_credit = 4};
// Between the node leaders: short messages, of which a root may be some calls ahead before the first credit
// is back, and medium ones, below 512 KiB: from three hosts on each leader sends a share to each other. At
// most 8 MiB for the links of one rank.
constexpr device::FifoShape leader_fifo(int hosts) {
  const std::size_t slots = hosts <= 5 ? 32 : hosts <= 9 ? 16 : 8;
  return {.slot_bytes = (hosts <= 3 ? 63 : 32) * std::size_t{1024},
          .slot_count = slots,
          .releases_per_credit = slots / 4,
          .bytes_per_credit = 32 * 1024};
}
/// With no more than this untaken a call between them may end: sockets hold it, and the last releases may
/// stay untold.
constexpr std::size_t most_untaken(const device::FifoShape& leader_fifo) {
  return leader_fifo.slot_count / 4 * 3;
}
inline constexpr std::size_t kMostUntakenBytes = 64 * 1024;
// What the receiver leaves untold must not keep a call from ending.
static_assert([] {
  for (int hosts = 2; hosts <= 17; ++hosts) {
    const device::FifoShape fifo = leader_fifo(hosts);
    if (most_untaken(fifo) < fifo.releases_per_credit || kMostUntakenBytes < fifo.bytes_per_credit)
      return false;
  }
  return true;
}());

// Along the trees over hosts, for medium messages: two ways to up to four hosts. At most 4 MiB.
inline constexpr device::FifoShape kTreeFifo{
    .slot_bytes = 63 * 1024, .slot_count = 8, .releases_per_credit = 4};

// Between any two ranks of different hosts, for all-to-alls: many peers share the network.
inline constexpr device::FifoShape kPairwiseFifo{.slot_bytes = 63 * 1024, .slot_count = 4};

/// Longest wait for the first data through the network, while every rank is known to be in the set-up.
inline constexpr double kNetworkTrialSeconds = 20;

/// A rank's segment: its CICO buffer, and then its immediate area where all ranks are on one host, else the
/// FIFO from its local predecessor.
inline constexpr std::size_t kOneHostBytes = sizeof(device::CicoBuffer) + sizeof(device::ImmediateArea);
inline constexpr std::size_t kOneOfHostsBytes =
    sizeof(device::CicoBuffer) + device::shared_fifo_bytes(kSharedFifo);
static_assert(sizeof(device::CicoBuffer) % device::kCacheLine == 0);

/// On one of several hosts messages are mostly short, and a rank that only sends should get far ahead. As
/// long as 4 KiB for each rank fit into a bank, for what is longer takes a round for each bank.
constexpr std::uint64_t banks_of_hosts(int ranks_here) {
  const std::size_t room = device::CicoBuffer::kBytes / (4096 * static_cast<std::size_t>(ranks_here));
  return std::clamp<std::uint64_t>(std::bit_floor(room), device::CicoBuffer::kBanks, 16);
}

}  // namespace loom
