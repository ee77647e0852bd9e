// blocked_signals.hpp -- no signal handler of the program runs in a part of the library's code.
#pragma once

#include <csignal>

namespace loom {

/// The calling thread takes no signals while this lives, so that none interrupts its system calls.
class BlockedSignals {
 public:
  BlockedSignals() noexcept {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  bool was_blocked(int signal) const noexcept { return ::sigismember(&before_, signal) != 0; }

 private:
  sigset_t before_;
};

}  // namespace loom
