// direct_exchange.hpp -- the one-shot allreduce of one host: each rank puts its operand where all others read it, and
// every rank reduces all of them. One flag round trip less than any ring; n operands read by each of n ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "device/host/waiter.hpp"
#include "device/reduce.hpp"
#include "device/step_flag.hpp"

namespace loom::device {

/// One rank's operand. Flag and payload begin on one cache line: up to 56 bytes cross in a single line transfer.
struct DirectSlot {
  static constexpr std::size_t kPayloadBytes = 16 * 1024 - sizeof(StepFlag);

  alignas(kCacheLine) StepFlag published;  ///< number of the exchange whose operand the payload holds
  std::byte payload[kPayloadBytes];
};

/// Banks are used in turn. Two would suffice: a rank writes exchange s only after it has left s - 1, for which every rank
/// had published s - 1, and a rank does that only after it has read all of s - 2. With four, the line of the next exchange but
/// one can be taken back from the readers' caches while the next one runs.
struct DirectArea {
  static constexpr std::uint64_t kBanks = 4;
  DirectSlot bank[kBanks];
};

/// The exchanges of one communicator whose ranks are all on one host. Not shared between threads.
class DirectExchange {
 public:
  /// areas[r] is rank r's, zeroed before any rank constructs; they must outlive this. At least two.
  DirectExchange(std::vector<DirectArea*> areas, int self) : areas_(std::move(areas)), self_(self) {}

  /// out = op over all ranks' in, in order of rank, so that the result is bitwise the same everywhere.
  /// count * elem_bytes <= DirectSlot::kPayloadBytes; in may be out. Throws what the waiter throws, and Error
  /// (kPeerFailed) when a rank has abandoned the communicator.
  void allreduce(const std::byte* in, std::byte* out, std::size_t count, std::size_t elem_bytes, ReduceFn reduce,
                 Waiter& waiter);

  /// The rank that the last allreduce waited for when it threw.
  int awaited() const noexcept { return awaited_; }
  void abandon() noexcept;

 private:
  DirectSlot& slot_of(int rank, std::uint64_t exchange) const {
    return areas_[static_cast<std::size_t>(rank)]->bank[exchange % DirectArea::kBanks];
  }
  const std::byte* operand_of(int rank, Waiter& waiter);

  std::vector<DirectArea*> areas_;
  int self_;
  int awaited_ = 0;
  std::uint64_t exchange_ = 0;
};

}  // namespace loom::device
