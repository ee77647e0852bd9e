// topo_picture_sizes.cpp -- Picture: what stands where, and how large it is.
#include <algorithm>

#include "tools/topo_picture.hpp"
#include "tools/topo_picture_style.hpp"

namespace loom::tools {

using namespace loom::topo;

Picture::Picture(const System& system, std::string title)
    : system_(system),
      title_(std::move(title)),
      children_(static_cast<std::size_t>(system.size())) {
  places_.boxes.resize(children_.size());
  places_.top.resize(children_.size());
  places_.bus.resize(children_.size());
  places_.sys.resize(children_.size());
  places_.bar.resize(system.hosts().size());
  for (NodeId id = 0; id < system.size(); ++id) {
    const Node& node = system.node(id);
    // A further rank on a GPU stands beside the first.
    NodeId parent = node.parent;
    if (parent != kNoNode && system.node(parent).kind() == NodeKind::kGpu)
      parent = system.node(parent).parent;
    if (parent != kNoNode) children_[static_cast<std::size_t>(parent)].push_back(id);
    for (const Link& link : system.links_of(id))
      if (link.type == LinkType::kNvl && link.to > id && node.kind() == NodeKind::kGpu &&
          system.node(link.to).kind() == NodeKind::kGpu)
        meshes_.push_back(&link);
  }
}

const Link* Picture::link_between(NodeId from, NodeId to, LinkType type) const {
  for (const Link& link : system_.links_of(from))
    if (link.to == to && link.type == type) return &link;
  return nullptr;
}

void Picture::measure(NodeId id) {
  Box& own = box(id);
  if (kind(id) == NodeKind::kGpu) return own.w = kGpuWidth, own.h = kGpuHeight, void();
  if (kind(id) == NodeKind::kNic) {
    const std::size_t lines = std::min(children(id).size(), kMostPortLines + 1);
    own.w = kNicWidth, own.h = (system_.node(id).pci ? 18 : 6) +
                               kLineHeight * static_cast<double>(std::max<std::size_t>(lines, 1));
    return;
  }
  double x = kPadding, height = 0;
  for (const auto& column : columns_of(id)) {
    double column_height = 0, column_width = 0;
    for (const NodeId child : column) {
      measure(child);
      column_height += box(child).h + 5;
      column_width = std::max(column_width, box(child).w);
    }
    const double rail = kind(column.front()) == NodeKind::kNic ? kRail : 0;
    for (const NodeId child : column) box(child).x = x + rail;
    x += column_width + rail + kGap;
    height = std::max(height, column_height - 5);
  }
  own.w = std::max(x - kGap + kPadding, 190.0);
  own.h = kHeader + kPadding + (columns_of(id).empty() ? 0 : kStub + height);
  for (const auto& column : columns_of(id)) {
    double y = own.h - kPadding;
    for (auto child = column.rbegin(); child != column.rend(); ++child) {
      y -= box(*child).h;
      box(*child).y = y;
      y -= 5;
    }
  }
}

/// What stands side by side in a box: NICs in columns, everything else alone.
std::vector<std::vector<NodeId>> Picture::columns_of(NodeId id) const {
  std::vector<std::vector<NodeId>> columns, nics;
  for (const NodeId child : children(id)) {
    if (kind(child) != NodeKind::kNic) {
      columns.push_back({child});
      continue;
    }
    if (nics.empty() || nics.back().size() == kNicsPerColumn) nics.emplace_back();
    nics.back().push_back(child);
  }
  columns.insert(columns.begin(), nics.begin(), nics.end());
  return columns;
}

std::vector<Picture::HostBox> Picture::measure_hosts() {
  std::vector<HostBox> hosts(system_.hosts().size());
  const bool may_wrap =
      meshes_.empty() && system_.of_kind(NodeKind::kNvSwitch).empty();  // nothing leaves downwards
  for (std::size_t i = 0; i < hosts.size(); ++i) hosts[i].host = static_cast<int>(i);
  for (const NodeId cpu : system_.of_kind(NodeKind::kCpu)) {
    measure(cpu);
    HostBox& host = hosts[static_cast<std::size_t>(system_.node(cpu).host)];
    double used = 0;
    if (!host.rows.empty())
      for (const NodeId other : host.rows.back()) used += box(other).w + kGap;
    if (host.rows.empty() || (may_wrap && used + box(cpu).w > kWidestRow)) host.rows.emplace_back();
    host.rows.back().push_back(cpu);
  }
  for (HostBox& host : hosts) {
    host.h = kHeader;
    for (const auto& row : host.rows) {
      double w = kPadding, h = 0;
      for (const NodeId cpu : row) w += box(cpu).w + kGap, h = std::max(h, box(cpu).h);
      for (const NodeId cpu : row) box(cpu).h = h;
      host.w = std::max(host.w, w - kGap + kPadding);
      host.h += h + kGap + (has_sys(row) ? kSysBus : 0);
    }
    host.arcs = arc_depth(host.host);
    host.h += host.arcs;
    if (hosts.size() == 1 && !system_.of_kind(NodeKind::kNvSwitch).empty()) host.h += kBarHeight + 2 * kGap;
  }
  return hosts;
}

bool Picture::has_sys(const std::vector<NodeId>& row) const {
  return row.size() > 1 && link_between(row[0], row[1], LinkType::kSys);
}

int Picture::position(NodeId gpu) const {
  const auto gpus = system_.of_kind(NodeKind::kGpu);
  return static_cast<int>(std::lower_bound(gpus.begin(), gpus.end(), gpu) - gpus.begin());
}

double Picture::arc_depth(int host) const {
  int farthest = 0;
  for (const Link* link : meshes_)
    if (system_.node(link->from).host == host)
      farthest = std::max(farthest, position(link->to) - position(link->from));
  return farthest == 0 ? 0 : 34 + kArcStep * farthest;
}

}  // namespace loom::tools
