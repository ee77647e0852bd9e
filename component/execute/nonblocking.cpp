// nonblocking.cpp -- calls that do not wait, and what a failed one does to the rest.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "component/communicator.hpp"
#include "component/execute/failure.hpp"
#include "component/links/shared_layout.hpp"

namespace loom {

using State = device::RingExecutor::State;

bool Communicator::needs_links(const device::Call& call) {
  if (link_state_ != LinkState::kNotMade || linking_) return false;
  if (!device::has_kernel(call)) return false;
  const Algorithm algorithm = choose(call, false).algorithm;
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
    const auto [usual, candidate] = choose(call, false);
    // Links made later would wait for ranks which may first want requests of this queue to be started
    // elsewhere.
    if (usual == Algorithm::kPairwise && twin_of_ != nullptr) return Algorithm::kFallback;
    if (!candidate) return usual;
    Communicator& timed = twin_of_ != nullptr ? *twin_of_ : *this;  // only blocking calls are timed
    return timed.window_of(call, usual).candidate_leads() ? *candidate : usual;
  };
  const bool has_kernel = device::has_kernel(call);
  if (has_kernel) count_small_call(call);
  Algorithm algorithm = has_kernel ? planned() : Algorithm::kFallback;
  if (algorithm != Algorithm::kFallback && algorithm != Algorithm::kCopy) {
    if (may_wait) {
      // Of a twin there are none that use links before it has any, and later ones may have to be started by
      // other ranks after they have made this one.
      if (twin_of_ == nullptr) finish_requests();
      if (broken_) throw *broken_;
      try {
        choose_when_ready(call);  // makes the links
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
  explain(algorithm, call, false);
  if (algorithm == Algorithm::kFallback) {
    count(call, {});
    return nullptr;
  }
  try {
    process_.start_thread();
  } catch (const std::system_error&) {  // no thread to be had: requests advance in MPI calls alone
  }
  return std::unique_ptr<Request>(new Request{*this, {call, algorithm}, done, context});
}

void Communicator::start(Request& request) noexcept {
  count(request.operation.call, request.operation.algorithm);
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

/// As much as goes without waiting. The engine lets one thread in at a time.
State Communicator::advance(Request& request) {
  if (broken_) throw *broken_;
  if (abandoned_ || stopping_.load(std::memory_order_relaxed))  // a step more would take back the word of it
    throw Error(ErrorCode::kGivenUp, "This rank has given up an earlier call.");
  return advance(request.operation);
}

/// For an operation that has waited so long. Throws Error.
void Communicator::check_waiting(const Operation& operation, double waited_s) const {
  const double limit_s = process_.runtime().parameters.timeout_s;
  const std::function<bool()> is_excused = [&] { return links_.waits_too(*group_, awaited_rank(operation)); };
  if (device::is_past(limit_s, waited_s, &is_excused))
    throw Error(ErrorCode::kTimeout, fmt::format("No step forward for {:.1f} s. Waiting for {}.", waited_s,
                                                 awaited_text(awaited_rank(operation))));
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

}  // namespace loom
