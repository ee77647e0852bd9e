// topo_picture_sizes.cpp -- Picture: positions and sizes.
#include <algorithm>
#include <set>

#include "tools/topo_picture.hpp"
#include "tools/topo_picture_style.hpp"
#include "topo/utf8.hpp"

namespace loom::tools {

using namespace loom::topo;

Picture::Picture(const System& system, std::string title, std::vector<EqualHosts> groups,
                 bool figures_on_arcs)
    : system_(system),
      title_(std::move(title)),
      figures_on_arcs_(figures_on_arcs),
      heading_(system.hosts().size()),
      children_(static_cast<std::size_t>(system.size())) {
  for (const EqualHosts& group : groups) heading_[static_cast<std::size_t>(group.first)] = heading(group);
  gap_ = kGap, places_.padding = kPadding;
  places_.boxes.resize(children_.size());
  places_.top.resize(children_.size());
  places_.joint.resize(children_.size());
  places_.aside.resize(children_.size());
  rows_.resize(children_.size());
  foot_.resize(children_.size());
  folded_.resize(children_.size());
  folds_.resize(children_.size());
  places_.sys_rail.resize(system.hosts().size());
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
    if (!is_drawn(id)) continue;
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

/// Names are drawn with `kCharWidth` per character at most.
double Picture::nic_width(NodeId id) const {
  std::size_t longest = 0;
  for (const NodeId port : children(id))
    longest = std::max(longest, character_count(port_text(system_.node(port).net())));
  return std::max(kNicWidth, 12 + kCharWidth * static_cast<double>(longest));
}

void Picture::measure(NodeId id) {
  Box& own = box(id);
  if (kind(id) == NodeKind::kGpu) return own.w = kGpuWidth, own.h = kGpuHeight, void();
  if (kind(id) == NodeKind::kNic) {
    const std::size_t lines = std::min(children(id).size(), kMostPortLines + 1);
    own.w = nic_width(id), own.h = (system_.node(id).pci ? 18 : 6) +
                                   kLineHeight * static_cast<double>(std::max<std::size_t>(lines, 1));
    return;
  }
  for (const NodeId child : children(id)) measure(child);
  std::vector<Row>& rows = rows_[static_cast<std::size_t>(id)] = in_rows(columns_of(id));
  // GPUs of several rows have their NVLinks below each.
  const bool folds =
      std::count_if(rows.begin(), rows.end(), [&](const Row& row) { return !gpus_in(row).empty(); }) > 1;
  folds_[static_cast<std::size_t>(id)] = folds;
  own.w = kNarrowestBox, own.h = kHeader;
  const double riser = rows.size() > 1 ? kRail : 0;  // on the left
  for (Row& row : rows) {
    row.top = own.h + 2;
    double x = places_.padding + riser, height = 0;
    for (const Column& column : row.columns) {
      double column_height = -5, column_width = 0;
      for (const NodeId child : column.nodes) {
        column_height += box(child).h + 5;
        column_width = std::max(column_width, box(child).w);
      }
      x += column.rail ? kRail : 0;
      for (const NodeId child : column.nodes) box(child).x = x;
      x += column_width + gap_;
      height = std::max(height, column_height);
    }
    own.w = std::max(own.w, x - gap_ + places_.padding);
    row.foot = own.h + kStub + height;
    for (const Column& column : row.columns) {
      double y = row.foot;
      for (auto child = column.nodes.rbegin(); child != column.nodes.rend(); ++child) {
        y -= box(*child).h;
        box(*child).y = y;
        y -= 5;
      }
    }
    own.h = row.foot;
    own.h += &row == &rows.back() ? 0 : kRowGap;
    if (!folds) continue;
    const std::vector<NodeId> gpus = gpus_in(row);
    own.h += arc_depth(gpus);
    for (const NodeId gpu : gpus) folded_[static_cast<std::size_t>(gpu)] = true;
  }
  own.h += places_.padding;
}

/// The columns of a box: NICs share columns, everything else has its own; in a compact picture NICs are above
/// the one other thing.
std::vector<Picture::Column> Picture::columns_of(NodeId id) const {
  std::vector<Column> columns, nics;
  for (const NodeId child : children(id)) {
    if (kind(child) != NodeKind::kNic) {
      columns.push_back({{child}, false});
      continue;
    }
    if (nics.empty() || nics.back().nodes.size() == kNicsPerColumn) nics.push_back({{}, true});
    nics.back().nodes.push_back(child);
  }
  if (compact_ > 0 && columns.size() == 1 && nics.size() == 1 && may_stack(columns[0].nodes[0])) {
    nics[0].nodes.push_back(columns[0].nodes[0]);
    return nics;
  }
  columns.insert(columns.begin(), nics.begin(), nics.end());
  return columns;
}

/// It has one link upwards, which can enter on the left.
bool Picture::may_stack(NodeId id) const {
  return kind(id) == NodeKind::kPciSwitch ||
         (kind(id) == NodeKind::kGpu && system_.node(id).gpu().c2c.empty() &&
          !system_.node(id).gpu().partition);
}

std::vector<Picture::Row> Picture::in_rows(std::vector<Column> columns) const {
  std::vector<Row> rows;
  double used = 0;
  for (Column& column : columns) {
    double width = column.rail ? kRail : 0;
    for (const NodeId child : column.nodes) width = std::max(width, box(child).w + (column.rail ? kRail : 0));
    const bool below_nics = compact_ > 0 && kind(column.nodes.front()) == NodeKind::kPciSwitch &&
                            !rows.empty() && kind(rows.back().columns.back().nodes.front()) == NodeKind::kNic;
    if (rows.empty() || below_nics || used + width > kWidestRow - 4 * places_.padding)
      rows.emplace_back(), used = 0;
    used += width + gap_;
    rows.back().columns.push_back(std::move(column));
  }
  return rows;
}

std::vector<Picture::HostBox> Picture::measure_hosts() {
  std::vector<HostBox> hosts(system_.hosts().size());
  const bool has_switch = !system_.of_kind(NodeKind::kNvSwitch).empty();
  const bool may_wrap =
      !has_switch &&
      (meshes_.empty() || compact_ == kMostCompact);  // nothing leaves downwards, or there is no choice
  for (std::size_t i = 0; i < hosts.size(); ++i) hosts[i].host = static_cast<int>(i);
  for (const NodeId cpu : system_.of_kind(NodeKind::kCpu)) {
    if (!is_drawn(cpu)) continue;
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
      host.arcs.push_back(arc_depth(gpus_below(row)));
      host.h += h + kGap + (has_sys(host) ? kSysBus : 0) + host.arcs.back();
    }
    if (system_.hosts().size() > 1) {
      const std::string& name = heading_[static_cast<std::size_t>(host.host)];
      host.w = std::max(host.w, kCharWidth * static_cast<double>(name.size()) + 2 * kPadding);
    }
    if (has_sys(host) && host.rows.size() > 1) host.w += kSysRail;
    if (system_.hosts().size() == 1 && has_switch) host.h += kBarHeight + 2 * kGap;
  }
  std::erase_if(hosts, [&](const HostBox& host) { return host.rows.empty(); });
  if (compact_ == kMostCompact || !too_wide(hosts)) return hosts;
  ++compact_;
  gap_ = places_.padding = kTightGap;
  folded_.assign(folded_.size(), false);
  return measure_hosts();
}

/// Boxes that fold into rows count as too wide: folded, they are hard to read.
bool Picture::too_wide(const std::vector<HostBox>& hosts) const {
  return std::any_of(hosts.begin(), hosts.end(),
                     [](const HostBox& host) { return host.w > kWidestRow + 2 * kPadding; }) ||
         (!meshes_.empty() && std::find(folds_.begin(), folds_.end(), true) != folds_.end());
}

bool Picture::has_sys(const HostBox& host) const {
  for (const auto& row : host.rows)
    for (const NodeId cpu : row)
      for (const Link& link : system_.links_of(cpu))
        if (link.type == LinkType::kSys) return true;
  return false;
}

int Picture::position(NodeId gpu) const {
  const auto gpus = system_.of_kind(NodeKind::kGpu);
  return static_cast<int>(std::lower_bound(gpus.begin(), gpus.end(), gpu) - gpus.begin());
}

/// Room below a row of boxes with these GPUs; GPUs in boxes that fold have their room inside.
double Picture::arc_depth(const std::vector<NodeId>& gpus) const {
  const std::set<NodeId> here(gpus.begin(), gpus.end());
  double depth = 0;
  for (const Link* link : meshes_) {
    const bool from = here.contains(link->from), to = here.contains(link->to);
    if (from && to)
      depth = std::max(depth, 34 + kArcStep * (position(link->to) - position(link->from)));
    else if (from || to)
      depth = std::max(depth, 34.);
  }
  return depth;
}

std::vector<NodeId> Picture::gpus_in(const Row& row) const {
  std::vector<NodeId> tops;
  for (const Column& column : row.columns) tops.insert(tops.end(), column.nodes.begin(), column.nodes.end());
  return gpus_below(tops);
}

/// Without those that are in a folded box further down.
std::vector<NodeId> Picture::gpus_below(const std::vector<NodeId>& tops) const {
  std::vector<NodeId> found, open = tops;
  while (!open.empty()) {
    const NodeId next = open.back();
    open.pop_back();
    if (kind(next) == NodeKind::kGpu && !folded_[static_cast<std::size_t>(next)]) found.push_back(next);
    open.insert(open.end(), children(next).begin(), children(next).end());
  }
  return found;
}

}  // namespace loom::tools
