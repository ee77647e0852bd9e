#include "search/beside_nccl.hpp"

#include <algorithm>
#include <map>

#include "search/columns.hpp"

namespace loom::search {

double by_one_channel_a_head(const ChannelPlan& plan) {
  if (!has_heads(plan.pattern)) return plan.total_gbps;
  std::map<int, double> heads;
  for (const Channel& channel : plan.channels) {
    double& fastest = heads[channel.ranks[0]];
    fastest = std::max(fastest, channel.inter_gbps);
  }
  double sum = 0;
  for (const auto& [rank, gbps] : heads) sum += gbps;
  return sum;
}

double nccl_total(Pattern pattern, bool network, double total_gbps, double intra_gbps, int channels) {
  if (pattern != Pattern::kNvls || !network) return total_gbps;
  return std::min(total_gbps, 2 * intra_gbps * channels);
}

bool crosses_slow_pairs(const topo::Paths& default_paths, const ChannelPlan& plan) {
  if (has_heads(plan.pattern)) return false;
  const topo::System& system = default_paths.system();
  const auto is_slow = [&](int rank, int next) {
    return default_paths.uses_network(system.gpu_of_rank(rank), system.gpu_of_rank(next));
  };
  for (const Channel& channel : plan.channels) {
    const std::vector<int>& ranks = channel.ranks;
    for (std::size_t i = 0; i + 1 < ranks.size(); ++i)
      if (is_slow(ranks[i], ranks[i + 1])) return true;
    const bool closes = plan.pattern == Pattern::kRing && !plan.network && ranks.size() > 1;
    if (closes && is_slow(ranks.back(), ranks.front())) return true;
  }
  return false;
}

}  // namespace loom::search
