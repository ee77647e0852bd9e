// board_executor.hpp -- collectives of one host, for messages larger than a DirectExchange takes: every rank
// has a board that all others read. Performs the direct schedules (two-shot all-reduce, direct
// reduce-scatter, all-gather, broadcast, and pairwise all-to-all) tile by tile, in rounds. Resumable: it
// never waits.
//
// Reductions go in order of rank: the result depends on the operands alone, not on their number, their sizes
// or their place.
#pragma once

#include <cstdint>
#include <vector>

#include "device/host/host_job.hpp"
#include "device/host/ring_executor.hpp"
#include "device/step_flag.hpp"

namespace loom::device {

/// One rank's. In round r its owner writes bank r % kBanks and reads what others wrote in round r - 1; then
/// it publishes r. In a call's last round nobody writes: nothing is published, and the next call begins with
/// a round of the same number.
///
/// Who writes in round r first sees that everybody has published r - kBanks + 1, and has thus read all of
/// round r - kBanks, which lies in the same bank. Who reads first sees that those whose boards it reads have
/// published r - 1. So a rank that only writes for others may be some rounds ahead of them, through the end
/// of a call and into the next.
///   filled.publish(r): release  -- pairs with --  filled.value(): acquire
struct Board {
  static constexpr std::uint64_t kBanks = 4;
  static constexpr std::size_t kBankBytes =
      128 * 1024;  // all stay in an L2 cache of 1 MiB, beside what goes through

  alignas(kCacheLine) StepFlag filled;
  alignas(kCacheLine) std::byte bank[kBanks][kBankBytes];
};

/// The boards of one communicator whose ranks are all on one host.
class Boards {
 public:
  /// boards[r] is rank r's, zeroed before any rank constructs; they must outlive this. At least two.
  /// few_rounds: as few as can be, for ranks outnumber CPUs, and a round costs a turn of the scheduler. The
  /// same on all ranks.
  Boards(std::vector<Board*> boards, int self, bool few_rounds = false)
      : boards_(std::move(boards)), seen_(boards_.size()), self_(self), few_rounds_(few_rounds) {}

  int size() const noexcept { return static_cast<int>(boards_.size()); }
  int self() const noexcept { return self_; }
  bool few_rounds() const noexcept { return few_rounds_; }
  void abandon() noexcept { mine().filled.publish(StepFlag::kAbandoned); }

  /// The rank has published the round that this one published last: what it wrote then may be read. Throws
  /// Error (kGivenUp) when the rank has abandoned the communicator.
  bool is_level(int rank) { return has_published(rank, round_); }
  /// The rank has left the bank that this one writes in the round that it is in. Implied by is_level().
  bool is_past(int rank) {
    return round_ + 2 <= Board::kBanks || has_published(rank, round_ + 2 - Board::kBanks);
  }
  /// Where this rank writes in the round that it is in, and what another wrote in the one before.
  std::byte* to_write() const { return mine().bank[(round_ + 1) % Board::kBanks]; }
  const std::byte* to_read(int rank) const {
    return boards_[static_cast<std::size_t>(rank)]->bank[round_ % Board::kBanks];
  }
  /// Ends the round.
  void publish() noexcept { mine().filled.publish(++round_); }

 private:
  bool has_published(int rank, std::uint64_t round);
  Board& mine() const { return *boards_[static_cast<std::size_t>(self_)]; }

  std::vector<Board*> boards_;
  std::vector<std::uint64_t> seen_;  ///< by rank: what it had published when last looked at
  int self_;
  bool few_rounds_;
  std::uint64_t round_ = 0;  ///< the last one that this rank has published
};

class BoardExecutor {
 public:
  /// Takes all but barriers, scans and what lists_blocks(). count >= 1. Nothing else may use the boards until
  /// this is done.
  BoardExecutor(Boards& boards, const HostJob& job);

  using State = RingExecutor::State;
  /// Performs one round unless it must wait.
  State advance();
  /// Whom a blocked executor waits for.
  int awaited() const noexcept { return awaited_; }

 private:
  struct Range {
    std::size_t first, bytes;
  };
  bool ready();
  bool reads_from(int rank) const;
  bool writes() const;
  void perform();
  void offer(std::size_t tile);
  void reduce_own(std::size_t tile);
  void take(std::size_t tile);
  Range tile_of(int part, std::size_t tile) const;
  std::size_t longest_part() const;
  std::size_t block_bytes(const std::byte* out, std::size_t at) const;
  bool reduces() const;
  bool scatters() const;
  void read(int block, std::size_t first, std::byte* to, std::size_t bytes) const;
  void write(int block, std::size_t first, const std::byte* from, std::size_t bytes) const;
  void keep(const Range& own) const;
  std::byte* piece(int part) const;
  const std::byte* piece_of(int rank, int part) const;
  void copy_out(std::byte* to, const std::byte* from, std::size_t bytes) const;

  Boards& boards_;
  HostJob job_;
  bool chunked_;             ///< every rank reduces a chunk of the message
  bool one_part_;            ///< a bank holds one piece for everybody rather than one for each rank
  bool streams_;             ///< the output is too large to stay in a cache
  std::size_t piece_bytes_;  ///< room for a piece in a bank
  std::size_t tile_bytes_;   ///< of a part, worked off in one round
  std::size_t tiles_;
  std::size_t rounds_;
  std::size_t round_ = 0;
  int awaited_ = 0;
};

}  // namespace loom::device
