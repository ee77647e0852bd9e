// cico_walk.hpp -- CICO buffers of the ranks of one host, and which tile is offered, reduced and taken in
// which round. Knows nothing of how bytes are moved (cico_executor.hpp).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "device/call.h"
#include "device/host/ring_executor.hpp"
#include "device/link/call_note.hpp"
#include "device/link/step_flag.hpp"
#include "device/schedule/exchange_schedule.hpp"

namespace loom::device {

/// What a rank tells the others of its rounds. Zeroed before any rank constructs.
struct RoundFlags {
  static constexpr std::size_t kMostBanks = 16;
  using Note = std::atomic<std::uint64_t>;

  StepFlag filled;                     ///< see Rounds
  StepFlag waits;                      ///< one more than `filled` was when the rank had been waiting for long
  Note left;                           ///< see say_left(); or 0
  std::array<Note, kMostBanks> notes;  ///< by bank; those of kFewestBanks lie in the line of `filled`
};

/// How far each rank is. A rank has a CICO buffer of b banks: in round r it writes bank r % b and reads what
/// others wrote in round r - 1; then it publishes r. In a call's last round nobody writes: nothing is
/// published, and the next call begins with a round of the same number.
///
/// A rank that writes in round r first sees that all others have published r - b + 1, and have thus read all
/// of round r - b, which lies in the same bank. A rank that reads first sees that the owners of the CICO
/// buffers it reads have published r - 1. So a rank that only writes may be some rounds ahead of the others,
/// also in the next call.
///   filled.publish(r): release  -- pairs with --  filled.value(): acquire
///
/// A note beside the bank that a rank writes first in a call says which call that is. A rank that reads from
/// it for the first time compares the note with its own call. The note is written and read under the same
/// conditions as the bank, so it stays as long. If two ranks are in different calls, and the one has not
/// written the bank that the other reads, the note is that of an earlier turn of the bank, which shows it.
class Rounds {
 public:
  static constexpr std::uint64_t kFewestBanks = 4;

  /// flags[r] are rank r's, zeroed, or with one number of rounds on all ranks that they go on from; they must
  /// outlive this. At least two.
  /// few_rounds: as few rounds as possible, because ranks outnumber CPUs and a round costs a turn of the
  /// scheduler. banks: a power of two. Both are the same on all ranks.
  Rounds(std::vector<RoundFlags*> flags, int self, bool few_rounds = false,
         std::uint64_t banks = kFewestBanks)
      : flags_(std::move(flags)),
        seen_(flags_.size()),
        self_(self),
        few_rounds_(few_rounds),
        banks_(banks),
        round_(mine().filled.value()) {}

  /// What others call the ranks, in what this throws.
  void name_ranks(std::vector<int> names) { names_ = std::move(names); }

  std::uint64_t banks() const noexcept { return banks_; }
  int size() const noexcept { return static_cast<int>(flags_.size()); }
  int self() const noexcept { return self_; }
  bool few_rounds() const noexcept { return few_rounds_; }
  void abandon() noexcept { mine().filled.publish(StepFlag::kAbandoned); }
  /// To be called before abandon(), so that others learn the reason: this rank was in that call, another was
  /// not.
  void say_left(const CallNote& note) noexcept { mine().left.store(note.word(), std::memory_order_relaxed); }
  /// From now on this rank is in that call.
  void enter(const CallNote& note) noexcept { note_ = note; }
  /// Notes the call beside the bank to write.
  void sign() noexcept {
    mine().notes[bank_to_write()].store(note_.word() | turn_of(round_ + 1), std::memory_order_relaxed);
  }
  /// In a call's second round: throws DifferentCall unless the rank has signed the bank to read, and is in
  /// the same call.
  void compare(int rank) const {
    const RoundFlags& flags = *flags_[static_cast<std::size_t>(rank)];
    const std::uint64_t note = flags.notes[bank_to_read()].load(std::memory_order_relaxed);
    if (note != (note_.word() | turn_of(round_))) [[unlikely]]
      throw_different(rank, note);
  }
  /// Tells the others that this rank has waited for long. waits(): another has, and has not moved since.
  void say_waiting() noexcept { mine().waits.publish(mine().filled.value() + 1); }
  bool waits(int rank) const noexcept {
    const RoundFlags& flags = *flags_[static_cast<std::size_t>(rank)];
    return flags.waits.value() == flags.filled.value() + 1;
  }

  /// The rank has published the round that this one published last: what it wrote then may be read. Throws
  /// Error (kGivenUp) when the rank has abandoned the communicator.
  bool is_level(int rank) { return has_published(rank, round_); }
  /// The rank has left the bank that this one writes in its current round. Implied by is_level().
  bool is_past(int rank) { return round_ + 2 <= banks_ || has_published(rank, round_ + 2 - banks_); }
  /// For a call in which every rank writes in every round: whether this rank may go on with the call's round
  /// (0, 1, ...); if not, `awaited` is a rank that it waits for. Throws as is_level() and compare().
  bool all_are_ready(std::size_t round, int& awaited);
  /// What the rank has published last; throws as is_level(), whatever was seen before. For a rank that has
  /// read a buffer of the other and leaves without another look: once that one has given up, it may have
  /// written there.
  std::uint64_t check(int rank) const;
  /// Beside all calls: throws Error (kGivenUp) when a rank has abandoned the communicator.
  void check_peers() const;
  /// Where this rank writes in its current round, and where others wrote in the round before.
  std::uint64_t bank_to_write() const noexcept { return (round_ + 1) & (banks_ - 1); }
  std::uint64_t bank_to_read() const noexcept { return round_ & (banks_ - 1); }
  /// Ends the round.
  void publish() noexcept { mine().filled.publish(++round_); }

 private:
  bool has_published(int rank, std::uint64_t round);
  /// How often a round's bank has been in use, modulo 256.
  std::uint64_t turn_of(std::uint64_t round) const { return round / banks_ & 0xff; }
  [[noreturn]] void throw_different(int rank, std::uint64_t note) const;

  int name_of(int rank) const { return names_.empty() ? rank : names_[static_cast<std::size_t>(rank)]; }
  RoundFlags& mine() const noexcept { return *flags_[static_cast<std::size_t>(self_)]; }

  std::vector<RoundFlags*> flags_;
  std::vector<std::uint64_t> seen_;  ///< by rank: what it had published when last looked at
  std::vector<int> names_;           ///< by rank; empty: the numbers that they have here
  int self_;
  bool few_rounds_;
  std::uint64_t banks_;
  std::uint64_t round_;  ///< the last one that this rank has published
  CallNote note_;        ///< of the call that this rank is in
};

/// How a message is cut. Even a part that does not fill its piece is cut into some tiles, so that reading
/// overlaps with writing, but into none so short that the round costs more than that saves.
struct TileLimits {
  std::size_t bank_bytes;
  std::size_t min_tile_bytes, min_chunk_tile_bytes;  ///< the latter where all reduce: three stages in a row
};

/// kYes: this rank, a receiver of a broadcast, has published the first round already, in which receivers do
/// nothing else.
enum class Begun { kNo, kYes };

/// One call's rounds on one rank. Round r offers tile r, reduces tile r - 1, which all have offered, and
/// takes the results of tile r - 2 (of tile r - 1 where nothing is reduced, or no result goes back).
class CicoWalk {
 public:
  using State = RingExecutor::State;

  /// The rank that a blocked executor waits for.
  int awaited() const noexcept { return awaited_; }

 protected:
  /// Takes all but barriers, scans and what lists_blocks(). count >= 1. Nothing else may use the rounds until
  /// this is done.
  CicoWalk(Rounds& rounds, const Call& call, const TileLimits& limits, Begun begun = Begun::kNo);
  ~CicoWalk() = default;
  CicoWalk(const CicoWalk&) = default;
  CicoWalk& operator=(const CicoWalk&) = delete;

  /// Bytes of a tile of a part, from the start of the message; a part is a rank's chunk or block.
  struct Range {
    std::size_t first, bytes;
  };
  Range tile_of(int part, std::size_t tile) const;
  /// What this rank takes from a peer: the tile of this part, to bytes [first, first + bytes) of the output.
  struct Taken {
    int part;
    std::size_t first, bytes;
  };
  /// Calls body(peer, taken) for each peer that this rank takes from.
  template <class Body>
  void for_each_taken(std::size_t tile, Body&& body) const {
    const int self = rounds_.self();
    if (call_.collective == Collective::kBroadcast) {
      if (self != call_.root) body(call_.root, taken_from(call_.root, tile));
      return;
    }
    if (call_.collective == Collective::kReduce && self != call_.root) return;
    for (int k = 0; k < rounds_.size() - 1; ++k) {
      const int peer = other_position(self, k);
      body(peer, taken_from(peer, tile));
    }
  }
  /// From the start of a bank to the piece of a part.
  std::size_t piece_at(int part) const {
    return one_part_ ? 0 : static_cast<std::size_t>(part) * piece_bytes_;
  }

  bool done() const noexcept { return round_ == rounds_to_do_; }
  /// The banks of this round may be read and written.
  bool ready();
  /// What is to be done in this round: on_take(tile), on_reduce(tile), on_offer(tile), in this order.
  template <class Take, class Reduce, class Offer>
  void perform(Take&& on_take, Reduce&& on_reduce, Offer&& on_offer) {
    const bool reduce = reduces();
    const std::size_t taken = chunked_ ? 2 : 1;
    if (round_ >= taken && !(reduce && taken == 1)) on_take(round_ - taken);
    if (reduce && round_ >= 1 && round_ - 1 < tiles_) on_reduce(round_ - 1);
    if (round_ < tiles_) on_offer(round_);
  }
  State end_round() {
    if (round_ == 0 && writes()) rounds_.sign();
    if (++round_ == rounds_to_do_) return State::kDone;  // nothing was written; see Rounds
    rounds_.publish();
    return State::kMoved;
  }

  /// Whether this rank reduces: its part, or everything as the root.
  bool reduces() const {
    const bool whole = call_.collective == Collective::kReduce && one_part_;
    return chunked_ || scatters() || (whole && rounds_.self() == call_.root);
  }
  bool scatters() const { return scatters_result(call_.collective); }

  Rounds& rounds_;
  Call call_;
  bool chunked_;            ///< every rank reduces a chunk of the message
  bool one_part_;           ///< a bank holds one piece for everybody rather than one for each rank
  std::size_t tile_bytes_;  ///< of a part, processed in one round

 private:
  bool reads_from(int rank) const;
  bool writes() const;
  std::size_t longest_part() const;
  Taken taken_from(int peer, std::size_t tile) const;

  std::size_t piece_bytes_;  ///< room for a piece in a bank
  std::size_t tiles_;
  std::size_t rounds_to_do_;
  std::size_t round_ = 0;
  int awaited_ = 0;
};

}  // namespace loom::device
