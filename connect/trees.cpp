#include <algorithm>

#include "connect/tree_places.hpp"
#include "connect/view.hpp"
#include "device/schedule/tree_schedule.hpp"

namespace loom::connect {
namespace {

static_assert(kNobody == device::kNobody);

int place_in(const std::vector<std::uint16_t>& order, int local) {
  return static_cast<int>(std::find(order.begin(), order.end(), local) - order.begin());
}

/// Which child of `parent` is `node`?
int which_child(int tree, int parent, int node, int nodes) {
  return device::double_tree(tree, parent, nodes).child[0] == node ? 0 : 1;
}

TreeLinks over_nodes(int tree, int node, int nodes, auto&& rank_on) {
  const device::TreePlace above = device::double_tree(tree, node, nodes);
  TreeLinks links;
  if (above.parent != kNobody) links.parent = rank_on(above.parent);
  for (const int child : above.child)
    if (child != kNobody) links.add_child(rank_on(child));
  return links;
}

}  // namespace

DoubleTree tree_of(const Job& job, int channel, int rank) {
  const int node = job.placement().node_of(rank), nodes = job.nodes();
  const ChannelSummary& own = job.channel(Family::kTree, node, channel);
  const search::Pattern pattern = job.summary(node).family(Family::kTree).pattern;
  const int size = static_cast<int>(own.order.size());
  const int place = place_in(own.order, job.placement().local_of(rank));
  const auto rank_in = [&](int other, int at) {
    return job.rank_of(other, job.channel(Family::kTree, other, channel).order[static_cast<std::size_t>(at)]);
  };
  DoubleTree both;
  for (int tree = 0; tree < 2; ++tree) {
    const device::TreePlace above = device::double_tree(tree, node, nodes);
    TreeLinks& links = both.trees[static_cast<std::size_t>(tree)];
    bool talks = false;
    if (place > 0) {
      links.parent = rank_in(node, place - 1);
    } else if (above.parent != kNobody) {
      const search::Pattern theirs = job.summary(above.parent).family(Family::kTree).pattern;
      const int which = which_child(tree, above.parent, node, nodes);
      links.parent =
          rank_in(above.parent, child_place(theirs, which, job.placement().ranks_on(above.parent)));
      talks = true;
    }
    if (place + 1 < size) links.add_child(rank_in(node, place + 1));
    for (const int which : {0, 1}) {
      if (above.child[which] == kNobody || child_place(pattern, which, size) != place) continue;
      links.add_child(rank_in(above.child[which], 0));
      talks = true;
    }
    if (talks) both.port = port_at(own, pattern, place);
  }
  return both;
}

NvlsHeads nvls_of(const Job& job, int rank) {
  NvlsHeads view;
  const Agreed& agreed = job.agreed(Family::kNvls);
  const int node = job.placement().node_of(rank);
  const auto head_of = [&](int other, int head) {
    return job.rank_of(
        other, agreed.heads[static_cast<std::size_t>(job.kind_of(other))][static_cast<std::size_t>(head)]);
  };
  for (int head = 0; head < agreed.channels; ++head) {
    view.heads.push_back(head_of(node, head));
    if (view.heads.back() == rank) view.mine = head;
  }
  if (view.mine != kNobody)
    for (int tree = 0; tree < 2; ++tree)
      view.trees[static_cast<std::size_t>(tree)] =
          over_nodes(tree, node, job.nodes(), [&](int other) { return head_of(other, view.mine); });
  return view;
}

CollnetChain collnet_chain_of(const Job& job, int channel, int rank) {
  const int node = job.placement().node_of(rank);
  const std::vector<std::uint16_t>& order = job.channel(Family::kCollnetChain, node, channel).order;
  const std::size_t place = static_cast<std::size_t>(place_in(order, job.placement().local_of(rank)));
  CollnetChain chain;
  if (place > 0) chain.up = job.rank_of(node, order[place - 1]);
  if (place + 1 < order.size()) chain.down = job.rank_of(node, order[place + 1]);
  return chain;
}

CollnetDirect collnet_direct_of(const Job& job, int rank) {
  CollnetDirect view;
  const Agreed& agreed = job.agreed(Family::kCollnetDirect);
  if (agreed.channels == 0) return view;
  const int node = job.placement().node_of(rank), local = job.placement().local_of(rank);
  for (const int head : agreed.heads[static_cast<std::size_t>(job.kind_of(node))]) {
    view.heads.push_back(job.rank_of(node, head));
    if (view.heads.back() == rank) view.mine = static_cast<int>(view.heads.size()) - 1;
  }
  const int count = agreed.channels, start = view.mine != kNobody ? view.mine + 1 : local % count;
  for (int i = 0; i < count; ++i)
    if (const int head = view.heads[static_cast<std::size_t>((start + i) % count)]; head != rank)
      view.up.push_back(head);
  if (view.mine != kNobody) {
    const auto mates = job.placement().ranks_of(node);
    for (std::size_t i = 1; i < mates.size(); ++i)
      view.down.push_back(mates[(static_cast<std::size_t>(local) + i) % mates.size()]);
  }
  return view;
}

View connect(const Job& job, int rank) {
  View view;
  view.rank = rank;
  for (int c = 0; c < job.agreed(Family::kRing).channels; ++c) view.rings.push_back(ring_of(job, c, rank));
  for (int c = 0; c < job.agreed(Family::kTree).channels; ++c) view.trees.push_back(tree_of(job, c, rank));
  for (int c = 0; c < job.agreed(Family::kCollnetChain).channels; ++c)
    view.collnet_chains.push_back(collnet_chain_of(job, c, rank));
  view.nvls = nvls_of(job, rank);
  view.collnet_direct = collnet_direct_of(job, rank);
  return view;
}

}  // namespace loom::connect
