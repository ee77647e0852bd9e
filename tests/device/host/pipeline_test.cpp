#include "device/host/pipeline.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <limits>

namespace loom::device {
namespace {

constexpr std::size_t kSlot = 63 * 1024, kKiB = 1024;

std::size_t slices(std::size_t bytes, const PipelineHops& hops, std::size_t slot = kSlot) {
  return divide_up(bytes, pipeline_slice_elems(bytes, 1, hops, slot));
}

TEST(PipelineSlices, AreAsFewAsThereCanBeWhereNobodyPassesThemOn) {
  EXPECT_EQ(slices(32 * kKiB, {.between_hosts = 1}), 1);
  EXPECT_EQ(slices(64 * kKiB, {.between_hosts = 1}), 2);
  EXPECT_EQ(pipeline_slice_elems(64 * kKiB, 1, {.between_hosts = 1}, kSlot), 32 * kKiB) << "all as long";
  EXPECT_EQ(slices(32 * kKiB, {.inside = 1}), 1);
}

TEST(PipelineSlices, GrowInNumberWithTheRootOfTheMessageAndOfTheHops) {
  const std::size_t few = slices(64 * kKiB, {.between_hosts = 2});
  EXPECT_GT(few, 1);
  EXPECT_EQ(slices(256 * kKiB, {.between_hosts = 2}, 256 * kKiB), 2 * few);
  EXPECT_EQ(slices(64 * kKiB, {.between_hosts = 5}), 2 * few);
  EXPECT_EQ(slices(64 * kKiB, {.between_hosts = 1, .inside = 20}), few) << "an inside hop counts less";
}

/// What the number of slices has to be least for, of whatever costs lie between those of the two networks.
TEST(PipelineSlices, TakeHalfAsLongAgainAtMostOverSlowLinksAndFastOnes) {
  struct Network {
    double us_per_message, us_per_byte;
  };
  for (const Network& network : {Network{10, 0.0084}, Network{10, 0.0005}})
    for (const int hosts : {3, 4, 6, 8, 16})
      for (std::size_t bytes = 64 * kKiB; bytes <= 4096 * kKiB; bytes *= 2) {
        const auto time = [&](std::size_t count) {
          const double slice = static_cast<double>(bytes) / static_cast<double>(count);
          return static_cast<double>(count + static_cast<std::size_t>(hosts) - 2) *
                 (network.us_per_message + network.us_per_byte * slice);
        };
        double least = std::numeric_limits<double>::max();
        for (std::size_t count = divide_up(bytes, kSlot); count <= bytes / 1024; ++count)
          least = std::min(least, time(count));
        EXPECT_LT(time(slices(bytes, {.between_hosts = hosts - 1})), 1.5 * least)
            << hosts << " hosts, " << bytes << " bytes, " << network.us_per_byte << " us a byte";
      }
}

TEST(PipelineSlices, AreWholeLinesAndFitASlot) {
  for (const std::size_t elem : {1, 2, 4, 8, 12, 16, 64, 100})
    for (const std::size_t count : {1, 3, 1000, 100000}) {
      const std::size_t elems = pipeline_slice_elems(count, elem, {.between_hosts = 3}, 16 * kKiB);
      EXPECT_GE(elems, 1);
      EXPECT_LE(elems * elem, 16 * kKiB);
      EXPECT_EQ(elems % std::max<std::size_t>(1, kCacheLine / elem), 0) << elem;
    }
}

}  // namespace
}  // namespace loom::device
