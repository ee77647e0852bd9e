#include "tests/virtual_gpu/driver/work.hpp"

#include <algorithm>
#include <thread>
#include <utility>

namespace virtual_gpu {

WorkPtr Engine::enqueue(std::function<void(Work&)> body, const std::vector<WorkPtr>& after,
                        Schedule schedule) {
  const auto work = std::make_shared<Work>();
  work->body = std::move(body);
  work->schedule = schedule;
  for (const WorkPtr& other : after) {
    if (other == nullptr) continue;
    if (other->ended) {
      work->previous_end = std::max(work->previous_end, other->end);
      continue;
    }
    work->after.push_back(other);
    other->dependents.push_back(work);
    ++work->blockers;
  }
  if (work->blockers == 0) make_ready(work);
  return work;
}

/// Half of all work starts at once.
void Engine::make_ready(const WorkPtr& work) {
  if (!work->body) return end(work);
  const auto most = static_cast<std::uint64_t>(delay_.count());
  const bool waits = most > 0 && random_() % 2 == 0;
  work->due = Clock::now() + std::chrono::microseconds(waits ? random_() % most : 0);
  ready_.push_back(work);
  if (idle_ < ready_.size()) {
    ++idle_;
    std::thread([this] { serve(); }).detach();  // work may block, so each has a thread
  } else {
    has_ready_.notify_one();
  }
}

void Engine::end(const WorkPtr& work) {
  work->ended = true;
  work->when_ended = Clock::now();
  work->end = std::max(work->end, work->begin());
  work->after.clear();
  for (const WorkPtr& next : std::exchange(work->dependents, {})) {
    next->previous_end = std::max(next->previous_end, work->end);
    if (--next->blockers == 0) make_ready(next);
  }
  changed_.notify_all();
}

void Engine::hurry(const WorkPtr& work) {
  std::vector<WorkPtr> all{work};
  while (!all.empty()) {
    const WorkPtr next = std::move(all.back());
    all.pop_back();
    if (next == nullptr || next->ended || next->wanted) continue;
    next->wanted = true;
    all.insert(all.end(), next->after.begin(), next->after.end());
  }
  has_ready_.notify_all();
}

void Engine::wait(std::unique_lock<std::mutex>& lock, const WorkPtr& work) {
  if (work == nullptr) return;
  hurry(work);
  changed_.wait(lock, [&] { return work->ended; });
}

/// A thread that does work, for ever.
void Engine::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto now = Clock::now();
    std::vector<std::size_t> startable;
    for (std::size_t i = 0; i < ready_.size(); ++i)
      if (ready_[i]->wanted || ready_[i]->due <= now) startable.push_back(i);
    if (startable.empty()) {
      const auto next = std::ranges::min_element(ready_, {}, &Work::due);
      if (next == ready_.end())
        has_ready_.wait(lock);
      else
        has_ready_.wait_until(lock, Clock::time_point((*next)->due));
      continue;
    }
    const auto chosen = ready_.begin() + static_cast<std::ptrdiff_t>(startable[random_() % startable.size()]);
    const WorkPtr work = *chosen;
    ready_.erase(chosen);
    --idle_;
    lock.unlock();
    work->body(*work);
    work->body = {};  // what it holds may be large
    lock.lock();
    ++idle_;
    end(work);
  }
}

}  // namespace virtual_gpu
