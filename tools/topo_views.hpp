// topo_views.hpp -- a System for people and programs: text, pictures, JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
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

/// What the matrix of paths is about: GPUs with a rank, or NUMA nodes where there are none; then ports.
std::vector<topo::NodeId> matrix_nodes(const topo::System& system);
/// The matrix of these nodes: type and GB/s of the best paths. Of more than 16 GPUs or ports only those of
/// the first host, at most 16, are shown unless `all`. Lines are at most `width` columns long, as far as that
/// is possible; 0: as long as it takes.
std::string matrix_text(const topo::Paths& paths, const Colours& colours, bool all = false,
                        std::size_t width = 0);
/// The machine as a tree, with each link's GB/s.
std::string tree_text(const topo::System& system, const Colours& colours);
/// A line per group.
std::string findings_text(const topo::System& system, const std::vector<topo::FindingGroup>& findings,
                          const Colours& colours);

/// One picture: boxes within boxes along the PCI tree, links as lines whose width grows with their bandwidth.
/// Of equal hosts the first is drawn, unless `all`.
std::string to_svg(const topo::System& system, const std::string& title, bool all = false);
/// The same for Graphviz: `dot -Tsvg`, or `neato` for a mesh.
std::string to_dot(const topo::System& system, const std::string& title, bool all = false);

/// As printed: 123.6, not 123.5999984741211.
double rounded(float gbps);
nlohmann::json to_json(const topo::System& system);
/// One node: its number, label, host, and every attribute that has a value.
nlohmann::json to_json(const topo::System& system, topo::NodeId id);
/// {"notes", "system", "paths"}: paths between all matrix_nodes; none where `paths` is nullptr.
std::string show_json(const topo::System& system, const topo::Paths* paths,
                      const std::vector<std::string>& notes);
nlohmann::json to_json(const topo::System& system, const std::vector<topo::Finding>& findings);

}  // namespace loom::tools
