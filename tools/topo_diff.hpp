// topo_diff.hpp -- how two machines differ.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "topo/system.hpp"

namespace loom::tools {

/// One way in which a machine differs from another.
struct Difference {
  char sign = '~';        ///< '-': only the first has `node`; '+': only the second has it; '~': it differs
  std::string node;       ///< its name; empty: about the whole
  std::string attribute;  ///< what differs, e.g. "speed_mbps", "NVL to GPU 1"; empty: all of it
  nlohmann::json before, after;  ///< null: absent
  std::string text;              ///< the same as a line
};
nlohmann::json to_json(const std::vector<Difference>& differences);

/// What to ignore, for machines that are alike but not the same.
enum class Ignore { kNothing, kIds };  ///< kIds: bus ids, GUIDs, host hashes
enum class CompareGpus {
  kAll,
  kOfRanks
};  ///< kOfRanks: those without a rank, and links to them, are left out
/// How `b` differs from `a`. Empty for equal Systems, and, with kNothing and kAll, for no others.
std::vector<Difference> differences(const topo::System& a, const topo::System& b,
                                    Ignore ignore = Ignore::kNothing, CompareGpus gpus = CompareGpus::kAll);

}  // namespace loom::tools
