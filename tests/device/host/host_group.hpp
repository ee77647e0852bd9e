// host_group.hpp -- threads of the host as a group that performs step code (device/steps/move.hpp), in place
// of a block of a kernel.
#pragma once

#include <atomic>
#include <barrier>
#include <thread>

namespace loom::device::steps {

class HostGroup {
 public:
  static constexpr int kLanes = 1;
  /// What its threads share.
  struct Agreement {
    explicit Agreement(int size) : barrier(size) {}
    std::barrier<> barrier;
    std::atomic<unsigned> holds[2] = {0, 0};  ///< in turn, so that one can be cleared
  };

  HostGroup(int index, int size, Agreement& agreement) : index_(index), size_(size), agreement_(agreement) {}
  int index() const { return index_; }
  int size() const { return size_; }
  bool any(bool condition) {
    std::atomic<unsigned>&now = agreement_.holds[turn_ % 2], &next = agreement_.holds[(turn_ + 1) % 2];
    ++turn_;
    if (condition) now.store(1, std::memory_order_relaxed);
    agreement_.barrier.arrive_and_wait();
    const bool result = now.load(std::memory_order_relaxed) != 0;
    next.store(0, std::memory_order_relaxed);
    if (size_ > 1) agreement_.barrier.arrive_and_wait();  // nobody sets what is being cleared
    return result;
  }
  bool all_lanes(bool condition) { return condition; }
  void pause() { std::this_thread::yield(); }

 private:
  int index_, size_;
  Agreement& agreement_;
  unsigned turn_ = 0;
};

}  // namespace loom::device::steps
