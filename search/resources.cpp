#include "search/resources.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "topo/bandwidth.hpp"

namespace loom::search {

double Resources::gbps(int resource) const {
  return is_link(resource) ? static_cast<double>(system_->link(resource).gbps)
                           : static_cast<double>(topo::kLocalGbps);
}

std::string Resources::label(int resource) const {
  if (!is_link(resource)) {
    const int way = (resource - links_) % 2;
    const std::string gpu = topo::label(*system_, (resource - links_) / 2);
    return way == 0 ? loom::format("{} -> its memory", gpu) : loom::format("memory of {} -> GPU", gpu);
  }
  const topo::Link& link = system_->link(resource);
  return loom::format("{} -> {} ({})", topo::label(*system_, link.from), topo::label(*system_, link.to),
                      topo::name_of(link.type));
}

bool Resources::counts_memory_of(topo::NodeId node) const {
  const topo::Node& gpu = system_->node(node);
  if (gpu.kind() != topo::NodeKind::kGpu) return false;
  if (gpu.parent != topo::kNoNode && system_->node(gpu.parent).kind() == topo::NodeKind::kGpu) return false;
  double out = 0, in = 0;
  for (const topo::Link& link : system_->links_of(node)) {
    out += static_cast<double>(link.gbps);
    if (link.reverse != topo::kNoLink) in += static_cast<double>(system_->link(link.reverse).gbps);
  }
  return std::max(in, out) > static_cast<double>(topo::kLocalGbps);
}

}  // namespace loom::search
