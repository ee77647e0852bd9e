// lane_exchange.hpp -- small collectives of one host for one persistent request, which has memory of its own
// on every rank, its lane. Each rank writes what others need into slots of its lane, and reads what it needs
// from theirs: one flag each way. Resumable: it never waits.
//
// Reductions go in order of rank, as everywhere on one host: the same bits.
#pragma once

#include <cstdint>
#include <vector>

#include "device/call.h"
#include "device/host/ring_executor.hpp"
#include "device/link/step_flag.hpp"

namespace loom::device {

/// The slots of a request. The same on all ranks.
struct LaneSlots {
  std::size_t piece_bytes = 0;  ///< the most that crosses in one slot
  std::uint64_t count = 0;

  /// For calls of this size: what an immediate exchange carries. bytes: shared_bytes().
  static LaneSlots of(Collective collective, std::size_t bytes, int ranks);
  std::size_t stride() const noexcept;
  /// Of the lane, a multiple of 2 * kCacheLine.
  std::size_t bytes() const noexcept;
};

/// The exchanges of one request, one after the other. Exchange e is published in slot e % count, after its
/// data are written there.
///   flag.publish(e): release  -- pairs with --  flag.value(): acquire
///
/// A slot is written again only when all have read it. Where everybody reads everybody, two slots suffice and
/// no look is needed: a rank that is in exchange e has seen all others in e - 1, so they have left e - 2.
/// Where only some read (broadcast, reduce), these publish what they have taken, and a sender runs ahead
/// until all slots are in use.
class LaneExchange {
 public:
  /// lanes[r] is rank r's memory, zeroed before any rank calls anything; aligned to cache lines. At least
  /// two.
  LaneExchange(std::vector<std::byte*> lanes, int self, const LaneSlots& slots)
      : lanes_(std::move(lanes)), self_(self), slots_(slots), stride_(slots.stride()) {}

  int size() const noexcept { return static_cast<int>(lanes_.size()); }
  int self() const noexcept { return self_; }
  std::size_t piece_bytes() const noexcept { return slots_.piece_bytes; }

  /// Of the exchange that is under way.
  std::byte* to_write() const noexcept { return payload(self_); }
  /// nullptr: the rank has not published yet. Throws Error (kGivenUp).
  const std::byte* to_read(int rank) const {
    return value_of(flag(rank), rank) >= exchange_ ? payload(rank) : nullptr;
  }
  void publish() noexcept { flag(self_).publish(exchange_); }
  /// The exchange is over for this rank.
  void advance() noexcept { ++exchange_; }
  /// This rank has read what it needs of the exchange.
  void take() noexcept { taken(self_).publish(exchange_); }
  /// Whether the slot may be written: `root`, or all ranks but that one, have taken what was there. If not,
  /// `awaited` is one that has not. Throws as to_read().
  bool has_room(bool for_root, int root, int& awaited);

  void abandon() noexcept;

 private:
  StepFlag& taken(int rank) const noexcept {
    return *reinterpret_cast<StepFlag*>(lanes_[static_cast<std::size_t>(rank)]);
  }
  std::byte* slot(int rank, std::uint64_t which) const noexcept {
    return lanes_[static_cast<std::size_t>(rank)] + 2 * kCacheLine + which * stride_;
  }
  StepFlag& flag(int rank) const noexcept {
    return *reinterpret_cast<StepFlag*>(slot(rank, exchange_ % slots_.count));
  }
  std::byte* payload(int rank) const noexcept {
    return slot(rank, exchange_ % slots_.count) + sizeof(StepFlag);
  }
  static std::uint64_t value_of(const StepFlag& flag, int rank);

  std::vector<std::byte*> lanes_;
  int self_;
  LaneSlots slots_;
  std::size_t stride_;
  std::uint64_t exchange_ = 1;  ///< under way, or the next one
  std::uint64_t taken_ = 0;     ///< by all who read what this rank writes, when last looked at
};

/// A call of the request.
class LaneExchangeExecutor {
 public:
  using State = RingExecutor::State;
  /// call: of the size that the slots are for.
  LaneExchangeExecutor(LaneExchange& lane, const Call& call);

  /// Goes as far as it can. Throws Error (kGivenUp).
  State advance();
  int awaited() const noexcept { return awaited_; }

 private:
  bool sends() const noexcept;
  bool is_rooted() const noexcept {
    return call_.collective == Collective::kBroadcast || call_.collective == Collective::kReduce;
  }
  bool offer();
  void write(std::byte* to);
  bool take_all();
  bool reduce(std::size_t offset, std::size_t bytes, std::byte* out);
  bool gather(std::size_t offset);
  bool see_all();
  void put(int block, std::byte* to, const std::byte* from, std::size_t bytes) const;
  const std::byte* operand(int rank, std::size_t offset);

  LaneExchange& lane_;
  Call call_;
  std::size_t at_ = 0;  ///< bytes of the message in pieces before
  bool offered_ = false;
  int next_ = 0;  ///< the rank whose data are next
  const std::byte* first_ = nullptr;
  int awaited_ = 0;
};

}  // namespace loom::device
