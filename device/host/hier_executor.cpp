#include "device/host/hier_executor.hpp"

#include <algorithm>
#include <cstring>

#include "device/schedule/divide_up.hpp"

namespace loom::device {

HierExecutor::HierExecutor(const HierLinks& levels, const Call& call) : levels_(levels), call_(call) {
  if (call_.collective == Collective::kBarrier) {
    // A reduction of one byte: nobody has the result before everybody has given its share.
    call_.count = 1;
    call_.type = Type::kUint8;
    call_.op = Op::kBor;
  }
  if (call_.collective == Collective::kAllGather)
    plan_all_gather();
  else if (is_rooted(call_.collective))
    plan_rooted();
  else
    plan();
  begin(gather_);
}

/// Ranks need not agree on the element type of data that is only moved.
void HierExecutor::count_bytes() {
  call_.count = call_.bytes();
  call_.type = Type::kUint8;
}

/// A call of this host's ranks, from or to their leader.
Call HierExecutor::inside_call(Collective collective, const std::byte* in, std::byte* out,
                               std::size_t count) const {
  return {.collective = collective, .in = in, .out = out, .count = count, .type = call_.type, .op = call_.op};
}

/// Uninitialized.
std::byte* HierExecutor::allocate(std::size_t bytes) {
  scratch_ = scratch(bytes);
  return scratch_.get();
}

/// whole_: on node leaders the sum inside the host, then over all hosts; on others what their leader
/// broadcasts. Where each host has one rank, a one-shot sends its operand and reduces into its result.
void HierExecutor::plan() {
  const std::size_t hosts = static_cast<std::size_t>(levels_.hosts);
  const std::size_t blocks = call_.collective == Collective::kReduceScatter ? levels_.places.size() : 1;
  const std::size_t count = call_.count * blocks, share = divide_up(count, hosts);
  const bool two_shot = is_two_shot(levels_.hosts, count * call_.elem_bytes());
  if (call_.collective == Collective::kAllreduce && levels_.cico == nullptr && !two_shot) {
    whole_ = call_.out;
    across_ = {.data = call_.out,
               .in = call_.in == call_.out ? nullptr : call_.in,
               .count = count,
               .elem_bytes = call_.elem_bytes(),
               .reduce = call_.reduce()};
    return;
  }
  const std::size_t bytes = count * call_.elem_bytes();
  const std::size_t room = two_shot ? share * hosts * call_.elem_bytes() : bytes;
  if (call_.collective == Collective::kAllreduce && room == bytes) {
    whole_ = call_.out;
  } else {
    whole_ = allocate(room);
    std::memset(whole_ + bytes, 0, room - bytes);  // it is reduced, too
  }
  if (call_.collective == Collective::kBarrier) *whole_ = {};
  const std::byte* const in = call_.collective == Collective::kBarrier ? whole_ : call_.in;

  gather_ = inside_call(Collective::kReduce, in, whole_, count);
  across_ = {.pattern = two_shot ? Pattern::kTwoShotAllreduce : Pattern::kOneShotAllreduce,
             .data = whole_,
             .count = two_shot ? share : count,
             .elem_bytes = call_.elem_bytes(),
             .reduce = call_.reduce()};
  spread_ = inside_call(Collective::kBroadcast, whole_, whole_, count);
}

/// whole_: the message; of a reduce, as far as it is reduced.
void HierExecutor::plan_rooted() {
  const bool reduces = call_.collective == Collective::kReduce;
  if (!reduces) count_bytes();
  if (reduces)
    whole_ = is_root() ? call_.out : allocate(call_.bytes());
  else if (is_root())  // nobody writes to it
    whole_ = call_.in_packer != nullptr ? allocate(call_.bytes()) : const_cast<std::byte*>(call_.in);
  else
    whole_ = call_.out_packer != nullptr ? allocate(call_.bytes()) : call_.out;
  std::byte* const whole = whole_;
  const auto broadcast_from = [&](int local) {
    Call spread = inside_call(Collective::kBroadcast, whole, whole, call_.count);
    spread.root = local;
    return spread;
  };
  const HostAndLocal& root = levels_.place(call_.root);
  const bool passes_on = levels_.self().host == root.host && root.local != 0;
  if (reduces) {
    gather_ = inside_call(Collective::kReduce, call_.in, whole, call_.count);
    if (passes_on) spread_ = broadcast_from(0);
  } else {
    if (is_root() && call_.in_packer != nullptr)
      call_.in_packer->move(call_.in_packer->context, 0, whole, call_.bytes());
    (passes_on ? gather_ : spread_) = broadcast_from(passes_on ? root.local : 0);
  }
  across_ = {.pattern = reduces ? Pattern::kLinearReduce : Pattern::kLinearBroadcast,
             .data = whole,
             .count = call_.count,
             .elem_bytes = call_.elem_bytes(),
             .reduce = reduces ? call_.reduce() : nullptr,
             .root = root.host};
}

/// Whether the result has the blocks as whole_ does: equal hosts, whose ranks follow one another.
bool HierExecutor::gathers_in_order() const {
  const std::size_t ranks = levels_.places.size(), hosts = static_cast<std::size_t>(levels_.hosts);
  if (call_.out_packer != nullptr || ranks % hosts != 0) return false;
  const auto per_host = static_cast<int>(ranks / hosts);
  for (int rank = 0; rank < static_cast<int>(ranks); ++rank)
    if (levels_.place(rank) != HostAndLocal{rank / per_host, rank % per_host}) return false;
  return true;
}

/// whole_: the blocks of the first host in the order of its ranks, then those of the next; each host has as
/// much room as the one with most ranks needs.
void HierExecutor::plan_all_gather() {
  count_bytes();
  const std::size_t bytes = call_.bytes(), hosts = static_cast<std::size_t>(levels_.hosts);
  const int most = std::ranges::max(levels_.places, {}, &HostAndLocal::local).local + 1;
  host_bytes_ = static_cast<std::size_t>(most) * bytes;
  const std::size_t room = hosts * host_bytes_;
  if (gathers_in_order()) {
    whole_ = call_.out;
  } else {
    whole_ = allocate(room);
    if (room > levels_.places.size() * bytes) std::memset(whole_, 0, room);  // what no rank writes is sent
  }
  std::byte* const own = gathered_from(levels_.self());
  if (call_.in_packer != nullptr)
    call_.in_packer->move(call_.in_packer->context, 0, own, bytes);
  else if (call_.in != own)
    std::memcpy(own, call_.in, bytes);
  std::byte* const of_host = gathered_from({levels_.self().host, 0});
  gather_ = inside_call(Collective::kAllGather, own, of_host, bytes);
  across_ = {.pattern = Pattern::kLinearAllGather, .data = whole_, .count = host_bytes_};
  // The host has its own blocks already; they are left out where that leaves one piece.
  const int host = levels_.self().host;
  std::byte* const others = whole_ + (host == 0 ? host_bytes_ : 0);
  const std::size_t left_out = host == 0 || host == levels_.hosts - 1 ? host_bytes_ : 0;
  spread_ = inside_call(Collective::kBroadcast, others, others, room - left_out);
}

/// A rank that is alone on its host has nobody to exchange with there: its operand is the host's.
void HierExecutor::begin(const std::optional<Call>& inside) {
  inside_.reset();
  if (!inside) return;
  if (levels_.cico != nullptr) {
    inside_.emplace(*levels_.cico, *inside);
    // Ranks compare the whole call, whatever part of it each is in.
    levels_.cico->enter({call_, CallFamily::kBetweenHosts});
  } else if (inside->in != inside->out)
    std::memcpy(inside->out, inside->in, inside->bytes());
}

HierExecutor::State HierExecutor::advance() {
  bool moved = false;
  while (stage_ != Stage::kDone) {
    State state = State::kDone;
    if (stage_ == Stage::kAcross)
      state = between_ ? between_->advance() : State::kDone;
    else
      state = inside_ ? inside_->advance() : State::kDone;
    if (state == State::kBlocked) return moved ? State::kMoved : State::kBlocked;
    moved = true;
    if (state == State::kMoved) continue;
    switch (stage_) {
      case Stage::kGather:
        stage_ = Stage::kAcross;
        if (is_leader()) between_.emplace(levels_.links, levels_.self().host, levels_.slot_bytes, across_);
        break;
      case Stage::kAcross:
        stage_ = Stage::kSpread;
        begin(spread_);
        break;
      default:
        stage_ = Stage::kDone;
        finish();
    }
  }
  return State::kDone;
}

/// Moves whole_, or this rank's part of it, to the caller's buffer, unless it is there.
void HierExecutor::finish() {
  const std::size_t bytes = call_.bytes();
  if (scratch_ == nullptr || call_.collective == Collective::kBarrier) return;
  switch (call_.collective) {
    case Collective::kReduce:  // of another root
      return;
    case Collective::kBroadcast:
      if (!is_root()) call_.out_packer->move(call_.out_packer->context, 0, whole_, bytes);
      return;
    case Collective::kAllGather:
      for (int rank = 0; rank < static_cast<int>(levels_.places.size()); ++rank) {
        std::byte* const block = gathered_from(levels_.place(rank));
        if (call_.out_packer != nullptr)
          call_.out_packer->move(call_.out_packer->context, rank, block, bytes);
        else
          std::memcpy(call_.out + static_cast<std::size_t>(rank) * bytes, block, bytes);
      }
      return;
    case Collective::kReduceScatter:
      std::memcpy(call_.out, whole_ + static_cast<std::size_t>(levels_.rank) * bytes, bytes);
      return;
    default:
      std::memcpy(call_.out, whole_, bytes);
  }
}

HostAndLocal HierExecutor::awaited() const noexcept {
  if (stage_ == Stage::kAcross && between_) return {between_->awaited(), 0};
  return {levels_.self().host, inside_ ? inside_->awaited() : levels_.self().local};
}

}  // namespace loom::device
