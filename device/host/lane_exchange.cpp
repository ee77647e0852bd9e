#include "device/host/lane_exchange.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "base/format.hpp"

namespace loom::device {
namespace {

// In pairs of cache lines, as CPUs fetch them.
constexpr std::size_t kLinePair = 2 * kCacheLine;
// Of a broadcast and a reduce. A sender runs ahead as far as there is room, as it does with messages.
constexpr std::size_t kMostPieceBytes = 8 * 1024, kRoomBytes = 32 * 1024;
constexpr std::uint64_t kFewestSlots = 4, kMostSlots = 16;

constexpr bool goes_one_way(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kReduce;
}

}  // namespace

LaneSlots LaneSlots::of(Collective collective, std::size_t bytes, int ranks) {
  LaneSlots slots;
  slots.piece_bytes = offered_bytes(collective, bytes, ranks);
  slots.count = 2;
  if (!goes_one_way(collective)) return slots;
  slots.piece_bytes = std::min(slots.piece_bytes, kMostPieceBytes);
  slots.count = std::clamp<std::uint64_t>(kRoomBytes / slots.stride(), kFewestSlots, kMostSlots);
  return slots;
}

std::size_t LaneSlots::stride() const noexcept {
  return (sizeof(StepFlag) + piece_bytes + kLinePair - 1) / kLinePair * kLinePair;
}

std::size_t LaneSlots::bytes() const noexcept {
  return kLinePair + static_cast<std::size_t>(count) * stride();
}

std::uint64_t LaneExchange::value_of(const StepFlag& flag, int rank) {
  const std::uint64_t value = flag.value();
  if (value == StepFlag::kAbandoned) [[unlikely]]
    throw Error(ErrorCode::kGivenUp, loom::format("Rank {} gave up on this communicator.", rank));
  return value;
}

bool LaneExchange::has_room(bool for_root, int root, int& awaited) {
  const auto is_free = [&] { return exchange_ <= taken_ + slots_.count; };
  if (is_free()) return true;
  std::uint64_t least = exchange_;
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == self_ || (for_root && rank != root)) continue;
    const std::uint64_t value = value_of(taken(rank), rank);
    if (value >= least) continue;
    least = value;
    awaited = rank;
  }
  taken_ = least;
  return is_free();
}

void LaneExchange::abandon() noexcept {
  taken(self_).publish(StepFlag::kAbandoned);
  for (std::uint64_t which = 0; which < slots_.count; ++which)
    reinterpret_cast<StepFlag*>(slot(self_, which))->publish(StepFlag::kAbandoned);
}

LaneExchangeExecutor::LaneExchangeExecutor(LaneExchange& lane, const Call& call) : lane_(lane), call_(call) {}

bool LaneExchangeExecutor::sends() const noexcept {
  if (call_.collective == Collective::kBroadcast) return lane_.self() == call_.root;
  return call_.collective != Collective::kReduce || lane_.self() != call_.root;
}

LaneExchangeExecutor::State LaneExchangeExecutor::advance() {
  for (;;) {
    if (!offered_ && !offer()) return State::kBlocked;
    if (!take_all()) return State::kBlocked;
    lane_.advance();
    at_ += lane_.piece_bytes();
    if (!is_rooted() || at_ >= call_.bytes()) return State::kDone;
    offered_ = false;
    next_ = 0;
  }
}

/// My operand of the piece. In place, the root of a reduce keeps it in its slot where the partial result
/// overwrites it before its turn.
bool LaneExchangeExecutor::offer() {
  if (sends()) {
    if (is_rooted() && !lane_.has_room(call_.collective == Collective::kReduce, call_.root, awaited_))
      return false;
    write(lane_.to_write());
    lane_.publish();
  } else if (call_.collective == Collective::kReduce && call_.in == call_.out) {
    write(lane_.to_write());
  }
  offered_ = true;
  return true;
}

void LaneExchangeExecutor::write(std::byte* to) {
  const bool listed = call_.collective == Collective::kAllToAll;
  if (call_.in_packer != nullptr) {
    for (int block = 0; block < (listed ? lane_.size() : 1); ++block) {
      const std::size_t bytes = std::min(lane_.piece_bytes(), call_.bytes() - at_);
      call_.in_packer->move(call_.in_packer->context, block, to + static_cast<std::size_t>(block) * bytes,
                            bytes);
    }
    return;
  }
  const std::size_t offered = offered_bytes(call_.collective, call_.bytes(), lane_.size());
  if (offered > 0) std::memcpy(to, call_.in + at_, std::min(lane_.piece_bytes(), offered - at_));
}

/// True: this rank has all that it needs of the piece.
bool LaneExchangeExecutor::take_all() {
  const std::size_t mine = static_cast<std::size_t>(lane_.self()) * call_.bytes();
  const std::size_t piece = std::min(lane_.piece_bytes(), call_.bytes() - std::min(at_, call_.bytes()));
  switch (call_.collective) {
    case Collective::kAllreduce:
      return reduce(0, call_.bytes(), call_.out);
    case Collective::kReduceScatter:
      return reduce(mine, call_.bytes(), call_.out);
    case Collective::kReduce:
      if (sends()) return true;
      if (!reduce(0, piece, call_.out + at_)) return false;
      lane_.take();
      return true;
    case Collective::kBroadcast: {
      if (sends()) return true;
      const std::byte* const from = operand(call_.root, 0);
      if (from == nullptr) return false;
      put(0, call_.out + at_, from, piece);
      lane_.take();
      return true;
    }
    case Collective::kAllGather:
      return gather(0);
    case Collective::kAllToAll:
      return gather(mine);
    default:
      return see_all();
  }
}

/// nullptr: not there yet.
const std::byte* LaneExchangeExecutor::operand(int rank, std::size_t offset) {
  const bool kept = sends() || call_.in == call_.out;
  if (rank == lane_.self()) return (kept ? lane_.to_write() : call_.in + at_) + offset;
  awaited_ = rank;
  const std::byte* const there = lane_.to_read(rank);
  return there == nullptr ? nullptr : there + offset;
}

bool LaneExchangeExecutor::reduce(std::size_t offset, std::size_t bytes, std::byte* out) {
  const ReduceFn apply = call_.reduce();
  for (; next_ < lane_.size(); ++next_) {
    const std::byte* const from = operand(next_, offset);
    if (from == nullptr) return false;
    if (next_ == 0)
      first_ = from;
    else
      apply(out, next_ == 1 ? first_ : out, from, bytes / call_.elem_bytes());
  }
  return true;
}

bool LaneExchangeExecutor::gather(std::size_t offset) {
  for (; next_ < lane_.size(); ++next_) {
    const std::byte* const from = operand(next_, offset);
    if (from == nullptr) return false;
    // A packer takes blocks by number, and there may be no buffer.
    std::byte* const to =
        call_.out_packer == nullptr ? call_.out + static_cast<std::size_t>(next_) * call_.bytes() : nullptr;
    put(next_, to, from, call_.bytes());
  }
  return true;
}

bool LaneExchangeExecutor::see_all() {
  for (; next_ < lane_.size(); ++next_)
    if (operand(next_, 0) == nullptr) return false;
  return true;
}

void LaneExchangeExecutor::put(int block, std::byte* to, const std::byte* from, std::size_t bytes) const {
  if (call_.out_packer != nullptr)
    call_.out_packer->move(call_.out_packer->context, block, const_cast<std::byte*>(from), bytes);
  else
    std::memcpy(to, from, bytes);
}

}  // namespace loom::device
