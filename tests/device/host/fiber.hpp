// fiber.hpp -- code that waits, in a simulator: it stops where it is told to and goes on later, on a stack of
// its own in the same thread.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LOOM_FIBER_TELLS_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define LOOM_FIBER_TELLS_ASAN 1
#endif
#ifdef LOOM_FIBER_TELLS_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

namespace loom::device {

/// A fiber that is dropped before it is done destroys nothing on its stack: nothing there may own memory.
class Fiber {
 public:
  explicit Fiber(std::function<void()> body) : body_(std::move(body)) {
    if (!spare_stacks_.empty()) {
      stack_ = std::move(spare_stacks_.back());
      spare_stacks_.pop_back();
    } else {
      stack_.reset(new std::byte[kStackBytes]);
    }
    ::getcontext(&own_);
    own_.uc_stack.ss_sp = stack_.get();
    own_.uc_stack.ss_size = kStackBytes;
    own_.uc_link = nullptr;
    ::makecontext(&own_, &Fiber::begin, 0);
  }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber() {
#ifndef LOOM_FIBER_TELLS_ASAN  // which has marked what the dropped one had there
    spare_stacks_.push_back(std::move(stack_));
#endif
  }

  bool done() const {
    return done_;
  }
  /// Until it stops or is done. Throws what it throws.
  void resume() {
    running_ = this;
    change(&caller_, &own_, stack_.get(), kStackBytes);
    running_ = nullptr;
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
  }
  /// Ends the resume() of the fiber that runs.
  static void stop() {
    Fiber& self = *running_;
    change(&self.own_, &self.caller_, self.callers_stack_, self.callers_bytes_);
  }

 private:
  static constexpr std::size_t kStackBytes = 64 * 1024;

  static void begin() {
    Fiber& self = *running_;
#ifdef LOOM_FIBER_TELLS_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &self.callers_stack_, &self.callers_bytes_);
#endif
    try {
      self.body_();
    } catch (...) {
      self.thrown_ = std::current_exception();
    }
    self.done_ = true;
    stop();
  }
  /// The address sanitizer wants to know which stack is in use.
  static void change(ucontext_t* from, ucontext_t* to, [[maybe_unused]] const void* stack,
                     [[maybe_unused]] std::size_t bytes) {
#ifdef LOOM_FIBER_TELLS_ASAN
    void* kept = nullptr;
    __sanitizer_start_switch_fiber(&kept, stack, bytes);
    ::swapcontext(from, to);
    __sanitizer_finish_switch_fiber(kept, nullptr, nullptr);
#else
    ::swapcontext(from, to);
#endif
  }

  inline static Fiber* running_ = nullptr;
  // A simulator makes many fibers, and fresh memory costs more than all that a fiber does.
  inline static std::vector<std::unique_ptr<std::byte[]>> spare_stacks_;
  std::function<void()> body_;
  std::unique_ptr<std::byte[]> stack_;
  ucontext_t own_{}, caller_{};
  const void* callers_stack_ = nullptr;
  std::size_t callers_bytes_ = 0;
  bool done_ = false;
  std::exception_ptr thrown_;
};

}  // namespace loom::device
