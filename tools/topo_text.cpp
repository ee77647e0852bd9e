
#include <algorithm>
#include <cmath>
#include <set>

#include "base/format.hpp"
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
  const std::string host = system.hosts().size() > 1 ? loom::format("h{}:", node.host) : "";
  if (node.kind() == NodeKind::kNet)
    return host + (node.net().name.empty()
                       ? loom::format("NET{}", node.net().device)
                       : std::string(first_characters(node.net().name, 12 - host.size())));
  if (node.kind() == NodeKind::kCpu) return loom::format("{}NUMA{}", host, node.cpu().numa_id);
  const GpuInfo& gpu = node.gpu();
  return loom::format("{}{}{}{}", host, gpu.is_virtual ? "VGPU" : "GPU", gpu.device,
                      gpu.partition ? loom::format(".{}", *gpu.partition) : "");
}

NodeId root_of(const System& system, NodeId id) {
  while (system.node(id).parent != kNoNode) id = system.node(id).parent;
  return id;
}

/// The parts that are not empty, with `separator` between them.
std::string joined(const std::vector<std::string>& parts, std::string_view separator) {
  std::string text;
  for (const std::string& part : parts)
    if (!part.empty()) text += (text.empty() ? "" : std::string(separator)) + part;
  return text;
}

std::string describe(const System& system, NodeId id) {
  const Node& node = system.node(id);
  if (const auto* gpu = std::get_if<GpuInfo>(&node.info)) {
    const std::string rank = gpu->rank != kNoRank ? loom::format("rank {}", gpu->rank) : "";
    if (gpu->is_virtual)
      return joined(
          {loom::format("CPUs from {}", gpu->first_cpu), loom::format("{} of them", gpu->cpu_count), rank},
          ", ");
    const std::string model =
        gpu->gcn_arch.empty() ? loom::format("sm_{}", gpu->compute_capability) : gpu->gcn_arch;
    return joined({joined({node.pci ? node.pci->bus_id.to_string() : "", model}, " "),
                   gpu->gpu_direct ? "" : "no GPUDirect", rank},
                  ", ");
  }
  if (const auto* cpu = std::get_if<CpuInfo>(&node.info))
    return joined({joined({cpu->arch, cpu->vendor}, " "),
                   cpu->affinity.empty() ? "" : "CPUs " + to_cpu_list(cpu->affinity)},
                  ", ");
  if (const auto* net = std::get_if<NetInfo>(&node.info))
    return joined(
        {net->speed_mbps > 0 ? loom::format("{:g} Gbit/s", net->speed_mbps / 1000) : "speed not known",
         net->gpu_direct ? "GPUDirect" : "", net->collectives ? "collectives" : ""},
        ", ");
  return "";
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
        text_ += loom::format("{}host {}{}\n", colours_.bold, host, colours_.reset);
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

  /// The heading names the host.
  std::string name(NodeId id, int host) const {
    return system_.node(id).host == host ? label_on_host(system_, id) : label(system_, id);
  }

  void write_line(NodeId id, const std::string& indent) {
    const Node& node = system_.node(id);
    std::string up;
    std::vector<std::string> links;
    const auto add = [&](const char* colour, const std::string& text) {
      links.push_back(loom::format("{}{}{}", colour, text, colours_.reset));
    };
    for (const Link& link : system_.links_of(id)) {
      const std::string to = name(link.to, node.host);
      if (link.to == node.parent && link.type != LinkType::kC2c && link.type != LinkType::kNvl)
        // Devices on no PCI bus have no speed there.
        up =
            loom::format("{}[{}{}]{}", colours_.blue, name_of(link.type),
                         link.gbps < kLocalGbps ? loom::format(" {:g} GB/s", link.gbps) : "", colours_.reset);
      else if (link.type == LinkType::kLoc && node.kind() == NodeKind::kPciSwitch)
        add(colours_.cyan, "linked to " + to);
      else if (link.type == LinkType::kNvl || link.type == LinkType::kC2c)
        add(colours_.green, loom::format("{} {:g} {}", name_of(link.type), link.gbps, to));
      else if (link.type == LinkType::kSys && link.to > id)
        add(colours_.yellow, loom::format("SYS {:g} {}", link.gbps, to));
    }
    const std::string own = loom::format("{}{}{}", colours_.bold, name(id, node.host), colours_.reset);
    text_ += indent + joined({own, describe(system_, id), up, joined(links, " ")}, " ") + "\n";
  }

  const System& system_;
  const Colours& colours_;
  std::vector<std::vector<NodeId>> children_;
  std::vector<NodeId> roots_;
  std::string text_;
};

std::string cell_text(const Path& path) {
  if (path.type >= PathType::kNet) return std::string(name_of(path.type));
  if (path.gbps >= kLocalGbps) return std::string(name_of(path.type));
  return loom::format("{} {:g}", name_of(path.type), std::round(path.gbps * 10) / 10);
}

/// Columns as wide as their contents, in as many blocks as the width of the terminal requires.
class MatrixWriter {
 public:
  MatrixWriter(const Paths& paths, std::vector<NodeId> nodes, const Colours& colours)
      : paths_(paths), system_(paths.system()), nodes_(std::move(nodes)), colours_(colours) {
    for (const NodeId id : nodes_) {
      name_width_ = std::max(name_width_, character_count(short_name(system_, id)));
      cell_width_ = std::max(cell_width_, character_count(short_name(system_, id)));
      cpus_width_ = std::max(cpus_width_, cpus_of_row(id).size());
      for (const NodeId column : nodes_)
        if (column != id) cell_width_ = std::max(cell_width_, cell_text(paths_.between(id, column)).size());
    }
  }

  std::string write(std::size_t width) {
    const std::size_t cell = kSpace + cell_width_, affinity = kSpace + kNumaWidth + kSpace + cpus_width_;
    const std::size_t room = width > name_width_ ? width - name_width_ : 0;
    const std::size_t per_block = width == 0 ? nodes_.size() : std::max<std::size_t>(room / cell, 1);
    for (std::size_t first = 0; first < nodes_.size(); first += per_block) {
      const std::size_t end = std::min(first + per_block, nodes_.size());
      const bool fits = width == 0 || (end - first) * cell + affinity <= room;
      write_block(first, end, end == nodes_.size() && fits);
      if (end == nodes_.size() && !fits) write_block(end, end, true);
    }
    return std::move(text_);
  }

 private:
  static constexpr std::size_t kSpace = 2, kNumaWidth = 4;

  const CpuInfo& cpu_of_row(NodeId row) const { return system_.node(root_of(system_, row)).cpu(); }
  std::string cpus_of_row(NodeId row) const { return to_cpu_list(cpu_of_row(row).affinity); }

  void write_block(std::size_t first, std::size_t end, bool with_affinity) {
    if (!text_.empty()) text_ += "\n";
    const std::size_t cell = kSpace + cell_width_;
    text_ += std::string(name_width_, ' ');
    for (std::size_t i = first; i < end; ++i)
      text_ +=
          loom::format("{}{:>{}}{}", colours_.bold, short_name(system_, nodes_[i]), cell, colours_.reset);
    text_ += with_affinity ? "  NUMA  CPUs\n" : "\n";
    for (const NodeId row : nodes_) {
      text_ +=
          loom::format("{}{:{}}{}", colours_.bold, short_name(system_, row), name_width_, colours_.reset);
      for (std::size_t i = first; i < end; ++i) {
        const bool self = nodes_[i] == row;
        const Path path = paths_.between(row, nodes_[i]);
        text_ += loom::format("{}{:>{}}{}", self ? colours_.dim : colour_of(path.type, colours_),
                              self ? "X" : cell_text(path), cell, colours_.reset);
      }
      if (with_affinity) {
        text_ += loom::format("  {:>4}", cpu_of_row(row).numa_id);
        if (const std::string cpus = cpus_of_row(row); !cpus.empty()) text_ += "  " + cpus;
      }
      text_ += "\n";
    }
  }

  const Paths& paths_;
  const System& system_;
  const std::vector<NodeId> nodes_;
  const Colours& colours_;
  std::size_t name_width_ = 0, cell_width_ = 0, cpus_width_ = 0;
  std::string text_;
};

/// How GPUs of the first host reach those of others, which a matrix of it alone does not show.
std::string between_hosts(const Paths& paths) {
  constexpr std::size_t kMost = 4;
  const System& system = paths.system();
  std::set<std::string> ways;
  for (const NodeId from : system.gpus()) {
    if (system.node(from).host > 0) continue;
    for (const NodeId to : system.gpus())
      if (system.node(to).host > 0 && ways.size() <= kMost) ways.insert(cell_text(paths.between(from, to)));
  }
  if (ways.empty()) return "";
  if (ways.size() > kMost) return "GPUs of host 0 reach those of other hosts in several ways.\n";
  return loom::format("GPUs of host 0 reach those of other hosts by {}.\n", loom::join(ways, ", "));
}

}  // namespace

std::vector<NodeId> matrix_nodes(const System& system) {
  const auto gpus = system.gpus().empty() ? system.of_kind(NodeKind::kCpu) : system.gpus();
  const auto ports = system.of_kind(NodeKind::kNet);
  std::vector<NodeId> nodes(gpus.begin(), gpus.end());
  nodes.insert(nodes.end(), ports.begin(), ports.end());
  return nodes;
}

std::string matrix_text(const Paths& paths, const Colours& colours, bool all, std::size_t width) {
  constexpr std::size_t kMostOfAKind = 16;
  const System& system = paths.system();
  const bool has_gpus = !system.gpus().empty(), several_hosts = system.hosts().size() > 1;
  std::vector<NodeId> ports = matrix_nodes(system);
  const auto first_port = std::find_if(ports.begin(), ports.end(),
                                       [&](NodeId id) { return system.node(id).kind() == NodeKind::kNet; });
  std::vector<NodeId> nodes(ports.begin(), first_port);
  ports.erase(ports.begin(), first_port);
  std::string note;
  const auto shorten = [&](std::vector<NodeId>& some, const char* what) {
    const std::size_t before = some.size();
    if (all || before <= kMostOfAKind) return false;
    if (several_hosts) std::erase_if(some, [&](NodeId id) { return system.node(id).host > 0; });
    if (some.size() > kMostOfAKind) some.resize(kMostOfAKind);
    note += loom::format("{} of {} {} are shown{}; --all shows all.\n", some.size(), before, what,
                         several_hosts ? ", of host 0" : "");
    return true;
  };
  const bool shortened = shorten(nodes, has_gpus ? "GPUs" : "NUMA nodes");
  shorten(ports, "ports");
  nodes.insert(nodes.end(), ports.begin(), ports.end());
  if (shortened) note += between_hosts(paths);
  if (!has_gpus) note += "There is no GPU.\n";
  return MatrixWriter(paths, std::move(nodes), colours).write(width) + note +
         loom::format(
             "\n{}GB/s of the slowest link on the way from the row's to the column's. X itself,\n"
             "NVL NVLink, NVB NVLink through a GPU, C2C NVLink-C2C, P2C C2C and then PCI,\n"
             "PIX one PCI switch, PXB several, PXN through a GPU beside the NIC, PHB a CPU,\n"
             "SYS between NUMA nodes, NET the network, DIS none, LOC inside one device.{}\n",
             colours.dim, colours.reset);
}

std::string tree_text(const System& system, const Colours& colours) {
  return TreeWriter(system, colours).write();
}

std::string findings_text(const System& system, const std::vector<FindingGroup>& findings,
                          const Colours& colours) {
  constexpr std::size_t kMostNamed = 4;
  std::string text;
  for (const auto& [finding, nodes] : findings) {
    std::string names;
    for (std::size_t i = 0; i < std::min(nodes.size(), kMostNamed); ++i)
      names += (i > 0 ? ", " : "") + (nodes[i] == kNoNode ? std::string("machine") : label(system, nodes[i]));
    if (nodes.size() > kMostNamed) names += loom::format(" and {} more", nodes.size() - kMostNamed);
    if (nodes.size() > 1) names += ", each";
    const bool warning = finding.severity == Severity::kWarning;
    text += loom::format("{}{}{} {}: {} {}{}{}\n", warning ? colours.yellow : colours.blue,
                         warning ? "warning" : "hint   ", colours.reset, names, finding.what, colours.dim,
                         finding.cost, colours.reset);
  }
  return text;
}

}  // namespace loom::tools
