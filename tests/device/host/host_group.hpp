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
  struct Meeting {
    explicit Meeting(int size) : barrier(size) {}
    std::barrier<> barrier;
    std::atomic<unsigned> holds[2] = {0, 0};  ///< in turn, so that one can be cleared
  };

  HostGroup(int index, int size, Meeting& meeting) : index_(index), size_(size), meeting_(meeting) {}
  int index() const { return index_; }
  int size() const { return size_; }
  bool any(bool condition) {
    std::atomic<unsigned>&now = meeting_.holds[turn_ % 2], &next = meeting_.holds[(turn_ + 1) % 2];
    ++turn_;
    if (condition) now.store(1, std::memory_order_relaxed);
    meeting_.barrier.arrive_and_wait();
    const bool result = now.load(std::memory_order_relaxed) != 0;
    next.store(0, std::memory_order_relaxed);
    if (size_ > 1) meeting_.barrier.arrive_and_wait();  // nobody sets what is being cleared
    return result;
  }
  bool all_lanes(bool condition) { return condition; }
  void pause() { std::this_thread::yield(); }

 private:
  int index_, size_;
  Meeting& meeting_;
  unsigned turn_ = 0;
};

}  // namespace loom::device::steps
