// job.hpp -- all nodes of a communicator and what they have agreed on. The same value on every rank; what a
// single rank needs of it is computed, not stored.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "connect/agree.hpp"
#include "connect/placement.hpp"
#include "connect/summary.hpp"

namespace loom::connect {

/// What all ranks know of a job's form, and so what decisions may rest on.
struct Shape {
  int ranks = 1;
  int hosts = 1;           ///< nodes: hosts, or the parts of them that talk through the network
  int ranks_per_host = 1;  ///< 0 where hosts differ
  friend bool operator==(const Shape&, const Shape&) = default;
};

/// Memory: 8 bytes for each rank, 8 for each node, and some 100 for each channel of each kind of node.
class Job {
 public:
  Job() = default;
  /// kinds[kind_of_node[n]] is the summary of node n; every kind is some node's. Throws Error (kInternal)
  /// where they do not fit together.
  Job(Placement placement, std::vector<NodeSummary> kinds, std::vector<std::int32_t> kind_of_node,
      const ChannelLimits& limits = {});

  const Placement& placement() const noexcept { return placement_; }
  int ranks() const noexcept { return placement_.ranks(); }
  int nodes() const noexcept { return placement_.nodes(); }
  Shape shape() const noexcept { return {ranks(), nodes(), placement_.ranks_per_node()}; }

  std::span<const NodeSummary> kinds() const noexcept { return kinds_; }
  int kind_of(int node) const { return kind_of_node_[static_cast<std::size_t>(node)]; }
  const NodeSummary& summary(int node) const { return kinds_[static_cast<std::size_t>(kind_of(node))]; }

  const Agreed& agreed(Family family) const { return agreed_[static_cast<std::size_t>(family)]; }
  /// Which of its own channels `node` uses for agreed channel `channel`, which is one of
  /// agreed(family).channels. Rings that swap their ports do so on every other node, and thus leave a node on
  /// the rail on which they enter the next.
  const Part& part(Family family, int node, int channel) const;
  const ChannelSummary& channel(Family family, int node, int channel) const {
    return summary(node).family(family).channels[static_cast<std::size_t>(part(family, node, channel).own)];
  }
  /// The rank of a local index.
  int rank_of(int node, int local) const {
    return placement_.ranks_of(node)[static_cast<std::size_t>(local)];
  }

 private:
  Placement placement_;
  std::vector<NodeSummary> kinds_;
  std::vector<std::int32_t> kind_of_node_;
  std::array<Agreed, kFamilyCount> agreed_;
};

/// A job from its nodes, for those who know all of them: summaries[i] is that of the node with ranks
/// nodes[i], in any order. Equal summaries are kept once. Throws Error (kInternal) where they do not fit
/// together.
Job job_of(std::span<const std::vector<int>> nodes, std::span<const NodeSummary> summaries,
           const ChannelLimits& limits = {});

}  // namespace loom::connect
