// nccl_reference_test.cpp -- the search beside what NCCL itself finds, where its figures are at hand.
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/format.hpp"
#include "search/beside_nccl.hpp"
#include "search_cases.hpp"

namespace loom::search {
namespace {

using nlohmann::json;

#ifdef LOOM_SANITIZED
constexpr int kEvery = 8;  // of the files: sanitizers make the search tens of times slower
#else
constexpr int kEvery = 1;
#endif

TEST(NcclReference, IsReachedByEveryPatternOnEveryMachine) {
  const std::filesystem::path folder = LOOM_SHARED_TOPOLOGIES;
  std::ifstream file(folder / "nccl_reference.json");
  if (!file) GTEST_SKIP() << "skipped: no " << folder.string();
  const std::map<std::string, Pattern> patterns = {{"RING", Pattern::kRing},
                                                   {"TREE", Pattern::kTree},
                                                   {"BALANCED_TREE", Pattern::kBalancedTree},
                                                   {"NVLS", Pattern::kNvls},
                                                   {"COLLNET_DIRECT", Pattern::kCollnetDirect}};
  int compared = 0, near = 0, number = 0;
  const json reference_file = json::parse(file);
  for (const auto& [name, entry] : reference_file["files"].items()) {
    if (number++ % kEvery != 0) continue;
    for (const auto& [label, nodes, cross_nic] :
         {std::tuple("n1", 1, 2), std::tuple("n2", 2, 2), std::tuple("n2_crossnic0", 2, 0),
          std::tuple("n2_crossnic1", 2, 1)}) {
      if (!entry.contains(label) || !entry[label].contains("graphs")) continue;
      const PathTables tables(topo::read_nccl_xml((folder / name).string(), topo::Model::kNccl).system);
      for (const auto& [graph, theirs] : entry[label]["graphs"].items()) {
        SCOPED_TRACE(loom::format("{} {} {}", name, label, graph));
        Request request;
        request.pattern =
            graph == "collnetChain" ? Pattern::kCollnetChain : patterns.at(theirs["patternName"]);
        request.nodes = nodes;
        request.cross_nic = cross_nic;
        const NodePlans plans = find_plans(tables, request);
        expect_valid(tables, plans);
        const double reference =
            nccl_total(request.pattern, nodes > 1, theirs["totalBw"], theirs["bwIntra"], theirs["nChannels"]);
        EXPECT_GE(plans.alone_gbps, reference * (1 - 1e-6));
        ++compared;
        near += plans.total_gbps >= 0.95 * plans.parts[0].bound_gbps ? 1 : 0;
      }
    }
  }
  EXPECT_GT(compared, 500 / kEvery / 2);
  EXPECT_GE(near, compared * 9 / 10);
}

}  // namespace
}  // namespace loom::search
