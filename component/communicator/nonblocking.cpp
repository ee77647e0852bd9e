// nonblocking.cpp -- a communicator's calls that do not wait, and the requests of its queue.
#include <sched.h>

#include <utility>

#include "component/communicator/communicator.hpp"
#include "component/communicator/lane.hpp"

namespace loom {

bool Communicator::needs_links(const device::Call& call) {
  if (links_.state != LinkState::kNotMade || linking_) return false;
  if (!device::has_kernel(call)) return false;
  const Algorithm algorithm = selector_.choose(call, false).algorithm;
  return algorithm != Algorithm::kFallback && algorithm != Algorithm::kCopy;
}

void Communicator::connect(const Bootstrap& bootstrap, std::function<void()> pause) {
  const Bootstrap own = member_.bootstrap;
  member_.exchange_through(bootstrap);
  link_maker_.pause = std::move(pause);
  const auto restore = [&] {
    member_.bootstrap = own;
    link_maker_.pause = nullptr;
  };
  try {
    is_linked();
  } catch (...) {
    restore();
    fail_call();
  }
  restore();
}

/// Links are made by calls that wait: all ranks know of them at the same call.
bool Communicator::carries_beside_devices(const device::Call& call) {
  return links_.gpu_state == LinkState::kReady && links_.pairwise_state != LinkState::kFailed &&
         is_carried_beside_devices(selector_.conditions(), call.collective) && device_calls_.may_stay(call);
}

std::unique_ptr<Request> Communicator::make_request(const device::Call& call, loom_request_kind kind,
                                                    loom_request_done done, void* context) {
  // A call that may wait looks whether the communicator is broken. For others that shows when their turn
  // comes: another thread may be finding out now.
  const bool beside_devices = kind != LOOM_PERSISTENT && carries_beside_devices(call);
  const auto planned = [&] {
    const Choice choice = selector_.choose(call, false);
    // Links made later would wait for ranks that may first want requests of this queue to be started
    // elsewhere.
    if (choice.algorithm == Algorithm::kPairwise && twin_of_ != nullptr) return Algorithm::kFallback;
    // Else ranks could not ask each other where their buffers are: the fallback component's calls start in
    // one order on all ranks, and the answer would come too late for it.
    if (beside_devices) return Algorithm::kPairwise;
    return (twin_of_ != nullptr ? twin_of_->selector_ : selector_).leading(call, choice);
  };
  const bool has_kernel = device::has_kernel(call);
  const bool counted = has_kernel && !linking_ && selector_.count_small_call(call);
  // Ranks with their buffers on the host make the call once: here, too, it must count once.
  const auto comes_again_staged = [&]() -> std::unique_ptr<Request> {
    if (counted) selector_.uncount_small_call();
    return nullptr;
  };
  Algorithm algorithm = has_kernel ? planned() : Algorithm::kFallback;
  if (algorithm != Algorithm::kFallback && algorithm != Algorithm::kCopy) {
    if (kind == LOOM_PERSISTENT) {
      // A twin has no requests that use links before it has any. Later ones other ranks may start only after
      // they have made this one.
      if (twin_of_ == nullptr) finish_requests();
      broken_.check();
      try {
        choose_when_linked(call);  // makes the links
      } catch (...) {
        fail_call();
      }
    }
    const bool connected =
        links_.state == LinkState::kFailed ||
        (links_.state == LinkState::kReady &&
         (algorithm != Algorithm::kPairwise || links_.pairwise_state != LinkState::kNotMade));
    if (!connected && algorithm == Algorithm::kPairwise && links_.gpu_state == LinkState::kReady) {
      wants_pairwise_ = has_due_ = true;
      if (kind == LOOM_ON_DEVICE)
        selector_.explain_staged(call,
                                 "until the next call that may wait has made links of every two ranks, for "
                                 "those whose buffers are elsewhere");
    }
    if (!connected && kind == LOOM_ON_DEVICE) return comes_again_staged();
    if (!connected && !linking_)
      member_.process.count_fallback(call.collective, FallbackReason::kNotConnected);
    if (!connected) return nullptr;
    algorithm = links_.state == LinkState::kReady ? planned() : Algorithm::kFallback;
    if (algorithm == Algorithm::kPairwise && links_.pairwise_state == LinkState::kFailed)
      algorithm = Algorithm::kFallback;
  }
  if (algorithm == Algorithm::kFallback && kind == LOOM_ON_DEVICE) {
    if (is_carried_beside_devices(selector_.conditions(), call.collective) && device_calls_.may_stay(call) &&
        device_calls_.is_here(call))
      selector_.explain_staged(
          call,
          links_.gpu_state == LinkState::kNotMade
              ? "until a blocking call with the buffers of all ranks on GPUs has made links between them"
              : "there are no links of every two ranks");
    return comes_again_staged();
  }
  std::unique_ptr<DeviceOperation> on_device;
  if (kind != LOOM_PERSISTENT && algorithm != Algorithm::kFallback && algorithm != Algorithm::kCopy &&
      device_calls_.may_ask(call))
    on_device = device_calls_.begin(call, algorithm, kind == LOOM_ON_DEVICE);
  if (kind == LOOM_ON_DEVICE && !on_device) {
    if (device_calls_.wants_packing()) has_due_ = true;
    return comes_again_staged();
  }
  if (kind == LOOM_ON_DEVICE)
    device_calls_.explain_start(*on_device);
  else
    selector_.explain(algorithm, call, CallForm::kNonblocking,
                      beside_devices ? "ranks may have their buffers on GPUs" : "");
  if (algorithm == Algorithm::kFallback) {
    count(call, {});
    return nullptr;
  }
  start_thread();
  return std::unique_ptr<Request>(new Request{*this, std::move(on_device), {call, algorithm}, done, context});
}

void Communicator::mark_start(Request& request) noexcept {
  if (request.lane && request.lane->on_gpu)
    request.lane->on_gpu->mark_program(device_calls_.behind(request.operation.call));
  if (request.on_device && request.on_device->is_persistent) device_calls_.mark_program(*request.on_device);
}

void Communicator::start(Request& request) noexcept {
  if (request.lane) return engine_.start(request.lane->queue, request);
  if (!request.on_device) count(request.operation.call, request.operation.algorithm);
  engine_.start(requests_, request);
}

/// Whatever becomes of them is told to those who wait for them.
void Communicator::finish_requests() noexcept {
  constexpr unsigned kLooksBeforeYield = 100;
  const device::WaitPolicy& policy = execution_.wait_policy();
  for (unsigned fruitless = 0; !requests_.empty();) {
    if (engine_.progress() > 0) {
      fruitless = 0;
      continue;
    }
    if (policy.progress) policy.progress();
    if (policy.oversubscribed || ++fruitless > kLooksBeforeYield) ::sched_yield();
  }
}

/// MPI has all ranks make a communicator's calls in one order.
void Communicator::finish_requests_before_call() {
  if (!requests_.empty()) finish_requests();
  if (lanes_released_.load(std::memory_order_relaxed)) take_lanes_back();
  if (!has_due_) return;
  has_due_ = false;
  if (broken_ || abandoned_) has_due_ = true;  // for all later calls; another thread may set it meanwhile
  broken_.check();
  try {
    if (abandoned_) throw_abandoned();
    if (std::exchange(wants_pairwise_, false)) make_pairwise();
    if (device_calls_.wants_set_up()) device_calls_.set_up();
    if (device_calls_.wants_packing()) device_calls_.make_packing_ready();
  } catch (...) {
    fail_call();
  }
}

/// As the request that has failed, which has not told it yet, or else for a call of another one.
void Communicator::throw_abandoned() const {
  if (abandoned_for_) std::rethrow_exception(abandoned_for_);
  throw Error(ErrorCode::kGivenUp, "This rank has given up an earlier call.");
}

State Communicator::advance(Request& request) {
  broken_.check();
  // A step more would take back what the peers were told.
  if (abandoned_ || stopping_.load(std::memory_order_relaxed)) throw_abandoned();
  if (request.lane) {  // counted here: several threads may start requests
    Lane& lane = *request.lane;
    const State state = lane.on_gpu ? lane.on_gpu->advance(lane.execution, request.operation)
                                    : lane.execution.advance(request.operation);
    if (state == State::kDone) count(queued_calls_, request.operation.call, request.operation.algorithm);
    return state;
  }
  if (!request.on_device) return execution_.advance(request.operation);
  const State state = device_calls_.advance(*request.on_device, request.operation);
  if (state == State::kDone) count(queued_calls_, request.on_device->call, request.operation.algorithm);
  if (device_calls_.wants_set_up()) has_due_ = true;
  return state;
}

int Communicator::result_of(const Truncated& truncated, bool may_tell) const noexcept {
  if (may_tell) member_.process.runtime().show(LOOM_MESSAGE_TRUNCATED, where().c_str(), truncated.what());
  return LOOM_TRUNCATED;
}

int Communicator::result_of(const NotCopied& not_copied) const noexcept {
  member_.process.runtime().show(LOOM_MESSAGE_DEVICE, where().c_str(), not_copied.what());
  return LOOM_NOT_COPIED;
}

}  // namespace loom
