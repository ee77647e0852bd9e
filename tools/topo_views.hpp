// topo_views.hpp -- a System for people and programs: text, pictures, JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "topo/check.hpp"
#include "topo/paths.hpp"
#include "topo/system.hpp"

namespace loom::tools {

/// Escape sequences, or nothing where the output is no terminal.
struct Colours {
  const char *bold = "", *dim = "", *red = "", *yellow = "", *green = "", *blue = "", *cyan = "", *reset = "";
};
Colours terminal_colours();

/// GPUs and ports by each other, NUMA nodes and ports where there is no GPU: type and GB/s of the best paths.
/// Of more than 16 GPUs or ports those of the first host, at most 16, are shown unless `all`.
std::string matrix_text(const topo::Paths& paths, const Colours& colours, bool all = false);
/// The machine as a tree, with each link's GB/s.
std::string tree_text(const topo::System& system, const Colours& colours);
/// A line per finding; nodes with the same one share it.
std::string findings_text(const topo::System& system, const std::vector<topo::Finding>& findings,
                          const Colours& colours);

/// One picture: boxes within boxes along the PCI tree, links as lines whose width grows with their bandwidth.
std::string to_svg(const topo::System& system, const std::string& title);
/// For Graphviz: `dot -Tsvg`, or `neato` for a mesh.
std::string to_dot(const topo::System& system, const std::string& title);

nlohmann::json to_json(const topo::System& system);
/// One node: its number, label, host, and every attribute that has a value.
nlohmann::json to_json(const topo::System& system, topo::NodeId id);
nlohmann::json to_json(const topo::Paths& paths);
nlohmann::json to_json(const topo::System& system, const std::vector<topo::Finding>& findings);

/// How `b` differs from `a`, a line each: nodes that only one has, attributes and links that differ, or at
/// least their order. Empty for equal Systems and for no others.
std::vector<std::string> differences(const topo::System& a, const topo::System& b);

}  // namespace loom::tools
