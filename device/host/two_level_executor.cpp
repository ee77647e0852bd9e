#include "device/host/two_level_executor.hpp"

#include <cstring>

namespace loom::device {
namespace {

// From here on the bytes that a one-shot sends cost more than a second step (three virtual hosts).
constexpr std::size_t kMostOneShotBytes = 8 * 1024;

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
  switch (job_.collective) {
    case Collective::kBroadcast:
      plan_broadcast();
      break;
    case Collective::kAllGather:
      plan_all_gather();
      break;
    default:
      plan_reduction();
  }
  begin(gather_);
}

/// whole_: the sum inside the host, then over all of them, at first ranks; then, for others, what the first
/// rank spreads.
void TwoLevelExecutor::plan_reduction() {
  const std::size_t hosts = static_cast<std::size_t>(levels_.hosts);
  const std::size_t blocks = job_.collective == Collective::kReduceScatter ? levels_.ranks.size() : 1;
  const std::size_t count = job_.count * blocks, share = divide_up(count, hosts);
  const bool two_shot = count * job_.elem_bytes > kMostOneShotBytes;
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
  const bool has_root = job_.collective == Collective::kReduce;
  if (has_root && levels_.root.host != levels_.self.host) return;
  spread_ = {Collective::kBroadcast, whole, whole, count, job_.elem_bytes, nullptr, 0};
}

void TwoLevelExecutor::plan_broadcast() {
  const bool is_here = levels_.root.host == levels_.self.host;
  const std::byte* const in = levels_.self == levels_.root ? job_.in : job_.out;
  if (is_here)
    gather_ = {Collective::kBroadcast, job_.in, job_.out,          job_.count,
               job_.elem_bytes,        nullptr, levels_.root.local};
  else
    spread_ = {Collective::kBroadcast, job_.out, job_.out, job_.count, job_.elem_bytes, nullptr, 0};
  across_ = {Pattern::kDirectBroadcast,
             is_here ? in : job_.out,
             is_here ? const_cast<std::byte*>(in) : job_.out,
             job_.count,
             job_.elem_bytes,
             nullptr,
             levels_.root.host};
}

/// whole_: all blocks, host after host.
void TwoLevelExecutor::plan_all_gather() {
  whole_.resize(levels_.ranks.size() * job_.bytes());
  std::byte* const whole = whole_.data();
  const auto locals = static_cast<std::size_t>(this->locals());
  gather_ = {Collective::kAllGather, job_.in,
             whole + static_cast<std::size_t>(levels_.self.host) * locals * job_.bytes(), job_.count,
             job_.elem_bytes};
  across_ = {Pattern::kDirectAllGather, whole, whole, locals * job_.count, job_.elem_bytes};
  spread_ = {Collective::kBroadcast, whole, whole, levels_.ranks.size() * job_.count, job_.elem_bytes};
}

/// A rank alone on its host has nothing to agree on: its operand is the host's.
void TwoLevelExecutor::begin(const std::optional<HostJob>& inside) {
  inside_.reset();
  if (!inside) return;
  if (levels_.boards != nullptr)
    inside_.emplace(*levels_.boards, *inside);
  else if (inside->in != inside->out && inside->collective != Collective::kBroadcast)
    std::memcpy(inside->out, inside->in, inside->bytes());
}

void TwoLevelExecutor::begin_across() {
  between_.reset();
  if (across_ && is_first()) between_.emplace(levels_.links, levels_.self.host, levels_.slot_bytes, *across_);
}

TwoLevelExecutor::State TwoLevelExecutor::advance() {
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
        begin_across();
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

/// From whole_ to where the caller wants it.
void TwoLevelExecutor::finish() {
  const std::size_t bytes = job_.bytes(), rank = static_cast<std::size_t>(levels_.rank);
  switch (job_.collective) {
    case Collective::kAllreduce:
      std::memcpy(job_.out, whole_.data(), bytes);
      break;
    case Collective::kReduce:
      if (levels_.self == levels_.root) std::memcpy(job_.out, whole_.data(), bytes);
      break;
    case Collective::kReduceScatter:
      std::memcpy(job_.out, whole_.data() + rank * bytes, bytes);
      break;
    case Collective::kAllGather:
      for (std::size_t i = 0; i < levels_.ranks.size(); ++i)
        std::memcpy(job_.out + static_cast<std::size_t>(levels_.ranks[i]) * bytes, whole_.data() + i * bytes,
                    bytes);
      break;
    default:  // a broadcast's is there already, a barrier has none
      break;
  }
}

HostAndLocal TwoLevelExecutor::awaited() const noexcept {
  if (stage_ == Stage::kAcross && between_) return {between_->awaited(), 0};
  return {levels_.self.host, inside_ ? inside_->awaited() : levels_.self.local};
}

}  // namespace loom::device
