// communicator_jobs.cpp -- the calls that do not wait, and what a failed one does to the rest.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "component/communicator.hpp"
#include "component/execute/failure.hpp"
#include "component/links/shared_layout.hpp"

namespace loom {

using device::RingExecutor;

bool Communicator::needs_links(const device::Call& call) const {
  if (link_state_ != LinkState::kNotMade || linking_) return false;
  if (device::is_reduction(call.collective) && call.reduce == nullptr) return false;
  const Algorithm algorithm =
      plan_resumable(call.collective, group_->wiring.shape,
                     device::shared_bytes(call, group_->wiring.shape.ranks), abilities());
  return algorithm != Algorithm::kFallback && algorithm != Algorithm::kCopy;
}

void Communicator::connect(const Bootstrap& bootstrap, std::function<void()> pause) {
  const Bootstrap own = std::exchange(bootstrap_, bootstrap);
  bootstrap_.rename(name_.c_str());
  pause_ = std::move(pause);
  const auto restore = [&] {
    bootstrap_ = own;
    pause_ = nullptr;
  };
  try {
    is_linked();
  } catch (...) {
    restore();
    fail_call();
  }
  restore();
}

Communicator* Communicator::for_persistent_calls() {
  if (bootstrap_.size() == 1) return this;  // there is nobody to be in another order
  if (twin_state_ == Twin::kNotMade && !linking_) {
    if (broken_) throw *broken_;
    linking_ = true;
    try {
      Bootstrap bootstrap = bootstrap_;
      const std::string name = name_ + " (persistent requests)";
      bootstrap.rename(name.c_str());
      twin_ = create(bootstrap, process_);
    } catch (...) {
      linking_ = false;
      fail_call();
    }
    linking_ = false;
    twin_state_ = twin_ ? Twin::kReady : Twin::kDeclined;
    if (twin_) twin_->twin_of_ = this;
    process_.engine().apart([&] {
      if (twin_ && abandoned_) twin_->stop();
    });
  }
  return twin_.get();
}

std::unique_ptr<Request> Communicator::make_request(const device::Call& call, bool may_wait,
                                                    loom_request_done done, void* context) {
  // Unless it waits: whether the communicator is broken shows when the job's turn comes, for another thread
  // may be finding out now.
  const auto planned = [&] {
    const Algorithm usual =
        plan_resumable(call.collective, group_->wiring.shape,
                       device::shared_bytes(call, group_->wiring.shape.ranks), abilities());
    // Links made later would wait for ranks which may first want jobs of this queue to be started elsewhere.
    if (usual == Algorithm::kPairwise && twin_of_ != nullptr) return Algorithm::kFallback;
    const std::optional<Algorithm> rival = rival_of(usual, call);
    if (!rival) return usual;
    Communicator& timed = twin_of_ != nullptr ? *twin_of_ : *this;  // only blocking calls are timed
    const bool leads = *rival == Algorithm::kHierStar ? timed.links_.trials.star_leads
                                                      : timed.race_of(call, usual).rival_leads();
    return leads ? *rival : usual;
  };
  const bool has_kernel = !device::is_reduction(call.collective) || call.reduce != nullptr;
  if (has_kernel) count_small_call(call);
  Algorithm algorithm = has_kernel ? planned() : Algorithm::kFallback;
  if (algorithm != Algorithm::kFallback && algorithm != Algorithm::kCopy) {
    if (may_wait) {
      // Of a twin there are none that use links before it has any, and later ones may have to be started by
      // other ranks after they have made this one.
      if (twin_of_ == nullptr) finish_requests();
      if (broken_) throw *broken_;
      try {
        ready_plan(call);  // makes the links
      } catch (...) {
        fail_call();
      }
    }
    const bool connected =
        link_state_ == LinkState::kFailed ||
        (link_state_ == LinkState::kReady &&
         (algorithm != Algorithm::kPairwise || links_.pairwise_state != LinkState::kNotMade));
    if (!connected && !linking_) process_.count_fallback(call.collective, FallbackReason::kNotConnected);
    if (!connected) return nullptr;
    algorithm = link_state_ == LinkState::kReady ? planned() : Algorithm::kFallback;
    if (algorithm == Algorithm::kPairwise && links_.pairwise_state == LinkState::kFailed)
      algorithm = Algorithm::kFallback;
  }
  explain(algorithm, call);
  if (algorithm == Algorithm::kFallback) {
    count(call, {});
    return nullptr;
  }
  try {
    process_.start_thread();
  } catch (const std::system_error&) {  // no thread to be had: jobs advance in MPI calls alone
  }
  return std::unique_ptr<Request>(new Request{*this, call, algorithm, done, context});
}

void Communicator::start(Request& request) noexcept {
  count(request.call, request.algorithm);
  process_.engine().start(requests_, request);
}

/// Whatever becomes of them is told to those who wait for them.
void Communicator::finish_requests() noexcept {
  constexpr unsigned kLooksBeforeYield = 100;
  for (unsigned fruitless = 0; !requests_.empty();) {
    if (process_.engine().progress() > 0) {
      fruitless = 0;
      continue;
    }
    if (wait_policy_.progress) wait_policy_.progress();
    if (wait_policy_.oversubscribed || ++fruitless > kLooksBeforeYield) ::sched_yield();
  }
}

/// MPI has all ranks make a communicator's calls in one order.
void Communicator::finish_requests_before_call() {
  if (!requests_.empty()) finish_requests();
  if (broken_) throw *broken_;
}

void Communicator::begin(Request& request) {
  const device::Call& call = request.call;
  if (group_->wiring.shape.hosts > 1) links_.enter(note_between_hosts(call));
  switch (request.algorithm) {
    case Algorithm::kCico:
      request.executor.emplace<device::CicoExecutor>(*links_.cico, call);
      return;
    case Algorithm::kSingleCopy:
      request.executor.emplace<device::SingleCopyExecutor>(*links_.cico, links_.pids, call);
      return;
    case Algorithm::kBlocks:
      request.executor.emplace<device::CicoBlocksExecutor>(*links_.cico, call);
      return;
    case Algorithm::kScan:
      request.executor.emplace<device::CicoScanExecutor>(*links_.cico, call);
      return;
    case Algorithm::kHier:
      request.executor.emplace<device::HierExecutor>(levels(device::Across::kOneShot), call);
      return;
    case Algorithm::kHierStar:
      request.executor.emplace<device::HierExecutor>(levels(device::Across::kStar), call);
      return;
    case Algorithm::kSplitRail:
    case Algorithm::kFlatRing:
      if (device::SplitRailExecutor::takes(call.collective))
        request.executor.emplace<device::SplitRailExecutor>(grid(), call);
      else
        request.executor.emplace<device::RootedExecutor>(rooted(call));
      return;
    case Algorithm::kDbt:
      request.executor.emplace<device::DbtExecutor>(over_trees(call));
      return;
    case Algorithm::kPairwise:
      request.executor.emplace<device::PairwiseExecutor>(pairwise(), call);
      return;
    case Algorithm::kCopy:
    case Algorithm::kImmediate:
    case Algorithm::kHostDriven:
    case Algorithm::kKernel:
    case Algorithm::kFallback:
      break;
  }
  throw Error(ErrorCode::kInternal, "A call that cannot be resumed was started as one that can.");
}

/// As much as goes without waiting. The engine lets one thread in at a time.
RingExecutor::State Communicator::advance(Request& request) try {
  using State = RingExecutor::State;
  if (broken_) throw *broken_;
  if (abandoned_ || stopping_.load(std::memory_order_relaxed))  // a step more would take back the word of it
    throw Error(ErrorCode::kGivenUp, "This rank has given up an earlier call.");
  const device::Call& call = request.call;
  if (request.algorithm == Algorithm::kCopy) {
    perform_alone(call);
    return State::kDone;
  }
  if (!request.executed) {
    if (request.executor.index() == 0) {
      const bool nothing = call.count == 0 && call.collective != device::Collective::kBarrier &&
                           !device::lists_blocks(call.collective);
      if (nothing) return State::kDone;
      begin(request);
    }
    const State state = std::visit(
        [](auto& executor) {
          if constexpr (requires { executor.advance(); })
            return executor.advance();
          else
            return State::kDone;
        },
        request.executor);
    if (state != State::kDone) return state;
    request.executed = true;
  }
  const std::uint64_t before = request.released;
  request.not_quiet = links_.not_quiet(request.released);
  if (!request.not_quiet) {
    if (const auto* blocks = std::get_if<device::CicoBlocksExecutor>(&request.executor))
      tell_cut(call.collective, blocks->cut());
    if (request.adopted) tell_adopted(*request.adopted, call.root);
    return State::kDone;
  }
  return request.released != before ? State::kMoved : State::kBlocked;
} catch (const device::ProcessEnded& ended) {
  fail_for(ended);
} catch (const device::DifferentCall& other) {
  // As the root does, from the second round on: in the first receivers do nothing.
  if (request.adopted || !adopts(request.call, other, device::CallProgress::kFirstRound)) fail_for(other);
  request.adopted = std::make_unique<AdoptedBroadcast>(request.call, other.its().bytes());
  if (other.its().family() == device::CallFamily::kSingleCopy)
    request.executor.emplace<device::SingleCopyExecutor>(*links_.cico, links_.pids, request.adopted->call(),
                                                         device::Begun::kYes);
  else
    request.executor.emplace<device::CicoExecutor>(*links_.cico, request.adopted->call(),
                                                   device::Begun::kYes);
  return RingExecutor::State::kMoved;
}

int Communicator::awaited_rank(const Request& request) const {
  if (request.executed) return request.not_quiet.value_or(rank_);
  if (const auto* levels = std::get_if<device::HierExecutor>(&request.executor))
    return rank_at(levels->awaited());
  return std::visit(
      [&](const auto& executor) {
        if constexpr (requires {
                        { executor.awaited() } -> std::convertible_to<int>;
                      })
          return executor.awaited();
        else
          return rank_;
      },
      request.executor);
}

/// For a job that has waited so long. Throws Error.
void Communicator::check_waiting(const Request& request, double waited_s) const {
  const double limit_s = process_.runtime().parameters.timeout_s;
  const std::function<bool()> is_excused = [&] { return links_.waits_too(*group_, awaited_rank(request)); };
  if (device::is_past(limit_s, waited_s, &is_excused))
    throw Error(ErrorCode::kTimeout, fmt::format("No step forward for {:.1f} s. Waiting for {}.", waited_s,
                                                 awaited_text(awaited_rank(request))));
}

/// What is being caught ends the communicator; its first cause is shown. Returns the result for the C side.
int Communicator::fail() noexcept {
  const bool first = !broken_;
  abandon();
  return result_of_exception([&](loom_message message, const char* cause) {
    if (!first) return;
    try {
      broken_.emplace(ErrorCode::kInternal, "An earlier call on this communicator failed.");
      throw;
    } catch (const Error& error) {
      broken_ = error;
    } catch (...) {
    }
    process_.runtime().show(message, where_.c_str(), cause);
  });
}

/// Of a call that has ended so. may_tell: as RequestQueue::advance().
int Communicator::result_of(const Truncated& truncated, bool may_tell) const noexcept {
  if (may_tell) process_.runtime().show(LOOM_MESSAGE_TRUNCATED, where_.c_str(), truncated.what());
  return LOOM_TRUNCATED;
}

void Communicator::give_up() noexcept {
  bool first = false;
  process_.engine().apart([&] {
    abandon();
    first = !broken_;
    try {
      if (first) broken_.emplace(ErrorCode::kOutOfMemory, "There is no memory left.");
    } catch (...) {  // even the text is too much; the peers know
      first = false;
    }
  });
  if (first) process_.runtime().show(LOOM_MESSAGE_RESOURCES, where_.c_str(), broken_->what());
}

void Communicator::leave() noexcept {
  process_.engine().apart([&] { abandon(); });
}

/// A small call whose buffers are not contiguous: they are packed on the stack, a long broadcast piece by
/// piece, cut as by those who are contiguous. plan() makes no other call direct that is larger.
void Communicator::perform_immediately(const device::Call& request, device::Waiter& waiter,
                                       std::size_t call_bytes) {
  using device::Collective;
  constexpr std::size_t kMostBytes = device::ImmediateArea::kMostOffered;
  alignas(device::kCacheLine) std::byte in[kMostBytes], out[2 * kMostBytes];
  const bool many_in = request.collective == Collective::kAllToAll;
  const bool many_out = many_in || request.collective == Collective::kAllGather;
  const bool bcast = request.collective == Collective::kBroadcast;
  if (const std::size_t most = device::most_offered(group_->protocol); bcast && request.bytes() > most) {
    device::Call piece = request;
    piece.elem_bytes = 1;
    for (std::size_t at = 0; at < request.bytes(); at += most) {
      if (request.in != nullptr) piece.in = request.in + at;
      if (request.out != nullptr) piece.out = request.out + at;
      piece.count = std::min(most, request.bytes() - at);
      perform_immediately(piece, waiter, call_bytes);
      waiter.moved();
    }
    return;
  }
  const auto ranks = static_cast<std::size_t>(links_.immediate->size());
  const std::size_t in_blocks = many_in ? ranks : 1, out_blocks = many_out ? ranks : 1;
  if (in_blocks * request.bytes() > sizeof(in) || out_blocks * request.bytes() > sizeof(out))
    throw Error(ErrorCode::kInternal, "A message with gaps is too large for a direct exchange.");
  const bool sends = !bcast || rank_ == request.root, receives = !bcast || rank_ != request.root;
  device::Call packed = request;
  if (request.in_packer != nullptr) {
    for (std::size_t block = 0; sends && block < in_blocks; ++block)
      request.in_packer->move(request.in_packer->context, static_cast<int>(block),
                              in + block * request.bytes(), request.bytes());
    packed.in = in;
  }
  if (request.out_packer != nullptr) packed.out = out;
  links_.immediate->perform_part(packed, call_bytes, waiter);
  if (request.out_packer == nullptr || !receives) return;
  for (std::size_t block = 0; block < out_blocks; ++block)
    request.out_packer->move(request.out_packer->context, static_cast<int>(block),
                             out + block * request.bytes(), request.bytes());
}

}  // namespace loom
