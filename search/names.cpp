
#include <array>

#include "base/format.hpp"
#include "search/channel_plan.hpp"

namespace loom::search {

std::string_view name_of(Pattern pattern) {
  constexpr std::array<std::string_view, kPatternCount> kNames = {
      "ring", "tree", "split-tree", "balanced-tree", "nvls", "collnet-chain", "collnet-direct"};
  return kNames[static_cast<std::size_t>(pattern)];
}

std::string to_string(const Limits& limits) {
  return loom::format("cross-NIC {}, to ports up to {}, between GPUs up to {}", limits.cross_nic,
                      topo::name_of(limits.type_inter), topo::name_of(limits.type_intra));
}

}  // namespace loom::search
