// path_tables.hpp -- the paths of a machine as searches need them: of the whole, and of the parts that talk to
// each other through the network. Made once, for every pattern.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "topo/paths.hpp"

namespace loom::search {

/// A System in which `ranks` take part, with its paths, which do not leave the host through its ports.
struct PartOfMachine {
  PartOfMachine(topo::System taking_part, topo::PathRules rules);
  PartOfMachine(const PartOfMachine&) = delete;
  PartOfMachine& operator=(const PartOfMachine&) = delete;

  topo::System system;
  topo::Paths paths;  ///< of `system`
  std::vector<int> ranks;
};

class PathTables {
 public:
  /// `rules` with a network inside the host decide what the parts are. Throws Error (kBadInput) where the
  /// System is too large for Paths.
  explicit PathTables(const topo::System& system, topo::PathRules rules = {});

  /// nullptr: some GPUs reach each other through the network alone.
  const PartOfMachine* whole() const noexcept { return whole_.get(); }
  /// The groups of GPUs that the network joins faster than the machine does; fewer than two: there are none.
  std::span<const std::unique_ptr<PartOfMachine>> parts() const noexcept { return parts_; }

 private:
  std::unique_ptr<PartOfMachine> whole_;
  std::vector<std::unique_ptr<PartOfMachine>> parts_;
};

}  // namespace loom::search
