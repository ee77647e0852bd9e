#include "device/link/waiter.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace loom::device {
namespace {

TEST(Waiter, LetsOthersProgressWhileItWaits) {
  int calls = 0;
  const WaitPolicy policy{.progress = [&] { ++calls; }, .check_peers = {}};
  Waiter waiter(policy);
  for (int i = 0; i < 3000; ++i) waiter.pause();
  EXPECT_GT(calls, 450);  // in turn with yields, once it has spun
}

TEST(Waiter, LooksAfterPeersAndEndsAtTheTimeout) {
  int looks = 0;
  const WaitPolicy policy{
      .progress = {}, .check_peers = [&] { ++looks; }, .oversubscribed = true, .timeout_s = 0.7};
  Waiter waiter(policy);
  try {
    while (true) waiter.pause();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
  }
  EXPECT_GE(looks, 2);
}

/// As a call does whose kernel comes after work of the program: a peer may die meanwhile.
TEST(Waiter, LooksAfterPeersHoweverOftenItMoves) {
  int looks = 0;
  const WaitPolicy policy{.progress = {}, .check_peers = [&] { ++looks; }, .oversubscribed = true};
  Waiter waiter(policy);
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(700);
  for (auto move = std::chrono::steady_clock::now(); std::chrono::steady_clock::now() < until;) {
    waiter.pause();
    if (std::chrono::steady_clock::now() - move < std::chrono::milliseconds(50)) continue;
    move = std::chrono::steady_clock::now();
    waiter.moved();
  }
  EXPECT_GE(looks, 2);
}

TEST(Waiter, CountsTheTimeoutFromTheLastStepForward) {
  const WaitPolicy policy{.progress = {}, .check_peers = {}, .oversubscribed = true, .timeout_s = 0.5};
  Waiter waiter(policy);
  for (int part = 0; part < 4; ++part) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
    while (std::chrono::steady_clock::now() < until) ASSERT_NO_THROW(waiter.pause());
    waiter.moved();
  }
}

}  // namespace
}  // namespace loom::device
