// heads_test.cpp -- multicast heads: what they carry inside a node and at its ports.
#include "search/beside_nccl.hpp"
#include "search_cases.hpp"
#include "topo/xml_file.hpp"

namespace loom::search {
namespace {

NodePlans heads_of(const topo::System& system, int nodes = 1) {
  Request request;
  request.pattern = Pattern::kNvls;
  request.nodes = nodes;
  return find_plans(system, request);
}

TEST(Heads, HaveTheirShares) {
  const topo::System system = machine("dgxh100.xml");
  const NodePlans plans = heads_of(system);
  expect_valid(system, plans);
  EXPECT_EQ(plans.parts[0].channels.size(), 8);
  EXPECT_NEAR(plans.total_gbps, 18 * 20.6 * 8 / 9, 1e-2);  // each head reads twice
}

/// dgxh100.xml where `gpus` GPUs have a single NVLink to each of the four switches in place of 18 in sum.
topo::System with_few_nvlinks(std::size_t gpus) {
  std::string text = topo::read_text_file(std::string(LOOM_TEST_DATA "/") + "dgxh100.xml");
  std::size_t at = 0;
  for (std::size_t row = 0; row < 4 * gpus; ++row) {
    at = text.find("count=\"", text.find("<nvlink ", at)) + 7;
    text[at] = '1';
  }
  return topo::parse_nccl_xml(std::move(text), "few.xml", topo::Model::kNccl).system;
}

/// With ports, heads carry up to twice as much there as they multicast: an inner node of the trees over nodes
/// passes each byte by its ports twice. More would not be reached.
TEST(Heads, HavePortsUpToTwiceTheirMulticast) {
  // One GPU multicasts nothing of its own: 82.4 GB/s enter it, from all other heads. Of eight each reads
  // twice.
  for (const auto& [gpus, total] :
       {std::pair(std::size_t{1}, 2 * 4 * 20.6), std::pair(std::size_t{8}, 2 * 4 * 20.6 * 8 / 9)}) {
    const topo::System system = with_few_nvlinks(gpus);
    const NodePlans plans = heads_of(system, 2);
    expect_valid(system, plans);
    ASSERT_EQ(plans.parts.size(), 1);
    EXPECT_NEAR(plans.total_gbps, total, 1e-2) << gpus;
    EXPECT_NEAR(plans.parts[0].bound_gbps, total, 1e-2) << gpus;
    for (const Channel& channel : plans.parts[0].channels)
      EXPECT_LE(channel.inter_gbps, 2 * channel.intra_gbps * (1 + 1e-6));
  }
}

/// Any head could have all ports; one each carries as much, and counts as that beside NCCL's. Ports of equal
/// and of unequal speeds.
TEST(Heads, HaveOnePortEachWhereThatCarriesAsMuch) {
  for (const char* file : {LOOM_TEST_DATA "/dgxh100.xml", LOOM_SEARCH_DATA "/mixed-nics.xml"}) {
    SCOPED_TRACE(file);
    const topo::System system = topo::read_nccl_xml(file, topo::Model::kNccl).system;
    const NodePlans plans = heads_of(system, 2);
    expect_valid(system, plans);
    EXPECT_NEAR(by_one_channel_a_head(plans.parts[0]), plans.total_gbps, 1e-3);
    EXPECT_NEAR(plans.alone_gbps, plans.total_gbps, 1e-3);
  }
}

}  // namespace
}  // namespace loom::search
