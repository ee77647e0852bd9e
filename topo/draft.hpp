// draft.hpp -- inside topo: what a source has found, before build_system makes links of it.
#pragma once

#include <string>
#include <vector>

#include "topo/system.hpp"

namespace loom::topo {

struct Draft {
  std::vector<Node> nodes;  ///< parents before their children
  std::vector<std::uint64_t> hosts;
  std::vector<std::string> notes;

  Node& node(NodeId id) { return nodes[static_cast<std::size_t>(id)]; }
  NodeId add(Node node);
};

/// The nodes depth first, siblings in the order in which they were added: as a file that is written from them
/// reads.
/// A NIC that is no PCI function and has no ports is left out.
void sort_depth_first(Draft& draft);

/// The CPU of a NUMA node; the first one where there is none of that number.
inline constexpr int kNoNuma = -1;
NodeId cpu_with(Draft& draft, int numa_id);

/// A GPU of NVIDIA's of which nothing but its address is known, with a device number that no other has and
/// without a rank.
NodeId add_gpu(Draft& draft, const BusId& bus_id, NodeId parent);

/// Takes out nodes that have no children; `gone` says which, by NodeId.
void erase_leaves(Draft& draft, const std::vector<bool>& gone);

/// Where no GPU has a rank, each becomes one, in order: the source was written without a job. True if that
/// was so.
bool number_gpus(Draft& draft);

/// How many GPUs of NVIDIA's there are.
int nvidia_gpus(const Draft& draft);

/// build_system, with the notes of both.
SystemWithNotes build(Draft draft, Model model);

}  // namespace loom::topo
