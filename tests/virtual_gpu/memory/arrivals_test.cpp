#include "tests/virtual_gpu/memory/arrivals.hpp"

#include <gtest/gtest.h>

namespace virtual_gpu::memory {
namespace {

/// A word at offset 8 of its line, which counts from 0: number n has come at 100 n.
class ArrivalsTest : public ::testing::Test {
 protected:
  void release(std::uint64_t from, std::uint64_t to) {
    for (std::uint64_t n = from; n <= to; ++n) line_.note_release(8, n - 1, n, 100 * static_cast<double>(n));
  }
  /// The value that is found, where the latest one that there is was loaded.
  std::uint64_t found(double at, std::int64_t after = Arrivals::kNone) {
    return line_.find(8, latest_, at, after).value;
  }
  Arrivals line_{};
  std::uint64_t latest_ = 3;
};

TEST_F(ArrivalsTest, KeepTheLatestTime) {
  line_.note(20);
  line_.note(10);
  EXPECT_EQ(line_.latest(), 20);
  EXPECT_EQ(line_.find(0, 5, 0, Arrivals::kNone).at, 20) << "nobody has released a word";
}
TEST_F(ArrivalsTest, GiveWhatAWordHadAtATime) {
  release(1, 3);
  EXPECT_EQ(found(50), 0U) << "before the first release";
  EXPECT_EQ(found(250), 2U);
  EXPECT_EQ(found(1000), 3U);
  EXPECT_EQ(line_.latest(), 300);
}
TEST_F(ArrivalsTest, GiveTheNextValueToOneWhoLooksAgain) {
  release(1, 3);
  const auto first = line_.find(8, latest_, 150, Arrivals::kNone),
             next = line_.find(8, latest_, 150, first.number);
  EXPECT_EQ(first.value, 1U);
  EXPECT_EQ(next.value, 2U);
  EXPECT_EQ(next.at, 200);
  EXPECT_EQ(found(150, 3), 3U) << "there is no later one";
}
TEST_F(ArrivalsTest, GiveNothingThatIsLaterThanWhatWasLoaded) {
  release(1, 3);
  latest_ = 2;
  EXPECT_EQ(found(1000), 2U);
}
TEST_F(ArrivalsTest, ForgetWhatIsLongAgo) {
  release(1, latest_ = 20);
  const auto oldest = line_.find(8, latest_, 50, Arrivals::kNone);
  EXPECT_GT(oldest.value, 1U);
  EXPECT_EQ(oldest.at, 100 * static_cast<double>(oldest.value));
  EXPECT_EQ(found(1950), 19U);
}
TEST_F(ArrivalsTest, KnowNothingOfValuesThatNobodyHasReleased) {
  release(1, 3);
  latest_ = 77;
  EXPECT_EQ(found(1000), 77U);
  EXPECT_EQ(line_.find(8, 77, 1000, Arrivals::kNone).at, 0);
}
TEST_F(ArrivalsTest, BeginAnewWithAnotherWordOfTheLine) {
  release(1, 3);
  line_.note_release(16, 0, 1, 400);
  EXPECT_EQ(line_.find(16, 1, 400, Arrivals::kNone).at, 400);
  EXPECT_EQ(line_.find(8, 3, 0, Arrivals::kNone).at, 400) << "the latest time is that of the line";
}

}  // namespace
}  // namespace virtual_gpu::memory
