// forest_edges.hpp -- inside search: the trees of a forest while it is searched for, and what their edges
// take.
#pragma once

#include <compare>
#include <utility>
#include <vector>

#include "search/forest.hpp"
#include "search/hop_table.hpp"

namespace loom::search {

/// How data come to a place.
struct WayIn {
  int before = -1;        ///< the place; -1: it is the root
  int out = -1, in = -1;  ///< between nodes the ports
  friend auto operator<=>(const WayIn&, const WayIn&) = default;
};
using Tree = std::vector<WayIn>;    ///< by place: node * GPUs + GPU, of the nodes told
using Bundle = std::vector<Tree>;   ///< by root, a GPU of node 0; the same trees where symmetries move roots
using Ports = std::pair<int, int>;  ///< out, in; -1: none lead there

/// What the edges of trees take.
class Edges {
 public:
  Edges(const HopTable& table, const ForestRequest& request)
      : table_(table), gpus_(table.gpus()), reduces_(request.use == ForestUse::kReduceScatter) {
    for (int out = 0; out < table.nets(); ++out)
      for (int in = 0; in < table.nets(); ++in)
        if (table.may_pair(in, out, request.cross_nic)) pairs_.emplace_back(out, in);
  }

  /// Inside a node.
  const Hop& hop(int from, int to) const { return reduces_ ? table_.hop(to, from) : table_.hop(from, to); }
  const Hop& way_out(int gpu, int net) const { return hop(gpu, table_.net(net)); }
  const Hop& way_in(int net, int gpu) const { return hop(table_.net(net), gpu); }
  const std::vector<Ports>& pairs() const noexcept { return pairs_; }

  /// body(load) for each thing that a way to `place` takes.
  template <class Body>
  void for_loads(const WayIn& way, int place, Body&& body) const {
    const int from = way.before % gpus_, to = place % gpus_;
    if (way.out < 0) {
      for (const Load& load : table_.loads(hop(from, to))) body(load);
      return;
    }
    for (const Hop& part : {way_out(from, way.out), way_in(way.in, to)})
      for (const Load& load : table_.loads(part)) body(load);
  }

 private:
  const HopTable& table_;
  int gpus_;
  bool reduces_;
  std::vector<Ports> pairs_;
};

}  // namespace loom::search
