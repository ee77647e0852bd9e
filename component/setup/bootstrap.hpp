// bootstrap.hpp -- exchanges between the ranks of a communicator before loom has connected them. Allocates
// nothing; what is built on it is in agreement.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <stdexcept>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "component/core.h"

namespace loom {

/// Open MPI could not communicate. Unlike an Error this is not agreed on: nothing can be.
class BootstrapFailed : public std::runtime_error {
 public:
  BootstrapFailed()
      : std::runtime_error("Open MPI did not carry what the processes have to tell each other.") {}
};

/// A rank does not come, or has left: nothing can be agreed on either.
class ExchangeGivenUp : public Error {
 public:
  explicit ExchangeGivenUp(const Error& cause) : Error(cause) {}
};

/// Looks after the ranks while an exchange waits.
class ExchangeWatch {
 public:
  virtual ~ExchangeWatch() = default;
  /// Throws Error: this rank gives the exchange up.
  virtual void look(double waited_s, const loom_standing& standing) = 0;
};

/// Its functions are collective and throw BootstrapFailed and ExchangeGivenUp.
class Bootstrap {
 public:
  /// `raw` may go after this; its context must stay, and its name while name() is asked for. watch: nullptr,
  /// or must outlive this.
  explicit Bootstrap(const loom_bootstrap& raw, ExchangeWatch* watch = nullptr) noexcept
      : raw_(raw), watch_(watch) {}
  Bootstrap watched_by(ExchangeWatch& watch) const noexcept { return Bootstrap(raw_, &watch); }
  bool is_watched() const noexcept { return watch_ != nullptr; }

  int rank() const noexcept { return raw_.rank; }
  int size() const noexcept { return raw_.size; }
  bool alone() const noexcept { return raw_.alone; }
  bool looks_for_devices() const noexcept { return raw_.looks_for_devices; }
  /// The ranks have found that they differ in coll_loom_reproducible.
  void say_orders_differ() const noexcept {
    if (raw_.orders_differ != nullptr) *raw_.orders_differ = true;
  }
  /// What the MPI library knows of the ranks. Throws Error: kRevoked, kPeerFailed.
  void check_health() const {
    const loom_health health = raw_.health != nullptr ? raw_.health(raw_.context) : loom_health{};
    if (health.result == LOOM_ERR_REVOKED)
      throw Error(ErrorCode::kRevoked, "The program has revoked the communicator.");
    if (health.result == LOOM_ERR_PEER_FAILED)
      throw Error(ErrorCode::kPeerFailed,
                  health.failed < 0
                      ? "Open MPI has heard that a rank has failed."
                      : loom::format("Open MPI has heard that rank {} has failed.", health.failed));
  }
  /// It may learn more than it knows by now.
  bool may_hear_more() const noexcept {
    return raw_.health != nullptr && raw_.health(raw_.context).result == LOOM_SUCCESS;
  }
  bool is_revoked() const noexcept {
    return raw_.health != nullptr && raw_.health(raw_.context).result == LOOM_ERR_REVOKED;
  }
  const char* name() const noexcept { return raw_.name; }
  void rename(const char* name) noexcept { raw_.name = name; }

  /// Every rank's `bytes` bytes into `all`, by rank. Both must stay if it throws: messages may come late.
  void gather(const void* mine, void* all, std::size_t bytes) const {
    exchange({.in = mine,
              .out = all,
              .bytes_per_rank = bytes,
              .words = 0,
              .peers = nullptr,
              .peer_count = 0,
              .requests = nullptr});
  }
  /// The same of `peers` alone, in their order; each of them names this rank, too. Ranks without peers come
  /// as well. bytes > 0. requests: memory for two pointers of each peer, which must stay if it throws.
  void gather_from(std::span<const int> peers, const void* mine, void* theirs, std::size_t bytes,
                   void** requests) const {
    static constexpr int kNobody = 0;
    exchange({.in = mine,
              .out = theirs,
              .bytes_per_rank = bytes,
              .words = 0,
              .peers = peers.empty() ? &kNobody : peers.data(),
              .peer_count = static_cast<int>(peers.size()),
              .requests = requests});
  }
  /// Of each word the largest over all ranks.
  template <std::size_t N>
  std::array<std::uint64_t, N> largest(const std::array<std::uint64_t, N>& mine) const {
    static_assert(N <= LOOM_MOST_EXCHANGED_WORDS);
    std::array<std::uint64_t, N> all;
    exchange({.in = mine.data(),
              .out = all.data(),
              .bytes_per_rank = 0,
              .words = N,
              .peers = nullptr,
              .peer_count = 0,
              .requests = nullptr});
    return all;
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Wait {
    const Bootstrap& bootstrap;
    int steps = 0;
    std::chrono::duration<double> waited{0};
    Clock::time_point looked = Clock::now();
    std::exception_ptr failure;
  };

  /// Time in which the rank did not look does not count: the program may compute, and a message that has come
  /// is not noticed before it comes by again.
  static bool goes_on(void* context) noexcept {
    constexpr std::chrono::duration<double> kMostBetweenLooks{0.5};
    Wait& wait = *static_cast<Wait*>(context);
    const auto& [raw, watch] = wait.bootstrap;
    if (watch == nullptr) return true;
    const loom_standing standing = raw.standing(raw.context);
    const Clock::time_point now = Clock::now();
    const std::chrono::duration<double> since = now - std::exchange(wait.looked, now);
    if (std::exchange(wait.steps, standing.steps) == standing.steps)
      wait.waited += std::min(since, kMostBetweenLooks);
    else
      wait.waited = {};
    try {
      wait.bootstrap.check_health();
      watch->look(wait.waited.count(), standing);
      return true;
    } catch (...) {
      wait.failure = std::current_exception();
      return false;
    }
  }

  void exchange(const loom_exchange& wanted) const {
    Wait wait{.bootstrap = *this, .failure = nullptr};
    const loom_watch watch{.goes_on = goes_on, .context = &wait};
    const loom_exchanged exchanged = raw_.exchange(raw_.context, &wanted, &watch);
    if (exchanged == LOOM_EXCHANGED) return;
    try {
      if (exchanged == LOOM_EXCHANGE_GIVEN_UP) std::rethrow_exception(wait.failure);
      check_health();
      if (exchanged == LOOM_EXCHANGE_LEFT)
        throw Error(ErrorCode::kGivenUp, "Another rank has given up on this communicator.");
    } catch (const Error& cause) {
      throw ExchangeGivenUp(cause);
    } catch (const std::exception&) {
      throw ExchangeGivenUp(Error(ErrorCode::kOutOfMemory, "There is no memory left."));
    }
    throw BootstrapFailed();
  }

  loom_bootstrap raw_;
  ExchangeWatch* watch_;
};

}  // namespace loom
