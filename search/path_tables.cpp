#include "search/path_tables.hpp"

namespace loom::search {
namespace {

std::vector<int> ranks_of(const topo::System& system) {
  std::vector<int> ranks;
  for (const topo::NodeId gpu : system.gpus()) ranks.push_back(system.node(gpu).gpu().rank);
  return ranks;
}

}  // namespace

PartOfMachine::PartOfMachine(topo::System taking_part, topo::PathRules rules)
    : system(std::move(taking_part)), paths(system, rules), ranks(ranks_of(system)) {}

PathTables::PathTables(const topo::System& system, topo::PathRules rules) {
  topo::PathRules direct = rules;
  direct.network_inside_host = false;
  auto whole = std::make_unique<PartOfMachine>(system, direct);
  const bool avoids = rules.network_inside_host && !system.of_kind(topo::NodeKind::kNet).empty();
  const auto groups = domains_of(avoids ? topo::Paths(system, rules) : whole->paths);
  if (groups.size() > 1)
    for (const std::vector<int>& ranks : groups)
      parts_.push_back(std::make_unique<PartOfMachine>(topo::trimmed_to(system, ranks), direct));
  if (!avoids ? groups.size() == 1 : domains_of(whole->paths).size() == 1) whole_ = std::move(whole);
}

}  // namespace loom::search
