#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

std::string to_dot(const System& system, const std::string& title) {
  std::string text = fmt::format(
      "graph \"{}\" {{\n  node [shape=box, style=filled, fontname=\"Helvetica\"];\n  edge [fontsize=10];\n",
      in_quotes(title));
  for (NodeId id = 0; id < system.size(); ++id)
    text += fmt::format("  n{} [label=\"{}\", fillcolor=\"{}\"];\n", id, in_quotes(label(system, id)),
                        fill_of(system.node(id).kind()));
  for (const Link& link : system.links())
    if (link.from < link.to || link.reverse == kNoLink)
      text += fmt::format("  n{} -- n{} [label=\"{}{}\", penwidth={:.1f}];\n", link.from, link.to,
                          name_of(link.type), link.gbps < kLocalGbps ? fmt::format(" {:g}", link.gbps) : "",
                          1 + std::log2(1 + std::min(link.gbps, kLocalGbps / 50) / 6));
  return text + "}\n";
}

}  // namespace loom::tools
