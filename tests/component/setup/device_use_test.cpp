#include "component/setup/device_use.hpp"

#include <gtest/gtest.h>

#include <array>

namespace loom {
namespace {

TEST(DeviceUse, IsDeniedForAReasonThatNamesTheRankWhereRanksDiffer) {
  constexpr auto kKeeps = DeviceUse::kKeepsCalls, kNoDriver = DeviceUse::kNoDriver,
                 kRules = DeviceUse::kOtherRules;
  EXPECT_EQ(why_not_on_gpus(std::array{kKeeps, kKeeps}, 1, false), "");
  EXPECT_EQ(why_not_on_gpus(std::array{kNoDriver, kNoDriver}, 1, false), "CUDA's driver is not loaded");
  EXPECT_EQ(why_not_on_gpus(std::array{kKeeps, kNoDriver, kRules}, 1, false),
            "on rank 1 CUDA's driver is not loaded");
  EXPECT_EQ(why_not_on_gpus(std::array{kRules, kNoDriver}, 1, false),
            "on rank 0 coll_loom_tune leaves no call to algorithms on GPUs");
  constexpr const char* kOrder =
      "coll_loom_reproducible asks for an order of operands that kernels do not keep";
  EXPECT_EQ(why_not_on_gpus(std::array{kKeeps, kKeeps}, 1, true), "") << "zero copy keeps it";
  EXPECT_EQ(why_not_on_gpus(std::array{kKeeps, kKeeps}, 2, true), kOrder);
  EXPECT_EQ(why_not_on_gpus(std::array{kKeeps, kKeeps}, 2, false), "");
}

TEST(DeviceUse, MattersWhereARankHasADriver) {
  constexpr auto kNoDriver = DeviceUse::kNoDriver, kHost = DeviceUse::kHostMemory;
  EXPECT_FALSE(any_has_a_driver(std::array{kNoDriver, kHost}));
  EXPECT_TRUE(any_has_a_driver(std::array{kNoDriver, DeviceUse::kKeepsCalls}));
  EXPECT_TRUE(any_has_a_driver(std::array{DeviceUse::kOtherRules}));
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
