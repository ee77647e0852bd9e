// nccl_reference_test.cpp -- paths and trimming beside what NCCL itself computes, where its figures are at
// hand.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/format.hpp"
#include "test_data.hpp"
#include "topo/bandwidth.hpp"
#include "topo/paths.hpp"

namespace loom::topo {
namespace {

using nlohmann::json;

/// As the reference writes it. NCCL counts a rank and its GPU as two nodes: one hop more at each GPU that a
/// path touches.
std::string written(const Path& path, int gpus_touched) {
  const bool none = path.hops == 0 && path.type == PathType::kLoc;
  const bool unreachable = path.type == PathType::kDis;
  return loom::format("{}/{:g}/{}", name_of(path.type), std::round(path.gbps * 1000) / 1000,
                      none || unreachable ? 0 : path.hops + gpus_touched);
}

void compare_paths(const System& system, const Paths& paths, const json& reference, int& compared) {
  const auto gpus = system.gpus();
  const auto nets = system.of_kind(NodeKind::kNet);
  ASSERT_EQ(reference["ranks"].size(), gpus.size());
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    EXPECT_EQ(reference["ranks"][i].get<int>(), system.node(gpus[i]).gpu().rank);
    for (std::size_t j = 0; j < gpus.size(); ++j, ++compared)
      EXPECT_EQ(written(paths.between(gpus[i], gpus[j]), 2), reference["gpu_gpu"][i][j].get<std::string>())
          << "rank " << i << " to " << j;
    if (reference["gpu_net"].empty()) continue;
    for (std::size_t j = 0; j < reference["gpu_net"][i].size(); ++j, ++compared) {
      const Path path = paths.between(gpus[i], nets[j]);
      EXPECT_EQ(written(path, path.type == PathType::kPxn ? 3 : 1),
                reference["gpu_net"][i][j].get<std::string>())
          << "rank " << i << " to port " << j;
    }
  }
}

/// The number of figures compared.
int compare_files(const std::filesystem::path& folder) {
  std::ifstream file(folder / "nccl_reference.json");
  const json reference = json::parse(file);
  int compared = 0;
  for (const auto& [name, machine] : reference["files"].items()) {
    const bool loads = machine.contains("n1") || machine.contains("n2");
    if (!loads || name.starts_with("amd-raw")) continue;  // not NCCL's dialect
    SCOPED_TRACE(name);
    const System whole = read_nccl_xml(folder / name, Model::kNccl).system;
    const Paths all(whole);
    const auto domains = domains_of(all);
    const System system = trimmed_to(whole, domains.front());
    const Paths paths(system);
    for (const char* nodes : {"n1", "n2"}) {
      if (!machine.contains(nodes)) continue;
      const json& expected = machine[nodes];
      const bool inter = domains.size() > 1 || std::string_view(nodes) == "n2";
      EXPECT_EQ(whole.gpus().size(), expected["nGpusXml"]);
      EXPECT_EQ(system.gpus().size(), expected["nGpus"]);
      EXPECT_EQ(system.of_kind(NodeKind::kNet).size(), expected["nNets"]);
      EXPECT_EQ(system.hosts().size(), expected["nHosts"]);
      EXPECT_EQ(inter, expected["inter"].get<int>() == 1);
      EXPECT_NEAR(max_gbps(paths, inter), expected["maxBw"].get<double>(), 0.051);
      const float total = system.gpus().size() == 1 && !inter ? kLocalGbps : total_gbps(system);
      EXPECT_NEAR(total, expected["totalBw"].get<double>(), 0.051);
      compared += 7;
      if (machine.contains("paths") && machine["paths"].contains(nodes))
        compare_paths(system, paths, machine["paths"][nodes], compared);
    }
  }
  loom::print("{} figures compared\n", compared);
  return compared;
}

TEST(NcclReference, AgreesOnAMachineOfTheseTests) {
  EXPECT_GT(compare_files(LOOM_TEST_DATA), 200);
}

TEST(NcclReference, AgreesOnTypesBandwidthsHopsAndTrimming) {
  const std::filesystem::path folder = LOOM_SHARED_TOPOLOGIES;
  if (!exists(folder / "nccl_reference.json"))
    GTEST_SKIP() << "skipped: no " << folder / "nccl_reference.json";
  EXPECT_GT(compare_files(folder), 10'000);
}

}  // namespace
}  // namespace loom::topo
