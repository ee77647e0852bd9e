// topo_picture_links.cpp -- Picture: the links between boxes.
#include <algorithm>
#include <map>

#include "base/format.hpp"
#include "tools/topo_picture.hpp"
#include "tools/topo_picture_style.hpp"
#include "tools/words.hpp"
#include "topo/bandwidth.hpp"

namespace loom::tools {

using namespace loom::topo;

namespace {

constexpr const char *kBusColour = "#444", *kMissingColour = "#c00000", *kSwitchFill = "#b9dd8a";
constexpr double kBusWidth = 2.5;

}  // namespace

// --- between NUMA nodes

std::string Picture::sys_text(const HostBox& host) const {
  float low = kLocalGbps, high = 0;
  for (const auto& row : host.rows)
    for (const NodeId cpu : row)
      for (const Link& link : system_.links_of(cpu))
        if (link.type == LinkType::kSys) low = std::min(low, link.gbps), high = std::max(high, link.gbps);
  const std::string figure = low >= kLocalGbps ? "unlimited"
                             : low == high     ? loom::format("{:g} GB/s per pair", low)
                                               : loom::format("{:g} to {:g} GB/s per pair", low, high);
  return "between NUMA nodes: " + figure;
}

/// One line for each row, joined at the left where there are several.
void Picture::draw_sys_bus(const HostBox& host, std::size_t row, double x, double y) {
  const double bus = y + 12;
  float gbps = 0;
  double left = x, first = 1e9, last = 0;
  for (const NodeId cpu : host.rows[row]) {
    for (const Link& link : system_.links_of(cpu))
      if (link.type == LinkType::kSys) gbps = std::max(gbps, link.gbps);
    const double middle = left + box(cpu).w / 2;
    first = std::min(first, middle), last = std::max(last, middle);
    places_.sys[static_cast<std::size_t>(cpu)] = bus;
    canvas_.line(middle, bus, middle, y + kSysBus, kSysColour, line_width(gbps));
    left += box(cpu).w + kGap;
  }
  double& rail = places_.sys_rail[static_cast<std::size_t>(host.host)];
  if (host.rows.size() > 1) {
    rail = x - kSysRail / 2;
    first = rail;
    if (row > 0) {
      const double above = places_.sys[static_cast<std::size_t>(host.rows[row - 1].front())];
      canvas_.line(rail, above, rail, bus, kSysColour, line_width(gbps));
    }
  }
  canvas_.line(first, bus, last, bus, kSysColour, line_width(gbps));
  if (row == 0) canvas_.tag((first + last) / 2, y + 6, sys_text(host), kSysColour, "middle");
}

// --- along the PCI tree

/// A thin dashed line without a figure joins devices on no PCI bus.
void Picture::draw_up(double x1, double y1, double x2, double y2, float gbps) {
  const bool bus = gbps < kLocalGbps;
  canvas_.line(x1, y1, x2, y2, bus ? kPciColour : kLocColour, bus ? line_width(gbps) : 1.5, !bus);
}

void Picture::draw_rail(NodeId id, const Column& column, double bus, float& said) {
  const Box& own = box(id);
  const double rail = own.x + box(column.nodes.front()).x - kRail / 2;
  double low = bus;
  float most = 0;
  for (const NodeId child : column.nodes) {
    const float gbps = link_up(child, id);
    // Into the middle of small boxes, into the header of large ones.
    low = own.y + box(child).y + (kind(child) == NodeKind::kPciSwitch ? kHeader / 2 : box(child).h / 2);
    places_.top[static_cast<std::size_t>(child)] = rail;
    places_.joint[static_cast<std::size_t>(child)] = bus;
    places_.aside[static_cast<std::size_t>(child)] = true;
    draw_up(rail, low, own.x + box(child).x, low, gbps);
    if (gbps < kLocalGbps) most = std::max(most, gbps);
  }
  draw_up(rail, bus, rail, low, most > 0 ? most : kLocalGbps);
  const float gbps = link_up(column.nodes.front(), id);
  if (gbps != said && gbps < kLocalGbps)
    canvas_.tag(rail + 5, bus + 16, loom::format("{:g}", gbps), kPciColour), said = gbps;
}

void Picture::draw_row(NodeId id, const Row& row, float& said) {
  const Box& own = box(id);
  const double bus = own.y + row.top;
  const double first = own.x + places_.padding;
  double last = own.x + 40;
  for (const Column& column : row.columns) {
    const NodeId top = column.nodes.front();
    const double x = own.x + box(top).x, y = own.y + box(top).y;
    if (column.rail) {
      draw_rail(id, column, bus, said);
      last = std::max(last, x - kRail / 2);
    } else {
      const double middle = x + box(top).w / 2;
      places_.joint[static_cast<std::size_t>(top)] = bus;
      draw_links_up(top, id, middle, bus, y, said);
      last = std::max(last, middle);
    }
  }
  canvas_.line(first, bus, last, bus, kBusColour, kBusWidth);
}

float Picture::link_up(NodeId id, NodeId parent) const {
  const Link* link = link_between(id, parent, LinkType::kPci);
  if (link == nullptr) link = link_between(id, parent, LinkType::kLoc);
  return link != nullptr ? link->gbps : 0;
}

/// PCI in the middle, C2C or NVLink to the CPU beside it.
void Picture::draw_links_up(NodeId id, NodeId parent, double x, double top, double bottom, float& said) {
  const auto is_up = [&](const Link& link) {
    return link.to == parent || kind(link.to) == NodeKind::kC2cPort ||
           (kind(id) == NodeKind::kGpu && kind(link.to) == NodeKind::kCpu);
  };
  const auto links = system_.links_of(id);
  const bool several = std::count_if(links.begin(), links.end(), is_up) > 1;
  for (const Link& link : links) {
    if (!is_up(link) || kind(link.to) == NodeKind::kC2cPort) continue;  // draw_c2c_ports
    const bool pci = link.type == LinkType::kPci || link.type == LinkType::kLoc;
    const double at = !several ? x : pci ? x - 34 : x - 2;
    if (pci) {
      places_.top[static_cast<std::size_t>(id)] = at;
      draw_up(at, top, at, bottom, link.gbps);
      if (link.gbps != said && link.gbps < kLocalGbps)
        canvas_.tag(at + 5, top + 16, loom::format("{:g}", link.gbps), kPciColour), said = link.gbps;
    } else {
      canvas_.line(at, top, at, bottom, colour_of(link.type), line_width(link.gbps));
      canvas_.tag(at + 7, top + 16, loom::format("{} {:.0f}", name_of(link.type), link.gbps),
                  colour_of(link.type));
    }
  }
}

/// The partitions of a GPU share the link to the CPU.
void Picture::draw_c2c_ports() {
  for (const NodeId port : system_.of_kind(NodeKind::kC2cPort)) {
    if (!is_drawn(port)) continue;
    double first = 1e9, last = 0, top = 0, bus = 0;
    float gbps = 0;
    for (const Link& link : system_.links_of(port)) {
      if (kind(link.to) == NodeKind::kCpu)
        gbps = link.gbps, bus = places_.bus[static_cast<std::size_t>(link.to)];
      if (kind(link.to) != NodeKind::kGpu) continue;
      const double at = box(link.to).centre() + 8;
      first = std::min(first, at), last = std::max(last, at), top = box(link.to).y;
      canvas_.line(at, top, at, top - 10, kC2cColour, line_width(link.gbps));
    }
    const double middle = (first + last) / 2, width = line_width(gbps);
    canvas_.line(first - width / 2, top - 10, last + width / 2, top - 10, kC2cColour, 4);
    canvas_.line(middle, bus, middle, top - 10, kC2cColour, width);
    canvas_.tag(middle - width / 2 - 4, bus + 14, loom::format("C2C {:.0f}", gbps), kC2cColour, "end");
  }
}

/// Direct links between switches, which NCCL counts as unlimited.
void Picture::draw_peer_switches() {
  for (const NodeId id : system_.of_kind(NodeKind::kPciSwitch))
    for (const Link& link : system_.links_of(id)) {
      if (!is_drawn(id) || link.type != LinkType::kLoc || kind(link.to) != NodeKind::kPciSwitch ||
          (link.reverse != kNoLink && link.to < id))
        continue;
      const Box &a = box(id), &b = box(link.to);
      const double y1 = a.y + 9, y2 = b.y + 9;
      const bool right = b.x > a.x;
      const double x1 = right ? a.x + a.w : a.x, x2 = right ? b.x : b.x + b.w;
      canvas_.line(x1, y1, x2, y2, kPciColour, 3, true);
      canvas_.tag((x1 + x2) / 2, (y1 + y2) / 2 - 4, "direct", kPciColour, "middle");
    }
}

// --- NVLinks

void Picture::draw_arcs(const HostBox& host) {
  std::map<NodeId, std::vector<NodeId>> peers;
  for (const Link* link : meshes_)
    if (system_.node(link->from).host == host.host)
      peers[link->from].push_back(link->to), peers[link->to].push_back(link->from);
  // Ends are spread along a GPU's lower edge: links to the left leave on the left, those to near peers
  // towards the middle.
  for (auto& [gpu, others] : peers)
    std::sort(others.begin(), others.end(), [g = gpu](NodeId a, NodeId b) {
      const bool left_a = a < g, left_b = b < g;
      if (left_a != left_b) return left_a;
      return a > b;
    });
  const auto end_x = [&](NodeId gpu, NodeId peer) {
    const auto& others = peers[gpu];
    const double at = static_cast<double>(std::find(others.begin(), others.end(), peer) - others.begin()) + 1;
    return box(gpu).x + box(gpu).w * at / (static_cast<double>(others.size()) + 1);
  };
  for (const Link* link : meshes_)
    if (system_.node(link->from).host == host.host)
      draw_arc(*link, end_x(link->from, link->to), end_x(link->to, link->from));
  if (figures_on_arcs_) tag_arcs(host);
}

void Picture::draw_arc(const Link& link, double x1, double x2) {
  const double from_y = box(link.from).bottom(), to_y = box(link.to).bottom(), width = line_width(link.gbps);
  const double foot = foot_[static_cast<std::size_t>(link.from)],
               other = foot_[static_cast<std::size_t>(link.to)];
  const double depth = foot == other ? 18 + kArcStep * (position(link.to) - position(link.from)) : 20;
  const double lowest = std::max(foot, other) + depth * 4 / 3;
  places_.arcs[{link.from, link.to}] = {{x1, from_y}, {x2, to_y}, std::max(foot, other), lowest};
  canvas_.line(x1, from_y, x1, foot, kNvlColour, width);
  canvas_.line(x2, to_y, x2, other, kNvlColour, width);
  if (foot == other) return canvas_.arc(x1, foot, x2, foot, lowest, kNvlColour, width);
  // From one row to another: down from the upper one, between boxes as far as that goes.
  canvas_.curve(x1, foot, foot + 40, x2, other, other + 40, kNvlColour, width);
}

/// Where all are equal, or too many to tell apart, one figure is for all.
void Picture::tag_arcs(const HostBox& host) {
  constexpr std::size_t kMostTags = 30;
  std::map<float, std::size_t> speeds;
  const Link* deepest = nullptr;
  for (const Link* link : meshes_) {
    if (system_.node(link->from).host != host.host) continue;
    ++speeds[link->gbps];
    const auto lowest = [&](const Link* of) { return places_.arcs[{of->from, of->to}].lowest; };
    if (deepest == nullptr || lowest(link) > lowest(deepest)) deepest = link;
  }
  if (deepest == nullptr) return;
  // One figure for all is below the lines; others are on their lines.
  const auto tag = [&](const Link& link, const std::string& text, double below) {
    const Places::Arc& arc = places_.arcs[{link.from, link.to}];
    canvas_.tag((arc.from.x + arc.to.x) / 2, arc.foot + (arc.lowest - arc.foot) * 3 / 4 + below, text,
                kNvlColour, "middle");
  };
  if (speeds.size() == 1 && meshes_.size() > 1)
    return tag(*deepest, loom::format("{:g} GB/s each", deepest->gbps), 14);
  if (meshes_.size() > kMostTags)
    return tag(*deepest,
               loom::format("{:g} to {:g} GB/s each", speeds.begin()->first, speeds.rbegin()->first), 14);
  for (const Link* link : meshes_)
    if (system_.node(link->from).host == host.host) tag(*link, loom::format("{:g}", link->gbps), 3);
}

void Picture::switch_bar(const std::vector<const HostBox*>& hosts, double left, double right, double y) {
  const NodeId nv = system_.of_kind(NodeKind::kNvSwitch).front();
  const auto is_here = [&](NodeId id) {
    return std::any_of(hosts.begin(), hosts.end(),
                       [&](const HostBox* host) { return host->host == system_.node(id).host; });
  };
  std::map<float, int> gpus_by_speed;
  for (const Link& link : system_.links_of(nv)) {
    ++gpus_by_speed[link.gbps];
    if (is_here(link.to))
      canvas_.line(box(link.to).centre(), box(link.to).bottom(), box(link.to).centre(), y, kNvlColour,
                   line_width(link.gbps));
  }
  int without = 0;
  for (const NodeId gpu : system_.of_kind(NodeKind::kGpu)) {
    const bool shares = kind(system_.node(gpu).parent) == NodeKind::kGpu;
    if (shares || system_.node(gpu).gpu().is_virtual || link_between(gpu, nv, LinkType::kNvl)) continue;
    ++without;
    if (is_here(gpu))
      canvas_.tag(box(gpu).centre(), box(gpu).bottom() + 9, "no NVLink", kMissingColour, "middle");
  }
  const std::size_t count = std::get<NvSwitchInfo>(system_.node(nv).info).bus_ids.size();
  std::string text = count > 1 ? loom::format("{} NVSwitches", count) : "NVSwitch";
  if (system_.hosts().size() > 1) text += loom::format(" of all {} hosts", system_.hosts().size());
  for (auto speed = gpus_by_speed.rbegin(); speed != gpus_by_speed.rend(); ++speed)
    text += loom::format("{} {}, {:g} GB/s each", speed == gpus_by_speed.rbegin() ? ":" : ";",
                         counted(speed->second, "GPU"), speed->first);
  if (without > 0) text += loom::format("; {} without", without);
  if (system_.hosts().size() > 1)
    right = std::max(right, left + 1.2 * kCharWidth * static_cast<double>(text.size()) + 2 * kPadding);
  // Of several rows the first has it.
  canvas_.text((left + right) / 2, y + 18, bars_.empty() ? text : "the same NVSwitch", 13, "middle",
               "#2d5200", bars_.empty(), kSwitchFill, 10);
  for (const HostBox* host : hosts) places_.bar[static_cast<std::size_t>(host->host)] = y;
  bars_.push_back({left, y, right - left, kBarHeight});
}

/// Bars below several rows of hosts are one switch: with what joins them at the left they make one shape.
void Picture::comb() {
  std::vector<Box> parts = bars_;
  if (bars_.size() > 1) {
    const double top = bars_.front().y;
    parts.push_back({kPadding, top, kCombWidth, bars_.back().bottom() - top});
    places_.spine = kPadding + kCombWidth / 2;
  }
  for (const Box& part : parts) canvas_.box(part.x, part.y, part.w, part.h, kSwitchFill, kNvlColour);
  if (parts.size() > 1)  // without the edges inside
    for (const Box& part : parts)
      canvas_.box(part.x + 1, part.y + 1, part.w - 2, part.h - 2, kSwitchFill, kSwitchFill);
}

}  // namespace loom::tools
