// What `loom plan --memory device` says, against the parts that the plugin puts together.
#include "component/select/gpu_plan.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "component/select/kernel_channels.hpp"
#include "component/select/select.hpp"
#include "topo/hwloc_xml.hpp"

namespace loom {
namespace {

using device::Collective;
using device::cuda::KernelChannels;
using device::cuda::KernelLinkage;
using device::cuda::KernelWays;
using device::steps::Protocol;

constexpr Collective kCarried[] = {
    Collective::kAllreduce, Collective::kReduce,    Collective::kReduceScatter, Collective::kReduceScatterV,
    Collective::kBroadcast, Collective::kAllGather, Collective::kAllGatherV};

topo::System machine(const char* name) {
  return topo::read_system(std::string(LOOM_TEST_DATA "/") + name + ".xml").system;
}

GpuPlan plan_of(const char* name, int ranks = 8, const char* rules = "",
                std::uint64_t room = LOOM_STAGING_BYTES) {
  return {machine_of_ranks(machine(name), ranks), Tune::parse(rules, "rules"), {}, room};
}

Conditions one_host(int ranks = 8) {
  return {.shape = {.ranks = ranks, .hosts = 1, .ranks_per_host = ranks}, .single_copy = true};
}

GpuCall call_on(const GpuPlan& plan, Collective collective, std::size_t bytes, int ranks = 8) {
  return plan.call(one_host(ranks), collective, bytes, true);
}

/// The plugin's: DeviceCalls::make_links(), KernelExecutor::start() and DeviceCalls::window_of().
TEST(GpuPlan, IsWhatThePluginPutsTogether) {
  for (const auto& [name, ll128] :
       {std::pair("dgx1v", false), {"dgxa100", true}, {"dgxh100", true}, {"pcie-2socket", false}}) {
    const topo::MachineOfRanks eight = machine_of_ranks(machine(name), 8);
    const connect::GpuChannels found = connect::gpu_channels(eight);
    std::vector<device::cuda::GpuFacts> facts(8);
    for (std::size_t r = 0; r < facts.size(); ++r) {
      facts[r].uuid[0] = static_cast<std::byte>(r);
      facts[r].capability = eight.system.node(eight.system.gpus()[0]).gpu().compute_capability;
    }
    const KernelChannels channels =
        kernel_channels_of(found, {.may_ll128 = ll128, .speeds = device::cuda::with_facts({}, facts)});
    const KernelWays ways(8, channels);
    const GpuPlan plan(eight, {});
    ASSERT_NE(plan.channels(), nullptr);
    EXPECT_EQ(plan.channels()->summary, found.summary);
    EXPECT_EQ(plan.may_ll128(), ll128) << name;
    for (const Collective collective : kCarried)
      for (std::size_t bytes = 8; bytes <= std::size_t{1} << 28; bytes *= 8) {
        const std::size_t all = whole_message(collective, 8, bytes);
        const auto way = ways.way(collective, all, KernelLinkage::kAny);
        const GpuCall call = call_on(plan, collective, bytes);
        const double kernel_us = ways.us(way, all),
                     zero_copy_us = device::cuda::zero_copy_us(channels.speeds, collective, all, 8);
        EXPECT_EQ(call.us, std::min(kernel_us, zero_copy_us)) << name << " " << all;
        EXPECT_EQ(call.algorithm, kernel_us <= zero_copy_us ? Algorithm::kKernel : Algorithm::kZeroCopy);
        EXPECT_EQ(call.kernel.has_value(), call.algorithm == Algorithm::kKernel);
        if (call.kernel) {
          EXPECT_EQ(text_of(call.kernel->way), text_of(way)) << name << " " << all;
          EXPECT_EQ(call.kernel->way.algorithm, way.algorithm);
        }
        EXPECT_EQ(call.probes, may_pay_to_stage(one_host(), collective, bytes, call.us, {}, call.algorithm));
        ASSERT_TRUE(call.runner_up);
        EXPECT_GE(call.runner_up->us, call.us);
      }
  }
}

/// Between all GPUs of an NVSwitch zero copy does without slots; a DGX-1V has more in its rings than from
/// each GPU to each.
TEST(GpuPlan, TakesTheFasterOneAndNamesTheNext) {
  const GpuPlan plan = plan_of("dgxh100");
  const GpuCall small = call_on(plan, Collective::kAllreduce, 8),
                large = call_on(plan, Collective::kAllreduce, 1 << 30),
                gather = call_on(plan, Collective::kAllGather, 8),
                rings = call_on(plan_of("dgx1v"), Collective::kAllreduce, 1 << 30);
  EXPECT_EQ(small.algorithm, Algorithm::kKernel);
  EXPECT_EQ(large.algorithm, Algorithm::kZeroCopy);
  EXPECT_EQ(large.runner_up->by, "rings by Simple");
  EXPECT_EQ(gather.runner_up->by, "zero_copy") << "no tree gathers";
  ASSERT_TRUE(rings.kernel);
  EXPECT_EQ(links_name(rings.kernel->way), "rings");
  for (const Collective collective : {Collective::kAllToAll, Collective::kScan, Collective::kGatherV})
    EXPECT_EQ(call_on(plan, collective, 1 << 20).algorithm, Algorithm::kZeroCopy);
}

TEST(GpuPlan, TakesTheUsersRules) {
  const GpuPlan trees = plan_of("dgxh100", 8, "all:kernel,allreduce:kernel_tree,bcast:staged");
  const GpuCall tree = call_on(trees, Collective::kAllreduce, 8);
  EXPECT_EQ(tree.algorithm, Algorithm::kKernelTree);
  EXPECT_EQ(links_name(tree.kernel->way), "trees");
  EXPECT_FALSE(tree.probes);
  EXPECT_EQ(tree.why, "a rule of coll_loom_tune");
  const GpuCall staged = call_on(trees, Collective::kBroadcast, 1 << 20);
  EXPECT_EQ(staged.algorithm, Algorithm::kStaged);
  EXPECT_EQ(staged.why, "a rule of coll_loom_tune");
  EXPECT_GT(staged.staged_us.value_or(0), 0);
  EXPECT_EQ(plan_of("dgxh100", 8, "all:staged").channels(), nullptr) << "nobody looks for them";
}

TEST(GpuPlan, SaysWhyACallIsStaged) {
  const GpuPlan plan = plan_of("dgxh100");
  const auto why = [&](const Conditions& conditions, Collective collective, std::size_t bytes,
                       bool may_wait = true) {
    const GpuCall call = plan.call(conditions, collective, bytes, may_wait);
    EXPECT_EQ(call.algorithm, Algorithm::kStaged);
    EXPECT_FALSE(call.kernel);
    return call.why;
  };
  EXPECT_EQ(why(one_host(), Collective::kBarrier, 0), "kernel does not carry barrier");
  EXPECT_EQ(why(one_host(), Collective::kAllreduce, 0), "it has no bytes");
}

/// Two and one rank of hosts alike, as the plugin's ranks put it together (see take_channels of DeviceLinks).
TEST(GpuPlan, IsWhatThePluginPutsTogetherBetweenHosts) {
  const topo::System dgx = machine("dgxh100");
  const topo::MachineOfRanks two = machine_of_ranks(dgx, 2), one = machine_of_ranks(dgx, 1);
  const std::vector<const topo::MachineOfRanks*> hosts = {&two, &one};
  const std::vector<std::int32_t> leaders = {0, 0, 2};
  const connect::Placement placement(leaders);
  const GpuPlan plan(placement, hosts, Tune::parse("bcast:kernel,allreduce:kernel_tree", "rules"));
  const std::vector<connect::GpuHost> told = {connect::plan_gpu_host(two, {}, true).host,
                                              connect::plan_gpu_host(one, {}, true).host};
  const connect::GpuChannels found = connect::gpu_channels(placement, told, 16);
  ASSERT_NE(plan.channels(), nullptr);
  EXPECT_EQ(plan.channels()->summary, found.summary);
  EXPECT_FALSE(plan.may_ll128());
  std::vector<device::cuda::GpuFacts> facts(3);
  for (device::cuda::GpuFacts& of : facts) of.capability = 90;
  const KernelWays ways(
      3, kernel_channels_of(found, {.hosts = {0, 0, 1}, .speeds = device::cuda::with_facts({}, facts)}));
  const Conditions conditions{.shape = {.ranks = 3, .hosts = 2, .ranks_per_host = 0}};
  const auto call = [&](Collective collective, std::size_t bytes, bool may_wait = true) {
    return plan.call(conditions, collective, bytes, may_wait);
  };
  for (std::size_t bytes = 8; bytes <= std::size_t{1} << 28; bytes *= 8) {
    const GpuCall bcast = call(Collective::kBroadcast, bytes),
                  allreduce = call(Collective::kAllreduce, bytes);
    ASSERT_TRUE(bcast.kernel && allreduce.kernel) << bytes;
    EXPECT_EQ(text_of(bcast.kernel->way),
              text_of(ways.way(Collective::kBroadcast, bytes, KernelLinkage::kAny)));
    EXPECT_EQ(text_of(allreduce.kernel->way),
              text_of(ways.way(Collective::kAllreduce, bytes, KernelLinkage::kTrees)));
    EXPECT_EQ(bcast.why, "a rule of coll_loom_tune");
  }
  for (std::size_t bytes = 8; bytes <= std::size_t{1} << 28; bytes *= 8)
    EXPECT_EQ(call(Collective::kAllGather, bytes).algorithm, Algorithm::kKernel) << "without a rule";
  EXPECT_EQ(call(Collective::kBroadcast, 8, false).why,
            "it does not wait, and the fallback component would carry it on host memory");
  EXPECT_EQ(call(Collective::kBroadcast, std::size_t{1} << 24, false).why, "a rule of coll_loom_tune");
  EXPECT_EQ(GpuPlan(placement, hosts, Tune::parse("all:staged", "rules")).channels(), nullptr)
      << "nobody looks for them";
}

/// By trees between two hosts, whose ranks are as many.
TEST(GpuPlan, GathersOverTreesBetweenTwoHosts) {
  const topo::System dgx = machine("dgxh100");
  const topo::MachineOfRanks two = machine_of_ranks(dgx, 2), one = machine_of_ranks(dgx, 1);
  const auto gather = [&](const std::vector<const topo::MachineOfRanks*>& hosts) {
    std::vector<std::int32_t> leaders;
    for (const topo::MachineOfRanks* const host : hosts)
      leaders.insert(leaders.end(), host == &two ? 2 : 1, static_cast<std::int32_t>(leaders.size()));
    const connect::Placement placement(leaders);
    const Conditions conditions{.shape = {.ranks = placement.ranks(),
                                          .hosts = placement.nodes(),
                                          .ranks_per_host = placement.ranks_per_node()}};
    return GpuPlan(placement, hosts, Tune::parse("all:kernel_tree", "rules"))
        .call(conditions, Collective::kAllGather, 1 << 20, true);
  };
  const GpuCall call = gather({&two, &two});
  EXPECT_EQ(call.algorithm, Algorithm::kKernelTree);
  ASSERT_TRUE(call.kernel);
  EXPECT_EQ(call.kernel->way.algorithm, device::steps::Algorithm::kAllGatherTree);
  EXPECT_NE(gather({&two, &two, &two}).algorithm, Algorithm::kKernelTree);
  EXPECT_NE(gather({&two, &one}).algorithm, Algorithm::kKernelTree);
}

TEST(GpuPlan, StagesWhereRanksShareAGpuOrLinksHaveNoRoom) {
  const GpuCall shared =
      call_on(plan_of("dgxh100", 9, "all:staged,all:kernel"), Collective::kAllreduce, 1 << 20, 9);
  EXPECT_EQ(shared.algorithm, Algorithm::kStaged);
  EXPECT_THAT(shared.why, ::testing::HasSubstr("ranks share a GPU"));
  for (const char* tune : {"", "all:kernel"}) {  // a rule that cannot be met is none
    const GpuCall reached = call_on(plan_of("dgxh100", 9, tune), Collective::kAllreduce, 8, 9);
    EXPECT_EQ(reached.algorithm, Algorithm::kZeroCopy) << "which ranks of a GPU may do";
    EXPECT_NE(reached.why, "a rule of coll_loom_tune");
  }
  const GpuCall many = call_on(plan_of("dgxh100", 17), Collective::kAllreduce, 8, 17);
  EXPECT_EQ(many.algorithm, Algorithm::kStaged) << "it is for 16 ranks";
  const GpuCall crowded = call_on(plan_of("dgxh100", 8, "", 2 << 20), Collective::kAllreduce, 8);
  EXPECT_THAT(crowded.why, ::testing::HasSubstr("no room left"));
}

/// As links in little memory do.
TEST(GpuPlan, HasFewerChannelsInLittleMemory) {
  const GpuPlan plan = plan_of("dgxh100", 8, "all:kernel", 32 << 20);
  ASSERT_NE(plan.channels(), nullptr);
  EXPECT_LT(plan.channels()->rings.size(), plan_of("dgxh100").channels()->rings.size());
  EXPECT_EQ(call_on(plan, Collective::kAllGather, 1 << 27).kernel->way.channels,
            static_cast<int>(plan.channels()->rings.size()));
}

/// Only some of a machine's GPUs: on a DGX-1V the first four are all joined by NVLinks, eight are not.
TEST(GpuPlan, AsksForNvlinkBetweenAllGpusThatRanksHave) {
  EXPECT_TRUE(plan_of("dgx1v", 4).may_ll128());
  EXPECT_FALSE(plan_of("dgx1v", 5).may_ll128());
}

}  // namespace
}  // namespace loom
