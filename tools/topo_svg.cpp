// topo_svg.cpp -- Picture: boxes, from the outside in. Links are drawn in topo_picture_links.cpp.
#include <algorithm>

#include "base/format.hpp"
#include "tools/topo_picture.hpp"
#include "tools/topo_picture_style.hpp"
#include "tools/topo_views.hpp"
#include "tools/words.hpp"
#include "topo/cpu_mask.hpp"
#include "topo/utf8.hpp"

namespace loom::tools {

using namespace loom::topo;

void Picture::draw() {
  std::vector<HostBox> hosts = measure_hosts();
  double y = 44, width = 0;
  std::vector<std::vector<const HostBox*>> rows;
  double row_width = 0;
  for (const HostBox& host : hosts) {
    if (rows.empty() || row_width + host.w > kWidestPicture - 40) rows.emplace_back(), row_width = 0;
    rows.back().push_back(&host);
    row_width += host.w + kGap;
  }
  const bool shared_switch = system_.hosts().size() > 1 && !system_.of_kind(NodeKind::kNvSwitch).empty();
  for (const auto& row : rows) {
    double x = shared_switch ? kCombWidth + 2 * kPadding : kPadding, height = 0;
    for (const HostBox* host : row) {
      place_host(*host, x, y);
      x += host->w + kGap;
      height = std::max(height, host->h);
    }
    width = std::max(width, x);
    y += height + kGap;
    if (shared_switch) {
      switch_bar(row, kPadding, x - kGap, y);
      y += kBarHeight + 2 * kGap;
    }
  }
  comb();
  draw_c2c_ports();
  draw_peer_switches();
  y = legend(y + 8);
  canvas_.text(kPadding + 4, 26, title_, 17, "start", "#222", true);
  width_ = std::max(width, 900.0) + kPadding;
  height_ = y + 14;
}

void Picture::place_host(const HostBox& host, double x, double y) {
  canvas_.box(x, y, host.w, host.h, "#fafafa", "#999", 8);
  const std::uint64_t hash = system_.hosts()[static_cast<std::size_t>(host.host)];
  canvas_.text(x + 10, y + 16,
               system_.hosts().size() > 1 ? heading_[static_cast<std::size_t>(host.host)]
               : hash != 0                ? loom::format("host {:x}", hash)
                                          : "host",
               12, "start", "#555", true);
  double at = y + kHeader;
  const bool sys = has_sys(host);
  const double first = x + kPadding + (sys && host.rows.size() > 1 ? kSysRail : 0);
  for (std::size_t row = 0; row < host.rows.size(); ++row) {
    if (sys) draw_sys_bus(host, row, first, at), at += kSysBus;
    double left = first, height = 0;
    for (const NodeId cpu : host.rows[row]) {
      place(cpu, left, at);
      left += box(cpu).w + kGap;
      height = std::max(height, box(cpu).h);
    }
    set_foot(host.rows[row], at + height);
    at += height + kGap + host.arcs[row];
  }
  draw_arcs(host);
  if (system_.hosts().size() == 1 && !system_.of_kind(NodeKind::kNvSwitch).empty())
    switch_bar({&host}, x + kPadding, x + host.w - kPadding, at + kGap - 4);
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
  std::string name = is_cpu ? loom::format("NUMA {}", node.cpu().numa_id)
                            : loom::format("PCI switch {}", node.pci->bus_id.to_string());
  if (is_cpu && !node.cpu().affinity.empty() && own.w > 260) {
    const std::string cpus = to_cpu_list(node.cpu().affinity);
    if (cpus.size() < 30) name += "  CPUs " + cpus;
  }
  canvas_.text(own.x + 8, own.y + 15, name, 11, "start", "#333", true);
  const auto& rows = rows_[static_cast<std::size_t>(id)];
  if (rows.empty()) return;
  places_.bus[static_cast<std::size_t>(id)] = own.y + rows.front().top;
  float said = -1;  // of many equal links one says the speed
  for (const Row& row : rows) draw_row(id, row, said);
  if (rows.size() > 1)
    canvas_.line(own.x + kPadding, own.y + rows.front().top, own.x + kPadding, own.y + rows.back().top,
                 "#444", 2.5);
  for (const NodeId child : children(id)) place(child, own.x + box(child).x, own.y + box(child).y);
  if (folds_[static_cast<std::size_t>(id)])
    for (const Row& row : rows) {
      std::vector<NodeId> tops;
      for (const Column& column : row.columns)
        tops.insert(tops.end(), column.nodes.begin(), column.nodes.end());
      set_foot(tops, own.y + row.foot);
    }
}

/// Of GPUs below these boxes that have none from a box further down.
void Picture::set_foot(const std::vector<NodeId>& tops, double y) {
  std::vector<NodeId> open = tops;
  while (!open.empty()) {
    const NodeId next = open.back();
    open.pop_back();
    double& foot = foot_[static_cast<std::size_t>(next)];
    if (kind(next) == NodeKind::kGpu && foot == 0) foot = y;
    open.insert(open.end(), children(next).begin(), children(next).end());
  }
}

void Picture::draw_gpu(NodeId id) {
  const Box& own = box(id);
  const GpuInfo& gpu = system_.node(id).gpu();
  const bool takes_part = gpu.rank != kNoRank;
  canvas_.box(own.x, own.y, own.w, own.h, takes_part ? "#d6edbb" : "#eef0ec",
              takes_part ? "#5a9e00" : "#aaa");
  canvas_.text(own.centre(), own.y + 18,
               loom::format("{} {}{}", gpu.is_virtual ? "VGPU" : "GPU", gpu.device,
                            gpu.partition ? loom::format(".{}", *gpu.partition) : ""),
               14, "middle", "#222", true);
  const std::string model = gpu.is_virtual         ? counted(gpu.cpu_count, "CPU")
                            : gpu.gcn_arch.empty() ? loom::format("sm_{}", gpu.compute_capability)
                                                   : gpu.gcn_arch;
  canvas_.text(own.centre(), own.y + 33,
               takes_part ? loom::format("{}, rank {}", model, gpu.rank) : model + ", no rank", 11);
  if (const auto& pci = system_.node(id).pci)
    canvas_.text(own.centre(), own.y + 48, pci->bus_id.to_string(), 10, "middle", "#667");
}

std::string port_text(const NetInfo& net) {
  constexpr std::size_t kMostCharacters = 12;
  const double gbit = net.speed_mbps / 1000;
  const std::string speed = gbit >= 1000 ? loom::format("{:.3g}T", gbit / 1000)
                            : gbit >= 1  ? loom::format("{:.3g}G", gbit)
                                         : loom::format("{:.3g}M", net.speed_mbps);
  const std::string name = net.name.empty() ? loom::format("NET {}", net.device)
                                            : std::string(first_characters(net.name, kMostCharacters));
  return name + " " + speed;
}

void Picture::draw_nic(NodeId id) {
  const Box& own = box(id);
  canvas_.box(own.x, own.y, own.w, own.h, "#ecdcf4", "#9a6fb0");
  double y = own.y + 14;
  const auto& ports = children(id);
  for (std::size_t i = 0; i < ports.size(); ++i, y += kLineHeight) {
    if (i == kMostPortLines && ports.size() > kMostPortLines + 1) {
      canvas_.text(own.centre(), y, loom::format("and {} more", ports.size() - i), 10);
      break;
    }
    canvas_.text(own.centre(), y, port_text(system_.node(ports[i]).net()), 11, "middle", "#222",
                 ports.size() == 1);
  }
  if (ports.empty()) canvas_.text(own.centre(), y, "NIC", 11), y += kLineHeight;
  if (const auto& pci = system_.node(id).pci)
    canvas_.text(own.centre(), y, pci->bus_id.to_string(), 9, "middle", "#667");
}

double Picture::legend(double y) {
  double x = kPadding + 4;
  const auto entry = [&](const char* colour, float gbps, const std::string& text, double step) {
    canvas_.line(x, y, x + 26, y, colour, line_width(gbps));
    canvas_.text(x + 32, y + 4, text, 11, "start", "#444");
    x += step;
  };
  const auto has = [&](LinkType type) {
    const auto links = system_.links();
    return std::any_of(links.begin(), links.end(), [&](const Link& link) { return link.type == type; });
  };
  if (has(LinkType::kPci)) entry(kPciColour, 24, "PCI", 70);
  if (has(LinkType::kSys)) entry(kSysColour, 24, "between NUMA nodes", 170);
  if (has(LinkType::kNvl)) entry(kNvlColour, 100, "NVLink", 95);
  if (has(LinkType::kC2c)) entry(kC2cColour, 100, "C2C", 80);
  for (const float gbps : {6.F, 24.F, 96.F, 400.F}) entry("#444", gbps, loom::format("{:g} GB/s", gbps), 95);
  y += 20;
  canvas_.text(kPadding + 4, y,
               "Figures are GB/s in one direction. A line without one is as fast as the one before it.", 11,
               "start", "#444");
  return y;
}

std::string to_svg(const System& system, const std::string& title, bool all) {
  Picture picture(system, title, all ? single_hosts(system) : equal_hosts(system));
  picture.draw();
  return picture.finish();
}

}  // namespace loom::tools
