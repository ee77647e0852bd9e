// The checks see what is wrong: views are spoilt, and they have to say so.
#include <gmock/gmock.h>

#include <algorithm>

#include "base/format.hpp"
#include "job_cases.hpp"

namespace loom::connect {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

TEST(Checks, SeeWhatIsWrong) {
  std::mt19937 random(3);
  const NodeSummary node = random_node(random, 4);
  const Job job =
      job_of(placed(std::vector<int>(5, 4), Order::kBlock, random), std::vector<NodeSummary>(5, node));
  ASSERT_TRUE(violations(job).empty());
  const auto complaints = [&](const auto& spoil) {
    Wires wires = wires_of(job);
    spoil(wires);
    return violations(job, wires);
  };
  const auto ring = [&](const auto& change) {
    return complaints([&](Wires& wires) {
      wires.ring = [&](int channel, int rank) {
        Ring view = ring_of(job, channel, rank);
        if (channel == 0) change(view, rank);
        return view;
      };
    });
  };
  EXPECT_THAT(ring([](Ring& view, int) { view.next = view.previous; }), Contains(HasSubstr("expects rank")));
  EXPECT_THAT(ring([](Ring& view, int rank) {
                if (rank == 0) view.next = 0;
              }),
              Contains(HasSubstr("twice")));
  EXPECT_THAT(ring([](Ring& view, int rank) {
                if (rank == 7) view.position = 0;
              }),
              Contains(HasSubstr("is at")));
  EXPECT_THAT(ring([](Ring& view, int rank) {
                if (rank == 7) view.next = 99;
              }),
              Contains(HasSubstr("sees")));
  EXPECT_THAT(ring([](Ring& view, int) { view.port_out = 0; }), Contains(HasSubstr("takes a port")));

  const auto tree = [&](const auto& change) {
    return complaints([&](Wires& wires) {
      wires.tree = [&](int channel, int rank) {
        DoubleTree view = tree_of(job, channel, rank);
        change(view, rank);
        return view;
      };
    });
  };
  EXPECT_THAT(tree([](DoubleTree& view, int) { view.trees[0].parent = kNobody; }),
              Contains(HasSubstr("has child")));
  EXPECT_THAT(tree([](DoubleTree& view, int) { view.trees[0] = {}; }), Contains(HasSubstr("two roots")));
  EXPECT_THAT(tree([](DoubleTree& view, int) { view.trees[0].child_count = 0; }),
              Contains(HasSubstr("has parent")));
  EXPECT_THAT(tree([](DoubleTree& view, int) { view.trees[1] = view.trees[0]; }),
              Contains(HasSubstr("in both trees")));
  EXPECT_THAT(tree([](DoubleTree& view, int rank) {  // one long chain
                view.trees[0] = {rank - 1, rank < 19 ? 1 : 0, {rank + 1, kNobody, kNobody}};
              }),
              Contains(HasSubstr("deeper")));
  EXPECT_THAT(tree([](DoubleTree& view, int rank) {  // a cycle beside the tree
                if (rank >= 18)
                  view.trees[0] = {37 - rank, 1, {37 - rank, kNobody, kNobody}};
                else if (rank > 0)
                  view.trees[0] = {
                      (rank - 1) / 2, std::clamp(17 - 2 * rank, 0, 2), {2 * rank + 1, 2 * rank + 2, kNobody}};
                else
                  view.trees[0] = {kNobody, 2, {1, 2, kNobody}};
              }),
              Contains(HasSubstr("reaches 18 of 20")));
}

TEST(Checks, SeeRingsThatLeaveTheirRail) {
  std::mt19937 unused;
  NodeSummary node = node_with_order({0, 1});
  node.port_gbps = {10, 10};
  node.families[0].cross_nic = 2;
  node.families[0].channels = {{{0, 1}, 0, 1, 10, 10}, {{1, 0}, 1, 0, 10, 10}};
  const Job job = job_of(placed({2, 2}, Order::kBlock, unused), std::vector{node, node});
  ASSERT_TRUE(violations(job).empty());
  Wires wires = wires_of(job);
  wires.ring = [&](int channel, int rank) {
    Ring view = ring_of(job, channel, rank);
    if (view.port_in != kNoPort) view.port_in = 1 - view.port_in;
    return view;
  };
  EXPECT_THAT(violations(job, wires), Contains(HasSubstr("enters node 1 at port")));
}

/// Two nodes of two ranks and two ports: two rings and two trees, one at each port.
NodeSummary node_with_two_ports() {
  NodeSummary node = node_with_order({0, 1});
  node.port_gbps = {10, 10};
  for (const Family family : {Family::kRing, Family::kTree})
    node.families[static_cast<std::size_t>(family)].channels = {{{0, 1}, 0, 0, 10, 10},
                                                                {{1, 0}, 1, 1, 10, 10}};
  return node;
}

Job two_nodes(const NodeSummary& node) {
  std::mt19937 unused;
  return job_of(placed({node.ranks, node.ranks}, Order::kBlock, unused), std::vector{node, node});
}

TEST(Checks, SumUpWhatPortsCarry) {
  const Job job = two_nodes(node_with_two_ports());
  ASSERT_TRUE(violations(job).empty());
  const auto with_ring = [&](auto change) {
    Wires wires = wires_of(job);
    wires.ring = [&job, change](int channel, int rank) {
      Ring view = ring_of(job, channel, rank);
      if (job.placement().node_of(view.next) != job.placement().node_of(rank)) change(view);
      return view;
    };
    return violations(job, wires);
  };
  EXPECT_THAT(with_ring([](Ring& view) { view.port_out = 0; }),
              Contains(HasSubstr("ring: node 0 is to send 20 GB/s by port 0, it planned 10")));
  EXPECT_THAT(with_ring([](Ring& view) { view.port_out = 0; }),
              Contains(HasSubstr("ring: node 1 is to send 2 channels by port 0, its share is 1")));
  EXPECT_THAT(with_ring([](Ring& view) { view.port_out = kNoPort; }),
              Contains(HasSubstr("20 GB/s by an unknown port, it planned 0")));
  EXPECT_THAT(with_ring([](Ring& view) { view.port_out = 2; }), Contains(HasSubstr("is to use port 2")));

  const auto with_tree = [&](auto change) {
    Wires wires = wires_of(job);
    wires.tree = [&job, change](int channel, int rank) {
      DoubleTree view = tree_of(job, channel, rank);
      if (view.port != kNoPort) change(view);
      return view;
    };
    return violations(job, wires);
  };
  EXPECT_THAT(with_tree([](DoubleTree& view) { view.port = 1; }),
              Contains(HasSubstr("tree: node 0 is to receive 2 channels by port 1, its share is 1")));
  EXPECT_THAT(with_tree([](DoubleTree& view) { view.port = kNoPort; }),
              Contains(HasSubstr("tree: node 0 is to receive 10 GB/s by an unknown port, it planned 0")));
  EXPECT_THAT(with_tree([](DoubleTree& view) { view.port = -2; }), Contains(HasSubstr("is to use port -2")));
}

/// Two nodes of four ranks with two heads of each kind.
Job job_with_heads() {
  NodeSummary node = node_with_order({0, 1, 2, 3});
  for (const auto& [family, pattern] : {std::pair(Family::kNvls, search::Pattern::kNvls),
                                        {Family::kCollnetDirect, search::Pattern::kCollnetDirect}}) {
    node.families[static_cast<std::size_t>(family)].pattern = pattern;
    node.families[static_cast<std::size_t>(family)].channels = {{{0}, 0, 0, 10, 10}, {{2}, 0, 0, 10, 10}};
  }
  FamilySummary& chain = node.families[static_cast<std::size_t>(Family::kCollnetChain)];
  chain.pattern = search::Pattern::kCollnetChain;
  chain.channels = {{{0, 1, 2, 3}, 0, 0, 10, 10}};
  return two_nodes(node);
}

TEST(Checks, SeeWrongHeadsOfMulticast) {
  const Job job = job_with_heads();
  ASSERT_TRUE(violations(job).empty());
  const auto with = [&](auto change) {
    Wires wires = wires_of(job);
    wires.nvls = [&job, change](int rank) {
      NvlsHeads view = nvls_of(job, rank);
      change(view, rank);
      return view;
    };
    return violations(job, wires);
  };
  // Heads that are no ranks, of another node, or twice the same, alike on all ranks of a node.
  for (const int wrong : {-1, 999, 4, 0})
    EXPECT_THAT(with([wrong](NvlsHeads& view, int rank) {
                  if (rank >= 4) return;
                  view.heads[1] = wrong;
                  if (rank == 2) view.mine = kNobody;
                }),
                Contains(HasSubstr("not different ranks of its node")))
        << wrong;
  EXPECT_THAT(with([](NvlsHeads& view, int rank) {
                if (rank == 2) view.mine = 0;
              }),
              Contains(HasSubstr("takes itself for multicast head 0")));
  EXPECT_THAT(with([](NvlsHeads& view, int) { view.trees[0] = {}; }), Contains(HasSubstr("two roots")));
}

TEST(Checks, SeeWrongHeadsOfCollnetDirect) {
  const Job job = job_with_heads();
  const auto with = [&](auto change) {
    Wires wires = wires_of(job);
    wires.collnet_direct = [&job, change](int rank) {
      CollnetDirect view = collnet_direct_of(job, rank);
      change(view, rank);
      return view;
    };
    return violations(job, wires);
  };
  // All that follows from the wrong heads is made to fit them.
  for (const int wrong : {-1, 999, 4, 0})
    EXPECT_THAT(with([wrong](CollnetDirect& view, int rank) {
                  if (rank >= 4) return;
                  view.heads[1] = wrong;
                  if (rank == 2) view.mine = kNobody, view.down.clear();
                  view.up.clear();
                  for (const int head : view.heads)
                    if (head != rank) view.up.push_back(head);
                }),
                Contains(HasSubstr("sees other heads than its node")))
        << wrong;
  EXPECT_THAT(with([](CollnetDirect& view, int rank) {
                if (rank == 3) view.heads = {0, 1}, view.up = {0, 1};
              }),
              Contains(HasSubstr("rank 3 sees other heads")));
  EXPECT_THAT(with([](CollnetDirect& view, int rank) {
                if (rank == 2) view.mine = 0;
              }),
              Contains(HasSubstr("takes itself for head 0")));
  EXPECT_THAT(with([](CollnetDirect& view, int rank) {
                if (rank == 3) view.up.pop_back();
              }),
              Contains(HasSubstr("does not exchange")));
}

TEST(Checks, SeeWrongChains) {
  const Job job = job_with_heads();
  const auto with = [&](auto change) {
    Wires wires = wires_of(job);
    wires.collnet_chain = [&job, change](int channel, int rank) {
      CollnetChain view = collnet_chain_of(job, channel, rank);
      change(view, rank);
      return view;
    };
    return violations(job, wires);
  };
  EXPECT_THAT(with([](CollnetChain& view, int rank) {  // two pieces, each with a head
                if (rank == 1) view.down = kNobody;
                if (rank == 2) view.up = kNetwork;
              }),
              Contains(HasSubstr("node 0 has two heads")));
  EXPECT_THAT(with([](CollnetChain& view, int rank) {
                if (rank == 1) view.down = kNobody;
              }),
              Contains(HasSubstr("reaches 2 of the 4 ranks")));
  EXPECT_THAT(with([](CollnetChain& view, int rank) {
                if (rank == 1) view.down = 999;
              }),
              Contains(HasSubstr("rank 999 is not below 1")));
}

TEST(Checks, SeeOrdersThatAreNotTheRing) {
  const Job job = two_nodes(node_with_two_ports());
  Wires wires = wires_of(job);
  wires.rank_at = [&](int channel, int position) {
    return rank_at(job, channel, (position + 1) % job.ranks());
  };
  EXPECT_THAT(violations(job, wires), Contains(HasSubstr("where another one is")));
}

TEST(Checks, SeeImpossibleNumbersOfChildren) {
  const Job job = two_nodes(node_with_two_ports());
  for (const int count : {-1, 4}) {
    Wires wires = wires_of(job);
    wires.tree = [&](int channel, int rank) {
      DoubleTree view = tree_of(job, channel, rank);
      view.trees[0].child_count = count;
      return view;
    };
    EXPECT_THAT(violations(job, wires), Contains(HasSubstr(loom::format("has {} children", count))));
  }
}

}  // namespace
}  // namespace loom::connect
