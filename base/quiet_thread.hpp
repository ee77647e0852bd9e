// quiet_thread.hpp -- threads of the library's own, of which the program knows nothing.
#pragma once

#include <sched.h>

#include <array>
#include <thread>
#include <utility>

#include "base/blocked_signals.hpp"

namespace loom {

/// Runs body() in a thread that takes no signals: they are the program's. Throws what std::thread does.
template <class Body>
std::thread quiet_thread(Body&& body) {
  const BlockedSignals blocked;  // a thread begins with the mask of the one that makes it
  return std::thread(std::forward<Body>(body));
}

/// The calling thread may run anywhere: the program computes on the cores that the process is bound to.
inline void leave_cores_to_program() noexcept {
  // Of 65,536 CPUs: a cpu_set_t has 1024, and kernels may know more.
  alignas(cpu_set_t) std::array<unsigned char, 8192> anywhere;
  anywhere.fill(0xff);
  ::sched_setaffinity(0, sizeof(anywhere), reinterpret_cast<const cpu_set_t*>(anywhere.data()));
}

}  // namespace loom
