#include "component/links/link_specs.hpp"

#include <algorithm>

namespace loom {
namespace {

using Ways = LinkPeer::Ways;
constexpr std::size_t kTrees = 2, kMostNeighbours = device::DbtLinks::kMostNeighbours;

/// Hosts above and below one in a tree.
std::array<int, kMostNeighbours> neighbours_of(std::size_t tree, int host, int hosts) {
  const device::TreePlace place = device::double_tree(static_cast<int>(tree), host, hosts);
  return {place.parent, place.child[0], place.child[1]};
}

}  // namespace

LinkPlan plan_ring(const Group& group, int) {
  if (group.wiring.shape.hosts == 1) return {};
  LinkPlan plan{.places = 1, .peers = {}};
  const connect::Ring& ring = group.across();
  if (!group.on_my_host(ring.next)) plan.peers.push_back({ring.next, Ways::kSend});
  if (!group.on_my_host(ring.previous)) plan.peers.push_back({ring.previous, Ways::kReceive});
  return plan;
}

LinkPlan plan_leaders(const Group& group, int rank) {
  const connect::Placement& placement = group.placement;
  const int my_host = placement.node_of(rank);
  if (group.hier_from == 0 || placement.ranks_of(my_host).front() != rank) return {};
  LinkPlan plan{.places = static_cast<std::size_t>(placement.nodes()), .peers = {}};
  for (int host = 0; host < placement.nodes(); ++host)
    if (host != my_host)
      plan.peers.push_back({.rank = placement.ranks_of(host).front(),
                            .place = static_cast<std::size_t>(host),
                            .place_there = static_cast<std::size_t>(my_host)});
  return plan;
}

LinkPlan plan_trees(const Group& group, int) {
  if (!group.has_trees()) return {};
  LinkPlan plan{.places = kTrees * kMostNeighbours, .peers = {}};
  const int hosts = group.wiring.shape.hosts, my_host = group.wiring.rail->position;
  for (std::size_t tree = 0; tree < kTrees; ++tree) {
    const auto mine = neighbours_of(tree, my_host, hosts);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      if (mine[i] == device::kNobody) continue;
      const auto theirs = neighbours_of(tree, mine[i], hosts);
      const auto me = std::find(theirs.begin(), theirs.end(), my_host) - theirs.begin();
      plan.peers.push_back({.rank = group.rank_on_rail(mine[i]),
                            .place = tree * kMostNeighbours + i,
                            .place_there = tree * kMostNeighbours + static_cast<std::size_t>(me)});
    }
  }
  return plan;
}

LinkPlan plan_pairwise(const Group& group, int rank) {
  const connect::Shape& shape = group.wiring.shape;
  if (!may_link_pairwise(shape)) return {};
  LinkPlan plan{.places = static_cast<std::size_t>(shape.ranks), .peers = {}};
  for (int peer = 0; peer < shape.ranks; ++peer)
    if (!group.on_my_host(peer))
      plan.peers.push_back({.rank = peer,
                            .place = static_cast<std::size_t>(peer),
                            .place_there = static_cast<std::size_t>(rank)});
  return plan;
}

device::DbtLinks trees_of(const LinkSet& trees, const Group& group) {
  if (!trees.leads_anywhere()) return {};
  device::DbtLinks links;
  links.fifo = spec_of(LinkKind::kTrees).fifo(group.wiring.shape.hosts);
  for (std::size_t tree = 0; tree < kTrees; ++tree) {
    const auto hosts = neighbours_of(tree, group.wiring.rail->position, group.wiring.shape.hosts);
    for (std::size_t i = 0; i < hosts.size(); ++i)
      links.neighbours[tree][i] = {hosts[i], trees.view()[tree * kMostNeighbours + i]};
  }
  return links;
}

}  // namespace loom
