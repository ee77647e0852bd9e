// system_builder.hpp -- inside topo: fills a System. The rules themselves are in build_system.cpp.
#pragma once

#include <map>
#include <set>

#include "base/format.hpp"
#include "topo/limits.hpp"
#include "topo/system.hpp"

namespace loom::topo {

enum class NvTarget { kGpu, kCpu, kSwitch };
/// What NVLinks of a GPU lead to.
NvTarget nv_target_of(const NvLinks& row, bool is_amd);

class SystemBuilder {
 public:
  SystemBuilder(std::vector<Node> nodes, std::vector<std::uint64_t> hosts, Model model);
  SystemWithNotes build();
  /// Only the rank of each GPU changes; links stay.
  static System with_ranks(const System& system, const std::vector<int>& rank_of_node);

 private:
  void put_denied_in_order();
  void flatten_broadcom_switches();
  void add_pci_links();
  void add_nvlinks();
  void add_nvlinks_of(NodeId gpu);
  void add_gpu_to_gpu(NodeId gpu, const NvLinks& row, float gbps);
  void mirror_one_way_nvlinks();
  void add_c2c_links();
  void add_peer_switches();
  void add_cpu_links();
  void put_way_up_last();
  void finish();
  void index_nodes();

  NodeId add_node(Node node);
  void connect(NodeId from, NodeId to, LinkType type, float gbps);
  void connect_both(NodeId a, NodeId b, LinkType type, float gbps);
  NodeId cpu_of(NodeId id) const;
  NodeId nv_switch();
  int partitions_of(NodeId gpu) const;
  NodeId find(int host, const BusId& bus_id) const;
  template <class... Args>
  void note(FormatString<Args...> text, Args&&... args) {
    if (notes_.size() < kMostNotes) notes_.push_back(loom::format(text, std::forward<Args>(args)...));
  }

  System system_;
  std::vector<std::vector<Link>> links_of_;            // per node
  std::map<std::pair<int, BusId>, NodeId> by_bus_id_;  // the first node of each function
  NodeId nv_switch_ = kNoNode;
  std::set<BusId> nv_switches_;  // those that it stands for
  std::vector<std::string> notes_;
};

}  // namespace loom::topo
