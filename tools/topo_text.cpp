#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/topo_views.hpp"
#include "topo/cpu_mask.hpp"

namespace loom::tools {

using namespace loom::topo;

Colours terminal_colours() {
  return {"\033[1m", "\033[2m", "\033[31m", "\033[33m", "\033[32m", "\033[34m", "\033[36m", "\033[0m"};
}

namespace {

constexpr std::size_t kWidestMatrix = 16;

const char* colour_of(PathType type, const Colours& colours) {
  switch (type) {
    case PathType::kLoc:
    case PathType::kNvl:
    case PathType::kC2c:
      return colours.green;
    case PathType::kNvb:
    case PathType::kPxn:
    case PathType::kP2c:
    case PathType::kPix:
    case PathType::kPxb:
      return colours.cyan;
    case PathType::kPhb:
    case PathType::kSys:
      return colours.yellow;
    case PathType::kNet:
    case PathType::kDis:
      return colours.red;
  }
  return "";
}

std::string short_name(const System& system, NodeId id) {
  const Node& node = system.node(id);
  if (node.kind() == NodeKind::kNet)
    return node.net().name.empty() ? fmt::format("NET{}", node.net().device) : node.net().name.substr(0, 12);
  const GpuInfo& gpu = node.gpu();
  const std::string host = system.hosts().size() > 1 ? fmt::format("h{}:", node.host) : "";
  return fmt::format("{}{}{}{}", host, gpu.is_virtual ? "VGPU" : "GPU", gpu.device,
                     gpu.partition ? fmt::format(".{}", *gpu.partition) : "");
}

NodeId root_of(const System& system, NodeId id) {
  while (system.node(id).parent != kNoNode) id = system.node(id).parent;
  return id;
}

std::string describe(const System& system, NodeId id) {
  const Node& node = system.node(id);
  std::string text;
  switch (node.kind()) {
    case NodeKind::kGpu: {
      const GpuInfo& gpu = node.gpu();
      if (gpu.is_virtual)
        text = fmt::format("CPUs from {}, {} of them", gpu.first_cpu, gpu.cpu_count);
      else
        text = fmt::format("{} {}{}", node.pci ? node.pci->bus_id.to_string() : "",
                           gpu.gcn_arch.empty() ? fmt::format("sm_{}", gpu.compute_capability) : gpu.gcn_arch,
                           gpu.gpu_direct ? "" : ", no GPUDirect");
      if (gpu.rank != kNoRank) text += fmt::format(", rank {}", gpu.rank);
      break;
    }
    case NodeKind::kCpu:
      text = fmt::format("{} {}", node.cpu().arch, node.cpu().vendor);
      if (!node.cpu().affinity.empty()) text += ", CPUs " + to_cpu_list(node.cpu().affinity);
      break;
    case NodeKind::kNet:
      text = fmt::format("{:g} Gbit/s{}{}", node.net().speed_mbps / 1000,
                         node.net().gpu_direct ? ", GPUDirect" : "",
                         node.net().collectives ? ", collectives" : "");
      break;
    default:
      break;
  }
  return text;
}

/// One line per node, without recursion: `last` says per level whether a node is its parent's last child.
class TreeWriter {
 public:
  TreeWriter(const System& system, const Colours& colours)
      : system_(system), colours_(colours), children_(static_cast<std::size_t>(system.size())) {
    for (NodeId id = 0; id < system.size(); ++id) {
      const NodeId parent = system.node(id).parent;
      if (parent != kNoNode)
        children_[static_cast<std::size_t>(parent)].push_back(id);
      else if (system.node(id).kind() == NodeKind::kCpu)
        roots_.push_back(id);
    }
  }

  std::string write() {
    int host = -1;
    for (const NodeId root : roots_) {
      if (system_.hosts().size() > 1 && system_.node(root).host != host) {
        host = system_.node(root).host;
        text_ += fmt::format("{}host {}{}\n", colours_.bold, host, colours_.reset);
      }
      write_below(root);
    }
    return std::move(text_);
  }

 private:
  struct Step {
    NodeId id;
    std::string indent;
    bool last;
  };

  void write_below(NodeId root) {
    std::vector<Step> stack = {{root, "", true}};
    while (!stack.empty()) {
      const Step step = std::move(stack.back());
      stack.pop_back();
      const bool is_root = step.id == root;
      write_line(step.id, is_root ? "" : step.indent + (step.last ? "└─ " : "├─ "));
      const auto& below = children_[static_cast<std::size_t>(step.id)];
      const std::string indent = is_root ? "" : step.indent + (step.last ? "   " : "│  ");
      for (auto child = below.rbegin(); child != below.rend(); ++child)
        stack.push_back({*child, indent, child == below.rbegin()});
    }
  }

  void write_line(NodeId id, const std::string& indent) {
    const Node& node = system_.node(id);
    std::string links;
    for (const Link& link : system_.links_of(id)) {
      if (link.to == node.parent && link.type != LinkType::kC2c && link.type != LinkType::kNvl)
        links =
            fmt::format("{}[{} {:g} GB/s]{} ", colours_.blue, name_of(link.type), link.gbps, colours_.reset) +
            links;
      else if (link.type == LinkType::kNvl || link.type == LinkType::kC2c)
        links += fmt::format("{}{} {:g} {}{} ", colours_.green, name_of(link.type), link.gbps,
                             label(system_, link.to), colours_.reset);
      else if (link.type == LinkType::kSys && link.to > id)
        links += fmt::format("{}SYS {:g} {}{} ", colours_.yellow, link.gbps, label(system_, link.to),
                             colours_.reset);
    }
    text_ += fmt::format("{}{}{}{} {} {}\n", indent, colours_.bold, label(system_, id), colours_.reset,
                         describe(system_, id), links);
  }

  const System& system_;
  const Colours& colours_;
  std::vector<std::vector<NodeId>> children_;
  std::vector<NodeId> roots_;
  std::string text_;
};

}  // namespace

std::string matrix_text(const Paths& paths, const Colours& colours, bool all) {
  const System& system = paths.system();
  std::vector<NodeId> gpus(system.gpus().begin(), system.gpus().end()),
      nets(system.of_kind(NodeKind::kNet).begin(), system.of_kind(NodeKind::kNet).end());
  if (gpus.empty()) return "There is no GPU.\n";
  std::string note;
  const auto keep_first_host = [&](std::vector<NodeId>& nodes, const char* what) {
    if (all || nodes.size() <= kWidestMatrix) return;
    const std::size_t before = nodes.size();
    if (system.hosts().size() > 1) std::erase_if(nodes, [&](NodeId id) { return system.node(id).host > 1; });
    if (nodes.size() > kWidestMatrix) nodes.resize(kWidestMatrix);
    note += fmt::format("{} of {} {} are shown; --all shows all.\n", nodes.size(), before, what);
  };
  keep_first_host(gpus, "GPUs");
  keep_first_host(nets, "ports");

  std::vector<NodeId> columns = gpus;
  columns.insert(columns.end(), nets.begin(), nets.end());
  std::string text = fmt::format("{:12}", "");
  for (const NodeId id : columns)
    text += fmt::format("{}{:>13}{}", colours.bold, short_name(system, id), colours.reset);
  text += fmt::format("  {:>4}  {}\n", "NUMA", "CPUs");
  for (const NodeId row : gpus) {
    text += fmt::format("{}{:12}{}", colours.bold, short_name(system, row), colours.reset);
    for (const NodeId column : columns) {
      const Path path = paths.between(row, column);
      const std::string cell = row == column                 ? "X"
                               : path.type >= PathType::kNet ? std::string(name_of(path.type))
                                                             : fmt::format("{} {:g}", name_of(path.type),
                                                                           std::round(path.gbps * 10) / 10);
      text += fmt::format("{}{:>13}{}", row == column ? colours.dim : colour_of(path.type, colours), cell,
                          colours.reset);
    }
    const CpuInfo& cpu = system.node(root_of(system, row)).cpu();
    text += fmt::format("  {:>4}  {}\n", cpu.numa_id, to_cpu_list(cpu.affinity));
  }
  text += note;
  text += fmt::format(
      "\n{}GB/s of the slowest link. X self; NVL NVLink; NVB NVLink through a GPU; C2C NVLink-C2C; PIX one "
      "PCI switch, PXB several;\n"
      "P2C C2C, then PCI; PXN through a GPU beside the NIC; PHB a CPU; SYS between NUMA nodes; NET the "
      "network; DIS none.{}\n",
      colours.dim, colours.reset);
  return text;
}

std::string tree_text(const System& system, const Colours& colours) {
  return TreeWriter(system, colours).write();
}

std::string findings_text(const System& system, const std::vector<Finding>& findings,
                          const Colours& colours) {
  std::string text;
  for (const Finding& finding : findings) {
    const bool warning = finding.severity == Severity::kWarning;
    text += fmt::format("{}{}{} {}: {} {}{}{}\n", warning ? colours.yellow : colours.blue,
                        warning ? "warning" : "hint   ", colours.reset,
                        finding.node == kNoNode ? "machine" : label(system, finding.node), finding.what,
                        colours.dim, finding.cost, colours.reset);
  }
  return text;
}

}  // namespace loom::tools
