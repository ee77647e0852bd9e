// bootstrap.hpp -- exchanges between the ranks of a communicator before loom has connected them. Allocates
// nothing; what is built on it is in agreement.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <utility>

#include "base/error.hpp"
#include "component/core.h"

namespace loom {

/// The fallback component could not communicate. Unlike an Error this is not agreed on: nothing can be.
class BootstrapFailed : public std::runtime_error {
 public:
  BootstrapFailed()
      : std::runtime_error(
            "The fallback component could not gather what the processes have to tell each other.") {}
};

/// A rank does not come: nothing can be agreed on either.
class NotMet : public Error {
 public:
  explicit NotMet(const Error& cause) : Error(cause) {}
};

/// Looks after the ranks while they meet.
class MeetingWatch {
 public:
  virtual ~MeetingWatch() = default;
  /// Throws Error: this rank gives the meeting up.
  virtual void look(double waited_s) = 0;
};

/// Its functions are collective and throw BootstrapFailed.
class Bootstrap {
 public:
  /// `raw` may go after this; its context must stay, and its name while name() is asked for. watch: nullptr,
  /// or must outlive this.
  explicit Bootstrap(const loom_bootstrap& raw, MeetingWatch* watch = nullptr) noexcept
      : raw_(raw), watch_(watch) {}
  Bootstrap watched_by(MeetingWatch& watch) const noexcept { return Bootstrap(raw_, &watch); }
  bool is_watched() const noexcept { return watch_ != nullptr; }

  int rank() const noexcept { return raw_.rank; }
  int size() const noexcept { return raw_.size; }
  bool alone() const noexcept { return raw_.alone; }
  bool looks_for_devices() const noexcept { return raw_.looks_for_devices; }
  /// The ranks have found that they differ in coll_loom_reproducible.
  void say_orders_differ() const noexcept {
    if (raw_.orders_differ != nullptr) *raw_.orders_differ = true;
  }
  const char* name() const noexcept { return raw_.name; }
  void rename(const char* name) noexcept { raw_.name = name; }

  /// Returns when all ranks have come. Afterwards nobody looks after them: exchanges of the fallback
  /// component cannot be given up. Throws NotMet, too.
  void meet() const {
    Wait wait{.watch = watch_, .failure = nullptr};
    const loom_watch watch{.goes_on = goes_on, .context = &wait};
    const loom_exchange nothing{};
    const loom_exchanged exchanged = raw_.exchange(raw_.context, &nothing, &watch);
    if (exchanged == LOOM_EXCHANGED) return;
    if (exchanged == LOOM_EXCHANGE_LEFT)
      throw NotMet(Error(ErrorCode::kGivenUp, "Another rank has given up on this communicator."));
    if (exchanged != LOOM_EXCHANGE_GIVEN_UP) throw BootstrapFailed();
    try {
      std::rethrow_exception(wait.failure);
    } catch (const Error& cause) {
      throw NotMet(cause);
    }
  }
  /// Every rank's `bytes` bytes into `all`, by rank.
  void gather(const void* mine, void* all, std::size_t bytes) const {
    exchange({.in = mine, .out = all, .bytes_per_rank = bytes, .words = 0, .op = LOOM_MAX});
  }
  /// Of each word the largest over all ranks (LOOM_MAX), or their sum (LOOM_SUM).
  template <std::size_t N>
  std::array<std::uint64_t, N> reduce(loom_op op, const std::array<std::uint64_t, N>& mine) const {
    std::array<std::uint64_t, N> all;
    exchange({.in = mine.data(), .out = all.data(), .bytes_per_rank = 0, .words = N, .op = op});
    return all;
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Wait {
    MeetingWatch* watch;
    std::chrono::duration<double> waited{0};
    Clock::time_point looked = Clock::now();
    std::exception_ptr failure;
  };

  /// Time in which the rank did not look does not count: the program may compute, and a message that has come
  /// is not noticed before it comes by again.
  static bool goes_on(void* context) noexcept {
    constexpr std::chrono::duration<double> kMostBetweenLooks{0.5};
    Wait& wait = *static_cast<Wait*>(context);
    if (wait.watch == nullptr) return true;
    const Clock::time_point now = Clock::now();
    wait.waited +=
        std::min<std::chrono::duration<double>>(now - std::exchange(wait.looked, now), kMostBetweenLooks);
    try {
      wait.watch->look(wait.waited.count());
      return true;
    } catch (const Error&) {
      wait.failure = std::current_exception();
      return false;
    } catch (const std::exception&) {  // no memory, for a look: no reason to give up
      return true;
    }
  }

  void exchange(const loom_exchange& wanted) const {
    if (raw_.exchange(raw_.context, &wanted, nullptr) != LOOM_EXCHANGED) throw BootstrapFailed();
  }

  loom_bootstrap raw_;
  MeetingWatch* watch_;
};

}  // namespace loom
