// graph_round_trip_test.cpp -- every pattern of every machine, written and read again: the same channels,
// with the same bounds.
#include <algorithm>

#include "graph_cases.hpp"

#include "base/format.hpp"

namespace loom::search {
namespace {

#ifdef LOOM_SANITIZED
constexpr std::size_t kEvery = 8;  // of the files: sanitizers make the search tens of times slower
#else
constexpr std::size_t kEvery = 1;
#endif

/// Returns how many nodes are split.
int expect_round_trip(const PathTables& tables, int nodes) {
  Request request;
  request.nodes = nodes;
  std::vector<NodePlans> found;
  for (const Pattern pattern : kAllPatterns) {
    request.pattern = pattern;
    found.push_back(find_plans(tables, request));
  }
  const std::vector<NodePlans> kept = kept_plans(found);
  if (kept.empty()) {
    EXPECT_THROW(to_graph_xml(tables, found), Error);
    return 0;
  }
  const std::string text = to_graph_xml(tables, found);
  std::vector<NodePlans> read;
  EXPECT_NO_THROW(read = parse_graph_xml(text, "graph.xml", tables, nodes));
  expect_same_channels(kept, read);
  EXPECT_EQ(to_graph_xml(tables, read), text);
  int split = 0;
  for (std::size_t i = 0; i < std::min(kept.size(), read.size()); ++i) {
    prove_bounds(tables, request, read[i]);
    split += kept[i].parts.size() > 1 ? 1 : 0;
    for (std::size_t part = 0; part < kept[i].parts.size(); ++part)
      EXPECT_NEAR(read[i].parts[part].bound_gbps / kept[i].parts[part].bound_gbps, 1, 1e-6)
          << name_of(kept[i].parts[part].pattern);
  }
  return split;
}

TEST(GraphXmlOfMachines, KeepsEveryPatternOnOneNodeAndOnTwo) {
  const std::vector<std::filesystem::path> files = machine_files();
  ASSERT_GE(files.size(), 5U);
  int split = 0;
  for (std::size_t i = 0; i < files.size(); i += kEvery) {
    SCOPED_TRACE(files[i].string());
    const PathTables tables(topo::read_nccl_xml(files[i].string(), topo::Model::kNccl).system);
    for (const int nodes : {1, 2}) {
      SCOPED_TRACE(loom::format("{} nodes", nodes));
      split += expect_round_trip(tables, nodes);
    }
  }
  if (files.size() > 60 && kEvery == 1) {
    EXPECT_GT(split, 5) << "parts of nodes are among them";
  }
}

/// One of the parts is a GPU alone, which has the tree for every kind of tree.
TEST(GraphXmlOfMachines, KeepsPartsOfUnequalPatterns) {
  for (const char* file : {"trays-of-two-one-without-nvlink", "four-trays-one-gpu-without-nvlink",
                           "one-of-eight-without-nvlink", "mixed-nics", "sixteen-gpus-two-islands"}) {
    SCOPED_TRACE(file);
    const PathTables tables(
        topo::read_nccl_xml(loom::format("{}/{}.xml", LOOM_SEARCH_DATA, file), topo::Model::kNccl).system);
    for (const int nodes : {1, 2}) expect_round_trip(tables, nodes);
  }
}

}  // namespace
}  // namespace loom::search
