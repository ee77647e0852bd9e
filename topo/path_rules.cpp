// path_rules.cpp -- which of the ways that the links allow are taken: P2P, GPUDirect, PXN, network or not.
#include <algorithm>

#include "topo/bandwidth.hpp"
#include "topo/paths.hpp"

namespace loom::topo {
namespace {

constexpr int kMostChannels = 64;

std::size_t mirrored_bits(std::size_t value, std::size_t power_of_two) {
  std::size_t mirrored = 0;
  for (std::size_t bit = 1, other = power_of_two >> 1; bit < power_of_two; bit <<= 1, other >>= 1)
    if (value & bit) mirrored |= other;
  return mirrored;
}

}  // namespace

NodeId Paths::local_cpu(NodeId gpu) const {
  return local_cpus_[static_cast<std::size_t>(gpu)];
}

void Paths::set_detour(NodeId from, NodeId to, const Path& path, NodeId relay) {
  Row& row = rows_[static_cast<std::size_t>(row_index_[static_cast<std::size_t>(to)])];
  if (row.detours.empty()) row.detours.resize(row.entries.size());
  row.entries[static_cast<std::size_t>(from)].detour = true;
  row.detours[static_cast<std::size_t>(from)] = {path.gbps, relay, static_cast<std::uint16_t>(path.hops),
                                                 path.type};
}

Path Paths::through(NodeId from, NodeId relay, NodeId to) const {
  const Path first = physical(from, relay), second = physical(relay, to);
  PathType type = std::max(first.type, second.type);
  const auto is = [&](PathType a, PathType b) {
    return (first.type == a && second.type == b) || (first.type == b && second.type == a);
  };
  if (is(PathType::kC2c, PathType::kPhb)) type = PathType::kP2c;
  return {type, std::min(first.gbps, second.gbps), first.hops + second.hops};
}

PathType Paths::p2p_limit() const {
  if (rules_.p2p_limit) return *rules_.p2p_limit;
  const auto cpus = system_->of_kind(NodeKind::kCpu);
  const auto gpus = system_->of_kind(NodeKind::kGpu);
  const auto devices = std::count_if(gpus.begin(), gpus.end(), [&](NodeId gpu) { return owner(gpu) == gpu; });
  return !cpus.empty() && is_amd(system_->node(cpus.front()).cpu()) && devices <= 2 ? PathType::kSys
                                                                                    : PathType::kPxb;
}

/// Virtual GPUs are shared memory: each can write to each other's.
bool Paths::p2p_allowed(NodeId gpu, NodeId peer) const {
  const bool both_virtual = system_->node(gpu).gpu().is_virtual && system_->node(peer).gpu().is_virtual;
  const std::vector<int>& denied = system_->node(gpu).gpu().p2p_denied;
  const bool same_host = system_->node(gpu).host == system_->node(peer).host;
  if (same_host && std::binary_search(denied.begin(), denied.end(), system_->node(peer).gpu().device))
    return false;
  return (both_virtual && same_host) || physical(gpu, peer).type <= p2p_limit_;
}

/// Without P2P data goes through the memory beside the receiver.
void Paths::apply_p2p_rules() {
  for (const NodeId gpu : system_->gpus())
    for (const NodeId peer : system_->gpus()) {
      if (gpu == peer || p2p_allowed(gpu, peer)) continue;
      if (system_->node(gpu).host != system_->node(peer).host) {
        set_detour(gpu, peer, {PathType::kNet, 0, 0}, kNoNode);  // neither P2P nor shared memory
        continue;
      }
      if (physical(gpu, peer).type == PathType::kDis) continue;
      if (const NodeId cpu = local_cpu(peer); cpu != kNoNode)
        set_detour(gpu, peer, through(gpu, cpu, peer), cpu);
    }
}

/// A NIC that hangs on a CPU is close to a GPU whose C2C links lead there.
void Paths::apply_c2c_rules() {
  for (const NodeId gpu : system_->gpus()) {
    const NodeId cpu = local_cpu(gpu);
    if (cpu == kNoNode || physical(gpu, cpu).type != PathType::kC2c) continue;
    for (const NodeId net : nearest(gpu, NodeKind::kNet)) {
      if (physical(net, cpu).type != PathType::kPhb) continue;
      for (const auto& [from, to] : {std::pair(gpu, net), std::pair(net, gpu)}) {
        Path path = between(from, to);
        path.type = std::min(path.type, PathType::kP2c);
        set_detour(from, to, path, kNoNode);
      }
    }
  }
}

bool Paths::gpu_direct(NodeId gpu, NodeId net, Direction direction) const {
  const GpuInfo& info = system_->node(gpu).gpu();
  if (!info.gpu_direct || !system_->node(net).net().gpu_direct || info.partition) return false;
  if (direction == Direction::kRead) {
    if (rules_.gpu_direct_read && !*rules_.gpu_direct_read) return false;
    if (!rules_.gpu_direct_read && info.compute_capability < 80) {
      const auto gpus = system_->gpus();
      const bool has_peer = std::any_of(gpus.begin(), gpus.end(), [&](NodeId peer) {
        return peer != gpu && between(gpu, peer).type == PathType::kNvl;
      });
      if (!has_peer && gpus.size() > 1) return false;
    }
  }
  // Through PXN it is the relay's memory that the NIC reads.
  Path path = between(gpu, net);
  if (path.type == PathType::kPxn)
    if (const NodeId relay = local_gpu(net); relay != kNoNode) path = between(relay, net);
  return path.type <= rules_.gpu_direct_limit;
}

NodeId Paths::PortChoice::in_channel(int channel) const {
  return nets.empty() ? kNoNode : nets[(start + static_cast<std::size_t>(channel) % per_gpu) % nets.size()];
}

Paths::PortChoice Paths::port_choice(NodeId gpu) const {
  PortChoice choice{nearest(gpu, NodeKind::kNet), 0, 1};
  const std::size_t count = choice.nets.size();
  if (count == 0) return choice;
  const std::size_t sharers = nearest(choice.nets.front(), NodeKind::kGpu).size();
  if (sharers == 0) return {{choice.nets.front()}, 0, 1};
  choice.per_gpu = (count + sharers - 1) / sharers;
  choice.start = static_cast<std::size_t>(system_->node(gpu).gpu().device) % sharers;
  if ((count & (count - 1)) == 0) choice.start = mirrored_bits(choice.start, count);
  return choice;
}

NodeId Paths::local_net(NodeId gpu, int channel) const {
  return port_choice(gpu).in_channel(channel);
}

std::vector<NodeId> Paths::local_nets(NodeId gpu) const {
  const PortChoice choice = port_choice(gpu);
  std::vector<NodeId> nets;
  for (std::size_t channel = 0; channel < std::min(choice.per_gpu, choice.nets.size()); ++channel)
    nets.push_back(choice.in_channel(static_cast<int>(channel)));
  return nets;
}

NodeId Paths::local_gpu(NodeId net) const {
  const std::vector<NodeId> gpus = nearest(net, NodeKind::kGpu);
  std::vector<PortChoice> choices;  // of the GPUs that were asked in the first channel
  for (int channel = 0; channel < kMostChannels; ++channel)
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      if (i == choices.size()) choices.push_back(port_choice(gpus[i]));
      if (choices[i].in_channel(channel) == net) return gpus[i];
    }
  return kNoNode;
}

bool Paths::pxn_helps(NodeId gpu, NodeId net, NodeId relay) const {
  if (relay == kNoNode || relay == gpu || system_->node(relay).host != system_->node(gpu).host) return false;
  if (!gpu_direct(relay, net, Direction::kRead)) return false;
  if (between(relay, net).type > PathType::kP2c || between(gpu, relay).type > PathType::kNvl) return false;
  return between(relay, net).gbps > between(gpu, net).gbps || between(gpu, net).type > PathType::kPxn;
}

void Paths::apply_network_rules() {
  for (const NodeId net : system_->of_kind(NodeKind::kNet)) {
    const NodeId relay = rules_.pxn ? local_gpu(net) : kNoNode;
    for (const NodeId gpu : system_->gpus()) {
      if (pxn_helps(gpu, net, relay)) {
        const Path to_relay = between(gpu, relay), to_net = between(relay, net);
        set_detour(gpu, net,
                   {PathType::kPxn, std::min(to_relay.gbps, to_net.gbps), to_relay.hops + to_net.hops},
                   relay);
      }
      const NodeId cpu = local_cpu(gpu);
      if (cpu == kNoNode || between(gpu, net).type >= PathType::kPhb ||
          gpu_direct(gpu, net, Direction::kWrite))
        continue;
      set_detour(gpu, net, through(gpu, cpu, net), cpu);
      set_detour(net, gpu, through(net, cpu, gpu), cpu);
    }
  }
}

/// Where each of two GPUs has a port close by that is faster than what joins them, the network serves them
/// better.
void Paths::avoid_slow_pairs() {
  if (!rules_.network_inside_host) return;
  std::vector<float> port_gbps;  // per GPU: its fastest port close by
  for (const NodeId gpu : system_->gpus()) {
    port_gbps.push_back(0);
    for (const NodeId net : system_->of_kind(NodeKind::kNet))
      if (const Path path = physical(gpu, net); path.type <= PathType::kPxb)
        port_gbps.back() = std::max(port_gbps.back(), path.gbps);
  }
  const auto gpus = system_->gpus();
  for (std::size_t i = 0; i < gpus.size(); ++i)
    for (std::size_t j = 0; j < gpus.size(); ++j) {
      const Path pair = physical(gpus[i], gpus[j]);
      if (i == j || pair.type == PathType::kNvb || pair.type == PathType::kDis) continue;
      if (std::min(port_gbps[i], port_gbps[j]) <= pair.gbps) continue;
      Path path = between(gpus[i], gpus[j]);
      path.type = PathType::kNet;
      set_detour(gpus[i], gpus[j], path, kNoNode);
    }
}

std::vector<std::vector<int>> domains_of(const Paths& paths) {
  const System& system = paths.system();
  const auto gpus = system.gpus();
  std::vector<std::size_t> domain(gpus.size());
  std::vector<std::vector<int>> ranks;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    domain[i] = i;
    for (std::size_t j = 0; j < i; ++j)
      if (paths.between(gpus[i], gpus[j]).type < PathType::kNet) domain[i] = std::min(domain[i], domain[j]);
  }
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    std::vector<int> members;
    for (std::size_t j = 0; j < gpus.size(); ++j)
      if (domain[j] == i) members.push_back(system.node(gpus[j]).gpu().rank);
    if (!members.empty()) ranks.push_back(std::move(members));
  }
  return ranks;
}

float max_gbps(const Paths& paths, bool to_network) {
  const System& system = paths.system();
  if (system.gpus().size() == 1 && !to_network) return kLocalGbps;
  float best = 0;
  for (const NodeId gpu : system.of_kind(NodeKind::kGpu))
    for (const NodeId other : system.of_kind(to_network ? NodeKind::kNet : NodeKind::kGpu))
      if (other != gpu && system.node(other).parent != gpu && system.node(gpu).parent != other)
        best = std::max(best, paths.physical(gpu, other).gbps);
  return best;
}

float total_gbps(const System& system) {
  float best = 0;
  for (const NodeId gpu : system.of_kind(NodeKind::kGpu)) {
    float nvlinks = 0, pci = 0;
    for (const Link& link : system.links_of(gpu)) {
      if (link.type == LinkType::kNvl) nvlinks += link.gbps;
      if (link.type == LinkType::kPci) pci = link.gbps;
    }
    best = std::max({best, nvlinks, pci});
  }
  return best;
}

}  // namespace loom::topo
