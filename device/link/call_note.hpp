// call_note.hpp -- what a rank tells of the call that it is in, so that others see whether they are in the
// same one. In a correct program they always are.
#pragma once

#include <cstdint>

#include "base/error.hpp"
#include "base/format.hpp"
#include "device/call.h"

namespace loom::device {

/// What carries a call. Ranks that choose different families cannot complete a call together.
enum class CallFamily : std::uint8_t { kImmediate, kCico, kSingleCopy, kBlocks, kBetweenHosts, kTieredCico };

/// A collective, the family, and the bytes that all ranks know, in one word. Its low 8 bits are free for the
/// user of the note.
class CallNote {
 public:
  CallNote() = default;
  constexpr CallNote(Collective collective, CallFamily family, std::uint64_t bytes)
      : word_(bytes << 16 | static_cast<std::uint64_t>(static_cast<unsigned>(alike(collective)) |
                                                       static_cast<unsigned>(family) << 5)
                                << 8) {}
  constexpr CallNote(const Call& call, CallFamily family)
      : CallNote(call.collective, family, lists_blocks(call.collective) ? 0 : call.bytes()) {}
  static constexpr CallNote from_word(std::uint64_t word) {
    CallNote note;
    note.word_ = word & ~std::uint64_t{0xff};
    return note;
  }
  constexpr std::uint64_t word() const noexcept { return word_; }

  constexpr Collective collective() const noexcept { return static_cast<Collective>(word_ >> 8 & 31); }
  constexpr CallFamily family() const noexcept { return static_cast<CallFamily>(word_ >> 13 & 7); }
  constexpr std::uint64_t bytes() const noexcept { return word_ >> 16; }
  /// Collective and family.
  constexpr unsigned kind() const noexcept { return word_ >> 8 & 0xff; }
  friend constexpr bool operator==(const CallNote&, const CallNote&) = default;

 private:
  /// One name for collectives in which every rank does the same.
  static constexpr Collective alike(Collective collective) {
    switch (collective) {
      case Collective::kGatherV:
        return Collective::kGather;
      case Collective::kScatterV:
        return Collective::kScatter;
      case Collective::kAllToAllW:
        return Collective::kAllToAllV;
      default:
        return collective;
    }
  }
  static_assert(kCollectiveCount <= 32);

  std::uint64_t word_ = 0;
};

/// How far this rank is in its call: nothing is done; a first round is published, in which the receivers of a
/// broadcast do nothing else; or more.
enum class CallProgress { kNone, kFirstRound, kMore };

/// The same collective with another number of bytes. False where a call is not known: CallNote().
constexpr bool differ_in_size(const CallNote& a, const CallNote& b) {
  return a != CallNote() && b != CallNote() && a.collective() == b.collective() && a.bytes() != b.bytes();
}
/// The error of a rank that is in `mine` while another is in `its`.
constexpr ErrorCode code_of_difference(const CallNote& its, const CallNote& mine) {
  return differ_in_size(its, mine) && its.bytes() > mine.bytes() ? ErrorCode::kTruncated
                                                                 : ErrorCode::kMismatch;
}

/// A peer is in another call than this rank. kTruncated: in the same collective with more bytes; else
/// kMismatch.
class DifferentCall : public Error {
 public:
  DifferentCall(int peer, const CallNote& its, const CallNote& mine, CallProgress progress)
      : Error(code_of_difference(its, mine),
              differ_in_size(its, mine)
                  ? loom::format("Rank {} has {} bytes in a call in which this rank has {}.", peer,
                                 its.bytes(), mine.bytes())
                  : loom::format("Rank {} is in another collective call than this rank.", peer)),
        peer_(peer),
        its_(its),
        mine_(mine),
        progress_(progress) {}
  int peer() const noexcept { return peer_; }
  const CallNote& its() const noexcept { return its_; }
  const CallNote& mine() const noexcept { return mine_; }
  CallProgress progress() const noexcept { return progress_; }

 private:
  int peer_;
  CallNote its_, mine_;
  CallProgress progress_;
};

}  // namespace loom::device
