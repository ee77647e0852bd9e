// waiting.hpp -- work of a program on a GPU that waits for the host.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "device_ints.hpp"

namespace loom::mpi_test {

/// In the legacy default stream or another one; ends when the program says so.
class Waiting {
 public:
  explicit Waiting(void* stream = nullptr) {
    const auto launch = Driver::get().function<int(void*, void (*)(void*), void*)>("cuLaunchHostFunc");
    require(launch(stream, wait, &may_end_) == 0, "the program cannot wait in a stream");
  }
  ~Waiting() {
    end();
    Driver::get().function<int()>("cuCtxSynchronize")();
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  void end() { may_end_ = true; }

 private:
  static void wait(void* may_end) {
    while (!*static_cast<std::atomic<bool>*>(may_end))
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  std::atomic<bool> may_end_{false};
};

}  // namespace loom::mpi_test
