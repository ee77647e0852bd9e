#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "tools/topo_views.hpp"
#include "topo/bandwidth.hpp"
#include "topo/cpu_mask.hpp"
#include "topo/utf8.hpp"

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
  const std::string host = system.hosts().size() > 1 ? fmt::format("h{}:", node.host) : "";
  if (node.kind() == NodeKind::kNet)
    return host + (node.net().name.empty()
                       ? fmt::format("NET{}", node.net().device)
                       : std::string(first_characters(node.net().name, 12 - host.size())));
  if (node.kind() == NodeKind::kCpu) return fmt::format("{}NUMA{}", host, node.cpu().numa_id);
  const GpuInfo& gpu = node.gpu();
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
        // What stands on no PCI bus has no speed there.
        links =
            fmt::format("{}[{}{}]{} ", colours_.blue, name_of(link.type),
                        link.gbps < kLocalGbps ? fmt::format(" {:g} GB/s", link.gbps) : "", colours_.reset) +
            links;
      else if (link.type == LinkType::kLoc && node.kind() == NodeKind::kPciSwitch)
        links += fmt::format("{}linked to {}{} ", colours_.cyan, label(system_, link.to), colours_.reset);
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

namespace {

std::vector<NodeId> nodes_of(const System& system, NodeKind kind) {
  const auto nodes = kind == NodeKind::kGpu ? system.gpus() : system.of_kind(kind);
  return {nodes.begin(), nodes.end()};
}

std::string cell_text(const Path& path) {
  if (path.type >= PathType::kNet) return std::string(name_of(path.type));
  if (path.gbps >= kLocalGbps) return std::string(name_of(path.type));
  return fmt::format("{} {:g}", name_of(path.type), std::round(path.gbps * 10) / 10);
}

/// Names of 12 characters, cells of 13.
std::string matrix_row(const Paths& paths, NodeId row, const std::vector<NodeId>& columns,
                       const Colours& colours) {
  const System& system = paths.system();
  std::string text = fmt::format("{}{:12}{}", colours.bold, short_name(system, row), colours.reset);
  for (const NodeId column : columns) {
    const Path path = paths.between(row, column);
    text += fmt::format("{}{:>13}{}", row == column ? colours.dim : colour_of(path.type, colours),
                        row == column ? "X" : cell_text(path), colours.reset);
  }
  const CpuInfo& cpu = system.node(root_of(system, row)).cpu();
  return text + fmt::format("  {:>4}  {}\n", cpu.numa_id, to_cpu_list(cpu.affinity));
}

}  // namespace

std::string matrix_text(const Paths& paths, const Colours& colours, bool all) {
  const System& system = paths.system();
  const bool has_gpus = !system.gpus().empty();
  std::string note;
  std::vector<NodeId> nodes;
  const auto add = [&](NodeKind kind, const char* what) {
    std::vector<NodeId> more = nodes_of(system, kind);
    const std::size_t before = more.size();
    if (!all && before > kWidestMatrix) {
      if (system.hosts().size() > 1) std::erase_if(more, [&](NodeId id) { return system.node(id).host > 0; });
      if (more.size() > kWidestMatrix) more.resize(kWidestMatrix);
      note += fmt::format("{} of {} {} are shown; --all shows all.\n", more.size(), before, what);
    }
    nodes.insert(nodes.end(), more.begin(), more.end());
  };
  add(has_gpus ? NodeKind::kGpu : NodeKind::kCpu, has_gpus ? "GPUs" : "NUMA nodes");
  add(NodeKind::kNet, "ports");

  std::string text = fmt::format("{:12}", "");
  for (const NodeId id : nodes)
    text += fmt::format("{}{:>13}{}", colours.bold, short_name(system, id), colours.reset);
  text += fmt::format("  {:>4}  {}\n", "NUMA", "CPUs");
  for (const NodeId row : nodes) text += matrix_row(paths, row, nodes, colours);
  if (!has_gpus) note += "There is no GPU.\n";
  return text + note +
         fmt::format(
             "\n{}GB/s of the slowest link. X self; NVL NVLink; NVB NVLink through a GPU; C2C NVLink-C2C; "
             "PIX one "
             "PCI switch, PXB several;\n"
             "P2C C2C, then PCI; PXN through a GPU beside the NIC; PHB a CPU; SYS between NUMA nodes; NET "
             "the "
             "network; DIS none; LOC inside one.{}\n",
             colours.dim, colours.reset);
}

std::string tree_text(const System& system, const Colours& colours) {
  return TreeWriter(system, colours).write();
}

std::string findings_text(const System& system, const std::vector<Finding>& findings,
                          const Colours& colours) {
  constexpr std::size_t kMostNamed = 4;
  // Equal findings in one line, at the place of the first.
  std::vector<const Finding*> firsts;
  std::map<std::tuple<Severity, std::string, std::string>, std::vector<NodeId>> nodes_of_finding;
  for (const Finding& finding : findings) {
    auto& nodes = nodes_of_finding[{finding.severity, finding.what, finding.cost}];
    if (nodes.empty()) firsts.push_back(&finding);
    nodes.push_back(finding.node);
  }
  std::string text;
  for (const Finding* finding : firsts) {
    const auto& nodes = nodes_of_finding[{finding->severity, finding->what, finding->cost}];
    std::string names;
    for (std::size_t i = 0; i < std::min(nodes.size(), kMostNamed); ++i)
      names += (i > 0 ? ", " : "") + (nodes[i] == kNoNode ? std::string("machine") : label(system, nodes[i]));
    if (nodes.size() > kMostNamed) names += fmt::format(" and {} more", nodes.size() - kMostNamed);
    const bool warning = finding->severity == Severity::kWarning;
    text += fmt::format("{}{}{} {}: {} {}{}{}\n", warning ? colours.yellow : colours.blue,
                        warning ? "warning" : "hint   ", colours.reset, names, finding->what, colours.dim,
                        finding->cost, colours.reset);
  }
  return text;
}

}  // namespace loom::tools
