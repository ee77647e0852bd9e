#include "device/schedule/share.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace loom::device {
namespace {

std::vector<Share> shares_of(const std::vector<unsigned>& weights) {
  std::vector<Share> shares;
  unsigned total = 0;
  for (const unsigned weight : weights) {
    shares.push_back({total, weight, 0});
    total += weight;
  }
  for (Share& share : shares) share.total = total;
  return shares;
}

TEST(Window, OfAllSharesCoversEveryElementOnceInWholeLines) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::vector<unsigned> weights(1 + random() % 32);
    for (unsigned& weight : weights) weight = static_cast<unsigned>(random() % 500);
    weights[random() % weights.size()] = 1;  // not all 0
    const std::size_t line = std::size_t{1} << random() % 8, length = random() % (std::size_t{1} << (i % 40));
    std::size_t end = 0;
    for (const Share& share : shares_of(weights)) {
      const Part part = window(length, line, share);
      ASSERT_EQ(part.first, end);
      ASSERT_TRUE(part.first % line == 0 || part.length == 0);
      end += part.length;
      ASSERT_LE(part.length, longest_window(length, line, share));
      ASSERT_LE(part.length, longest_window(length + random() % 1000, line, share));
    }
    ASSERT_EQ(end, length);
  }
}

TEST(Window, IsAsLongAsItsWeightSays) {
  const auto shares = shares_of({1, 2, 0, 5});
  const std::size_t lengths[] = {100, 200, 0, 500}, firsts[] = {0, 100, 300, 300};
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const Part part = window(800, 4, shares[i]);
    EXPECT_EQ(part.first, firsts[i]);
    EXPECT_EQ(part.length, lengths[i]);
  }
}

TEST(Window, HoldsForTheLargestMessagesAndWeights) {
  const Share last{(1U << 24) - 1, 1, 1U << 24};
  const std::size_t length = std::size_t{1} << 45;
  EXPECT_EQ(window(length, 128, last).first + window(length, 128, last).length, length);
}

}  // namespace
}  // namespace loom::device
