// lint.cpp -- what a person should look at before trusting a description of a machine, and what it costs.
#include <algorithm>
#include <map>
#include <set>

#include "base/format.hpp"
#include "topo/bandwidth.hpp"
#include "topo/check.hpp"
#include "topo/cpu_mask.hpp"
#include "topo/paths.hpp"
#include "topo/pci_ids.hpp"

namespace loom::topo {
namespace {

/// 1.6 Tbit/s: the fastest Ethernet (IEEE 802.3dj). InfiniBand XDR has 800 Gbit/s per port.
constexpr double kFastestNetMbps = 1'600'000;
constexpr int kNvLinksOfRubin = 36;  // of a GPU, the most there are; Hopper and Blackwell have 18

class Linter {
 public:
  explicit Linter(const System& system) : system_(system) {
    for (const NodeId gpu : system.of_kind(NodeKind::kGpu))
      has_real_gpu_ |= !system.node(gpu).gpu().is_virtual;
  }

  std::vector<Finding> run() {
    findings_ = gaps(system_);
    for (NodeId id = 0; id < system_.size(); ++id) {
      look_at_pci_link(id);
      switch (system_.node(id).kind()) {
        case NodeKind::kCpu:
          look_at_cpu(id);
          break;
        case NodeKind::kNet:
          look_at_port(id);
          break;
        case NodeKind::kGpu:
          look_at_gpu(id);
          break;
        default:
          break;
      }
    }
    compare_nvlinks();
    look_at_whole();
    std::stable_sort(findings_.begin(), findings_.end(),
                     [](const Finding& a, const Finding& b) { return a.node < b.node; });
    return std::move(findings_);
  }

 private:
  void add(Severity severity, NodeId node, std::string what, std::string cost) {
    findings_.push_back({severity, node, std::move(what), std::move(cost)});
  }

  void look_at_pci_link(NodeId id) {
    const Node& node = system_.node(id);
    if (!node.pci || (node.parent != kNoNode && system_.node(node.parent).kind() == NodeKind::kGpu)) return;
    const PciFunction& pci = *node.pci;
    const float gbps = pci_gbps(pci, system_.model());
    if (!width_known(pci) || !pci_lane_gbit(pci.link_speed, system_.model())) return;  // gaps()
    float below = 0;
    for (const Link& link : system_.links_of(id))
      if (link.type == LinkType::kPci && link.to != node.parent) below = std::max(below, link.gbps);
    if (node.kind() == NodeKind::kPciSwitch && below > 4 * gbps)
      add(Severity::kWarning, id,
          loom::format("Its link upwards has {:g} GB/s, but one below it {:g}.", gbps, below),
          "Virtual machines report made-up switch links; if this one is real, all traffic out of the switch "
          "crawls.");
    float ports = 0;
    for (const Link& link : system_.links_of(id))
      if (link.type == LinkType::kNet) ports += link.gbps;
    if (ports > 1.3F * gbps)
      add(Severity::kWarning, id, loom::format("Its ports have {:g} GB/s, its PCI link {:g}.", ports, gbps),
          loom::format("{:.0f} % of the network cannot be used.", 100 * (1 - gbps / ports)));
  }

  void look_at_cpu(NodeId id) {
    const CpuInfo& cpu = system_.node(id).cpu();
    const auto links = system_.links_of(id);
    const bool has_neighbour =
        std::any_of(links.begin(), links.end(), [](const Link& link) { return link.type == LinkType::kSys; });
    if (has_neighbour && cpu_gbps(cpu) == kLocalGbps)
      add(Severity::kWarning, id,
          loom::format("The architecture \"{}\" or vendor \"{}\" is not known.", cpu.arch, cpu.vendor),
          "Traffic between NUMA nodes counts as free.");
    if (cpu.affinity.empty())
      add(Severity::kHint, id, "It has no affinity.", "Ranks cannot be matched to it by their CPUs.");
    std::vector<bool>& taken = cpus_[system_.node(id).host];
    for (const int number : cpus_of(cpu.affinity)) {
      const auto at = static_cast<std::size_t>(number);
      if (at >= taken.size()) taken.resize(at + 1);
      if (taken[at])
        return add(Severity::kWarning, id, loom::format("CPU {} is another NUMA node's, too.", number),
                   "Ranks may be placed at the wrong one.");
      taken[at] = true;
    }
  }

  void look_at_port(NodeId id) {
    const NetInfo& net = system_.node(id).net();
    if (net.speed_mbps > kFastestNetMbps)
      add(Severity::kWarning, id,
          loom::format("Its speed is {:g} Gbit/s, more than any port has.", net.speed_mbps / 1000),
          "Plans will count on it; the unit of attribute 'speed' is Mbit/s.");
    if (!net.gpu_direct && has_real_gpu_)
      add(Severity::kHint, id, "It does not reach GPU memory (gdr is 0).",
          "Data from GPUs goes through host memory.");
    if (!ports_.insert({system_.node(id).host, net.device}).second)
      add(Severity::kWarning, id, "Another port of this host has its number too.", "Plans count it twice.");
  }

  void look_at_gpu(NodeId id) {
    const GpuInfo& gpu = system_.node(id).gpu();
    if (gpu.is_virtual) return;
    const BusId bus_id = system_.node(id).pci->bus_id;  // of all its partitions and ranks
    if (const auto [other, is_new] = gpus_.try_emplace({system_.node(id).host, gpu.device}, bus_id);
        !is_new && other->second != bus_id)
      add(Severity::kWarning, id, loom::format("Another GPU of this host has number {}, too.", gpu.device),
          "Channel files, which go by these numbers, take one for the other.");
    if (gpu.rank == kNoRank)
      add(Severity::kHint, id, "It has no rank.", "Data may pass through it, but it takes no part.");
    if (gpu.compute_capability == 0 && gpu.gcn_arch.empty())
      add(Severity::kWarning, id, "Its compute capability is not known.", "NVLinks count as 20 GB/s each.");
    int links = 0;
    for (const NvLinks& row : gpu.nvlinks) links += row.count;
    if (links > kNvLinksOfRubin)
      add(Severity::kWarning, id, loom::format("It has {} NVLinks, more than any GPU.", links),
          "Rows that name each peer behind a switch add up: bandwidth counts too often.");
    for (const Link& link : system_.links_of(id))
      if (link.type == LinkType::kNvl && link.reverse != kNoLink &&
          system_.link(link.reverse).gbps > link.gbps)
        add(Severity::kWarning, id,
            loom::format("Its NVLinks to {} have {:g} GB/s, those back {:g}.", label(system_, link.to),
                         link.gbps, system_.link(link.reverse).gbps),
            "A link has the same speed both ways: one end's count is wrong.");
  }

  static float nvlink_gbps_of(const System& system, NodeId gpu) {
    float sum = 0;
    for (const Link& link : system.links_of(gpu))
      if (link.type == LinkType::kNvl) sum += link.gbps;
    return sum;
  }

  /// Behind switches all GPUs have equally many NVLinks. In a mesh that depends on the machine (MI250
  /// packages, half a DGX-1), and only a few that differ from all others are suspicious.
  void compare_nvlinks() {
    std::vector<std::pair<NodeId, float>> below;
    float best = 0;
    std::size_t owners = 0;
    for (const NodeId gpu : system_.gpus()) best = std::max(best, nvlink_gbps_of(system_, gpu));
    for (const NodeId gpu : system_.gpus()) {
      if (system_.node(system_.node(gpu).parent).kind() == NodeKind::kGpu) continue;  // it shares one
      ++owners;
      if (const float sum = nvlink_gbps_of(system_, gpu); sum < best * 0.999F) below.emplace_back(gpu, sum);
    }
    const bool mesh = system_.of_kind(NodeKind::kNvSwitch).empty();
    for (const auto& [gpu, sum] : below) {
      if (sum == 0)
        add(Severity::kWarning, gpu, "It has no NVLinks, though others have.",
            "Rings through it fall back to PCI or the network.");
      else if (!mesh || 2 * below.size() < owners)
        add(Severity::kWarning, gpu,
            loom::format("Its NVLinks carry {:g} GB/s together, those of others up to {:g}.", sum, best),
            loom::format("A ring is as fast as its slowest member: all GPUs lose up to {:.0f} %.",
                         100 * (1 - sum / best)));
    }
  }

  void look_at_ranks() {
    std::vector<int> ranks;
    for (const NodeId gpu : system_.gpus()) ranks.push_back(system_.node(gpu).gpu().rank);
    std::sort(ranks.begin(), ranks.end());
    const auto count = static_cast<int>(ranks.size());
    if (ranks.empty() || (ranks.front() == 0 && ranks.back() == count - 1)) return;
    add(Severity::kHint, kNoNode,
        loom::format("Its ranks, {}, are not 0 to {}.", loom::join(ranks, ", "), count - 1),
        "It is taken for a part of a job.");
  }

  void look_at_whole() {
    look_at_ranks();
    if (system_.of_kind(NodeKind::kGpu).empty())
      return add(Severity::kHint, kNoNode, "There is no GPU.",
                 "Ranks become virtual GPUs at their NUMA nodes.");
    if (system_.of_kind(NodeKind::kNet).empty())
      add(Severity::kHint, kNoNode, "There is no network port.", "Plans are for this machine alone.");
    try {
      const Paths paths(system_);
      const auto domains = domains_of(paths);
      if (domains.size() > 1)
        add(Severity::kWarning, kNoNode,
            loom::format(
                "Its GPUs form {} groups that reach each other only, or better, through the network.",
                domains.size()),
            "Each group counts as a host of its own.");
    } catch (const std::exception& error) {
      add(Severity::kWarning, kNoNode, error.what(), "No plan can be made for it.");
    }
  }

  const System& system_;
  bool has_real_gpu_ = false;
  std::vector<Finding> findings_;
  std::set<std::pair<int, int>> ports_;        // host and number
  std::map<std::pair<int, int>, BusId> gpus_;  // the same
  std::map<int, std::vector<bool>> cpus_;      // by host: those of some NUMA node
};

}  // namespace

std::vector<Finding> lint(const System& system) {
  return Linter(system).run();
}

}  // namespace loom::topo
