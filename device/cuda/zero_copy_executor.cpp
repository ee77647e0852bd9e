#include "device/cuda/zero_copy_executor.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include "base/error.hpp"

namespace loom::device::cuda {
namespace {

std::span<const Block> blocks_on(const Call& call, Side side, int ranks) {
  return {side == LOOM_IN ? call.in_blocks : call.out_blocks,
          static_cast<std::size_t>(blocks_of(call.collective, side, ranks))};
}

/// The first byte of all, and the end of the last one.
struct Extent {
  const std::byte* begin = nullptr;
  std::size_t bytes = 0;
};
Extent extent_of(std::span<const Block> blocks) {
  const std::byte *begin = nullptr, *end = nullptr;
  for (const Block& block : blocks) {
    if (block.bytes == 0) continue;
    if (begin == nullptr || std::less<>()(block.data, begin)) begin = block.data;
    if (end == nullptr || std::less<>()(end, block.data + block.bytes)) end = block.data + block.bytes;
  }
  return {begin, static_cast<std::size_t>(end - begin)};
}

/// A result that a call in place would write where operands are yet to be read, and an operand that it would
/// read where results have been written.
bool overlaps(const Call& call, Side side, int ranks) {
  switch (call.collective) {
    case Collective::kReduceScatter:
    case Collective::kReduceScatterV:
      return side == LOOM_OUT && call.in == call.out;
    case Collective::kAllToAll:
      return side == LOOM_IN && call.in == call.out;
    case Collective::kAllToAllV:
    case Collective::kAllToAllW:
      for (int r = 0; r < ranks && side == LOOM_IN; ++r)
        if (call.in_blocks[r].bytes > 0 && call.in_blocks[r].data == call.out_blocks[r].data) return true;
      return false;
    default:
      return false;
  }
}

}  // namespace

ZeroCopyExecutor::ZeroCopyExecutor(GpuLinks& links, const Call& call, bool may_wait, const ProgramMark* after)
    : gpus_(links),
      links_(links.zero_copy()),
      call_(call),
      after_(after),
      may_wait_(may_wait),
      bounces_all_(links.form().kernels.speeds.bounces),
      rank_(links_.self()),
      ranks_(links_.size()),
      elem_(call.elem_bytes()) {}

ZeroCopyExecutor::ZeroCopyExecutor(GpuLinks& links, ZeroCopyLinks& of_lane, const Call& call,
                                   const ProgramMark* after)
    : gpus_(links),
      links_(of_lane),
      call_(call),
      after_(after),
      may_wait_(after == nullptr),
      rank_(links_.self()),
      ranks_(links_.size()),
      elem_(call.elem_bytes()) {}

ZeroCopyExecutor::~ZeroCopyExecutor() {
  if (works_) {
    try {
      links_.stream().synchronize();
    } catch (const Error&) {  // the GPU has failed: its work has ended, too
    }
  }
  if (is_exposed_) withdraw();
}

/// A rank whose kernel was on its way writes to this one's buffers until it says so; one that has not started
/// it learns that it must not. The time counts from the first abandonment: all calls of a communicator, of
/// whatever lanes, wait once.
void ZeroCopyExecutor::withdraw() noexcept {
  gpus_.abandon();
  // Pairs with the one in run(): either this rank sees that the other is ready, or that one the abandonment.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  links_.own().done.publish(links_.step());
  const auto works = [&](int rank) {
    const ZeroCopyBoard& board = links_.board(rank);
    return board.ready.value() >= links_.step() && board.done.value() < links_.step();
  };
  for (int r = 0; r < ranks_; ++r)
    while (works(r) && gpus_.may_still_work(r)) std::this_thread::sleep_for(std::chrono::microseconds(200));
}

// ---- Where data lies

/// Of a block that this rank, or every rank, knows.
std::size_t ZeroCopyExecutor::length(Side side, int rank, int block) const {
  if (lists_blocks(call_.collective)) {
    if (rank != rank_) return links_.board(rank).offer.blocks[static_cast<std::size_t>(block)].bytes;
    const std::size_t own = blocks_on(call_, side, ranks_)[static_cast<std::size_t>(block)].bytes;
    return side == LOOM_IN ? own : std::min(own, sent_[static_cast<std::size_t>(block)]);
  }
  if (call_.collective != Collective::kReduceScatterV) return call_.count;
  const int part = side == LOOM_IN ? block : rank;
  return call_.bounds[part + 1] - call_.bounds[part];
}

/// Elements before a block, where the call lists none.
std::size_t ZeroCopyExecutor::first_of(Side side, int block) const {
  if (call_.collective == Collective::kReduceScatterV && side == LOOM_IN) return call_.bounds[block];
  return static_cast<std::size_t>(block) * call_.count;
}

std::byte* ZeroCopyExecutor::own_at(Side side, int block) const {
  if (lists_blocks(call_.collective))
    return blocks_on(call_, side, ranks_)[static_cast<std::size_t>(block)].data + window_.first;
  // An operand is never written.
  auto* const begin = side == LOOM_IN ? const_cast<std::byte*>(call_.in) : call_.out;
  return begin + (first_of(side, block) + window_.first) * elem_;
}

std::byte* ZeroCopyExecutor::at(Side side, int rank, int block) const {
  const ZeroCopyOffer& offer = links_.board(rank).offer;
  const ZeroCopyOffer::Buffer& buffer = offer.side(side);
  if (buffer.bounces)
    return links_.bounce(rank, side) + static_cast<std::size_t>(block) * window_.most * elem_;
  if (rank == rank_) return own_at(side, block);
  std::byte* const begin = links_.buffers().at(rank, buffer.shared);
  if (lists_blocks(call_.collective))
    return begin + offer.blocks[static_cast<std::size_t>(block)].first + window_.first;
  return begin + (first_of(side, block) + window_.first) * elem_;
}

/// Of each block, in whole lines.
std::size_t ZeroCopyExecutor::bounced_window() const {
  constexpr std::size_t kLine = 128;
  const int blocks =
      std::max(blocks_of(call_.collective, LOOM_IN, ranks_), blocks_of(call_.collective, LOOM_OUT, ranks_));
  return links_.bounce_bytes() / static_cast<std::size_t>(blocks) / kLine * kLine / elem_;
}

// ---- What this rank tells

void ZeroCopyExecutor::offer_side(Side side, ZeroCopyOffer& offer) {
  ZeroCopyOffer::Buffer& buffer = offer.side(side);
  buffer = {};
  if (!has_side(call_.collective, side, rank_, call_.root)) return;
  Extent extent;
  if (lists_blocks(call_.collective)) {
    const std::span<const Block> blocks = blocks_on(call_, side, ranks_);
    extent = extent_of(blocks);
    for (const Block& block : blocks) offer.longest = std::max<std::uint64_t>(offer.longest, block.bytes);
    if (!lists(side)) offer.single = blocks[0].bytes;
    for (std::size_t b = 0;
         lists(side) && is_reached(call_.collective, side, rank_, call_.root) && b < blocks.size(); ++b)
      offer.blocks[b] = {blocks[b].bytes == 0 ? 0 : static_cast<std::uint64_t>(blocks[b].data - extent.begin),
                         blocks[b].bytes};
  } else {
    const int blocks = blocks_of(call_.collective, side, ranks_);
    for (int b = 0; b < blocks; ++b) {
      const std::size_t elems = length(side, rank_, b);
      offer.longest = std::max<std::uint64_t>(offer.longest, elems);
      extent.bytes += elems * elem_;
    }
    extent.begin = side == LOOM_IN ? call_.in : call_.out;
  }
  buffer.bounces = extent.bytes > 0 && (bounces_all_ || overlaps(call_, side, ranks_));
  if (buffer.bounces || extent.bytes == 0 || !is_reached(call_.collective, side, rank_, call_.root)) return;
  if ((bounced_ >> (rank_ * kSides + side) & 1) == 0)
    buffer.shared = links_.buffers().tell_of(extent.begin, extent.bytes);
  buffer.bounces = buffer.shared.id == 0;
}

void ZeroCopyExecutor::offer() {
  ZeroCopyOffer& offer = links_.own().offer;
  offer.longest = offer.single = 0;
  offer_side(LOOM_IN, offer);
  offer_side(LOOM_OUT, offer);
}

/// Of all ranks, once their offers are known.
void ZeroCopyExecutor::look_at_lengths() {
  any_bounces_ = false;
  longest_ = 0;
  for (int r = 0; r < ranks_; ++r) {
    const ZeroCopyOffer& offer = links_.board(r).offer;
    longest_ = std::max<std::size_t>(longest_, offer.longest);
    any_bounces_ |= offer.sides[0].bounces || offer.sides[1].bounces;
  }
  window_ = {.first = 0, .most = any_bounces_ ? bounced_window() : ~std::size_t{0}};
  if (!lists_blocks(call_.collective) || !has_side(call_.collective, LOOM_OUT, rank_, call_.root)) return;
  const std::span<const Block> mine = blocks_on(call_, LOOM_OUT, ranks_);
  for (std::size_t b = 0; b < mine.size(); ++b) {
    const int sender = lists(LOOM_OUT) ? static_cast<int>(b) : call_.root;
    const ZeroCopyOffer& offer = links_.board(sender).offer;
    // From a list of the sender's blocks, or its only one.
    sent_[b] = lists(LOOM_IN) ? offer.blocks[static_cast<std::size_t>(rank_)].bytes : offer.single;
    if (sent_[b] > mine[b].bytes && !cut_) cut_ = CutBlock{sender, sent_[b], mine[b].bytes};
  }
}

// ---- The rounds

bool ZeroCopyExecutor::program_has_ended() const {
  return after_ != nullptr ? after_->has_passed() : links_.stream().program_has_ended();
}

ZeroCopyExecutor::State ZeroCopyExecutor::wait_for_program() {
  gpus_.check_peers();
  return program_wait_.is_due() ? State::kMoved : State::kBlocked;
}

/// No kernel moves a block that is this rank's own and in its place.
bool ZeroCopyExecutor::stays_in_place(Side side, int block) const {
  if (!call_.owns_its_block) return false;
  if (blocks_of(call_.collective, side, ranks_) > 1) return block == rank_;
  const bool scatters = call_.collective == Collective::kScatter || call_.collective == Collective::kScatterV;
  return side == LOOM_OUT && scatters && rank_ == call_.root;
}

void ZeroCopyExecutor::transfer(Side side) {
  if (!bounces(side) || has_lane()) return;
  const bool loads = side == LOOM_IN;
  for (int b = 0; b < blocks_of(call_.collective, side, ranks_); ++b) {
    if (stays_in_place(side, b)) continue;
    std::byte *const user = own_at(side, b), *const bounce = at(side, rank_, b);
    links_.stream().copy(loads ? bounce : user, loads ? user : bounce,
                         window_.of(length(side, rank_, b)) * elem_);
    works_ = true;
  }
}

/// Other ranks read what this one offered for the step before no more.
void ZeroCopyExecutor::begin_offer() {
  offer();
  window_ = {.first = 0, .most = bounced_window()};
  begin_round();
}

void ZeroCopyExecutor::begin_round() {
  links_.next_step();
  transfer(LOOM_IN);
  phase_ = Phase::kLoads;
}

bool ZeroCopyExecutor::all_have(StepFlag ZeroCopyBoard::*flag) {
  const bool all = !links_.behind(flag);
  gpus_.check_peers();  // who gives up publishes what others wait for (withdraw())
  return all;
}

/// Calls body(rank, buffer, bit of the buffer) for those that other ranks reach; in one order on all ranks.
template <class Body>
void ZeroCopyExecutor::for_each_buffer(Body&& body) {
  for (int r = 0; r < ranks_; ++r)
    for (int side = 0; side < kSides; ++side) {
      const SharedBuffer& buffer = links_.board(r).offer.sides[static_cast<std::size_t>(side)].shared;
      if (buffer.id != 0) body(r, buffer, std::uint64_t{1} << (r * kSides + side));
    }
}

/// All operands and results are there. In the first round all learn where; what is new has to be opened, once
/// what lay at the same addresses is closed.
ZeroCopyExecutor::State ZeroCopyExecutor::meet() {
  if (has_met_) return run();
  has_met_ = true;
  look_at_lengths();
  if (any_bounces_ && only_tries()) return end();
  if (any_bounces_ && has_lane())
    throw Error(
        ErrorCode::kDevice,
        "Ranks reach a buffer of a persistent call no more: it has been freed since the call was made.");
  std::uint64_t news = 0;
  for_each_buffer([&](int rank, const SharedBuffer& buffer, std::uint64_t bit) {
    if (!links_.buffers().learn(rank, buffer)) news |= bit;
  });
  news_ = news;
  return news == 0 ? run() : open();
}

/// What is new. What lay there before is being closed, which takes as long as the work in the GPU's context:
/// without bounce buffers the call waits for that; else, if it may, for a moment.
ZeroCopyExecutor::State ZeroCopyExecutor::open() {
  // Until nothing has been closed for so long. Where the program has no work it takes microseconds, or as
  // long as CPUs are taken by others.
  constexpr std::chrono::milliseconds kMoment{20}, kOfMakers{1000};
  std::uint64_t refused = 0, in_the_way = 0;
  for_each_buffer([&](int rank, const SharedBuffer& buffer, std::uint64_t bit) {
    if ((news_ & bit) == 0) return;
    if (may_wait_ && in_the_way == 0)
      links_.buffers().wait_for_room(rank, buffer, only_tries() ? kOfMakers : kMoment);
    const bool waits = links_.buffers().is_in_the_way(rank, buffer);
    if (links_.buffers().open(rank, buffer)) return;
    refused |= bit;
    if (waits) in_the_way |= bit;
  });
  if (in_the_way != 0 && has_lane() && !only_tries()) {
    phase_ = Phase::kCloses;
    return wait_for_program();
  }
  links_.own().refused = refused;
  links_.own().in_the_way = in_the_way;
  links_.own().opened.publish(links_.step());
  phase_ = Phase::kOpens;
  return State::kMoved;
}

/// Nothing is in the way of what is new.
bool ZeroCopyExecutor::has_room() {
  bool room = true;
  for_each_buffer([&](int rank, const SharedBuffer& buffer, std::uint64_t bit) {
    if ((news_ & bit) != 0) room &= !links_.buffers().is_in_the_way(rank, buffer);
  });
  return room;
}

/// What one rank cannot open bounces for all: for good, unless that rank still has open what lay there
/// before.
ZeroCopyExecutor::State ZeroCopyExecutor::agree() {
  std::uint64_t refused = 0, in_the_way = 0;
  for (int r = 0; r < ranks_; ++r) {
    refused |= links_.board(r).refused;
    in_the_way |= links_.board(r).in_the_way;
  }
  if (refused == 0) return run();
  for_each_buffer([&](int rank, const SharedBuffer& buffer, std::uint64_t bit) {
    if ((refused & bit) == 0) return;
    // Both sides of a call may lie in it.
    const ZeroCopyOffer& offer = links_.board(rank).offer;
    for (int side = 0; side < kSides; ++side)
      if (offer.sides[static_cast<std::size_t>(side)].shared.id == buffer.id)
        bounced_ |= std::uint64_t{1} << (rank * kSides + side);
    (in_the_way & bit) != 0 ? links_.buffers().postpone(rank, buffer) : links_.buffers().refuse(rank, buffer);
  });
  bounced_ |= refused;
  has_met_ = false;
  return end();  // nobody changes his offer before all have read these
}

ZeroCopyExecutor::State ZeroCopyExecutor::run() {
  if (only_tries()) return end();
  // Pairs with the one in withdraw().
  std::atomic_thread_fence(std::memory_order_seq_cst);
  gpus_.check_peers();
  const CombineArgs args = zero_copy_work(
      call_, rank_, ranks_, window_,
      [&](Side side, int rank, int block) { return length(side, rank, block); },
      [&](Side side, int rank, int block) { return at(side, rank, block); });
  phase_ = Phase::kRuns;
  const bool copies = args.how == CombineArgs::How::kCopies;
  if (copies ? args.operands == 0 : args.count == 0) return end();
  const bool reduces = is_reduction(call_.collective);
  links_.start(reduces ? std::optional(call_.op) : std::nullopt, reduces ? call_.type : Type::kUint8, args);
  works_ = true;
  return State::kMoved;
}

ZeroCopyExecutor::State ZeroCopyExecutor::end() {
  works_ = false;
  links_.own().done.publish(links_.step());
  phase_ = Phase::kEnds;
  return State::kMoved;
}

ZeroCopyExecutor::State ZeroCopyExecutor::end_round() {
  works_ = false;
  if (longest_ > window_.most && window_.first < longest_ - window_.most) {
    window_.first += window_.most;
    begin_round();
    return State::kMoved;
  }
  phase_ = Phase::kDone;
  return State::kDone;
}

ZeroCopyExecutor::State ZeroCopyExecutor::advance() {
  switch (phase_) {
    case Phase::kBegins:
      if (!has_lane()) gpus_.call_has_begun();
      if (only_tries()) {
        begin_offer();
        return State::kMoved;
      }
      if (after_ == nullptr) links_.stream().follow_program();
      program_wait_ = {};
      phase_ = Phase::kFollows;
      return State::kMoved;
    case Phase::kFollows:
      if (!program_has_ended()) return wait_for_program();
      if (!has_lane()) gpus_.call_is_free_to_run();
      begin_offer();
      return State::kMoved;
    case Phase::kLoads:
      if (works_ && !links_.stream().is_idle()) return State::kBlocked;
      works_ = false;
      is_exposed_ = true;
      links_.own().ready.publish(links_.step());
      phase_ = Phase::kMeets;
      return State::kMoved;
    case Phase::kMeets:
      return all_have(&ZeroCopyBoard::ready) ? meet() : State::kBlocked;
    case Phase::kCloses:
      if (!has_room()) return wait_for_program();
      return open();
    case Phase::kOpens:
      return all_have(&ZeroCopyBoard::opened) ? agree() : State::kBlocked;
    case Phase::kRuns:
      return links_.has_ended() ? end() : State::kBlocked;
    case Phase::kEnds:
      if (!all_have(&ZeroCopyBoard::done)) return State::kBlocked;
      is_exposed_ = false;
      if (has_met_ && only_tries()) {
        cut_.reset();
        phase_ = Phase::kDone;
      } else if (has_met_) {
        transfer(LOOM_OUT);
        phase_ = Phase::kStores;
      } else {
        begin_offer();
      }
      return State::kMoved;
    case Phase::kStores:
      if (works_ && !links_.stream().is_idle()) return State::kBlocked;
      return end_round();
    case Phase::kDone:
      break;
  }
  return State::kDone;
}

/// Requests with lanes are not counted there.
std::optional<GpuLinks::HeldUpBy> ZeroCopyExecutor::held_up_by() const noexcept {
  return has_lane() ? std::nullopt : gpus_.held_up_by();
}

int ZeroCopyExecutor::awaited() const noexcept {
  const auto among = [&](std::optional<int> rank) { return rank.value_or(rank_); };
  switch (phase_) {
    case Phase::kMeets:
      if (const auto by = held_up_by()) return by->rank;
      return among(links_.behind(&ZeroCopyBoard::ready));
    case Phase::kOpens:
      return among(links_.behind(&ZeroCopyBoard::opened));
    case Phase::kEnds:
      return among(links_.behind(&ZeroCopyBoard::done));
    default:
      return rank_;
  }
}

const char* ZeroCopyExecutor::standing() const noexcept {
  if (phase_ == Phase::kMeets && only_tries()) return "which has not come to the making of this request";
  if (phase_ == Phase::kMeets && has_lane())
    return "which has not started this request, or whose program has work on its GPU ahead of it";
  if (phase_ == Phase::kMeets)
    if (const auto by = held_up_by())
      return by->has_begun ? "whose program has work on its GPU ahead of this call, which has not ended"
                           : "which has not begun this call";
  if (phase_ == Phase::kOpens || phase_ == Phase::kCloses)
    return "which waits for its GPU, to close memory that another rank has freed and allocated anew";
  return "whose part of the call has not ended on its GPU";
}

}  // namespace loom::device::cuda
