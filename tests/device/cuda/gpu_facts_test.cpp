// What follows from what the ranks of a host tell each other of their GPUs.
#include "device/cuda/gpu_facts.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string_view>
#include <vector>

#include "device/cuda/zero_copy_cost.hpp"

namespace loom::device::cuda {
namespace {

constexpr int kBlocks = 16;

GpuFacts on_gpu(int number, bool mps = false, int multiprocessors = 132) {
  GpuFacts facts{.multiprocessors = multiprocessors, .mps = mps};
  facts.uuid[3] = static_cast<std::byte>(number);
  return facts;
}
Sharing of(const std::vector<GpuFacts>& facts) {
  return sharing_of(facts, kBlocks);
}

TEST(Sharing, IsNoneWhereEachRankHasItsGpu) {
  EXPECT_EQ(of({on_gpu(0), on_gpu(1), on_gpu(2)}), Sharing::kNone);
  EXPECT_EQ(of({on_gpu(0, true, 1), on_gpu(1, false, 1)}), Sharing::kNone);
}

TEST(Sharing, TakesTurnsWhereMpsDoesNotServeAllWhoShare) {
  EXPECT_EQ(of({on_gpu(0), on_gpu(1), on_gpu(0)}), Sharing::kTakingTurns);
  EXPECT_EQ(of({on_gpu(0, true), on_gpu(1), on_gpu(0, false)}), Sharing::kTakingTurns);
  EXPECT_EQ(of({on_gpu(0, true), on_gpu(0, true), on_gpu(1), on_gpu(1)}), Sharing::kTakingTurns);
}

TEST(Sharing, LeavesKernelsResidentWhereMpsServesAllWhoShare) {
  EXPECT_EQ(of({on_gpu(0, true), on_gpu(0, true)}), Sharing::kResident);
  EXPECT_EQ(of({on_gpu(0, true), on_gpu(1, false), on_gpu(0, true)}), Sharing::kResident);
}

TEST(Sharing, TakesTurnsWhereAGpuHasNoRoomForTheBlocksOfAll) {
  const auto four = [](int multiprocessors) {
    return std::vector<GpuFacts>(4, on_gpu(0, true, multiprocessors));
  };
  EXPECT_EQ(of(four(4 * kBlocks)), Sharing::kResident);
  EXPECT_EQ(of(four(4 * kBlocks - 1)), Sharing::kTakingTurns);
  EXPECT_EQ(of({on_gpu(0, true, 132), on_gpu(0, true, 31)}), Sharing::kTakingTurns);  // as MPS limits clients
}

TEST(Sharing, IsOfRanksOfOneHostAlone) {
  const std::vector<GpuFacts> facts = {on_gpu(0), on_gpu(1), on_gpu(0)};
  EXPECT_EQ(sharing_of(facts, kBlocks, std::array{0, 0, 1}), Sharing::kNone);
  EXPECT_EQ(sharing_of(facts, kBlocks, std::array{0, 1, 0}), Sharing::kTakingTurns);
  EXPECT_EQ(with_facts({}, facts).sharers, 2);
  EXPECT_EQ(with_facts({}, facts, std::array{0, 0, 1}).sharers, 1);
}

GpuFacts at(int gpu, std::string_view bus_id, int capability = 90) {
  GpuFacts facts = on_gpu(gpu);
  facts.capability = capability;
  bus_id.copy(facts.bus_id.data(), facts.bus_id.size() - 1);
  return facts;
}

TEST(LL128, WantsNvlinkToEveryOtherGpuOnce) {
  using Peers = std::vector<std::string>;
  const std::vector<GpuFacts> facts = {at(0, "0000:0a:00.0"), at(1, "0000:0b:00.0"), at(2, "0001:0a:00.0"),
                                       at(1, "0000:0b:00.0")};
  EXPECT_EQ(nvlink_peers_for_ll128(facts, 0), (Peers{"0000:0b:00.0", "0001:0a:00.0"}));
  EXPECT_EQ(nvlink_peers_for_ll128(facts, 2), (Peers{"0000:0a:00.0", "0000:0b:00.0"}));
  EXPECT_FALSE(nvlink_peers_for_ll128(facts, 1)) << "it shares a GPU with another rank";
  EXPECT_EQ(nvlink_peers_for_ll128({{at(0, "")}}, 0), Peers{}) << "one rank";
}

TEST(LL128, IsOutWhereAGpuIsTooOldUnknownOrCut) {
  EXPECT_FALSE(nvlink_peers_for_ll128({{at(0, "0000:0a:00.0"), at(1, "0000:0b:00.0", 61)}}, 0));
  EXPECT_FALSE(nvlink_peers_for_ll128({{at(0, "0000:0a:00.0", 61), at(0, "0000:0a:00.0", 61)}}, 1));
  EXPECT_FALSE(nvlink_peers_for_ll128({{at(0, "0000:0a:00.0"), at(1, "")}}, 0));
  EXPECT_FALSE(nvlink_peers_for_ll128({{at(0, "0000:0a:00.0"), at(1, "0000:0a:00.0")}}, 0))
      << "two instances of a GPU";
}

TEST(ZeroCopyCost, IsHigherWhereBuffersBounce) {
  std::vector<GpuFacts> facts(4, at(0, "0000:0a:00.0"));
  const GpuSpeeds direct = with_facts({}, facts);
  facts[2].is_shared_by_others = true;
  const GpuSpeeds bouncing = with_facts({}, facts);
  for (const Collective collective : {Collective::kAllreduce, Collective::kAllGather, Collective::kBroadcast})
    for (const std::size_t bytes : {std::size_t{1} << 20, std::size_t{1} << 30})
      EXPECT_GT(zero_copy_us(bouncing, collective, bytes, 4), zero_copy_us(direct, collective, bytes, 4));
}

}  // namespace
}  // namespace loom::device::cuda
