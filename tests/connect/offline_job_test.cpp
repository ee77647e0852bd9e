#include "tools/offline_job.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.hpp"
#include "base/format.hpp"
#include "job_cases.hpp"
#include "tools/connect_views.hpp"
#include "topo/hwloc_xml.hpp"

namespace loom::tools {
namespace {

using namespace connect;

/// The files by their names in the data folder; so many ranks on each, 0: all.
OfflineJob job_with(std::vector<MachineFile> machines, const std::string& placement = "block",
                    int ranks = 0) {
  for (MachineFile& machine : machines) {
    machine.path = loom::format("{}/{}", LOOM_TEST_DATA, machine.path);
    machine.ranks = ranks;
  }
  JobRequest request;
  request.machines = std::move(machines);
  request.placement = placement;
  return build_job(request);
}

TEST(OfflineJob, PlacesRanks) {
  const OfflineJob block = job_with({{"dgx1v.xml", 2}, {"gh200.xml", 1}});
  EXPECT_EQ(block.job.ranks(), 17);
  EXPECT_THAT(block.job.placement().ranks_of(2), ::testing::ElementsAre(16));
  const OfflineJob round = job_with({{"dgx1v.xml", 2}, {"gh200.xml", 1}}, "round-robin");
  EXPECT_THAT(round.job.placement().ranks_of(2), ::testing::ElementsAre(2));
  EXPECT_THAT(round.job.placement().ranks_of(0), ::testing::ElementsAre(0, 3, 5, 7, 9, 11, 13, 15));
  const OfflineJob some = job_with({{"dgx1v.xml", 3}}, "random:4", 5);
  EXPECT_EQ(some.job.ranks(), 15);
  for (const OfflineJob* offline : {&block, &round, &some}) expect_sound(offline->job);
  EXPECT_THROW(job_with({{"dgx1v.xml", 3}}, "random:", 5), Error);
  EXPECT_THROW(job_with({{"dgx1v.xml", 3}}, "block", 9), Error);
}

TEST(OfflineJob, SaysWhichSeedsThereAre) {
  expect_sound(job_with({{"dgx1v.xml", 3}}, "random:4294967295", 5).job);
  try {
    job_with({{"dgx1v.xml", 3}}, "random:4294967296", 5);
    FAIL() << "a seed beyond 32 bits was taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("no number from 0 to 4294967295 as its seed"));
  }
}

TEST(OfflineJob, KnowsTheMachineOfEveryKind) {
  const OfflineJob offline = job_with({{"dgxh100.xml", 2}, {"pcie-2socket.xml", 2}});
  ASSERT_EQ(offline.machines.size(), offline.job.kinds().size());
  for (std::size_t kind = 0; kind < offline.machines.size(); ++kind)
    EXPECT_EQ(static_cast<int>(offline.machines[kind].ranks.size()), offline.job.kinds()[kind].ranks);
  EXPECT_EQ(offline.exchange.word_bytes, 8 * static_cast<std::size_t>(offline.job.ranks()));
  EXPECT_GE(offline.exchange.slice_bytes, offline.exchange.summary_bytes);
}

TEST(OfflineJob, CarriesNoLessWithALooserLimit) {
  JobRequest request;
  for (const auto& [name, count] : {std::pair("dgxa100.xml", 3), {"dgx1v.xml", 2}, {"gh200.xml", 3}})
    request.machines.push_back({loom::format("{}/{}", LOOM_TEST_DATA, name), count});
  for (const int limit : {4, 5, 8, 12, 16, 32}) {
    request.plans.max_channels = request.channels.max_channels = limit;
    const Job job = build_job(request).job;
    for (const Family family : {Family::kRing, Family::kTree}) {
      EXPECT_GE(job.agreed(family).total_gbps(), 47.9) << limit;  // the slowest node has four of 12 GB/s
      EXPECT_EQ(job.agreed(family).channels, 4) << limit;
    }
  }
}

/// Also of one file whose parts differ, and of several.
TEST(OfflineJob, KeepsChannelsBelowTheSpeedThatIsAskedFor) {
  for (const int files : {1, 3}) {
    JobRequest request;
    request.plans.most_gbps = 5;
    request.machines = {{LOOM_SEARCH_DATA "/four-trays-one-gpu-without-nvlink.xml", 1}};
    if (files == 3)
      request.machines = {{LOOM_TEST_DATA "/dgxa100.xml", 3},
                          {LOOM_TEST_DATA "/dgx1v.xml", 2},
                          {LOOM_TEST_DATA "/gh200.xml", 3}};
    const Job job = build_job(request).job;
    EXPECT_GT(job.nodes(), 1);
    for (const float gbps : job.agreed(Family::kRing).inter_gbps) EXPECT_LE(gbps, 5.001F) << files;
  }
}

/// Machines that only the simulator can tell apart stay apart.
TEST(OfflineJob, KeepsFilesApart) {
  const std::string other = "loom_other_" + std::to_string(getpid()) + ".xml";
  const std::string copy = ::testing::TempDir() + other;
  std::filesystem::copy_file(LOOM_TEST_DATA "/dgx1v.xml", copy,
                             std::filesystem::copy_options::overwrite_existing);
  JobRequest request;
  request.machines = {{LOOM_TEST_DATA "/dgx1v.xml", 2}, {copy, 3}, {LOOM_TEST_DATA "/dgx1v.xml", 1}};
  const OfflineJob offline = build_job(request);
  std::filesystem::remove(copy);
  EXPECT_THAT(offline.kind_names, ::testing::ElementsAre("dgx1v.xml", other));
  std::vector<int> nodes(2);
  for (int node = 0; node < offline.job.nodes(); ++node)
    ++nodes[static_cast<std::size_t>(offline.job.kind_of(node))];
  EXPECT_THAT(nodes, ::testing::ElementsAre(3, 3));
  EXPECT_NE(offline.machines[0].paths, offline.machines[1].paths);
  EXPECT_EQ(offline.exchange.slice_bytes,
            (offline.exchange.summary_bytes + 47) / 48 * 48);  // and yet are sent once
  expect_sound(offline.job);
}

OfflineJob alone(const char* name, const std::function<void(JobRequest&)>& change = {}) {
  JobRequest request;
  request.machines = {{loom::format("{}/{}", LOOM_TEST_DATA, name), 1}};
  if (change) change(request);
  return build_job(request);
}

TEST(OneHost, IsOfflineWhereItAsksForOtherChannelsThanThePlugin) {
  EXPECT_FALSE(alone("dgxh100.xml").is_offline);
  const OfflineJob few = alone("dgxh100.xml", [](JobRequest& request) { request.gpus.max_channels = 3; });
  EXPECT_TRUE(few.is_offline);
  EXPECT_EQ(few.job.agreed(Family::kRing).channels, 3);
  const OfflineJob more = alone("dgxh100.xml", [](JobRequest& request) {
    request.gpus.max_channels = 40, request.channels.min_channels = 40;
  });
  EXPECT_TRUE(more.is_offline);
  EXPECT_EQ(more.job.agreed(Family::kRing).channels, 40);
  EXPECT_TRUE(
      alone("dgxh100.xml", [](JobRequest& request) { request.model = topo::Model::kNccl; }).is_offline);
  EXPECT_TRUE(job_with({{"dgxh100.xml", 2}}).is_offline);
}

TEST(OneHost, HasMulticastOffline) {
  const OfflineJob offline = alone("dgxh100.xml");
  EXPECT_GT(offline.job.agreed(Family::kNvls).channels, 0);
  const nlohmann::json agreed = to_json(offline).at("agreed");
  EXPECT_EQ(agreed.at("nvls").at("offline"), true);
  EXPECT_EQ(agreed.at("ring").at("offline"), false);
  EXPECT_EQ(agreed.at("tree").at("offline"), false);
  for (const double bytes : {8.0, 64e3, 1e9})
    for (const Prediction& prediction : predictions_of(offline, {.bytes = bytes}))
      EXPECT_THAT(prediction.algorithm, ::testing::AnyOf("exchange", "ring", "tree", "zero_copy"));
}

/// Hosts of one file and of several, as the ranks of the plugin join them.
TEST(GpuHostsOfFiles, HaveTheChannelsThatThePluginRuns) {
  for (const std::string placement : {"block", "round-robin", "random:5"}) {
    JobRequest request;
    request.machines = {{LOOM_TEST_DATA "/dgxh100.xml", 2, 3}, {LOOM_TEST_DATA "/dgxa100.xml", 1}};
    request.placement = placement;
    request.model = topo::Model::kLoom;
    const OfflineJob offline = build_job(request);
    expect_sound(offline.job);
    EXPECT_FALSE(offline.is_offline);
    EXPECT_FALSE(offline.is_run(Family::kNvls));
    std::vector<GpuHost> told;
    for (int node = 0; node < 3; ++node) {
      const bool h100 = offline.job.placement().ranks_on(node) == 3;
      const topo::System system = topo::read_system(request.machines[h100 ? 0 : 1].path).system;
      told.push_back(plan_gpu_host(machine_of_ranks(system, h100 ? 3 : 8), {}, true).host);
    }
    const GpuChannels found = gpu_channels(offline.job.placement(), told, GpuChannelRequest{}.max_channels);
    EXPECT_EQ(offline.gpu_summary(), found.summary);
    ASSERT_EQ(offline.job.agreed(Family::kRing).channels, static_cast<int>(found.rings.size()));
    ASSERT_EQ(offline.job.agreed(Family::kTree).channels, static_cast<int>(found.trees.size()));
    for (std::size_t c = 0; c < found.rings.size(); ++c)
      EXPECT_EQ(ring_order(offline.job, static_cast<int>(c), found.rings[c].order.front()),
                found.rings[c].order);
    for (std::size_t c = 0; c < found.trees.size(); ++c)
      for (int rank = 0; rank < found.ranks; ++rank)
        for (std::size_t t = 0; t < 2; ++t)
          EXPECT_EQ(tree_of(offline.job, static_cast<int>(c), rank).trees[t].parent,
                    found.trees[c].trees[t][static_cast<std::size_t>(rank)].parent);
    for (const Prediction& prediction : predictions_of(offline, {.bytes = 1e6}))
      EXPECT_EQ(prediction.protocol, "Simple");
  }
}

TEST(GpuHostsOfFiles, AreOfflineWhereTheJobIsNotThePlugins) {
  JobRequest request;
  request.machines = {{LOOM_TEST_DATA "/dgxh100.xml", 2}};
  request.model = topo::Model::kLoom;
  EXPECT_FALSE(build_job(request).is_offline);
  JobRequest few = request, nccl = request, one_port = request;
  few.gpus.max_channels = 3;
  EXPECT_TRUE(build_job(few).is_offline);
  EXPECT_EQ(build_job(few).job.agreed(Family::kRing).channels, 3);
  nccl.model = topo::Model::kNccl;
  EXPECT_TRUE(build_job(nccl).is_offline);
  one_port.gpus.cross_nic = 0;
  EXPECT_TRUE(build_job(one_port).is_offline);
}

/// By the costs that kernels choose by, not by those of a job of several hosts.
TEST(OneHost, TakesTheTimeThatThePluginPredicts) {
  for (const char* name : {"dgx1v.xml", "dgxa100.xml", "dgxh100.xml", "pcie-2socket.xml"}) {
    const OfflineJob offline = alone(name);
    const Conditions conditions{.shape = offline.job.shape(), .single_copy = true};
    for (const std::size_t bytes :
         {std::size_t{8}, std::size_t{1} << 16, std::size_t{1} << 20, std::size_t{1} << 30}) {
      const std::vector<Prediction> shown = predictions_of(offline, {.bytes = static_cast<double>(bytes)});
      const GpuCall call =
          GpuPlan(machine_of_ranks(topo::read_system(std::string(LOOM_TEST_DATA "/") + name).system, 8), {})
              .call(conditions, device::Collective::kAllreduce, bytes, true);
      const std::string by(call.kernel ? links_name(call.kernel->way) : name_of(call.algorithm));
      EXPECT_THAT(by, ::testing::StartsWith(shown.front().algorithm)) << name;
      EXPECT_EQ(shown.front().protocol, call.kernel ? protocol_name(call.kernel->way) : "-");
      EXPECT_EQ(shown.front().us, call.us);
      EXPECT_TRUE(std::ranges::any_of(shown, [](const Prediction& one) { return !one.bottleneck.empty(); }));
    }
  }
}

TEST(OfflineJob, RefusesTooManyMachines) {
  for (const int count : {2'147'483'647, 1'000'000'000})
    EXPECT_THROW(job_with({{"gh200.xml", count}, {"gh200.xml", count}, {"gh200.xml", count}}), Error);
}

TEST(ConnectJson, ShowsOneRoundThroughAllRanks) {
  const OfflineJob offline = job_with({{"dgxh100.xml", 2}}, "random:1");
  std::vector<nlohmann::json> views;
  for (int rank = 0; rank < 16; ++rank)
    views.push_back(to_json(offline.job, connect::connect(offline.job, rank), true));
  for (int rank = 0; rank < 16; ++rank) {
    const nlohmann::json& rings = views[static_cast<std::size_t>(rank)].at("rings");
    ASSERT_EQ(rings.size(), to_json(offline).at("agreed").at("ring").at("channels"));
    for (std::size_t c = 0; c < rings.size(); ++c) {
      const auto order = rings[c].at("order").get<std::vector<int>>();
      std::vector<int> all(16);
      std::iota(all.begin(), all.end(), 0);
      EXPECT_THAT(order, ::testing::UnorderedElementsAreArray(all));
      EXPECT_EQ(order.front(), rank);
      EXPECT_EQ(order[1], rings[c].at("next"));
      EXPECT_EQ(order.back(), rings[c].at("previous"));
    }
    const nlohmann::json& trees = views[static_cast<std::size_t>(rank)].at("trees");
    for (std::size_t c = 0; c < trees.size(); ++c)
      for (std::size_t tree = 0; tree < 2; ++tree)
        for (const int child : trees[c].at("trees").at(tree).at("children"))
          EXPECT_EQ(
              views[static_cast<std::size_t>(child)].at("trees").at(c).at("trees").at(tree).at("parent"),
              rank);
  }
}

}  // namespace
}  // namespace loom::tools
