#include "search/forest_cut.hpp"

#include <utility>

#include "search/flow.hpp"

namespace loom::search {

Cut narrowest_cut(const topo::System& system, const HopTable& table, const ForestRequest& request) {
  constexpr double kUnlimited = 1e12;
  Steps steps(request.most_steps);
  std::vector<double> copies{1};
  if (request.nodes > 1) copies.push_back(request.nodes - 1);
  Flow flow(system, steps, copies);
  const bool reduces = request.use == ForestUse::kReduceScatter;
  const int network = flow.add_node(), outside = flow.add_node();
  std::vector<std::pair<std::size_t, double>> ways;  // of a GPU's part, and of how many GPUs
  double rate = 0;                                   // of each GPU
  for (const topo::Link& link : system.links()) rate += link.gbps;
  const auto node_of = [&](int copy, int end) { return copy * system.size() + table.node(end); };
  for (int copy = 0; const double scale : copies) {
    for (int gpu = 0; gpu < table.gpus(); ++gpu)
      ways.emplace_back(
          reduces ? flow.add(node_of(copy, gpu), outside, 0) : flow.add(outside, node_of(copy, gpu), 0),
          scale);
    for (int net = 0; net < table.nets(); ++net) {
      flow.add(node_of(copy, table.net(net)), network, kUnlimited);
      flow.add(network, node_of(copy, table.net(net)), kUnlimited);
    }
    ++copy;
  }
  const double whole = static_cast<double>(table.gpus()) * request.nodes;
  Cut cut;
  for (bool lower = true; lower;) {
    lower = false;
    for (const auto& [way, scale] : ways) flow.set_capacity(way, scale * rate);
    for (int gpu = 0; gpu < table.gpus() && !lower; ++gpu) {  // of node 0: the others are alike
      const double flows =
          reduces ? flow.between(table.node(gpu), outside) : flow.between(outside, table.node(gpu));
      if (flows >= whole * rate * (1 - 1e-9)) continue;
      Cut found;
      for (int copy = 0; const double scale : copies) {
        for (int other = 0; other < table.gpus(); ++other) {
          if (flow.is_before(node_of(copy, other)) == reduces) continue;
          found.side.push_back({copy, table.rank(other)});
          found.gpus += static_cast<int>(scale);
        }
        for (const topo::Link& link : system.links())
          if (flow.is_before(copy * system.size() + link.from) &&
              !flow.is_before(copy * system.size() + link.to))
            found.links_gbps += scale * link.gbps;
        ++copy;
      }
      if (found.gpus == 0) continue;
      const double narrower = found.links_gbps / found.gpus;
      if (narrower >= rate) continue;
      rate = narrower;
      found.gbps = whole * rate;
      cut = std::move(found);
      lower = true;
    }
  }
  return cut;
}

}  // namespace loom::search
