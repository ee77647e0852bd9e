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

  int into_memory(topo::NodeId gpu) const noexcept { return links_ + 2 * gpu; }
  int out_of_memory(topo::NodeId gpu) const noexcept { return into_memory(gpu) + 1; }
  /// Not of other nodes than GPUs.
  bool counts_memory_of(topo::NodeId node) const;

 private:
  const topo::System* system_;
  int links_;
};

}  // namespace loom::search
