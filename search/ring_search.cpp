#include <algorithm>
#include <tuple>

#include "search/channel_plan.hpp"

namespace loom::search {

ChannelPlan find_ring(const topo::System& system) {
  std::vector<topo::Gpu> gpus = system.gpus;
  std::sort(gpus.begin(), gpus.end(), [](const topo::Gpu& a, const topo::Gpu& b) {
    return std::tie(a.numa_node, a.first_cpu, a.rank) < std::tie(b.numa_node, b.first_cpu, b.rank);
  });
  Channel channel;
  for (const topo::Gpu& gpu : gpus) channel.ranks.push_back(gpu.rank);
  return {{std::move(channel)}};
}

}  // namespace loom::search
