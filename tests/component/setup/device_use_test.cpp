#include "component/setup/device_use.hpp"

#include <gtest/gtest.h>

#include <array>

namespace loom {
namespace {

TEST(DeviceUse, IsDeniedForAReasonThatNamesTheRankWhereRanksDiffer) {
  constexpr auto kKeeps = DeviceUse::kKeepsCalls, kNoDriver = DeviceUse::kNoDriver,
                 kRules = DeviceUse::kOtherRules;
  EXPECT_EQ(why_not_on_gpus(std::array{kKeeps, kKeeps}, 1, {}), "");
  EXPECT_EQ(why_not_on_gpus(std::array{kNoDriver, kNoDriver}, 1, {}), "CUDA's driver is not loaded");
  EXPECT_EQ(why_not_on_gpus(std::array{kKeeps, kNoDriver, kRules}, 1, {}),
            "on rank 1 CUDA's driver is not loaded");
  EXPECT_EQ(why_not_on_gpus(std::array{kRules, kNoDriver}, 1, {}),
            "on rank 0 coll_loom_tune leaves no call to algorithms on GPUs");
  EXPECT_EQ(why_not_on_gpus(std::array{kKeeps, kKeeps}, 2, {}),
            "the ranks are on several hosts, where only rules of coll_loom_tune ask for kernels");
  EXPECT_EQ(why_not_on_gpus(std::array{kKeeps, kKeeps}, 2, Tune::parse("bcast:kernel_ring", "a test")), "");
  EXPECT_EQ(why_not_on_gpus(std::array{kKeeps, kNoDriver}, 2, Tune::parse("all:kernel", "a test")),
            "on rank 1 CUDA's driver is not loaded");
}

/// Whose process has no driver, as where this test runs.
TEST(DeviceUse, NeedsADriver) {
  loom_runtime runtime{};
  Process process(runtime);
  EXPECT_EQ(device_use(process, true), DeviceUse::kNoDriver);
  runtime.parameters.only_host_memory = true;
  Process host(runtime);
  EXPECT_EQ(device_use(host, true), DeviceUse::kHostMemory);
}

}  // namespace
}  // namespace loom
