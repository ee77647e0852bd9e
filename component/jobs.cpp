#include "component/jobs.hpp"

#include <sched.h>

#include <utility>

#include "component/communicator.hpp"

namespace loom {
namespace {

// A large job gives way to those of other communicators, and to the caller, after so many steps.
constexpr int kStepsAtATime = 8;
// The clock is asked once in so many fruitless looks; peers are looked after as often as in a Waiter.
constexpr unsigned kLooksPerClock = 64;
constexpr auto kCheckPeersEvery = std::chrono::milliseconds(200);

}  // namespace

JobQueue::~JobQueue() {
  if (!empty()) engine_->forget(*this);
}

void JobQueue::append(Job& job) noexcept {
  job.next = nullptr;
  job.executed = false;
  job.result = LOOM_SUCCESS;
  job.executor.emplace<std::monostate>();
  (first_ == nullptr ? first_ : last_->next) = &job;
  last_ = &job;
  outstanding_.fetch_add(1, std::memory_order_relaxed);
}

/// Some steps of the first job. Returns it once it is done; by then the queue knows no more of it.
Job* JobQueue::advance(int& steps) noexcept {
  Job& job = *first_;
  bool done = false;
  try {
    for (int step = 0; step < kStepsAtATime && !done; ++step) {
      const auto state = communicator_.advance(job);
      done = state == device::RingExecutor::State::kDone;
      if (state == device::RingExecutor::State::kBlocked) {
        if (step == 0) look_after(job);
        break;
      }
      fruitless_ = 0;
      ++steps;
    }
  } catch (...) {
    job.result = communicator_.fail();
    done = true;
  }
  if (!done) return nullptr;
  fruitless_ = 0;
  job.executor.emplace<std::monostate>();
  first_ = std::exchange(job.next, nullptr);
  outstanding_.fetch_sub(1, std::memory_order_release);
  return &job;
}

/// Throws Error once a peer is known to be dead, or the limit has passed.
void JobQueue::look_after(const Job& job) {
  if (++fruitless_ % kLooksPerClock != 1) return;
  const auto now = std::chrono::steady_clock::now();
  if (fruitless_ == 1) began_ = checked_ = now;
  if (now - checked_ < kCheckPeersEvery) return;
  checked_ = now;
  communicator_.check_waiting(job, std::chrono::duration<double>(now - began_).count());
}

/// Whoever is inside never waits.
void JobEngine::enter() noexcept {
  while (busy_.test_and_set(std::memory_order_acquire)) ::sched_yield();
}

void JobEngine::start(JobQueue& queue, Job& job) noexcept {
  enter();
  const bool idle = queues_ == nullptr;
  if (queue.first_ == nullptr) queue.next_ = std::exchange(queues_, &queue);
  queue.engine_ = this;
  queue.append(job);
  if (idle && callback_ != nullptr && runtime_.register_progress != nullptr)
    runtime_.register_progress(callback_);
  leave();
  progress();  // what can go out at once should
}

void JobEngine::forget(JobQueue& queue) noexcept {
  enter();
  for (JobQueue** link = &queues_; *link != nullptr; link = &(*link)->next_)
    if (*link == &queue) {
      *link = queue.next_;
      break;
    }
  leave();
}

int JobEngine::progress() noexcept {
  if (busy_.test_and_set(std::memory_order_acquire)) return 0;  // also where this thread is inside already
  int steps = 0;
  const bool had_jobs = queues_ != nullptr;
  for (JobQueue** link = &queues_; *link != nullptr;) {
    JobQueue& queue = **link;
    Job* const done = queue.advance(steps);
    // When the last job is told done its communicator may go, at once and in another thread.
    const bool emptied = queue.first_ == nullptr;
    if (emptied) *link = queue.next_;
    if (done != nullptr) done->done(done->context, done->result);
    if (!emptied && done == nullptr) link = &queue.next_;
  }
  if (had_jobs && queues_ == nullptr && callback_ != nullptr && runtime_.unregister_progress != nullptr)
    runtime_.unregister_progress(callback_);
  leave();
  return steps;
}

}  // namespace loom
