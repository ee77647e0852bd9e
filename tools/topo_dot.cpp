
#include <algorithm>
#include <cmath>

#include "base/format.hpp"
#include "tools/equal_hosts.hpp"
#include "tools/topo_views.hpp"
#include "topo/bandwidth.hpp"

namespace loom::tools {

using namespace loom::topo;

namespace {

const char* fill_of(NodeKind kind) {
  switch (kind) {
    case NodeKind::kGpu:
      return "#d9efc0";
    case NodeKind::kNvSwitch:
      return "#b7dd88";
    case NodeKind::kCpu:
      return "#fff3d6";
    case NodeKind::kPciSwitch:
      return "#e4ebf2";
    case NodeKind::kNic:
      return "#ead9f2";
    case NodeKind::kNet:
      return "#f6ecfa";
    case NodeKind::kC2cPort:
      return "#cdeeee";
  }
  return "white";
}

/// The inside of one of Graphviz' strings.
std::string in_quotes(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  }
  return out;
}

}  // namespace

std::string to_dot(const System& system, const std::string& title, bool all) {
  std::string text = loom::format(
      "graph \"{}\" {{\n  node [shape=box, style=filled, fontname=\"Helvetica\"];\n  edge [fontsize=10];\n",
      in_quotes(title));
  const auto add = [&](NodeId id) {
    const Node& node = system.node(id);
    const bool is_idle = node.kind() == NodeKind::kGpu && node.gpu().rank == kNoRank;
    text += loom::format("  n{} [label=\"{}{}\", fillcolor=\"{}\"];\n", id, in_quotes(label(system, id)),
                         is_idle ? ", no rank" : "", is_idle ? "#eef0ec" : fill_of(node.kind()));
  };
  const bool several = system.hosts().size() > 1;
  std::vector<std::vector<NodeId>> nodes_of(system.hosts().size());
  std::vector<bool> drawn(static_cast<std::size_t>(system.size()));
  for (NodeId id = 0; id < system.size(); ++id) {
    if (system.node(id).kind() == NodeKind::kNvSwitch)  // of all hosts
      drawn[static_cast<std::size_t>(id)] = true, add(id);
    else
      nodes_of[static_cast<std::size_t>(system.node(id).host)].push_back(id);
  }
  for (const EqualHosts& group : all ? single_hosts(system) : equal_hosts(system)) {
    if (several)
      text += loom::format("  subgraph cluster_host{} {{\n  label=\"{}\";\n", group.first, heading(group));
    for (const NodeId id : nodes_of[static_cast<std::size_t>(group.first)])
      drawn[static_cast<std::size_t>(id)] = true, add(id);
    if (several) text += "  }\n";
  }
  for (const Link& link : system.links())
    if ((link.from < link.to || link.reverse == kNoLink) && drawn[static_cast<std::size_t>(link.from)] &&
        drawn[static_cast<std::size_t>(link.to)])
      text += loom::format("  n{} -- n{} [label=\"{}{}\", penwidth={:.1f}];\n", link.from, link.to,
                           name_of(link.type), link.gbps < kLocalGbps ? loom::format(" {:g}", link.gbps) : "",
                           1 + std::log2(1 + std::min(link.gbps, kLocalGbps / 50) / 6));
  return text + "}\n";
}

}  // namespace loom::tools
