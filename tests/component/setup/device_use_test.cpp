#include "component/setup/device_use.hpp"

#include <gtest/gtest.h>

#include <array>

namespace loom {
namespace {

TEST(DeviceUse, IsDeniedForAReasonThatNamesTheRankWhereRanksDiffer) {
  constexpr auto kKeeps = DeviceUse::kKeepsCalls, kNoDriver = DeviceUse::kNoDriver,
                 kRules = DeviceUse::kOtherRules;
  EXPECT_EQ(why_not_on_gpus(std::array{kKeeps, kKeeps}), "");
  EXPECT_EQ(why_not_on_gpus(std::array{kNoDriver, kNoDriver}), "CUDA's driver is not loaded");
  EXPECT_EQ(why_not_on_gpus(std::array{kKeeps, kNoDriver, kRules}), "on rank 1 CUDA's driver is not loaded");
  EXPECT_EQ(why_not_on_gpus(std::array{kRules, kNoDriver}),
            "on rank 0 coll_loom_tune leaves no call to algorithms on GPUs");
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
