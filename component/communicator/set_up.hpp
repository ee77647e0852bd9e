// set_up.hpp -- a part of a communicator's set-up for a caller that may not wait: it goes on whenever the
// caller comes by, and the caller performs its exchanges.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <semaphore>
#include <thread>

#include "component/core.h"
#include "component/setup/bootstrap.hpp"
#include "component/setup/process.hpp"

namespace loom {

class Communicator;
class ProgressEngine;

/// The set-up is written as code that waits, so it has a thread, which runs only while the caller waits in
/// advance(): never two at a time, so that neither needs to expect the other.
class ResumableSetUp {
 public:
  /// Makes a communicator of the ranks; or, where there is one, its links.
  /// Without a thread to be had, the first advance() waits. The process, its engine and the bootstrap's
  /// context must outlive this, and the communicator where there is one.
  ResumableSetUp(const loom_bootstrap& bootstrap, Process& process, ProgressEngine& engine,
                 Communicator* communicator);
  /// Where it has not been done, nobody waits for its exchanges any more.
  ~ResumableSetUp();
  ResumableSetUp(const ResumableSetUp&) = delete;
  ResumableSetUp& operator=(const ResumableSetUp&) = delete;

  /// As far as it goes without waiting; see loom_set_up_advance in core.h.
  loom_set_up_state advance(loom_exchanged exchanged, loom_exchange* next);
  /// Once it is done: the communicator that it has made, if any. Rethrows what ended it.
  std::unique_ptr<Communicator> take();
  bool makes_communicator() const noexcept { return linked_ == nullptr; }
  const loom_bootstrap& bootstrap() const noexcept { return bootstrap_; }

 private:
  struct Cancelled {};  ///< not an exception that anybody on the way knows

  void run() noexcept;
  loom_exchanged exchange(const loom_exchange& wanted, const loom_watch* watch);
  void pause(loom_set_up_state state);

  const loom_bootstrap bootstrap_;
  loom_bootstrap pausing_;  ///< the same, whose exchanges the caller performs
  Process& process_;
  ProgressEngine& engine_;
  Communicator* const linked_;
  std::unique_ptr<Communicator> made_;
  std::exception_ptr failure_;

  std::thread thread_;
  std::binary_semaphore go_{0}, came_{0};
  loom_set_up_state state_ = LOOM_SET_UP_WAITS;
  loom_exchange wanted_{};
  loom_exchanged exchanged_ = LOOM_EXCHANGED;
  bool cancelled_ = false;
};

}  // namespace loom
