// topo_svg.cpp -- Picture: drawing.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tools/topo_picture.hpp"
#include "tools/topo_picture_style.hpp"
#include "tools/topo_views.hpp"
#include "topo/cpu_mask.hpp"

namespace loom::tools {

using namespace loom::topo;

void Picture::draw() {
  std::vector<HostBox> hosts = measure_hosts();
  double y = 44, width = 0;
  std::vector<std::vector<const HostBox*>> rows;
  double row_width = 0;
  for (const HostBox& host : hosts) {
    if (rows.empty() || row_width + host.w > kWidestPicture) rows.emplace_back(), row_width = 0;
    rows.back().push_back(&host);
    row_width += host.w + kGap;
  }
  const bool shared_switch = hosts.size() > 1 && !system_.of_kind(NodeKind::kNvSwitch).empty();
  for (const auto& row : rows) {
    double x = shared_switch ? 40 : kPadding, height = 0;
    for (const HostBox* host : row) {
      place_host(*host, x, y);
      x += host->w + kGap;
      height = std::max(height, host->h);
    }
    width = std::max(width, x);
    y += height + kGap;
    if (shared_switch) {
      switch_bar(row, 12, x - kGap, y);
      y += kBarHeight + 2 * kGap;
    }
  }
  if (shared_switch && rows.size() > 1) spine();
  y = legend(y + 8);
  canvas_.text(kPadding + 4, 26, title_, 17, "start", "#222", true);
  width_ = std::max(width, 900.0) + kPadding;
  height_ = y + 14;
}

void Picture::place_host(const HostBox& host, double x, double y) {
  canvas_.box(x, y, host.w, host.h, "#fafafa", "#999", 8);
  const std::uint64_t hash = system_.hosts()[static_cast<std::size_t>(host.host)];
  canvas_.text(x + 10, y + 16,
               system_.hosts().size() > 1 ? fmt::format("host {}", host.host)
               : hash != 0                ? fmt::format("host {:x}", hash)
                                          : "host",
               12, "start", "#555", true);
  double at = y + kHeader;
  for (const auto& row : host.rows) {
    if (has_sys(row)) draw_sys_bus(row, x, at), at += kSysBus;
    double left = x + kPadding, height = 0;
    for (const NodeId cpu : row) {
      place(cpu, left, at);
      left += box(cpu).w + kGap;
      height = std::max(height, box(cpu).h);
    }
    at += height + kGap;
  }
  draw_arcs(host, at - kGap);
  if (system_.hosts().size() == 1 && !system_.of_kind(NodeKind::kNvSwitch).empty()) {
    at += host.arcs + kGap - 4;
    switch_bar({&host}, x + kPadding, x + host.w - kPadding, at);
  }
}

void Picture::draw_sys_bus(const std::vector<NodeId>& row, double x, double y) {
  const Link* link = link_between(row[0], row[1], LinkType::kSys);
  double left = x + kPadding;
  const double first = left + box(row[0]).w / 2;
  double last = first;
  for (const NodeId cpu : row) {
    last = left + box(cpu).w / 2;
    places_.sys[static_cast<std::size_t>(cpu)] = y + 12;
    canvas_.line(last, y + 12, last, y + kSysBus, kSysColour, line_width(link->gbps));
    left += box(cpu).w + kGap;
  }
  canvas_.line(first, y + 12, last, y + 12, kSysColour, line_width(link->gbps));
  canvas_.tag((first + last) / 2, y + 6, fmt::format("between NUMA nodes: {:g} GB/s per pair", link->gbps),
              kSysColour, "middle");
}

void Picture::place(NodeId id, double x, double y) {
  Box& own = box(id);
  own.x = x, own.y = y;
  switch (kind(id)) {
    case NodeKind::kGpu:
      draw_gpu(id);
      return;
    case NodeKind::kNic:
      draw_nic(id);
      return;
    default:
      draw_container(id);
  }
}

void Picture::draw_container(NodeId id) {
  const Box& own = box(id);
  const Node& node = system_.node(id);
  const bool is_cpu = node.kind() == NodeKind::kCpu;
  canvas_.box(own.x, own.y, own.w, own.h, is_cpu ? "#fff6df" : "#e6edf4", is_cpu ? "#c8a24a" : "#8fa3b5");
  std::string name = is_cpu ? fmt::format("NUMA {}", node.cpu().numa_id)
                            : fmt::format("PCI switch {}", node.pci->bus_id.to_string());
  if (is_cpu && !node.cpu().affinity.empty() && own.w > 260) {
    const std::string cpus = to_cpu_list(node.cpu().affinity);
    if (cpus.size() < 30) name += "  CPUs " + cpus;
  }
  canvas_.text(own.x + 8, own.y + 15, name, 11, "start", "#333", true);
  const auto columns = columns_of(id);
  if (columns.empty()) return;
  const double bus = own.y + kHeader + 2;
  places_.bus[static_cast<std::size_t>(id)] = bus;
  double first = 1e9, last = 0;
  // Of many equal links one says the speed.
  float said = -1;
  for (const auto& column : columns) {
    const NodeId top = column.front();
    const double x = own.x + box(top).x, y = own.y + box(top).y;
    if (kind(top) == NodeKind::kNic) {
      const double rail = x - kRail / 2;
      double low = y;
      for (const NodeId nic : column) {
        const double middle = own.y + box(nic).y + box(nic).h / 2;
        places_.top[static_cast<std::size_t>(nic)] = rail;
        const float gbps = link_up(nic, id);
        canvas_.line(rail, middle, x, middle, kPciColour, line_width(gbps));
        low = middle;
      }
      const float gbps = link_up(top, id);
      canvas_.line(rail, bus, rail, low, kPciColour, line_width(gbps));
      if (gbps != said) canvas_.tag(rail + 5, bus + 16, fmt::format("{:g}", gbps), kPciColour);
      said = gbps, first = std::min(first, rail), last = std::max(last, rail);
    } else {
      const double middle = x + box(top).w / 2;
      draw_links_up(top, id, middle, bus, y, said);
      first = std::min(first, middle), last = std::max(last, middle);
    }
  }
  canvas_.line(std::min(first, own.x + 12), bus, std::max(last, own.x + 40), bus, "#444", 2.5);
  for (const NodeId child : children(id)) place(child, own.x + box(child).x, own.y + box(child).y);
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
    if (!is_up(link)) continue;
    const bool pci = link.type == LinkType::kPci || link.type == LinkType::kLoc;
    const double at = !several ? x : pci ? x - 34 : x - 2;
    if (pci) places_.top[static_cast<std::size_t>(id)] = at;
    canvas_.line(at, top, at, bottom, colour_of(link.type), line_width(link.gbps),
                 link.type == LinkType::kLoc);
    if (pci && link.type == LinkType::kPci && link.gbps != said)
      canvas_.tag(at + 5, top + 16, fmt::format("{:g}", link.gbps), kPciColour);
    if (!pci)
      canvas_.tag(at + 7, top + 16, fmt::format("{} {:.0f}", name_of(link.type), link.gbps),
                  colour_of(link.type));
    if (pci) said = link.gbps;
  }
}

void Picture::draw_gpu(NodeId id) {
  const Box& own = box(id);
  const GpuInfo& gpu = system_.node(id).gpu();
  const bool takes_part = gpu.rank != kNoRank;
  canvas_.box(own.x, own.y, own.w, own.h, takes_part ? "#d6edbb" : "#eef0ec",
              takes_part ? "#5a9e00" : "#aaa");
  canvas_.text(own.centre(), own.y + 18,
               fmt::format("{} {}{}", gpu.is_virtual ? "VGPU" : "GPU", gpu.device,
                           gpu.partition ? fmt::format(".{}", *gpu.partition) : ""),
               14, "middle", "#222", true);
  const std::string model = gpu.is_virtual         ? fmt::format("{} CPUs", gpu.cpu_count)
                            : gpu.gcn_arch.empty() ? fmt::format("sm_{}", gpu.compute_capability)
                                                   : gpu.gcn_arch;
  canvas_.text(own.centre(), own.y + 33,
               takes_part ? fmt::format("{}, rank {}", model, gpu.rank) : model + ", no rank", 11);
  if (const auto& pci = system_.node(id).pci)
    canvas_.text(own.centre(), own.y + 48, pci->bus_id.to_string(), 10, "middle", "#667");
}

void Picture::draw_nic(NodeId id) {
  const Box& own = box(id);
  canvas_.box(own.x, own.y, own.w, own.h, "#ecdcf4", "#9a6fb0");
  double y = own.y + 14;
  const auto& ports = children(id);
  for (std::size_t i = 0; i < ports.size(); ++i, y += kLineHeight) {
    if (i == kMostPortLines && ports.size() > kMostPortLines + 1) {
      canvas_.text(own.centre(), y, fmt::format("and {} more", ports.size() - i), 10);
      break;
    }
    const NetInfo& net = system_.node(ports[i]).net();
    const std::string name = net.name.empty() ? fmt::format("NET {}", net.device) : net.name.substr(0, 9);
    canvas_.text(own.centre(), y, fmt::format("{} {:g}G", name, net.speed_mbps / 1000), 11, "middle",
                 "#222", ports.size() == 1);
  }
  if (ports.empty()) canvas_.text(own.centre(), y, "NIC", 11), y += kLineHeight;
  if (const auto& pci = system_.node(id).pci)
    canvas_.text(own.centre(), y, pci->bus_id.to_string(), 9, "middle", "#667");
}

void Picture::draw_arcs(const HostBox& host, double y) {
  std::map<NodeId, std::vector<NodeId>> peers;
  for (const Link* link : meshes_)
    if (system_.node(link->from).host == host.host)
      peers[link->from].push_back(link->to), peers[link->to].push_back(link->from);
  // Ends are spread along a GPU's lower edge: the way to the left leaves on the left, near peers towards
  // the middle.
  for (auto& [gpu, others] : peers)
    std::sort(others.begin(), others.end(), [g = gpu](NodeId a, NodeId b) {
      const bool left_a = a < g, left_b = b < g;
      if (left_a != left_b) return left_a;
      return a > b;
    });
  const auto end_x = [&](NodeId gpu, NodeId peer) {
    const auto& others = peers[gpu];
    const double at =
        static_cast<double>(std::find(others.begin(), others.end(), peer) - others.begin()) + 1;
    return box(gpu).x + box(gpu).w * at / (static_cast<double>(others.size()) + 1);
  };
  for (const Link* link : meshes_) {
    if (system_.node(link->from).host != host.host) continue;
    const double x1 = end_x(link->from, link->to), x2 = end_x(link->to, link->from);
    const double depth = 18 + kArcStep * (position(link->to) - position(link->from));
    places_.arcs[{link->from, link->to}] = {
        {x1, box(link->from).bottom()}, {x2, box(link->to).bottom()}, y, y + depth * 4 / 3};
    canvas_.line(x1, box(link->from).bottom(), x1, y, kNvlColour, line_width(link->gbps));
    canvas_.line(x2, box(link->to).bottom(), x2, y, kNvlColour, line_width(link->gbps));
    canvas_.arc(x1, y, x2, y, y + depth * 4 / 3, kNvlColour, line_width(link->gbps));
    if (meshes_.size() <= 30)
      canvas_.tag((x1 + x2) / 2, y + depth + 3, fmt::format("{:g}", link->gbps), kNvlColour, "middle");
  }
}

void Picture::switch_bar(const std::vector<const HostBox*>& hosts, double left, double right, double y) {
  const NodeId nv = system_.of_kind(NodeKind::kNvSwitch).front();
  std::map<float, int> gpus_by_speed;
  for (const Link& link : system_.links_of(nv)) {
    const bool here = std::any_of(hosts.begin(), hosts.end(), [&](const HostBox* host) {
      return host->host == system_.node(link.to).host;
    });
    ++gpus_by_speed[link.gbps];
    if (here)
      canvas_.line(box(link.to).centre(), box(link.to).bottom(), box(link.to).centre(), y, kNvlColour,
                   line_width(link.gbps));
  }
  canvas_.box(left, y, right - left, kBarHeight, "#b9dd8a", kNvlColour);
  const std::size_t count = std::get<NvSwitchInfo>(system_.node(nv).info).bus_ids.size();
  std::string text = count > 1 ? fmt::format("{} NVSwitches", count) : "NVSwitch";
  for (auto speed = gpus_by_speed.rbegin(); speed != gpus_by_speed.rend(); ++speed)
    text += fmt::format("{} {} GPUs, {:g} GB/s each", speed == gpus_by_speed.rbegin() ? ":" : ";",
                        speed->second, speed->first);
  canvas_.text((left + right) / 2, y + 18, text, 13, "middle", "#2d5200", true);
  for (const HostBox* host : hosts) places_.bar[static_cast<std::size_t>(host->host)] = y;
  bars_.push_back(y);
}

/// Bars of several rows are one switch: joined at the left.
void Picture::spine() {
  places_.spine = 12;
  canvas_.box(6, bars_.front(), 12, bars_.back() + kBarHeight - bars_.front(), "#b9dd8a", kNvlColour);
}

double Picture::legend(double y) {
  double x = kPadding + 4;
  const auto entry = [&](const char* colour, float gbps, const std::string& text, double step) {
    canvas_.line(x, y, x + 26, y, colour, line_width(gbps));
    canvas_.text(x + 32, y + 4, text, 11, "start", "#444");
    x += step;
  };
  entry(kPciColour, 24, "PCI, GB/s", 110);
  entry(kSysColour, 24, "between NUMA nodes", 170);
  entry(kNvlColour, 100, "NVLink", 95);
  entry(kC2cColour, 100, "C2C", 80);
  for (const float gbps : {6.F, 24.F, 96.F, 400.F}) entry("#444", gbps, fmt::format("{:g} GB/s", gbps), 95);
  return y;
}

std::string to_svg(const System& system, const std::string& title) {
  Picture picture(system, title);
  picture.draw();
  return picture.finish();
}

}  // namespace loom::tools
