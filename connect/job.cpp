#include "connect/job.hpp"

#include <string>
#include <unordered_map>

#include "base/error.hpp"
#include "base/format.hpp"

namespace loom::connect {

Job::Job(Placement placement, std::vector<NodeSummary> kinds, std::vector<std::int32_t> kind_of_node,
         const ChannelLimits& limits)
    : placement_(std::move(placement)), kinds_(std::move(kinds)), kind_of_node_(std::move(kind_of_node)) {
  if (static_cast<int>(kind_of_node_.size()) != nodes())
    throw Error(ErrorCode::kInternal, loom::format("{} nodes have {} kinds.", nodes(), kind_of_node_.size()));
  for (int node = 0; node < nodes(); ++node) {
    const int kind = kind_of(node);
    if (kind < 0 || kind >= static_cast<int>(kinds_.size()) ||
        summary(node).ranks != placement_.ranks_on(node))
      throw Error(ErrorCode::kInternal, loom::format("Node {} has {} ranks, its summary speaks of others.",
                                                     node, placement_.ranks_on(node)));
  }
  for (int family = 0; family < kFamilyCount; ++family)
    agreed_[static_cast<std::size_t>(family)] = agree(static_cast<Family>(family), kinds_, limits);
}

const Part& Job::part(Family family, int node, int channel) const {
  const std::vector<Part>& parts = agreed(family).by_kind[static_cast<std::size_t>(kind_of(node))];
  const Part& part = parts[static_cast<std::size_t>(channel)];
  return node % 2 == 0 ? part : parts[static_cast<std::size_t>(part.partner)];
}

Job job_of(std::span<const std::vector<int>> nodes, std::span<const NodeSummary> summaries,
           const ChannelLimits& limits) {
  Placement placement = Placement::of_nodes(nodes);
  std::vector<const NodeSummary*> by_node(static_cast<std::size_t>(placement.nodes()));
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (!nodes[i].empty())
      by_node[static_cast<std::size_t>(placement.node_of(nodes[i].front()))] = &summaries[i];
  std::unordered_map<std::string, std::int32_t> kind_of;
  std::vector<NodeSummary> kinds;
  std::vector<std::int32_t> kind_of_node;
  for (const NodeSummary* summary : by_node) {
    const std::vector<std::byte> bytes = encode(*summary);
    const auto [kind, is_new] =
        kind_of.try_emplace(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
                            static_cast<std::int32_t>(kinds.size()));
    if (is_new) kinds.push_back(*summary);
    kind_of_node.push_back(kind->second);
  }
  return Job(std::move(placement), std::move(kinds), std::move(kind_of_node), limits);
}

}  // namespace loom::connect
