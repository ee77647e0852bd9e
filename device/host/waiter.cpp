#include "device/host/waiter.hpp"

#include <fmt/format.h>
#include <sched.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/error.hpp"

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

void Waiter::pause_longer() {
  const unsigned spins = policy_.oversubscribed ? kSpinsOversubscribed : kSpins;
  if (pauses_ <= spins) {
    relax();
    if (pauses_ % kProgressEvery == 0 && policy_.progress) policy_.progress();
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (pauses_ == spins + 1) began_ = checked_ = now;
  pauses_ = spins + 2;

  if (policy_.progress) policy_.progress();
  ::sched_yield();
  if (now - checked_ < kCheckPeersEvery) return;
  checked_ = now;
  if (policy_.check_peers) policy_.check_peers();
  const double waited_s = std::chrono::duration<double>(now - began_).count();
  if (policy_.timeout_s > 0 && waited_s > policy_.timeout_s)
    throw Error(ErrorCode::kTimeout, fmt::format("No step forward for {:.1f} s.", waited_s));
}

}  // namespace loom::device
