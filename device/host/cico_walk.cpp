#include "device/host/cico_walk.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"
#include "device/schedule/divide_up.hpp"

namespace loom::device {
namespace {

constexpr std::size_t kTilesPerPart = 4;

// With more ranks there are likely enough CPUs that one of them should not reduce for all.
constexpr int kMostRanksOfWholeOperands = 8;

/// Whether the root of a reduce takes whole operands. Two ranks then move fewer bytes together. A few ranks
/// that take turns on the CPUs do so for messages that they can offer without waiting: then only the root
/// waits.
bool has_whole_operands(const Rounds& rounds, const Call& call, std::size_t bank_bytes) {
  if (rounds.size() == 2) return true;
  return rounds.few_rounds() && rounds.size() <= kMostRanksOfWholeOperands &&
         call.bytes() <= (rounds.banks() - 1) * bank_bytes;
}
/// Every rank reduces a chunk of the message.
bool has_chunks(const Rounds& rounds, const Call& call, std::size_t bank_bytes) {
  return call.collective == Collective::kAllreduce ||
         (call.collective == Collective::kReduce && !has_whole_operands(rounds, call, bank_bytes));
}
bool is_one_part(const Rounds& rounds, const Call& call, std::size_t bank_bytes) {
  return call.collective == Collective::kAllGather || call.collective == Collective::kBroadcast ||
         (call.collective == Collective::kReduce && has_whole_operands(rounds, call, bank_bytes));
}

}  // namespace

bool Rounds::has_published(int rank, std::uint64_t round) {
  std::uint64_t& seen = seen_[static_cast<std::size_t>(rank)];
  if (seen >= round) return true;
  seen = check(rank);
  return seen >= round;
}

bool Rounds::all_are_ready(std::size_t round, int& awaited) {
  for (int k = 0; k < size() - 1; ++k) {
    awaited = other_position(self_, k);
    if (!(round == 0 ? is_past(awaited) : is_level(awaited))) return false;
    if (round == 1) compare(awaited);
  }
  return true;
}

std::uint64_t Rounds::check(int rank) const {
  const std::uint64_t now = flags_[static_cast<std::size_t>(rank)]->filled.value();
  if (now == StepFlag::kAbandoned) {
    const auto left =
        CallNote::from_word(flags_[static_cast<std::size_t>(rank)]->left.load(std::memory_order_relaxed));
    if (left != CallNote() && left.collective() == note_.collective())
      throw DifferentCall(name_of(rank), left, note_, CallProgress::kMore);
    throw Error(ErrorCode::kGivenUp, loom::format("Rank {} gave up on this communicator.", name_of(rank)));
  }
  return now;
}

void Rounds::check_peers() const {
  for (const RoundFlags* flags : flags_)
    if (flags->filled.value() == StepFlag::kAbandoned)
      throw Error(ErrorCode::kGivenUp, "A rank of this host gave up on this communicator.");
}

void Rounds::throw_different(int rank, std::uint64_t note) const {
  const bool receives = note_.collective() == Collective::kBroadcast;
  const CallProgress progress = receives ? CallProgress::kFirstRound : CallProgress::kMore;
  const bool is_of_this_turn = (note & 0xff) == turn_of(round_);
  throw DifferentCall(name_of(rank), is_of_this_turn ? CallNote::from_word(note) : CallNote(), note_,
                      progress);
}

CicoWalk::CicoWalk(Rounds& rounds, const Call& call, const TileLimits& limits, Begun begun)
    : rounds_(rounds),
      call_(call),
      chunked_(has_chunks(rounds, call, limits.bank_bytes)),
      one_part_(is_one_part(rounds, call, limits.bank_bytes)) {
  const auto ranks = static_cast<std::size_t>(rounds.size());
  const std::size_t unit = std::max<std::size_t>(1, kCacheLine / call.elem_bytes()) * call.elem_bytes();
  piece_bytes_ = limits.bank_bytes / (one_part_ ? 1 : ranks) / kCacheLine * kCacheLine;
  if (piece_bytes_ < unit) throw Error(ErrorCode::kInternal, "A bank has no room for a piece of each rank.");
  const std::size_t part_bytes = longest_part();
  const std::size_t wanted = rounds.few_rounds()
                                 ? piece_bytes_
                                 : std::max(divide_up(part_bytes, kTilesPerPart),
                                            chunked_ ? limits.min_chunk_tile_bytes : limits.min_tile_bytes);
  tile_bytes_ = std::max(std::min(wanted, piece_bytes_) / unit, std::size_t{1}) * unit;
  tiles_ = divide_up(part_bytes, tile_bytes_);
  rounds_to_do_ = tiles_ + (chunked_ ? 2 : 1);
  round_ = begun == Begun::kYes ? 1 : 0;
  rounds.enter({call, CallFamily::kCico});
}

std::size_t CicoWalk::longest_part() const {
  if (chunked_)
    return chunk_range(call_.count, call_.elem_bytes(), rounds_.size(), 0).count * call_.elem_bytes();
  if (call_.collective != Collective::kReduceScatterV) return call_.bytes();
  std::size_t longest = 0;
  for (int part = 0; part < rounds_.size(); ++part)
    longest = std::max<std::size_t>(longest, call_.bounds[part + 1] - call_.bounds[part]);
  return longest * call_.elem_bytes();
}

bool CicoWalk::ready() {
  const bool writes = this->writes();
  for (int rank = 0; rank < rounds_.size(); ++rank) {
    if (rank == rounds_.self()) continue;
    awaited_ = rank;
    if (reads_from(rank)) {
      if (!rounds_.is_level(rank)) return false;
      if (round_ == 1) rounds_.compare(rank);
    }
    if (writes && !rounds_.is_past(rank)) return false;
  }
  return true;
}

/// Whether this round reads from the rank; in the first there is nothing to read yet.
bool CicoWalk::reads_from(int rank) const {
  if (round_ == 0) return false;
  if (call_.collective == Collective::kBroadcast) return rank == call_.root;
  return call_.collective != Collective::kReduce || !one_part_ || rounds_.self() == call_.root;
}

bool CicoWalk::writes() const {
  if (round_ + 1 == rounds_to_do_) return false;
  if (call_.collective == Collective::kBroadcast) return rounds_.self() == call_.root;
  if (call_.collective == Collective::kReduce && one_part_) return rounds_.self() != call_.root;
  return true;
}

CicoWalk::Range CicoWalk::tile_of(int part, std::size_t tile) const {
  std::size_t first = 0, length = call_.bytes();
  if (chunked_) {
    const ChunkRange chunk = chunk_range(call_.count, call_.elem_bytes(), rounds_.size(), part);
    first = chunk.first * call_.elem_bytes();
    length = chunk.count * call_.elem_bytes();
  } else if (call_.collective == Collective::kReduceScatterV) {
    first = call_.bounds[part] * call_.elem_bytes();
    length = call_.bounds[part + 1] * call_.elem_bytes() - first;
  } else if (!one_part_) {
    first = static_cast<std::size_t>(part) * length;
  }
  const std::size_t offset = std::min(length, tile * tile_bytes_);
  return {first + offset, std::min(tile_bytes_, length - offset)};
}

CicoWalk::Taken CicoWalk::taken_from(int peer, std::size_t tile) const {
  const Range range = tile_of(peer, tile);
  const std::size_t block =
      call_.collective == Collective::kAllGather ? static_cast<std::size_t>(peer) * call_.bytes() : 0;
  // A result lies in its owner's own piece, a block of an all-to-all in mine.
  const int part = call_.collective == Collective::kAllToAll ? rounds_.self() : peer;
  return {part, block + range.first, range.bytes};
}

}  // namespace loom::device
