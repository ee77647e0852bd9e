// odd_machines_test.cpp -- machines that nobody planned for, with totals worked out by hand.
#include "search/path_tables.hpp"
#include "search_cases.hpp"

namespace loom::search {
namespace {

struct Odd {
  const char* file;
  Pattern pattern;
  int nodes;
  double total;  // GB/s
  const char* because;
};

void PrintTo(const Odd& odd, std::ostream* out) {
  *out << odd.file << ", " << name_of(odd.pattern) << ", nodes " << odd.nodes;
}

class OddMachine : public ::testing::TestWithParam<Odd> {};

TEST_P(OddMachine, CarriesWhatItsLinksDo) {
  const Odd& odd = GetParam();
  const topo::System system =
      topo::read_nccl_xml(std::string(LOOM_SEARCH_DATA "/") + odd.file + ".xml", topo::Model::kNccl).system;
  Request request;
  request.pattern = odd.pattern;
  request.nodes = odd.nodes;
  const NodePlans plans = find_plans(system, request);
  expect_valid(system, plans);
  EXPECT_NEAR(plans.total_gbps, odd.total, 1e-3 * odd.total) << odd.because;
  std::int64_t steps = 0;
  for (const ChannelPlan& plan : plans.parts) steps += plan.steps;
  EXPECT_LE(steps, 26'000'000) << "24 million are given, and a round that is begun is finished";
}

INSTANTIATE_TEST_SUITE_P(
    Files, OddMachine,
    ::testing::Values(
        Odd{"three-gpus-one-nic", Pattern::kRing, 1, 48, "each GPU's slot"},
        Odd{"three-gpus-one-nic", Pattern::kTree, 1, 72, "begun at each GPU in turn, 2 of 3 enter it"},
        Odd{"three-gpus-one-nic", Pattern::kTree, 2, 48, "the port"},
        Odd{"twelve-gpus-three-sockets", Pattern::kRing, 1, 32, "16 between sockets, both ways round"},
        Odd{"twelve-gpus-three-sockets", Pattern::kTree, 1, 48, "three ways through three sockets"},
        Odd{"unequal-nvlinks", Pattern::kTree, 1, 120,
            "4 + 1 links of 20 at the first GPU, begun there or not"},
        Odd{"six-gpus-four-nics", Pattern::kRing, 1, 16, "between sockets, there and back in one ring"},
        Odd{"six-gpus-four-nics", Pattern::kRing, 2, 32, "between sockets, there or back"},
        Odd{"mixed-nics", Pattern::kRing, 2, 88.625, "all ports, 48 + 25 + 12.5 + 3.125"},
        Odd{"mixed-nics", Pattern::kNvls, 2, 88.625, "all ports"},
        Odd{"one-of-eight-without-nvlink", Pattern::kRing, 2, 48, "its slot"},
        Odd{"one-of-eight-without-nvlink", Pattern::kTree, 1, 96, "its slot, begun or ended there"},
        Odd{"sixteen-gpus-two-islands", Pattern::kRing, 1, 16,
            "between sockets; never 16 parts on two ports"},
        Odd{"sixteen-gpus-two-islands", Pattern::kRing, 2, 32, "between sockets, there or back"},
        Odd{"nic-on-the-other-socket", Pattern::kRing, 2, 16, "between sockets"},
        Odd{"narrow-slots", Pattern::kRing, 1, 6, "four lanes"},
        Odd{"power-two-gpus", Pattern::kRing, 1, 20, "into POWER's CPUs as much again comes back, of 40"},
        Odd{"ports-on-two-planes", Pattern::kRing, 2, 16, "between sockets, there and back to the same port"},
        Odd{"four-trays-one-gpu-without-nvlink", Pattern::kRing, 2, 204,
            "two ports by the GPU's own socket, 96, and 6 from the other, begun or ended there"}));

/// Sixteen GPUs, one of them hard to reach: local search alone finds the rings that begin or end there.
TEST(OddMachines, NeedNoExactOrders) {
  Request request;
  request.nodes = 2;
  request.exact_gpus = 2;
  const topo::System system =
      topo::read_nccl_xml(LOOM_SEARCH_DATA "/four-trays-one-gpu-without-nvlink.xml", topo::Model::kNccl)
          .system;
  EXPECT_NEAR(find_plans(system, request).total_gbps, 204, 0.2);
}

}  // namespace
}  // namespace loom::search
