#include "component/communicator/requests.hpp"

#include <sched.h>

#include <cstring>
#include <utility>

#include "base/quiet_thread.hpp"
#include "component/communicator/communicator.hpp"

namespace loom {
namespace {

// After this many steps a large request yields to those of other communicators, and to the caller.
constexpr int kStepsAtATime = 8;
// Fruitless looks between two readings of the clock. Peers are checked as often as in a Waiter.
constexpr unsigned kLooksPerClock = 64;
constexpr auto kCheckPeersEvery = std::chrono::milliseconds(200);
// Of the progress thread: ranks of one host wake nobody when they write to each other's memory.
constexpr std::chrono::microseconds kNap{100};
// Turns of the library's progress loop without a request before it is asked to call no more: a program that
// starts one request after the other would pay for that each time.
constexpr unsigned kIdleTurns = 256;

}  // namespace

RequestQueue::~RequestQueue() {
  if (!empty()) engine_->forget(*this);
}

void RequestQueue::append(Request& request) noexcept {
  request.next = nullptr;
  request.result = LOOM_SUCCESS;
  request.operation.reset();
  (first_ == nullptr ? first_ : last_->next) = &request;
  last_ = &request;
  outstanding_.fetch_add(1, std::memory_order_relaxed);
}

/// Takes some steps of the first request. Returns it once it is done; it has then left the queue, but counts
/// until let_go(). may_tell: this is a call of the MPI library, which can show failures to the user.
Request* RequestQueue::advance(int& steps, bool may_tell) noexcept {
  Request& request = *first_;
  bool done = false;
  if (!failure_) done = take_steps(request, steps, may_tell);
  if (failure_) {
    if (!may_tell || communicator_.awaits_word(failure_, failed_)) return nullptr;
    request.result = tell_failure();
    done = true;
  }
  if (!done) return nullptr;
  fruitless_ = 0;
  request.operation.reset();  // before on_device, to which it refers
  if (request.on_device && request.on_device->is_persistent)
    request.on_device->after.reset();
  else
    request.on_device.reset();
  first_ = std::exchange(request.next, nullptr);
  return &request;
}

/// Returns whether the request is done. It has failed where failure_ is set then.
bool RequestQueue::take_steps(Request& request, int& steps, bool may_tell) noexcept {
  try {
    for (int step = 0; step < kStepsAtATime; ++step) {
      const auto state = communicator_.advance(request);
      if (state == device::RingExecutor::State::kBlocked) {
        if (step == 0) look_after(request.operation);
        return false;
      }
      fruitless_ = 0;
      ++steps;
      if (state == device::RingExecutor::State::kDone) return true;
    }
    return false;
  } catch (const Truncated& truncated) {
    request.result = communicator_.result_of(truncated, may_tell);
    return true;
  } catch (const NotCopied&) {
    failure_ = std::current_exception();
  } catch (...) {
    failure_ = std::current_exception();
    communicator_.abandon(failure_);
  }
  failed_ = std::chrono::steady_clock::now();
  return false;
}

/// The first request's result.
int RequestQueue::tell_failure() noexcept {
  try {
    std::rethrow_exception(std::exchange(failure_, nullptr));
  } catch (const NotCopied& not_copied) {
    return communicator_.result_of(not_copied);
  } catch (...) {
    return communicator_.fail();
  }
}

/// Throws Error if a peer is known to be dead, or the time limit has passed.
void RequestQueue::look_after(const Operation& operation) {
  if (++fruitless_ % kLooksPerClock != 1) return;
  const auto now = std::chrono::steady_clock::now();
  if (fruitless_ == 1) {
    began_ = checked_ = now;
    has_said_ = false;
  }
  const double waited_s = std::chrono::duration<double>(now - began_).count();
  const double limit_s = execution_.time_limit_s();
  if (limit_s > 0 && !has_said_ && waited_s > limit_s / 2) {
    has_said_ = true;
    execution_.say_waiting();
  }
  execution_.check_waiting(operation, waited_s);
  if (now - checked_ < kCheckPeersEvery) return;
  checked_ = now;
  execution_.check_peers();
}

/// The thread that is inside never waits, so this does not wait long.
void ProgressEngine::enter() noexcept {
  while (busy_.test_and_set(std::memory_order_acquire)) ::sched_yield();
}

void ProgressEngine::start(RequestQueue& queue, Request& request) noexcept {
  enter();
  if (queue.first_ == nullptr) queue.next_ = std::exchange(queues_, &queue);
  queue.engine_ = this;
  queue.append(request);
  // Here, for progress() does nothing while another thread is inside, which may have nothing to do with
  // requests.
  register_callback();
  leave();
  if (thread_.joinable()) {
    const MutexLock lock(mutex_);
    has_work_ = true;
    started_.notify_one();
  }
  progress();  // sends at once what can be sent
}

/// The library looks for requests in every turn of its loop: where ranks outnumber CPUs, one between two
/// looks is as long as a time slice.
void ProgressEngine::register_callback() noexcept {
  const loom_runtime& runtime = process_.runtime();
  if (registered_ || callback_ == nullptr || runtime.register_progress == nullptr) return;
  runtime.register_progress(callback_, true);
  registered_ = true;
}

void ProgressEngine::unregister_callback() noexcept {
  if (registered_) process_.runtime().unregister_progress(callback_);
  registered_ = false;
}

ProgressEngine::~ProgressEngine() {
  stop_thread();
  unregister_callback();
}

void ProgressEngine::forget(RequestQueue& queue) noexcept {
  enter();
  for (RequestQueue** link = &queues_; *link != nullptr; link = &(*link)->next_)
    if (*link == &queue) {
      *link = queue.next_;
      break;
    }
  leave();
}

int ProgressEngine::progress() noexcept {
  if (busy_.test_and_set(std::memory_order_acquire)) {  // maybe by this thread itself
    passed_by_.store(true, std::memory_order_relaxed);
    return 0;
  }
  int steps = 0;
  if (done_first_ != nullptr) {
    tell_done();
    ++steps;
  }
  steps += advance_all(true);
  if (queues_ != nullptr || done_first_ != nullptr) {
    idle_turns_ = 0;
    register_callback();
  } else if (registered_ && ++idle_turns_ > kIdleTurns) {
    unregister_callback();
  }
  leave();
  return steps;
}

int ProgressEngine::advance_all(bool may_tell) noexcept {
  int steps = 0;
  for (RequestQueue** link = &queues_; *link != nullptr;) {
    RequestQueue& queue = **link;
    Request* const done = queue.advance(steps, may_tell);
    if (queue.first_ == nullptr)
      *link = queue.next_;
    else if (done == nullptr)
      link = &queue.next_;
    // After its last request the communicator may be freed, at once and in another thread.
    if (done != nullptr) queue.let_go();
    if (done != nullptr && may_tell) {
      done->done(done->context, done->result);
    } else if (done != nullptr) {
      (done_first_ == nullptr ? done_first_ : done_last_->next) = done;
      done_last_ = done;
    }
  }
  return steps;
}

/// Reports what the thread has done. A request may be freed, or started again, once it has been reported.
void ProgressEngine::tell_done() noexcept {
  for (Request* request = std::exchange(done_first_, nullptr); request != nullptr;) {
    Request* const next = std::exchange(request->next, nullptr);
    request->done(request->context, request->result);
    request = next;
  }
}

void ProgressEngine::start_thread() {
  if (!process_.runtime().parameters.progress_thread) return;
  enter();
  try {
    if (!thread_.joinable()) thread_ = quiet_thread([this] { work(); });
  } catch (...) {
    leave();
    throw;
  }
  leave();
}

void ProgressEngine::stop_thread() noexcept {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stops_ = true;
    started_.notify_one();
  }
  thread_.join();
}

/// When nothing moves: waits a short time for the network.
void ProgressEngine::rest() noexcept {
  if (ucx_transport::Transport* transport = process_.open_transport())
    transport->wait(kNap);
  else
    std::this_thread::sleep_for(kNap);
}

void ProgressEngine::work() noexcept {
  leave_cores_to_program();
  while (true) {
    {
      const MutexLock lock(mutex_);
      while (!has_work_ && !stops_) started_.wait(mutex_);
      if (stops_) return;
      has_work_ = false;
    }
    for (bool requests = true; requests;) {
      enter();
      const int steps = advance_all(false);
      requests = queues_ != nullptr;
      leave();
      if (passed_by_.exchange(false, std::memory_order_relaxed)) ::sched_yield();
      if (steps == 0 && requests) rest();
      const MutexLock lock(mutex_);
      if (stops_) return;
    }
  }
}

}  // namespace loom
