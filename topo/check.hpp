// check.hpp -- is a System sound, and is the machine that it describes?
#pragma once

#include <string>
#include <vector>

#include "topo/system.hpp"

namespace loom::topo {

/// The invariants of every System that are broken, a sentence each; empty for whatever build_system returns.
/// Debug builds ask after each build.
std::vector<std::string> check(const System& system);

enum class Severity { kHint, kWarning };

/// Something about the machine that is missing, contradictory or suspicious.
struct Finding {
  Severity severity = Severity::kHint;
  NodeId node = kNoNode;
  std::string what;  ///< one sentence
  std::string cost;  ///< what it costs, or what to do about it; one sentence
};

/// What a person should look at before trusting `system`, in order of nodes.
std::vector<Finding> lint(const System& system);

/// The part of it that build_system had to assume something for, or leave something out: what the description
/// does not say, or contradicts itself in.
std::vector<Finding> gaps(const System& system);
/// The same as build_system's notes have it, one for all nodes with the same gap.
std::vector<std::string> gap_notes(const System& system);

/// Findings that differ in their nodes alone.
struct FindingGroup {
  Finding first;
  std::vector<NodeId> nodes;  ///< of all
};
/// In order of the first of each.
std::vector<FindingGroup> grouped(const std::vector<Finding>& findings);

}  // namespace loom::topo
