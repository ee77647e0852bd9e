#include "device/host/waiter.hpp"

#include <fmt/format.h>
#include <sched.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/error.hpp"

namespace loom::device {
namespace {

// A look at a flag takes some nanoseconds, a peer on another core answers within some hundred. Until
// kBareSpins nothing but the flag is looked at, until kSpins the CPU is told that it spins, and from then on
// others get their turn.
constexpr unsigned kBareSpins = 200;
constexpr unsigned kSpins = 2000;
constexpr unsigned kSpinsOversubscribed = 20;
constexpr unsigned kProgressEvery = 64;

constexpr auto kCheckPeersEvery = std::chrono::milliseconds(200);

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace

void Waiter::pause() {
  const unsigned spins = policy_.oversubscribed ? kSpinsOversubscribed : kSpins;
  if (++pauses_ > spins) return pause_long();
  if (pauses_ < kBareSpins) return;
  relax();
  if (pauses_ % kProgressEvery == 0 && policy_.progress) policy_.progress();
}

void Waiter::pause_long() {
  const auto now = std::chrono::steady_clock::now();
  const unsigned spins = policy_.oversubscribed ? kSpinsOversubscribed : kSpins;
  if (pauses_ == spins + 1) began_ = checked_ = now;
  pauses_ = spins + 2;

  if (policy_.progress) policy_.progress();
  ::sched_yield();
  // To the moment: who waits for the missing rank itself has waited a little longer than those who wait for
  // him, and is thus the one who says so.
  const double waited_s = std::chrono::duration<double>(now - began_).count();
  if (policy_.timeout_s > 0 && waited_s > policy_.timeout_s)
    throw Error(ErrorCode::kTimeout, fmt::format("No step forward for {:.1f} s.", waited_s));
  if (now - checked_ < kCheckPeersEvery) return;
  checked_ = now;
  if (policy_.check_peers) policy_.check_peers();
}

}  // namespace loom::device
