// quiet_thread.hpp -- threads of the library's own, of which the program knows nothing.
#pragma once

#include <sched.h>

#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

namespace loom {

/// Runs body() in a thread that takes no signals: they are the program's. Throws what std::thread does.
template <class Body>
std::thread quiet_thread(Body&& body) {
  struct Blocked {
    Blocked() {
      sigset_t all;
      ::sigfillset(&all);
      ::pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    ~Blocked() { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    sigset_t before;
  };
  const Blocked blocked;  // a thread begins with the mask of the one that makes it
  return std::thread(std::forward<Body>(body));
}

/// The calling thread may run anywhere: the program computes on the cores that the process is bound to.
inline void leave_cores_to_program() noexcept {
  cpu_set_t anywhere;
  std::memset(&anywhere, 0xff, sizeof(anywhere));
  ::sched_setaffinity(0, sizeof(anywhere), &anywhere);
}

}  // namespace loom
