#include "device/link/waiter.hpp"

#include <sched.h>

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/error.hpp"
#include "base/format.hpp"

namespace loom::device {
namespace {

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

bool is_past(double limit_s, double waited_s, const std::function<bool()>* is_excused) {
  if (limit_s <= 0 || waited_s <= limit_s) return false;
  const double grace_s = std::min(Waiter::kMostGraceSeconds, limit_s * Waiter::kGraceShare);
  return waited_s > limit_s + grace_s || is_excused == nullptr || !(*is_excused)();
}

void Waiter::pause_longer() {
  const unsigned spins = policy_.oversubscribed ? kSpinsOversubscribed : kSpins;
  if (pauses_ <= spins) {
    relax();
    if (pauses_ % kProgressEvery == 0 && policy_.progress) policy_.progress();
    return;
  }
  // Progress and yielding take turns: the library's progress may give the CPU away, too, and the awaited rank
  // may have run meanwhile.
  if (pauses_ == spins + 2 && policy_.progress) return policy_.progress();
  const auto now = std::chrono::steady_clock::now();
  if (pauses_ == spins + 1) {
    began_ = now;
    has_said_ = false;
    if (checked_ == std::chrono::steady_clock::time_point()) checked_ = now;
  }
  pauses_ = spins + 1;

  ::sched_yield();
  const double waited_s = std::chrono::duration<double>(now - began_).count();
  if (policy_.timeout_s > 0 && !has_said_ && waited_s > policy_.timeout_s / 2) {
    has_said_ = true;
    if (policy_.say_waiting) policy_.say_waiting();
  }
  if (is_past(policy_.timeout_s, waited_s, is_excused_))
    throw Error(ErrorCode::kTimeout, loom::format("No step forward for {:.1f} s.", waited_s));
  if (now - checked_ < kCheckPeersEvery) return;
  checked_ = now;
  if (policy_.check_peers) policy_.check_peers();
}

}  // namespace loom::device
