#include "search/hop_table.hpp"

#include <algorithm>

#include "topo/bandwidth.hpp"

namespace loom::search {
namespace {

constexpr double kIntelP2pFactor = 1.2;
constexpr double kOldGpuReturnShare = 1.0 / 8;
constexpr int kFirstGpuWithoutReturn = 80;
constexpr double kUnlimited = 1e9;

/// Adds what a hop takes whose path is of `type`, along `route`.
void add_link_charges(const topo::System& system, topo::NodeId from, topo::PathType type,
                      std::span<const topo::LinkId> route, std::vector<std::pair<int, double>>& taken) {
  const bool from_gpu = system.node(from).kind() == topo::NodeKind::kGpu;
  const auto is_intel = [&](topo::LinkId id) {
    const topo::Node& node = system.node(system.link(id).to);
    return node.kind() == topo::NodeKind::kCpu && topo::is_intel(node.cpu());
  };
  const bool slow_pci =
      from_gpu && type == topo::PathType::kPhb && std::any_of(route.begin(), route.end(), is_intel);

  for (const topo::LinkId id : route) {
    const topo::Link& link = system.link(id);
    const topo::Node& end = system.node(link.to);
    const double forward = slow_pci && link.type == topo::LinkType::kPci ? kIntelP2pFactor : 1;
    double back = 0;
    if (end.kind() == topo::NodeKind::kGpu && link.type != topo::LinkType::kLoc && !from_gpu &&
        end.gpu().compute_capability < kFirstGpuWithoutReturn)
      back += forward * kOldGpuReturnShare;
    if (end.kind() == topo::NodeKind::kCpu && link.type == topo::LinkType::kNvl && end.cpu().arch == "ppc64")
      back += forward;
    taken.emplace_back(id, forward);
    if (back > 0 && link.reverse != topo::kNoLink) taken.emplace_back(link.reverse, back);
  }
}

void add_memories(const Resources& resources, topo::NodeId from, topo::NodeId to,
                  std::vector<std::pair<int, double>>& taken) {
  if (resources.counts_memory_of(from)) taken.emplace_back(resources.out_of_memory(from), 1);
  if (resources.counts_memory_of(to)) taken.emplace_back(resources.into_memory(to), 1);
}

}  // namespace

std::vector<std::pair<topo::LinkId, double>> link_charges(const topo::Paths& paths, topo::NodeId from,
                                                          topo::NodeId to) {
  std::vector<std::pair<topo::LinkId, double>> taken;
  add_link_charges(paths.system(), from, paths.between(from, to).type, paths.route(from, to), taken);
  return taken;
}

std::vector<std::pair<int, double>> charges(const topo::Paths& paths, topo::NodeId from, topo::NodeId to) {
  std::vector<std::pair<int, double>> taken = link_charges(paths, from, to);
  if (from != to) add_memories(Resources(paths.system()), from, to, taken);
  return taken;
}

HopTable::HopTable(const topo::Paths& paths, bool network, bool collnet, bool multicast)
    : system_(&paths.system()), all_(paths.system()) {
  nodes_.assign(system_->gpus().begin(), system_->gpus().end());
  gpus_ = static_cast<int>(nodes_.size());
  if (network)
    for (const topo::NodeId id : system_->of_kind(topo::NodeKind::kNet)) {
      const topo::NetInfo& net = system_->node(id).net();
      if (net.is_net && (!collnet || net.collectives)) nodes_.push_back(id);
    }
  nets_ = ends() - gpus_;
  const auto switches = system_->of_kind(topo::NodeKind::kNvSwitch);
  if (multicast && !switches.empty()) {
    nv_switch_ = ends();
    nodes_.push_back(switches.front());
  }
  number_of_.assign(static_cast<std::size_t>(all_.size()), -1);
  hops_.resize(static_cast<std::size_t>(ends()) * static_cast<std::size_t>(ends()));
  local_ = 0;
  resources_.push_back({topo::kLocalGbps, Resource::kNone, nodes_.empty() ? topo::kNoNode : nodes_.front()});
  if (nets_ > 0 && (collnet || multicast)) {
    first_head_ = static_cast<int>(resources_.size());
    for (int gpu = 0; gpu < gpus_; ++gpu) resources_.push_back({kUnlimited, Resource::kNone, node(gpu)});
  }
  share_ports();
  loads_.reserve(hops_.size() * 4);
  Work work;
  for (int gpu = 0; gpu < gpus_; ++gpu)
    for (int end = 0; end < ends(); ++end) {
      add_hop(paths, gpu, end, work);
      if (end >= gpus_) add_hop(paths, end, gpu, work);
    }
}

double HopTable::width(const Hop& hop) const {
  double width = kUnlimited;
  for (const Load& load : loads(hop))
    width = std::min(width, resources_[static_cast<std::size_t>(load.resource)].gbps / load.factor);
  return width;
}

int HopTable::gpu_of_rank(int rank) const {
  for (int gpu = 0; gpu < gpus_; ++gpu)
    if (this->rank(gpu) == rank) return gpu;
  return -1;
}

int HopTable::net_at(topo::NodeId id) const {
  for (int net = 0; net < nets_; ++net)
    if (node(this->net(net)) == id) return net;
  return -1;
}

void HopTable::add_hop(const topo::Paths& paths, int from, int to, Work& work) {
  Hop& hop = hops_[static_cast<std::size_t>(from * ends() + to)];
  hop.first = loads_.size();
  if (from == to) {
    hop = {topo::PathType::kLoc, 0, hop.first, 1};
    loads_.push_back({local_, 1});
    return;
  }
  const topo::Path path = paths.between(node(from), node(to));
  if (path.type >= topo::PathType::kNet || path.gbps <= 0) return;
  hop.hops = path.hops;
  work.route.clear(), work.taken.clear();
  paths.append_route(node(from), node(to), work.route);
  add_link_charges(*system_, node(from), path.type, work.route, work.taken);
  add_memories(all_, node(from), node(to), work.taken);
  for (const auto& [number, factor] : work.taken) {
    if (all_.gbps(number) <= 0) return;
    loads_.push_back({resource_of(number), factor});
  }
  if (from >= gpus_ && from < gpus_ + nets_)
    if (const int pool = pool_of_net_[static_cast<std::size_t>(from - gpus_)]; pool >= 0)
      loads_.push_back({pool, 1});
  if (loads_.size() == hop.first) loads_.push_back({local_, 1});  // between ranks of one device
  hop.count = loads_.size() - hop.first;
  hop.type = path.type;
}

/// Ports of one ASIC with one port number are one cable: what comes in is shared. Where they claim different
/// speeds, the slowest is believed, also of those that the pattern does not use.
void HopTable::share_ports() {
  pool_of_net_.assign(static_cast<std::size_t>(nets_), -1);
  for (int i = 0; i < nets_; ++i) {
    const topo::NetInfo& net = system_->node(node(this->net(i))).net();
    if (!net.guid) continue;
    double gbps = topo::net_gbps(net.speed_mbps);
    int ports = 0, first = i;
    for (const topo::NodeId id : system_->of_kind(topo::NodeKind::kNet)) {
      const topo::NetInfo& other = system_->node(id).net();
      if (other.guid != net.guid || other.port != net.port) continue;
      ++ports;
      gbps = std::min(gbps, static_cast<double>(topo::net_gbps(other.speed_mbps)));
      if (const int number = net_at(id); number >= 0) first = std::min(first, number);
    }
    if (ports < 2) continue;
    if (first == i) {
      pool_of_net_[static_cast<std::size_t>(i)] = static_cast<int>(resources_.size());
      resources_.push_back({gbps, Resource::kNone, node(this->net(i))});
    } else {
      pool_of_net_[static_cast<std::size_t>(i)] = pool_of_net_[static_cast<std::size_t>(first)];
    }
  }
}

int HopTable::resource_of(int number) {
  int& resource = number_of_[static_cast<std::size_t>(number)];
  if (resource < 0) {
    resource = static_cast<int>(resources_.size());
    resources_.push_back({all_.gbps(number), number, topo::kNoNode});
  }
  return resource;
}

bool HopTable::may_pair(int in, int out, int cross_nic) const {
  if (in == out) return true;
  const topo::NetInfo &a = system_->node(node(net(in))).net(), &b = system_->node(node(net(out))).net();
  if (a.plane && b.plane && a.plane != b.plane) return false;
  if (cross_nic != 0) return true;
  if (a.rail && b.rail) return a.rail == b.rail;
  return a.guid && a.guid == b.guid && a.port == b.port;
}

}  // namespace loom::search
