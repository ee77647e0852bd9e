// resources.hpp -- what channels share: the links of a machine, and the way between each GPU and its own
// memory.
#pragma once

#include <string>

#include "topo/system.hpp"

namespace loom::search {

/// Numbers for them: a link's LinkId, and behind the links two for each node, of which only GPUs' are used.
/// The memory of a GPU counts where it could limit: where more than topo::kLocalGbps can come in or go out
/// over links. A further rank of a GPU has a link of its own to the first one, which stands for its memory.
class Resources {
 public:
  explicit Resources(const topo::System& system)
      : system_(&system), links_(static_cast<int>(system.links().size())) {}

  int size() const noexcept { return links_ + 2 * system_->size(); }
  bool is_link(int resource) const noexcept { return resource < links_; }
  /// GB/s.
  double gbps(int resource) const;
  /// "GPU 0 -> GPU 1 (NVL)", "GPU 0 -> its memory".
  std::string label(int resource) const;

  /// -1: more than the links, so that nothing needs to be counted, or not a GPU.
  int into_memory(topo::NodeId node) const { return counts_memory_of(node) ? memory(node) : -1; }
  int out_of_memory(topo::NodeId node) const { return counts_memory_of(node) ? memory(node) + 1 : -1; }

 private:
  int memory(topo::NodeId gpu) const noexcept { return links_ + 2 * gpu; }
  bool counts_memory_of(topo::NodeId node) const;

  const topo::System* system_;
  int links_;
};

}  // namespace loom::search
