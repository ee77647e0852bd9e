// immediate_exchange.hpp -- small collectives of one host: each rank writes what others need where all can
// read it, and reads what it needs from them. One flag each way; data that fits beside it crosses with it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

#include "device/call.h"
#include "device/link/call_note.hpp"
#include "device/link/step_flag.hpp"
#include "device/link/waiter.hpp"

namespace loom::device {

/// A flag and what crosses with it, up to 56 bytes in a single line transfer. In pairs of cache lines, as
/// CPUs fetch them: else a look at one would take the next away from the rank that is about to write it.
template <class Flag>
struct ImmediateLineOf {
  static constexpr std::size_t kPayloadBytes = 2 * kCacheLine - sizeof(Flag);

  alignas(2 * kCacheLine) Flag published;  ///< of the exchange that was last offered here: see ExchangeTag
  std::byte payload[kPayloadBytes];
};
using ImmediateLine = ImmediateLineOf<StepFlag>;
static_assert(sizeof(ImmediateLine) == 2 * kCacheLine);

/// What is published of an exchange: its number in the high bits, and in the low bits the call that it is
/// part of. So a rank that takes an offer sees by the same look whether the other is in the same call with as
/// many bytes. Numbers may wrap: those that are compared are at most kLines apart.
struct ExchangeTag {
  static constexpr unsigned kBits = 24, kBitsOfCall = 20;
  static constexpr std::uint64_t kMask = (std::uint64_t{1} << kBitsOfCall) - 1;  ///< what it says of the call
  static constexpr int kMostSteps = 1 << (kBits - kBitsOfCall);
  /// In place of a collective: the rank is in a call of another family, whose note is the payload.
  static constexpr unsigned kOther = 7;

  static constexpr std::uint64_t of(Collective collective, std::size_t bytes) {
    return bytes * 8 + static_cast<std::uint64_t>(collective);
  }
  static constexpr std::uint64_t of(const CallNote& other) {
    return static_cast<std::uint64_t>(other.kind()) * 8 + kOther;
  }
  /// Of a call that takes several exchanges, each with other ranks: so a rank that is another number of
  /// exchanges ahead is not mistaken for one in the same step.
  static constexpr std::uint64_t in_step(std::uint64_t tag, int step) {
    return (tag & kMask) | static_cast<std::uint64_t>(step) << kBitsOfCall;
  }
  static constexpr bool is_other(std::uint64_t tag) { return (tag & 7) == kOther; }
  /// Not of a tag that is_other().
  static constexpr CallNote note(std::uint64_t tag) {
    return {static_cast<Collective>(tag & 7), CallFamily::kImmediate, (tag & kMask) >> 3};
  }
  /// Whether `seen`, which must not be kAbandoned, is of the exchange or of one after it.
  static constexpr bool has_come(std::uint64_t seen, std::uint64_t exchange) {
    return static_cast<std::int64_t>(seen - (exchange << kBits)) >= 0;
  }
  /// Whether `seen` is of the exchange itself.
  static constexpr bool is_of(std::uint64_t seen, std::uint64_t exchange) {
    return seen >> kBits == exchange << kBits >> kBits;
  }
};
static_assert(static_cast<unsigned>(Collective::kBarrier) < ExchangeTag::kOther);

/// One rank's offers. Exchange s is published in line s * stride % kLines, after its offer is written to that
/// line, or to the ring behind the last offer there. A rank writes to a line only when all have published
/// s - kLines + 1, and have thus left s - kLines, and to a place in the ring likewise. Where everybody reads
/// everybody, that is known without another look. Where only some read (broadcast, reduce), a sender runs
/// ahead until all lines or the whole ring are in use; then it looks at the others' flags until half of them
/// are free.
template <std::uint64_t kLinesInTurn, std::size_t kLongestOffer, std::size_t kRing, class FlagType = StepFlag>
struct ImmediateAreaOf {
  using Flag = FlagType;
  using Line = ImmediateLineOf<Flag>;
  static constexpr std::uint64_t kLines = kLinesInTurn;
  static constexpr std::size_t kMostOffered = kLongestOffer;
  /// Bytes of a whole result that is packed, as of an all-gather.
  static constexpr std::size_t kMostPackedResult = 2 * kLongestOffer;
  static constexpr std::size_t kRingBytes = kRing;
  static_assert(kLines % 2 == 0, "half of them get free at a time");
  // The space of this exchange and of the last one, with its rounding, is never still in use.
  static_assert(kRingBytes % kMostOffered == 0 && kRingBytes >= 4 * kMostOffered);

  Line line[kLines];
  alignas(2 * kCacheLine) std::byte ring[kRingBytes];
};
/// From one exchange's line to the next one's; all lines are used in turn. The next line is not the
/// neighbour, because CPUs prefetch lines that are read at any short distance, and would take them away from
/// the rank that is about to write them. Of 256 lines, those of 30 exchanges in a row are at least 7 apart.
constexpr std::uint64_t line_stride(std::uint64_t lines) {
  std::uint64_t stride = lines * 12 / 31;
  while (std::gcd(stride, lines) != 1) ++stride;
  return stride;
}

/// The product's; the tests have smaller ones, which are full sooner.
using ImmediateArea = ImmediateAreaOf<256, 16 * 1024, 8 * 16 * 1024>;

template <class Area>
class TieredExchangeOf;

/// The exchanges of one communicator whose ranks are all on one host. Not shared between threads.
template <class Area>
class ImmediateExchangeOf {
 public:
  /// areas[r] is rank r's, zeroed before any rank constructs; they must outlive this. At least two.
  /// runs_far: a sender runs ahead as far as it can, because ranks take turns on the CPUs. Its offers then
  /// lie close together, so that CPUs prefetch them; else apart, so that CPUs do not. before: so many
  /// exchanges have been, and the lines say so. Both are the same on all ranks.
  ImmediateExchangeOf(std::vector<Area*> areas, int self, bool runs_far = false, std::uint64_t before = 0);

  int size() const noexcept { return static_cast<int>(areas_.size()); }

  /// Reductions go in order of rank, so that the result is bitwise the same everywhere. offered_bytes() of
  /// the call is at most Area::kMostOffered, except of a broadcast or reduce, which then takes several
  /// exchanges. Throws what the waiter throws, Error (kGivenUp) when a rank has abandoned the communicator,
  /// and DifferentCall when a rank whose offer this one takes is in another call, or has another number of
  /// bytes. Then the exchange counts as not performed, and can be performed again. perform_part(): `call` is
  /// a part of a call of call_bytes.
  void perform(const Call& call, Waiter& waiter);
  void perform_part(const Call& call, std::size_t call_bytes, Waiter& waiter);

  /// An exchange that only says which call this rank makes by another family, so that a rank that waits for
  /// this one in an immediate call sees that it waits in vain. Of a broadcast, waits for the root to say the
  /// same. Throws as perform().
  void announce(const Call& call, CallFamily family, Waiter& waiter);
  /// To be called after a long wait: throws DifferentCall when a rank is in another call than this rank's
  /// last exchange, and Error as perform(). Ignores different broadcasts: their receivers may yet find out.
  void check_calls() const;

  /// The rank that the last call waited for when it threw.
  int awaited() const noexcept { return awaited_; }
  /// To be called before abandon(), so that others still find which call this rank has announced.
  void say_left() noexcept { left_ = exchange_; }
  void abandon() noexcept;

 private:
  friend class TieredExchangeOf<Area>;

  /// Where an exchange's offers are. A template argument, because every instruction counts in a small call.
  enum class Where { kLine, kRing };

  typename Area::Line& line_in(Area& area, std::uint64_t exchange) const {
    return area.line[exchange * stride_ % Area::kLines];
  }
  typename Area::Line& line_of(int rank, std::uint64_t exchange) const {
    return line_in(*areas_[static_cast<std::size_t>(rank)], exchange);
  }
  /// Where this exchange's offer lies in the ring.
  std::byte* place_of(int rank) const {
    return areas_[static_cast<std::size_t>(rank)]->ring + place_ % Area::kRingBytes;
  }
  /// Offers of so many bytes begin and end at multiples of this in the ring. They lie apart, because a reader
  /// of one would else prefetch the next, which is about to be written; less far apart where a sender runs
  /// ahead; and, where it should run far, only by the pairs of lines that CPUs fetch.
  std::size_t place_unit(std::size_t bytes) const {
    constexpr std::size_t kLinePair = 2 * kCacheLine, kShort = Area::kMostOffered / 4;
    if (level_ + 1 == exchange_) return Area::kMostOffered;
    if (runs_far_) return kLinePair;
    return bytes <= kShort / 2 ? std::max(kLinePair, kShort) : Area::kMostOffered;
  }
  void reserve(std::size_t bytes, Waiter& waiter);
  void offer_in_ring(const std::byte* data, std::size_t bytes);
  template <Where kWhere>
  std::uint64_t offer(const std::byte* data, std::size_t bytes, std::size_t longest, std::uint64_t tag,
                      Waiter& waiter);
  template <Where kWhere>
  void expect_next(int rank, std::uint64_t flag) const;
  template <Where kWhere>
  const std::byte* take(int rank, std::uint64_t flag, Waiter& waiter);
  void await(int rank, std::uint64_t flag, Waiter& waiter);
  [[noreturn]] void throw_different(int rank, std::uint64_t seen);
  CallNote note_in(int rank, std::uint64_t exchange, std::uint64_t flag) const;
  void await_all(std::uint64_t exchange, Waiter& waiter);
  void perform_tagged(const Call& call, std::size_t call_bytes, Waiter& waiter);
  void perform_in_ring(const Call& call, std::size_t offered, std::size_t call_bytes, Waiter& waiter);
  const std::byte* offer_of(const Call& call) const;
  const std::byte* own_operand(const Call& call, std::size_t offset) const;
  template <Where kWhere>
  void exchange(const Call& call, std::size_t offered, std::uint64_t tag, Waiter& waiter);
  template <Where kWhere>
  void reduce(const Call& call, std::size_t offset, std::uint64_t flag, Waiter& waiter);
  template <Where kWhere>
  void gather(const Call& call, std::size_t offset, std::uint64_t flag, Waiter& waiter);

  std::vector<Area*> areas_;
  Area* own_;  ///< areas_[self_]
  int self_;
  int awaited_ = 0;
  bool runs_far_;
  std::uint64_t stride_;
  std::uint64_t exchange_;
  std::uint64_t entered_;     ///< all ranks are known to have published this exchange
  std::uint64_t level_;       ///< the last one in which everybody read everybody; the same on all ranks
  std::uint64_t parted_ = 0;  ///< the last one in which a rank was seen in another call
  std::uint64_t left_ = 0;    ///< see say_left()
  std::uint64_t began_ = 0;   ///< the first one of a call of several that is not over; 0: there is none
  // Places in the ring count on from turn to turn: where this exchange's offers, or the last ones there were,
  // begin and end.
  std::uint64_t place_ = 0, end_ = 0;
  std::array<std::uint64_t, 2 * Area::kLines> end_of_{};  ///< by exchange: end_ after its offers
};
extern template class ImmediateExchangeOf<ImmediateArea>;
using ImmediateExchange = ImmediateExchangeOf<ImmediateArea>;

}  // namespace loom::device
