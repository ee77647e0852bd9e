// direct_exchange.hpp -- small collectives of one host: each rank puts what others need where all of them
// read it, and takes what it needs from them. One flag each way, the payload in the flag's own cache line as
// far as it fits.
#pragma once

#include <cstdint>
#include <vector>

#include "device/host/host_job.hpp"
#include "device/host/waiter.hpp"
#include "device/step_flag.hpp"

namespace loom::device {

/// One rank's offer. Flag and payload begin on one cache line: up to 56 bytes cross in a single line
/// transfer.
struct DirectSlot {
  static constexpr std::size_t kPayloadBytes = 16 * 1024 - sizeof(StepFlag);

  alignas(kCacheLine) StepFlag published;  ///< number of the exchange whose offer the payload holds
  std::byte payload[kPayloadBytes];
};

/// Banks are used in turn. A rank writes exchange s only when all have published s - kBanks + 1, and have
/// thus left s - kBanks, which lies in the same bank. Where everybody reads everybody that is known without
/// another look; where only some do (broadcast, reduce), the others' flags are looked at once in kBanks / 2
/// exchanges.
struct DirectArea {
  static constexpr std::uint64_t kBanks = 8;
  DirectSlot bank[kBanks];
};

/// The exchanges of one communicator whose ranks are all on one host. Not shared between threads.
class DirectExchange {
 public:
  /// areas[r] is rank r's, zeroed before any rank constructs; they must outlive this. At least two.
  DirectExchange(std::vector<DirectArea*> areas, int self) : areas_(std::move(areas)), self_(self) {}

  int size() const noexcept { return static_cast<int>(areas_.size()); }

  /// Reductions go in order of rank, so that the result is bitwise the same everywhere. offered_bytes() of
  /// the job is at most DirectSlot::kPayloadBytes. Throws what the waiter throws, and Error (kGivenUp)
  /// when a rank has abandoned the communicator.
  void perform(const HostJob& job, Waiter& waiter);

  /// The rank that the last job waited for when it threw.
  int awaited() const noexcept { return awaited_; }
  void abandon() noexcept;

 private:
  DirectSlot& slot_of(int rank, std::uint64_t exchange) const {
    return areas_[static_cast<std::size_t>(rank)]->bank[exchange % DirectArea::kBanks];
  }
  void offer(const std::byte* data, std::size_t bytes, Waiter& waiter);
  const std::byte* await(int rank, std::uint64_t exchange, Waiter& waiter);
  void await_bank(Waiter& waiter);
  void reduce(const HostJob& job, std::size_t offset, Waiter& waiter);
  void gather(const HostJob& job, std::size_t offset, Waiter& waiter);
  void everybody_has_published(std::size_t bytes) noexcept;

  std::vector<DirectArea*> areas_;
  int self_;
  int awaited_ = 0;
  std::uint64_t exchange_ = 0;
  std::uint64_t entered_ = 0;  ///< all ranks are known to have published this exchange
};

}  // namespace loom::device
