// communicator_trees.cpp -- links along the double binary tree over the hosts of this rank's rail.
#include <algorithm>

#include "component/communicator.hpp"
#include "component/links/net_handle.hpp"
#include "component/links/shared_layout.hpp"

namespace loom {
namespace {

/// Hosts above and below one in a tree.
std::array<int, device::DbtLinks::kMostNeighbours> neighbours_of(int tree, int host, int hosts) {
  const device::TreePlace place = device::double_tree(tree, host, hosts);
  return {place.parent, place.child[0], place.child[1]};
}

}  // namespace

/// Ranks to which this one has links along trees.
std::vector<int> Communicator::tree_peers() const {
  std::vector<int> peers;
  const connect::Shape& shape = group_->wiring.shape;
  for (int tree = 0; tree < 2 && has_trees(); ++tree)
    for (const int host : neighbours_of(tree, group_->wiring.rail->position, shape.hosts))
      if (host != device::kNobody) peers.push_back(rank_on_rail(host));
  return peers;
}

void Communicator::make_tree_ends() {
  if (!has_trees()) return;
  ucx_transport::Transport& transport = network();
  links_.trees.fifo = kTreeFifo;
  for (int tree = 0; tree < 2; ++tree) {
    const auto hosts = neighbours_of(tree, group_->wiring.rail->position, group_->wiring.shape.hosts);
    for (std::size_t i = 0; i < hosts.size(); ++i) {
      if (hosts[i] == device::kNobody) continue;
      Links::HostLinks& ends = links_.tree_ends[static_cast<std::size_t>(tree)][i];
      ends = Links::HostLinks::make(transport, kTreeFifo, group_->names.at(rank_on_rail(hosts[i])));
      links_.trees.neighbours[static_cast<std::size_t>(tree)][i] = {hosts[i],
                                                                    {ends.send.get(), ends.receive.get()}};
    }
  }
}

void Communicator::join_tree_ends(const GatheredBytes& handles) {
  const int my_host = has_trees() ? group_->wiring.rail->position : 0;
  for (std::size_t tree = 0; tree < 2; ++tree)
    for (std::size_t i = 0; i < links_.tree_ends[tree].size(); ++i) {
      const Links::HostLinks& ends = links_.tree_ends[tree][i];
      if (!ends.send) continue;
      const int host = links_.trees.neighbours[tree][i].host;
      const NetHandle peer = net_handle_of(handles, rank_on_rail(host));
      const auto theirs = neighbours_of(static_cast<int>(tree), host, group_->wiring.shape.hosts);
      const auto me =
          static_cast<std::size_t>(std::find(theirs.begin(), theirs.end(), my_host) - theirs.begin());
      join(ends, peer.worker_address, peer.trees[tree].at(me));
    }
}

}  // namespace loom
