// gpu_hosts_test.cpp -- channels of GPUs on several hosts.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <ostream>
#include <random>
#include <set>

#include "base/error.hpp"
#include "connect/checks.hpp"
#include "connect/gpu_channels.hpp"
#include "tests/connect/job_cases.hpp"
#include "topo/draft.hpp"
#include "topo/hwloc_xml.hpp"
#include "topo/paths.hpp"

namespace loom::connect {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::ThrowsMessage;
using topo::PathType;

topo::System machine(const std::string& name) {
  return topo::read_system(LOOM_TEST_DATA "/" + name + ".xml").system;
}

/// A host of the job: its machine, and by rank there which of the machine's GPUs it has.
struct Host {
  std::string machine;
  std::vector<int> gpu_of;
};

topo::MachineOfRanks ranked(const topo::System& system, const std::vector<int>& gpu_of,
                            const std::vector<int>& ranks) {
  std::vector<topo::RankGpu> gpus;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const topo::NodeId gpu = system.gpus()[static_cast<std::size_t>(gpu_of[i])];
    gpus.push_back({.rank = ranks[i], .bus_id = system.node(gpu).pci->bus_id});
  }
  return topo::with_rank_gpus(system, gpus);
}

GpuHostPlan plan_of(const Host& host, const std::vector<int>& ranks) {
  return plan_gpu_host(ranked(machine(host.machine), host.gpu_of, ranks), {}, true);
}

std::vector<int> in_turn(int count) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

/// As all ranks come to it: each host plans and tells the others.
GpuChannels channels_of(const std::vector<Host>& hosts, Order order = Order::kBlock) {
  std::mt19937 random(7);
  std::vector<int> sizes;
  for (const Host& host : hosts) sizes.push_back(static_cast<int>(host.gpu_of.size()));
  std::vector<std::vector<int>> nodes = placed(sizes, order, random);
  const Placement placement = Placement::of_nodes(nodes);
  std::vector<GpuHost> told(hosts.size());
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    std::ranges::sort(nodes[h]);
    const GpuHost host = plan_of(hosts[h], nodes[h]).host;
    GpuHost& heard = told[static_cast<std::size_t>(placement.node_of(nodes[h].front()))];
    heard = decode_gpu_host(encode(host));
    EXPECT_EQ(heard, host);
  }
  return gpu_channels(placement, told, GpuChannelRequest{}.max_channels);
}

/// A cycle of all ranks that comes to each host once.
void expect_ring(const Placement& placement, const std::vector<int>& ring) {
  std::vector<int> sorted = ring;
  std::ranges::sort(sorted);
  EXPECT_EQ(sorted, in_turn(placement.ranks()));
  int arrivals = 0;
  for (std::size_t i = 0; i < ring.size(); ++i)
    arrivals += placement.node_of(ring[i]) != placement.node_of(ring[(i + 1) % ring.size()]) ? 1 : 0;
  EXPECT_EQ(arrivals, placement.nodes());
}

/// Reaches all ranks from one root, in each host along a chain. Returns the hosts with children on others.
std::set<int> expect_tree(const Placement& placement, const std::vector<TreeLinks>& tree) {
  std::set<int> inside;
  std::vector<int> arrivals(static_cast<std::size_t>(placement.nodes()), 0);
  std::vector<int> reached;
  for (int rank = 0; rank < placement.ranks(); ++rank)
    if (tree[static_cast<std::size_t>(rank)].parent == kNobody) reached.push_back(rank);
  EXPECT_EQ(reached.size(), 1);
  for (std::size_t i = 0; i < reached.size() && i < tree.size(); ++i) {
    const TreeLinks& links = tree[static_cast<std::size_t>(reached[i])];
    const int node = placement.node_of(reached[i]);
    int near = 0;
    for (int c = 0; c < links.child_count; ++c) {
      const int child = links.children[static_cast<std::size_t>(c)];
      EXPECT_EQ(tree[static_cast<std::size_t>(child)].parent, reached[i]);
      reached.push_back(child);
      const int other = placement.node_of(child);
      if (other == node) {
        ++near;
      } else {
        inside.insert(node);
        ++arrivals[static_cast<std::size_t>(other)];
      }
    }
    EXPECT_LE(near, 1);
  }
  std::ranges::sort(reached);
  EXPECT_EQ(reached, in_turn(placement.ranks()));
  for (const int count : arrivals) EXPECT_LE(count, 1);
  return inside;
}

/// Each host is a row of all of its ranks.
void expect_grid(const Placement& placement, const std::vector<int>& ranks) {
  ASSERT_EQ(static_cast<int>(ranks.size()), placement.ranks());
  std::size_t first = 0;
  for (int node = 0; node < placement.nodes(); ++node) {
    const auto mates = placement.ranks_of(node);
    std::vector<std::int32_t> row(ranks.begin() + static_cast<std::ptrdiff_t>(first),
                                  ranks.begin() + static_cast<std::ptrdiff_t>(first + mates.size()));
    std::ranges::sort(row);
    EXPECT_TRUE(std::ranges::equal(row, mates));
    first += mates.size();
  }
}

void expect_sound(const GpuChannels& found, const Placement& placement) {
  EXPECT_EQ(found.all_gather.grids > 0, found.job.shape().ranks_per_host >= 2)
      << "hosts of equally many ranks, two or more, have grids";
  EXPECT_LE(found.grids.size(), 16);
  for (const GpuChannels::GridChannel& grid : found.grids) {
    expect_grid(placement, grid.ranks);
    EXPECT_GT(grid.gbps, 0);
    EXPECT_LE(grid.gbps, found.grids.front().gbps);
  }
  EXPECT_THAT(violations(found.job), IsEmpty());
  ASSERT_THAT(found.rings, Not(IsEmpty()));
  ASSERT_THAT(found.trees, Not(IsEmpty()));
  EXPECT_LE(found.rings.size(), 16);
  EXPECT_LE(found.trees.size(), 16);
  EXPECT_EQ(found.hosts, placement.nodes());
  double rings = 0, trees = 0;
  for (const GpuChannels::RingChannel& ring : found.rings) {
    expect_ring(placement, ring.order);
    rings += ring.gbps;
  }
  for (const GpuChannels::TreeChannel& channel : found.trees) {
    const std::set<int> first = expect_tree(placement, channel.trees[0]),
                        second = expect_tree(placement, channel.trees[1]);
    std::vector<int> both;
    std::ranges::set_intersection(first, second, std::back_inserter(both));
    EXPECT_LE(both.size(), placement.nodes() % 2 == 0 ? 0U : 1U) << "inner hosts of both trees";
    trees += channel.gbps;
  }
  for (int a = 0; a < found.ranks; ++a)
    for (int b = 0; b < found.ranks; ++b)
      EXPECT_EQ(found.between(a, b) == PathType::kNet, placement.node_of(a) != placement.node_of(b));
  EXPECT_GT(found.ring.gbps, 0);
  EXPECT_NEAR(rings, found.ring.gbps, 1e-4 * rings);
  EXPECT_NEAR(trees, found.tree.gbps, 1e-4 * trees);
  EXPECT_LE(found.ring.gbps, found.ring.bound_gbps * (1 + 1e-5));
  EXPECT_LE(found.tree.gbps, found.tree.bound_gbps * (1 + 1e-5));
}

struct JobCase {
  std::string name;
  std::vector<Host> hosts;
};

void PrintTo(const JobCase& job, std::ostream* out) {
  *out << job.name;
}

std::vector<JobCase> job_cases() {
  const Host h100{"dgxh100", in_turn(8)}, a100{"dgxa100", in_turn(8)}, v100{"dgx1v", in_turn(8)},
      pcie{"pcie-2socket", in_turn(8)}, gh200{"gh200", {0}};
  const Host two_ports{"two-ports", in_turn(4)};
  return {{"TwoAlike", {h100, h100}},
          {"TwoWithUnequalRows", {two_ports, two_ports}},
          {"ThreeAlike", {a100, a100, a100}},
          {"FourAlike", {v100, v100, v100, v100}},
          {"TwoOnPci", {pcie, pcie}},
          {"OneGpuEach", {gh200, gh200, gh200}},
          {"HalfOfOne", {h100, {"dgxh100", {6, 1, 4, 3}}}},
          {"OneRankBesideMany", {{"dgxa100", {5}}, a100}},
          {"ManyBesideOneRank", {a100, gh200, {"dgxa100", {2}}}},
          {"TwoAndOne", {{"dgxh100", {0, 1}}, {"dgxh100", {0}}}},
          {"OfFourKinds", {h100, a100, v100, pcie}},
          {"OfRanksThatShareGpus", {{"dgxh100", {0, 1, 0, 1, 2}}, {"dgx1v", {3, 3}}}},
          {"WithoutPorts", {{"lstopo-2gpu", {0, 1}}, {"lstopo-2gpu", {1, 0}}}},
          {"WithPortsOnOne", {{"lstopo-2gpu", {0, 1}}, h100}}};
}

class JobOnGpus : public ::testing::TestWithParam<std::tuple<JobCase, Order>> {};

TEST_P(JobOnGpus, HasSoundChannels) {
  const auto& [job, order] = GetParam();
  const GpuChannels found = channels_of(job.hosts, order);
  EXPECT_THAT(found.notes, IsEmpty());
  expect_sound(found, found.job.placement());
  int ranks = 0;
  for (const Host& host : job.hosts) ranks += static_cast<int>(host.gpu_of.size());
  EXPECT_EQ(found.ranks, ranks);
}

std::string case_name(const ::testing::TestParamInfo<std::tuple<JobCase, Order>>& info) {
  constexpr std::array kOrders = {"InBlocks", "RoundRobin", "AtRandom"};
  return std::get<0>(info.param).name + kOrders[static_cast<std::size_t>(std::get<1>(info.param))];
}
INSTANTIATE_TEST_SUITE_P(GpuHosts, JobOnGpus,
                         ::testing::Combine(::testing::ValuesIn(job_cases()),
                                            ::testing::Values(Order::kBlock, Order::kRoundRobin,
                                                              Order::kRandom)),
                         case_name);

/// Each port has a PCI switch with two GPUs, or with its own one.
TEST(GpuHosts, HaveChannelsFromTheGpuNextToAPortToOneNextToAPort) {
  for (const char* const name : {"dgxh100", "dgxa100", "dgx1v"}) {
    const topo::MachineOfRanks system = ranked(machine(name), in_turn(8), in_turn(8));
    const GpuHost host = plan_gpu_host(system, {}, true).host;
    topo::PathRules rules;
    rules.network_inside_host = false;
    const topo::Paths paths(system.system, rules);
    const auto ports = system.system.of_kind(topo::NodeKind::kNet);
    const auto is_next = [&](int rank, int port) {
      ASSERT_GE(port, 0);
      const topo::NodeId net = ports[static_cast<std::size_t>(port)];
      EXPECT_LE(paths.physical(system.system.gpu_of_rank(rank), net).type, PathType::kPxb)
          << name << ", rank " << rank << ", port " << port;
    };
    std::set<int> used;
    for (const ChannelSummary& ring : host.summary.family(Family::kRing).channels) {
      is_next(ring.order.front(), ring.port_in);
      is_next(ring.order.back(), ring.port_out);
      used.insert({ring.port_in, ring.port_out});
    }
    EXPECT_EQ(used.size(), ports.size()) << name;
    for (const ChannelSummary& chain : host.summary.family(Family::kTree).channels)
      is_next(chain.order.front(), chain.port_in);
  }
}

/// As many channels as its speed is worth, and what leaves a host by a port enters the next one by the same.
TEST(GpuHosts, ShareTheirPortsAmongChannels) {
  for (const char* const name : {"dgxh100", "dgxa100", "two-ports"}) {
    const int gpus = static_cast<int>(machine(name).gpus().size());
    const GpuChannels found = channels_of({{name, in_turn(gpus)}, {name, in_turn(gpus)}});
    std::vector<std::vector<ChannelPorts>> ports;
    for (int rank = 0; rank < found.ranks; ++rank) ports.push_back(ports_of(found, rank));
    std::map<std::string, double> in, out, tree;  // GB/s
    std::map<std::string, int> grid;
    for (std::size_t c = 0; c < found.rings.size(); ++c)
      for (int i = 0; i < found.ranks; ++i) {
        const std::vector<int>& order = found.rings[c].order;
        const int rank = order[static_cast<std::size_t>(i)],
                  next = order[static_cast<std::size_t>((i + 1) % found.ranks)];
        const ChannelPorts &mine = ports[static_cast<std::size_t>(rank)][c],
                           &theirs = ports[static_cast<std::size_t>(next)][c];
        EXPECT_EQ(mine.ring_out.name, theirs.ring_in.name) << name;
        EXPECT_EQ(mine.ring_out.name.empty(), found.between(rank, next) != PathType::kNet) << name;
        EXPECT_FALSE(mine.nearest.name.empty()) << name;
        ++grid[mine.nearest.name];
        if (!mine.ring_out.name.empty()) out[mine.ring_out.name] += found.rings[c].gbps;
        if (!mine.ring_in.name.empty()) in[mine.ring_in.name] += found.rings[c].gbps;
      }
    for (std::size_t c = 0; c < found.trees.size(); ++c)
      for (int rank = 0; rank < found.ranks; ++rank) {
        const std::string& port = ports[static_cast<std::size_t>(rank)][c].tree.name;
        if (!port.empty()) tree[port] += found.trees[c].gbps;
      }
    const std::size_t count = machine(name).of_kind(topo::NodeKind::kNet).size();
    for (const auto& gbps : {in, out, tree}) {
      ASSERT_EQ(gbps.size(), count) << name;
      for (const auto& [port, sum] : gbps) EXPECT_NEAR(sum, gbps.begin()->second, 1e-3 * sum) << name << port;
    }
    ASSERT_EQ(grid.size(), count) << name;
    for (const auto& [port, ends] : grid) EXPECT_EQ(ends, grid.begin()->second) << name << port;
  }
}

/// Of two-ports, a port is next to the first two GPUs, and one to the others.
TEST(GpuHosts, KnowPortsThatReachTheMemoryOfGpus) {
  const topo::System system = machine("two-ports");
  const GpuHost host = plan_gpu_host(ranked(system, in_turn(4), in_turn(4)), {}, true).host;
  for (std::size_t gpu = 0; gpu < 4; ++gpu)
    for (std::size_t port = 0; port < 2; ++port) {
      const bool is_near = gpu / 2 == port;
      EXPECT_EQ(host.direct[gpu][port], (GpuHost::Direct{is_near, is_near})) << gpu << " " << port;
    }
  EXPECT_EQ(decode_gpu_host(encode(host)), host);
  const GpuChannels found = channels_of({{"two-ports", in_turn(4)}, {"two-ports", in_turn(4)}});
  for (int rank = 0; rank < found.ranks; ++rank)
    for (const ChannelPorts& of : ports_of(found, rank))
      for (const ChannelPorts::Port& port : {of.ring_in, of.ring_out, of.tree, of.nearest})
        EXPECT_EQ(port.to_gpu.reads && port.to_gpu.writes, !port.name.empty()) << rank << port.name;
}

/// A kernel might see there that data have come before they have.
TEST(GpuHosts, LetNoPortWriteWhereTheGpuHasALinkToTheCpu) {
  const topo::System system = machine("gh200");
  const GpuHost host = plan_gpu_host(ranked(system, {0}, {0}), {}, true).host;
  ASSERT_EQ(host.direct.size(), 1U);
  ASSERT_FALSE(host.direct[0].empty());
  for (const GpuHost::Direct& port : host.direct[0]) EXPECT_FALSE(port.writes);
  EXPECT_TRUE(std::ranges::any_of(host.direct[0], &GpuHost::Direct::reads));
}

TEST(GpuHosts, NameNoPortsWhereThereAreNone) {
  const auto expect_none = [](const GpuChannels& channels) {
    for (int rank = 0; rank < channels.ranks; ++rank)
      for (const ChannelPorts& of : ports_of(channels, rank))
        EXPECT_EQ(of.ring_in.name + of.ring_out.name + of.tree.name + of.nearest.name, "")
            << channels.summary;
  };
  expect_none(channels_of({{"dgxh100", in_turn(8)}}));
  expect_none(gpu_channels_in_order(4, 4, "It is dark here."));
  const topo::System dark = topo::with_ports(machine("dgxh100"), [](const topo::NetInfo&) { return false; });
  const GpuHost host = plan_gpu_host(ranked(dark, {0, 1}, {0, 1}), {}, true).host;
  const std::vector<GpuHost> hosts = {decode_gpu_host(encode(host)), host};
  expect_none(gpu_channels(Placement::of_nodes(std::vector<std::vector<int>>{{0, 1}, {2, 3}}), hosts, 16));
}

TEST(GpuHosts, CarryWhatTheSlowestOfThemDoes) {
  const Host fast{"dgxh100", in_turn(8)}, slow{"dgxa100", in_turn(8)};
  const GpuChannels both = channels_of({fast, slow}), alike = channels_of({slow, slow}),
                    faster = channels_of({fast, fast});
  EXPECT_NEAR(both.ring.gbps, alike.ring.gbps, 1e-3 * alike.ring.gbps);
  EXPECT_GT(faster.ring.gbps, both.ring.gbps);
  EXPECT_EQ(both.ring.bound_gbps, alike.ring.bound_gbps);
}

/// Of 10 Gbit/s.
TEST(GpuHosts, WithoutPortsHaveNoMoreChannelsThanFillTheOneThatIsAssumed) {
  const topo::MachineOfRanks system = ranked(machine("lstopo-2gpu"), {0, 1}, {0, 1});
  const GpuHost host = plan_gpu_host(system, {}, true).host;
  for (const Family family : {Family::kRing, Family::kTree}) {
    ASSERT_EQ(host.summary.family(family).channels.size(), 1);
    EXPECT_FLOAT_EQ(host.summary.family(family).channels[0].inter_gbps, 1.25F);
  }
  const GpuHost narrow = plan_gpu_host(system, {.max_channels = 16, .most_gbps = 0.5}, true).host;
  EXPECT_EQ(narrow.summary.family(Family::kRing).channels.size(), 3);
  EXPECT_DOUBLE_EQ(narrow.ring.gbps, 1.25);
  EXPECT_DOUBLE_EQ(narrow.ring.bound_gbps, 1.25);
}

TEST(GpuHosts, SayInALineWhatTheyAre) {
  const Host h100{"dgxh100", in_turn(8)};
  EXPECT_THAT(channels_of({h100, h100}).summary, HasSubstr("16 GPUs on 2 hosts, NVSwitch; 16 rings, "));
  EXPECT_THAT(channels_of({h100, {"gh200", {0}}}).summary, HasSubstr("9 GPUs on 2 hosts, NVSwitch; "));
  EXPECT_THAT(channels_of({h100, {"dgx1v", {0, 1}}}).summary, HasSubstr("10 GPUs on 2 hosts, NVLink; "));
  EXPECT_THAT(channels_of({{"dgxh100", {0, 0}}, {"dgxh100", {0}}}).summary,
              HasSubstr("3 ranks on 2 GPUs on 2 hosts; "));
}

/// Of the whole each of 8 GPUs takes 7 of 8 parts from its host by NVLinks of 370.8 GB/s; through eight ports
/// of 48 come the parts of other hosts.
TEST(GpuHosts, GatherWhatTheirLinksCarry) {
  const Host h100{"dgxh100", in_turn(8)};
  const double rows = 370.8 * 8 / 7, ports = 8 * 48;
  const auto gather = [&](std::size_t hosts) {
    return channels_of(std::vector<Host>(hosts, h100)).all_gather;
  };
  for (const std::size_t hosts : {2, 4}) {
    const GpuChannels found = channels_of(std::vector<Host>(hosts, h100));
    const double n = 8.0 * static_cast<double>(hosts);
    EXPECT_NEAR(found.all_gather.rings, found.ring.gbps * n / (n - 1), 0.01);
    EXPECT_NEAR(found.all_gather.grids, rows, 0.1) << "as fast as ports, and faster";
  }
  EXPECT_NEAR(gather(64).grids, ports, 0.05 * ports);
  EXPECT_LE(gather(64).grids, ports * 64 / 63);
  // Both trees cross by a port of each host, which brings half of the whole.
  EXPECT_GT(gather(2).trees, ports * 0.9);
  EXPECT_EQ(gather(3).trees, 0);
  const AllGatherGbps single = channels_of({{"gh200", {0}}, {"gh200", {0}}}).all_gather;
  EXPECT_NEAR(single.trees, single.rings, 1e-6) << "of two ranks a ring and a tree are the same";
  EXPECT_EQ(single.grids, 0);
  const AllGatherGbps different = channels_of({h100, {"dgxh100", in_turn(4)}}).all_gather;
  EXPECT_GT(different.rings, 0);
  EXPECT_EQ(different.grids + different.trees, 0) << "known of equally many ranks alone";
  EXPECT_THAT(channels_of({h100, h100}).summary,
              ::testing::ContainsRegex("; rings all-gather [0-9.]+ GB/s, grids 423.77, trees [0-9.]+$"));
}

/// The rings that leave a DGX-1V are as many as its four ports carry, along few of its NVLinks. Rows of its
/// own use more of them, so that the ports limit grids: they bring half of the whole to each host.
TEST(GpuHosts, GatherAlongMoreNvlinksInRowsOfTheirOwn) {
  const Host dgx1v{"dgx1v", in_turn(8)};
  const GpuHost host = plan_of(dgx1v, in_turn(8)).host;
  double rings = 0, rows = 0;
  for (const ChannelSummary& ring : host.summary.family(Family::kRing).channels) rings += ring.inter_gbps;
  for (const ChannelSummary& row : host.rows.channels) {
    rows += row.intra_gbps;
    EXPECT_LE(row.intra_gbps, host.rows.channels.front().intra_gbps) << "fastest first";
  }
  EXPECT_GT(rows, 1.5 * rings);
  const GpuChannels found = channels_of({dgx1v, dgx1v});
  EXPECT_EQ(found.grids.size(), host.rows.channels.size());
  EXPECT_GT(found.all_gather.grids, 1.5 * found.all_gather.rings);
  for (int rank = 0; rank < found.ranks; ++rank) EXPECT_GE(ports_of(found, rank).size(), found.grids.size());

  // A host that differs has other rows, or none.
  const GpuChannels different = channels_of({dgx1v, {"dgx1v", {7, 6, 5, 4, 3, 2, 1, 0}}});
  EXPECT_THAT(different.grids, IsEmpty());
  EXPECT_LT(different.all_gather.grids, found.all_gather.grids);
  EXPECT_GT(different.all_gather.grids, 0);
}

TEST(GpuHosts, HaveNoMoreRowsThanAreOfUse) {
  const GpuHost host = plan_of({"two-ports", in_turn(4)}, in_turn(4)).host;
  EXPECT_LT(host.rows.channels.size(), 8U);
  EXPECT_THAT(plan_of({"gh200", {0}}, {0}).host.rows.channels, IsEmpty());
}

/// Whoever writes a file of rings means these.
TEST(GpuHosts, HaveRowsAlongTheRingsOfAGraphFile) {
  const topo::System system = machine("dgx1v");
  const topo::MachineOfRanks ranks = ranked(system, in_turn(8), in_turn(8));
  const GpuHostPlan searched = plan_gpu_host(ranks, {}, true);
  const GraphFile graph{to_graph_xml(ranks, searched.plans), "a file"};
  const GpuHost host = plan_gpu_host(ranks, {}, true, &graph).host;
  EXPECT_THAT(searched.host.rows.channels, Not(IsEmpty()));
  EXPECT_THAT(host.rows.channels, IsEmpty());
  EXPECT_GT(host.gather.grids_by_rings.front(), 0);
}

TEST(GpuHosts, TellTheSameWhereTheyAreAlike) {
  const Host host{"dgxa100", {3, 0, 5}};
  EXPECT_EQ(encode(plan_of(host, {0, 1, 2}).host), encode(plan_of(host, {4, 7, 9}).host));
}

TEST(GpuHosts, GoInOrderOfRankWhereOneHasNoChannels) {
  const GpuHost known = plan_of({"dgxa100", {0, 1}}, {0, 2}).host;
  const GpuHost unknown = decode_gpu_host(encode(unknown_gpu_host(2, 1, "It is dark here.")));
  EXPECT_EQ(unknown, unknown_gpu_host(2, 1, "It is dark here."));
  const std::vector<GpuHost> hosts = {known, unknown};
  const GpuChannels found =
      gpu_channels(Placement::of_nodes(std::vector<std::vector<int>>{{0, 2}, {1, 3}}), hosts, 16);
  ASSERT_EQ(found.rings.size(), 1);
  EXPECT_THAT(found.rings[0].order, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(found.trees.size(), 1);
  EXPECT_EQ(found.summary, "4 ranks on 3 GPUs, ranks in order; 1 ring; 1 tree");
  EXPECT_THAT(found.notes, ElementsAre("On the host of rank 1: It is dark here."));
}

TEST(GpuHosts, MustBeThoseOfTheRanks) {
  const GpuHost two = plan_of({"dgxa100", {0, 1}}, {0, 1}).host;
  const std::vector<GpuHost> hosts = {two, two};
  const Placement placement = Placement::of_nodes(std::vector<std::vector<int>>{{0, 1, 2}, {3, 4}});
  EXPECT_THROW(gpu_channels(placement, hosts, 16), Error);
}

/// GPUs 0 and 5 of a DGX-1V have NVLinks through others alone.
TEST(GpuHosts, DoNotCountOnGpusThatPassDataOn) {
  const GpuHost host = plan_of({"dgx1v", {0, 5}}, {0, 1}).host;
  EXPECT_GT(host.summary.family(Family::kRing).type_intra, PathType::kNvb);
  for (const Family family : {Family::kRing, Family::kTree})
    EXPECT_NE(host.summary.family(family).type_inter, PathType::kPxn);
}

TEST(GpuHosts, AreReadFromWhatTheyToldAlone) {
  const std::vector<std::byte> bytes = encode(plan_of({"dgx1v", {0, 1, 2, 2}}, {0, 1, 2, 3}).host);
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_THROW(decode_gpu_host(std::span(bytes).first(length)), Error) << length;
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_THAT([&] { decode_gpu_host(longer); },
              ThrowsMessage<Error>("What a host tells of its GPUs cannot be read: there is more of it."));
  GpuHost silent = unknown_gpu_host(1, 1, "");
  silent.types = {PathType::kLoc};
  EXPECT_THAT([&] { decode_gpu_host(encode(silent)); }, ThrowsMessage<Error>(HasSubstr("does not say why")));
  EXPECT_THAT([&] { decode_gpu_host(encode(unknown_gpu_host(2, 3, "No."))); },
              ThrowsMessage<Error>(HasSubstr("not so many GPUs")));
  std::mt19937 random(11);
  for (int round = 0; round < 5000; ++round) {  // no crash, and nothing that the others could not use
    std::vector<std::byte> nonsense = bytes;
    for (int change = 0; change <= round % 3; ++change)
      nonsense[random() % nonsense.size()] = static_cast<std::byte>(random());
    try {
      const std::vector<GpuHost> hosts = {decode_gpu_host(nonsense)};
      const std::vector<std::vector<int>> nodes = {in_turn(hosts[0].summary.ranks)};
      gpu_channels(Placement::of_nodes(nodes), hosts, 16);
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace loom::connect
