#include <algorithm>
#include <tuple>

#include "search/channel_plan.hpp"

namespace loom::search {

ChannelPlan find_ring(const topo::System& system) {
  std::vector<topo::NodeId> gpus(system.gpus().begin(), system.gpus().end());
  const auto position = [&](topo::NodeId id) {
    const topo::GpuInfo& gpu = system.node(id).gpu();
    topo::NodeId root = id;
    while (system.node(root).parent != topo::kNoNode) root = system.node(root).parent;
    return std::tuple(system.node(id).host, system.node(root).cpu().numa_id, gpu.first_cpu, gpu.rank);
  };
  std::sort(gpus.begin(), gpus.end(),
            [&](topo::NodeId a, topo::NodeId b) { return position(a) < position(b); });
  Channel channel;
  for (const topo::NodeId gpu : gpus) channel.ranks.push_back(system.node(gpu).gpu().rank);
  return {{std::move(channel)}};
}

}  // namespace loom::search
