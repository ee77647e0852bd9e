// work.hpp -- what streams do: pieces of work, each after some others, done by threads as soon as these have
// ended, or a random while later. A stream is a chain of such pieces. Each has a beginning and an end in
// virtual time, too, which do not depend on when it is really done.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

namespace virtual_gpu {

using Clock = std::chrono::steady_clock;

/// Of virtual time, in ns: when work may begin, and how much later than what it comes after.
struct Schedule {
  double earliest = 0, gap = 0;
};

struct Work {
  std::function<void(Work&)> body;           ///< empty: a mark, which takes no thread and no time
  std::vector<std::shared_ptr<Work>> after;  ///< until it has ended
  std::vector<std::shared_ptr<Work>> dependents;
  std::size_t blockers = 0;
  Clock::time_point due{};  ///< earlier where somebody waits for it
  bool wanted = false, ended = false;
  Clock::time_point when_ended{};
  Schedule schedule{};
  double previous_end = 0;  ///< of all that it comes after
  double end = 0;           ///< the body may set a later one than begin()

  double begin() const {
    return std::max(schedule.earliest, previous_end > 0 ? previous_end + schedule.gap : 0);
  }
};
using WorkPtr = std::shared_ptr<Work>;

/// Every function but the constructor is called with the lock that was given to it.
class Engine {
 public:
  /// delay: the longest that work is put off while nobody waits for it.
  Engine(std::mutex& mutex, std::chrono::microseconds delay, std::uint64_t seed)
      : mutex_(mutex), delay_(delay), random_(seed) {}

  /// The body runs without the lock. Pieces in `after` that are null or have ended do not matter.
  WorkPtr enqueue(std::function<void(Work&)> body, const std::vector<WorkPtr>& after, Schedule schedule);
  /// Work is done without delay from now on, with all that it waits for.
  void hurry(const WorkPtr& work);
  void wait(std::unique_lock<std::mutex>& lock, const WorkPtr& work);
  /// Something else that threads wait for has changed.
  void notify() { changed_.notify_all(); }
  std::condition_variable& changed() { return changed_; }
  std::uint64_t random() { return random_(); }

 private:
  void make_ready(const WorkPtr& work);
  void end(const WorkPtr& work);
  void serve();

  std::mutex& mutex_;
  std::chrono::microseconds delay_;
  std::mt19937_64 random_;
  std::condition_variable changed_, has_ready_;
  std::vector<WorkPtr> ready_;
  std::size_t idle_ = 0;
};

}  // namespace virtual_gpu
