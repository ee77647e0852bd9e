#include "device/host/two_level_executor.hpp"

#include <algorithm>
#include <cstring>

namespace loom::device {
namespace {

std::size_t divide_up(std::size_t a, std::size_t b) {
  return (a + b - 1) / b;
}

}  // namespace

TwoLevelExecutor::TwoLevelExecutor(const TwoLevels& levels, const HostJob& job) : levels_(levels), job_(job) {
  if (job_.collective == Collective::kBarrier) {
    // A reduction of one byte: nobody has the result before everybody has given his share.
    job_.count = job_.elem_bytes = 1;
    job_.reduce = find_reduce(Op::kBor, Type::kUint8);
  }
  if (job_.collective == Collective::kAllGather)
    plan_all_gather();
  else if (is_rooted(job_.collective))
    plan_rooted();
  else
    plan();
  begin(gather_);
}

/// whole_: the sum inside the host, then over all of them, at first ranks; then, for others, what the first
/// rank spreads.
void TwoLevelExecutor::plan() {
  const std::size_t hosts = static_cast<std::size_t>(levels_.hosts);
  const std::size_t blocks = job_.collective == Collective::kReduceScatter ? levels_.places.size() : 1;
  const std::size_t count = job_.count * blocks, share = divide_up(count, hosts);
  // From there on the bytes that a one-shot sends cost more than a second step (three virtual hosts).
  const bool two_shot = count * job_.elem_bytes > kMostShortBytes;
  whole_.resize((two_shot ? share * hosts : count) * job_.elem_bytes);
  std::byte* const whole = whole_.data();
  const std::byte* const in = job_.collective == Collective::kBarrier ? whole : job_.in;

  gather_ = {Collective::kReduce, in, whole, count, job_.elem_bytes, job_.reduce, 0};
  across_ = {two_shot ? Pattern::kTwoShotAllreduce : Pattern::kOneShotAllreduce,
             whole,
             whole,
             two_shot ? share : count,
             job_.elem_bytes,
             job_.reduce};
  if (levels_.across == Across::kStar && has_star(job_.collective, levels_.hosts, count * job_.elem_bytes)) {
    across_.pattern = Pattern::kDirectReduce;
    back_ = {Pattern::kDirectBroadcast, whole, whole, count, job_.elem_bytes};
  }
  spread_ = {Collective::kBroadcast, whole, whole, count, job_.elem_bytes, nullptr, 0};
}

/// whole_: the message; of a reduce as far as it is reduced.
void TwoLevelExecutor::plan_rooted() {
  // Of a broadcast ranks need not agree on what an element is.
  const bool reduces = job_.collective == Collective::kReduce;
  const std::size_t count = reduces ? job_.count : job_.bytes(), elem_bytes = reduces ? job_.elem_bytes : 1;
  whole_.resize(job_.bytes());
  std::byte* const whole = whole_.data();
  const auto broadcast_from = [&](int local) {
    return HostJob{Collective::kBroadcast, whole, whole, count, elem_bytes, nullptr, local};
  };
  const HostAndLocal& root = levels_.place(job_.root);
  const bool passes_on = levels_.self().host == root.host && root.local != 0;
  if (reduces) {
    gather_ = {Collective::kReduce, job_.in, whole, count, elem_bytes, job_.reduce, 0};
    if (passes_on) spread_ = broadcast_from(0);
  } else {
    if (is_root() && job_.in_gaps != nullptr)
      job_.in_gaps->move(job_.in_gaps->context, 0, whole, job_.bytes());
    else if (is_root())
      std::memcpy(whole, job_.in, job_.bytes());
    (passes_on ? gather_ : spread_) = broadcast_from(passes_on ? root.local : 0);
  }
  across_ = {reduces ? Pattern::kDirectReduce : Pattern::kDirectBroadcast,
             whole,
             whole,
             count,
             elem_bytes,
             reduces ? job_.reduce : nullptr,
             root.host};
}

/// whole_: the blocks of the first host in the order of its ranks, then those of the next; as much for each
/// as the one with most ranks has.
void TwoLevelExecutor::plan_all_gather() {
  const std::size_t bytes = job_.bytes(), hosts = static_cast<std::size_t>(levels_.hosts);
  const int most = std::ranges::max(levels_.places, {}, &HostAndLocal::local).local + 1;
  host_bytes_ = static_cast<std::size_t>(most) * bytes;
  whole_.resize(hosts * host_bytes_);
  std::byte* const whole = whole_.data();
  std::byte* const own = gathered_from(levels_.self());
  if (job_.in_gaps != nullptr)
    job_.in_gaps->move(job_.in_gaps->context, 0, own, bytes);
  else
    std::memcpy(own, job_.in, bytes);
  std::byte* const of_host = gathered_from({levels_.self().host, 0});
  gather_ = {Collective::kAllGather, own, of_host, bytes, 1, nullptr, 0};
  across_ = {Pattern::kDirectAllGather, whole, whole, host_bytes_, 1, nullptr};
  spread_ = {Collective::kBroadcast, whole, whole, whole_.size(), 1, nullptr, 0};
}

/// A rank alone on its host has nothing to agree on: its operand is the host's.
void TwoLevelExecutor::begin(const std::optional<HostJob>& inside) {
  inside_.reset();
  if (!inside) return;
  if (levels_.boards != nullptr) {
    inside_.emplace(*levels_.boards, *inside);
    // What ranks compare is the whole call, whatever part of it each is in.
    levels_.boards->enter({job_, CallFamily::kBetweenHosts});
  } else if (inside->in != inside->out)
    std::memcpy(inside->out, inside->in, inside->bytes());
}

void TwoLevelExecutor::begin_across(const ExchangeJob& between) {
  between_.reset();
  if (is_first()) between_.emplace(levels_.links, levels_.self().host, levels_.slot_bytes, between);
}

TwoLevelExecutor::State TwoLevelExecutor::advance() {
  bool moved = false;
  while (stage_ != Stage::kDone) {
    State state = State::kDone;
    if (is_between_hosts())
      state = between_ ? between_->advance() : State::kDone;
    else
      state = inside_ ? inside_->advance() : State::kDone;
    if (state == State::kBlocked) return moved ? State::kMoved : State::kBlocked;
    moved = true;
    if (state == State::kMoved) continue;
    switch (stage_) {
      case Stage::kGather:
        stage_ = Stage::kAcross;
        begin_across(across_);
        break;
      case Stage::kAcross:
        if (back_) {
          stage_ = Stage::kBack;
          begin_across(*back_);
          break;
        }
        [[fallthrough]];
      case Stage::kBack:
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

/// From whole_ to where the caller wants it.
void TwoLevelExecutor::finish() {
  const std::size_t bytes = job_.bytes();
  if (job_.collective == Collective::kBarrier) return;
  if (job_.collective == Collective::kReduce && !is_root()) return;
  if (job_.collective == Collective::kBroadcast) {
    if (is_root()) return;
    if (job_.out_gaps != nullptr) return job_.out_gaps->move(job_.out_gaps->context, 0, whole_.data(), bytes);
  }
  if (job_.collective == Collective::kAllGather) {
    for (int rank = 0; rank < static_cast<int>(levels_.places.size()); ++rank) {
      std::byte* const block = gathered_from(levels_.place(rank));
      if (job_.out_gaps != nullptr)
        job_.out_gaps->move(job_.out_gaps->context, rank, block, bytes);
      else
        std::memcpy(job_.out + static_cast<std::size_t>(rank) * bytes, block, bytes);
    }
    return;
  }
  const std::size_t first =
      job_.collective == Collective::kReduceScatter ? static_cast<std::size_t>(levels_.rank) * bytes : 0;
  std::memcpy(job_.out, whole_.data() + first, bytes);
}

HostAndLocal TwoLevelExecutor::awaited() const noexcept {
  if (is_between_hosts() && between_) return {between_->awaited(), 0};
  return {levels_.self().host, inside_ ? inside_->awaited() : levels_.self().local};
}

}  // namespace loom::device
