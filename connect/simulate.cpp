#include "connect/simulate.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <numeric>
#include <optional>

#include "connect/tree_places.hpp"
#include "device/schedule/kernel_costs.hpp"
#include "device/schedule/tree_schedule.hpp"

namespace loom::connect {
namespace {

constexpr double kSliceBytes =
    256 * 1024;                       // what is handed on at once where a message flows through as a whole
constexpr double kBytesPerUs = 1000;  // of one GB/s

struct Protocol : device::ProtocolCosts {
  Costs costs = {};
};
constexpr std::array kProtocols = {Protocol{device::kCostsOfLL}, Protocol{device::kCostsOfLL128},
                                   Protocol{device::kCostsOfSimple}};
// CPUs through shared memory, and TCP between hosts (docs/results; 2 virtual CPUs of an Intel Xeon): 8
// bytes around a ring of three virtual hosts take 96 us in four steps; a cache line goes from core to core in
// 0.15 us; two ranks of one host need 35 ms for 64 MiB, of which each sends 64 and receives as many.
constexpr Protocol kHost = {{"host", {1, 0.15, 0.15, 24}, {1, 0.15, 0.15, 24}, 1},
                            {kHostCpuGbps, kTcpEfficiency}};

// What LL carries in all, GB/s on the bus, by GPU generation and on one, two, and more nodes: CPUs forward
// its words between nodes. Of NCCL 2.30, as kernel_costs.hpp.
constexpr std::array kLlGenerations = {70, 80, 90, 100};
constexpr double kLlBusGbps[kLlGenerations.size()][3] = {
    {39, 39, 20.4}, {87.7, 22.5, 19}, {141, 45, 35}, {282, 90, 70}};

bool is_up(Collective collective) {
  return collective == Collective::kAllreduce || collective == Collective::kReduce;
}
bool is_down(Collective collective) {
  return collective == Collective::kAllreduce || collective == Collective::kBroadcast;
}

class Simulator {
 public:
  Simulator(const Job& job, std::span<const Machine> machines, const SimulationRequest& request,
            const Protocol& protocol)
      : job_(job),
        machines_(machines),
        request_(request),
        protocol_(protocol),
        wire_bytes_(request.bytes / protocol.efficiency) {}

  Prediction ring();
  std::optional<Prediction> tree();
  std::optional<Prediction> rails();

 private:
  /// What the flows of a ring cost on one kind of node: by channel, the hops inside; to and from the ports.
  struct RingNode {
    std::vector<std::vector<RingHop>> inside;
    std::vector<std::vector<double>> out_us, in_us;  // rails: by place; rings: one
    double busiest_us = 0;
    std::string busiest;
  };

  std::size_t kind_of(int node) const { return static_cast<std::size_t>(job_.kind_of(node)); }
  double net_us(const device::Latencies& latencies) const {
    return request_.net_us >= 0 ? request_.net_us : latencies.net_us;
  }
  double latency_us(std::size_t kind, int from, int to, const device::Latencies& latencies) const;
  std::vector<double> shares(Family family) const;
  double least_transfer_us(const std::string& algorithm) const;
  const RingNode& ring_node(int node, double bytes, bool closed,
                            std::map<std::pair<int, int>, RingNode>& known) const;
  RingNode rail_node(int node, double bytes) const;
  double chain_us(std::span<const RingHop> hops, double bytes) const;
  void note(const RingNode& node, double& most, Prediction& prediction) const;
  Prediction finished(std::string algorithm, double us, Prediction prediction) const;
  void note_tree_node(int node, int roles, Prediction& prediction) const;
  double tree_path_us(int channel, int tree) const;
  double hop_us(std::size_t kind, End from, End to, double bytes) const;

  const Job& job_;
  std::span<const Machine> machines_;
  SimulationRequest request_;
  Protocol protocol_;
  double wire_bytes_;
};

double Simulator::latency_us(std::size_t kind, int from, int to, const device::Latencies& latencies) const {
  const Machine& machine = machines_[kind];
  const topo::System& system = machine.paths->system();
  const auto gpu = [&](int local) {
    return system.gpu_of_rank(machine.ranks[static_cast<std::size_t>(local)]);
  };
  return machine.paths->between(gpu(from), gpu(to)).type <= topo::PathType::kC2c ? latencies.nvlink_us
                                                                                 : latencies.pci_us;
}

/// Each channel's part of the data: as fast as it is, all being done at the same time.
std::vector<double> Simulator::shares(Family family) const {
  const Agreed& agreed = job_.agreed(family);
  std::vector<double> shares;
  for (std::size_t c = 0; c < agreed.inter_gbps.size(); ++c)
    shares.push_back(static_cast<double>(std::min(agreed.inter_gbps[c], agreed.intra_gbps[c])));
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share = sum > 0 ? share / sum : 1.0 / static_cast<double>(shares.size());
  return shares;
}

/// `bytes`: of one chunk of all channels. `closed`: the last rank sends to the first one of its node.
const Simulator::RingNode& Simulator::ring_node(int node, double bytes, bool closed,
                                                std::map<std::pair<int, int>, RingNode>& known) const {
  const auto [entry, is_new] = known.try_emplace({job_.kind_of(node), node % 2});
  if (!is_new) return entry->second;
  RingNode& result = entry->second;
  NodeLoads loads(machines_[kind_of(node)], protocol_.costs);
  const std::vector<double> share = shares(Family::kRing);
  std::vector<std::vector<int>> flows;
  std::vector<std::array<int, 2>> ports;
  for (std::size_t c = 0; c < share.size(); ++c) {
    const ChannelSummary& channel = job_.channel(Family::kRing, node, static_cast<int>(c));
    const std::size_t size = channel.order.size();
    flows.emplace_back();
    for (std::size_t i = 0; size > 1 && i < (closed ? size : size - 1); ++i)
      flows.back().push_back(
          loads.add(End::rank(channel.order[i]), End::rank(channel.order[(i + 1) % size]), bytes * share[c]));
    if (!closed)
      ports.push_back(
          {loads.add(End::rank(channel.order.back()), End::port(channel.port_out), bytes * share[c]),
           loads.add(End::port(channel.port_in), End::rank(channel.order.front()), bytes * share[c])});
  }
  for (std::size_t c = 0; c < share.size(); ++c) {
    const ChannelSummary& channel = job_.channel(Family::kRing, node, static_cast<int>(c));
    result.inside.emplace_back();
    for (std::size_t i = 0; i < flows[c].size(); ++i)
      result.inside.back().push_back(
          {loads.us(flows[c][i]), latency_us(kind_of(node), channel.order[i],
                                             channel.order[(i + 1) % channel.order.size()], protocol_.ring)});
    if (closed) continue;
    result.out_us.push_back({loads.us(ports[c][0])});
    result.in_us.push_back({loads.us(ports[c][1])});
  }
  result.busiest_us = loads.busiest_us();
  result.busiest = loads.busiest();
  return result;
}

void Simulator::note(const RingNode& node, double& most, Prediction& prediction) const {
  if (node.busiest_us <= most) return;
  most = node.busiest_us;
  prediction.bottleneck = node.busiest;
}

double Simulator::chain_us(std::span<const RingHop> hops, double bytes) const {
  double slowest = 0, path = 0, shortest = 1e300;
  for (const RingHop& hop : hops) {
    const double slice = hop.latency_us + hop.chunk_us * std::min(1.0, kSliceBytes / std::max(bytes, 1.0));
    slowest = std::max(slowest, hop.chunk_us);
    path += slice;
    shortest = std::min(shortest, slice);
  }
  return slowest + path - shortest;
}

Prediction Simulator::ring() {
  const int size = job_.ranks();
  const bool chain =
      request_.collective == Collective::kBroadcast || request_.collective == Collective::kReduce;
  const int steps = chain ? 1 : request_.collective == Collective::kAllreduce ? 2 * (size - 1) : size - 1;
  const double chunk = chain ? wire_bytes_ : wire_bytes_ / size;
  std::map<std::pair<int, int>, RingNode> known;
  Prediction prediction;
  double most = 0, us = 0;
  for (int node = 0; node < job_.nodes(); ++node)
    note(ring_node(node, chunk, job_.nodes() == 1, known), most, prediction);
  for (std::size_t c = 0; c < job_.agreed(Family::kRing).inter_gbps.size(); ++c) {
    std::vector<RingHop> hops;
    for (int node = 0; node < job_.nodes(); ++node) {
      const RingNode& here = ring_node(node, chunk, job_.nodes() == 1, known);
      hops.insert(hops.end(), here.inside[c].begin(), here.inside[c].end());
      if (job_.nodes() == 1) continue;
      const RingNode& next = ring_node((node + 1) % job_.nodes(), chunk, false, known);
      hops.push_back({std::max(here.out_us[c][0], next.in_us[c][0]), net_us(protocol_.ring)});
    }
    us = std::max(us, chain ? chain_us(hops, wire_bytes_) : ring_us(hops, steps));
  }
  prediction.transfer_us = most * steps;
  return finished("ring", us + protocol_.ring.call_us, std::move(prediction));
}

/// Every rank exchanges with the one at its place on the next node, through the port closest to it.
Simulator::RingNode Simulator::rail_node(int node, double bytes) const {
  const Machine& machine = machines_[kind_of(node)];
  const topo::System& system = machine.paths->system();
  const auto ports = system.of_kind(topo::NodeKind::kNet);
  NodeLoads loads(machine, protocol_.costs);
  const std::vector<double> share = shares(Family::kRing);
  std::vector<std::vector<std::array<int, 2>>> flows;
  for (std::size_t c = 0; c < share.size(); ++c) {
    flows.emplace_back();
    for (const int local : job_.channel(Family::kRing, node, static_cast<int>(c)).order) {
      const topo::NodeId gpu = system.gpu_of_rank(machine.ranks[static_cast<std::size_t>(local)]);
      const topo::NodeId net =
          ports.empty() ? topo::kNoNode : machine.paths->local_net(gpu, static_cast<int>(c));
      const auto place = std::find(ports.begin(), ports.end(), net);
      const End port = End::port(place == ports.end() ? kNoPort : static_cast<int>(place - ports.begin()));
      flows.back().push_back({loads.add(End::rank(local), port, bytes * share[c]),
                              loads.add(port, End::rank(local), bytes * share[c])});
    }
  }
  RingNode result;
  for (const auto& channel : flows) {
    result.out_us.emplace_back();
    result.in_us.emplace_back();
    for (const auto& [out, in] : channel) {
      result.out_us.back().push_back(loads.us(out));
      result.in_us.back().push_back(loads.us(in));
    }
  }
  result.busiest_us = loads.busiest_us();
  result.busiest = loads.busiest();
  return result;
}

std::optional<Prediction> Simulator::rails() {
  const int per_node = job_.placement().ranks_per_node(), nodes = job_.nodes();
  if (request_.collective != Collective::kAllreduce || nodes == 1 || per_node <= 1) return {};
  Prediction prediction;
  double inside_us = 0, inside_most = 0, rail_most = 0, rail_us = 0;
  std::map<std::pair<int, int>, RingNode> inside, across;
  for (int node = 0; node < nodes; ++node) {
    const bool is_new = !inside.contains({job_.kind_of(node), node % 2});
    const RingNode& here = ring_node(node, wire_bytes_ / per_node, true, inside);
    if (!is_new) continue;
    across[{job_.kind_of(node), node % 2}] = rail_node(node, wire_bytes_ / per_node / nodes);
    for (const auto& hops : here.inside) inside_us = std::max(inside_us, ring_us(hops, per_node - 1));
    inside_most = std::max(inside_most, here.busiest_us);
  }
  for (const auto& [key, node] : across) note(node, rail_most, prediction);
  const auto across_of = [&](int node) -> const RingNode& {
    return across.at({job_.kind_of(node), node % 2});
  };
  const std::size_t channels = job_.agreed(Family::kRing).inter_gbps.size();
  for (std::size_t c = 0; c < channels; ++c)
    for (std::size_t place = 0; place < static_cast<std::size_t>(per_node); ++place) {
      std::vector<RingHop> hops;
      for (int node = 0; node < nodes; ++node)
        hops.push_back(
            {std::max(across_of(node).out_us[c][place], across_of((node + 1) % nodes).in_us[c][place]),
             net_us(protocol_.ring)});
      rail_us = std::max(rail_us, ring_us(hops, 2 * (nodes - 1)));
    }
  prediction.transfer_us = 2 * (per_node - 1) * inside_most + 2 * (nodes - 1) * rail_most;
  return finished("rails", 2 * inside_us + rail_us + protocol_.ring.call_us, std::move(prediction));
}

double Simulator::hop_us(std::size_t kind, End from, End to, double bytes) const {
  NodeLoads alone(machines_[kind], protocol_.costs);
  return alone.us(alone.add(from, to, bytes));
}

/// `roles`: for each tree three bits, TreeRole's.
void Simulator::note_tree_node(int node, int roles, Prediction& prediction) const {
  NodeLoads loads(machines_[kind_of(node)], protocol_.costs);
  const std::vector<double> share = shares(Family::kTree);
  const search::Pattern pattern = job_.summary(node).family(Family::kTree).pattern;
  const bool up = is_up(request_.collective), down = is_down(request_.collective);
  for (std::size_t c = 0; c < share.size(); ++c) {
    const ChannelSummary& channel = job_.channel(Family::kTree, node, static_cast<int>(c));
    const double bytes = wire_bytes_ * share[c] / 2;
    for (int tree = 0; tree < 2; ++tree)
      add_tree_flows(loads, pattern, channel, roles >> (3 * tree) & 7, bytes, up, down);
  }
  if (loads.busiest_us() <= prediction.transfer_us) return;
  prediction.transfer_us = loads.busiest_us();
  prediction.bottleneck = loads.busiest();
}

/// A slice's way from the root to the farthest rank.
double Simulator::tree_path_us(int channel, int tree) const {
  const double bytes =
      std::min(kSliceBytes, wire_bytes_ * shares(Family::kTree)[static_cast<std::size_t>(channel)] / 2);
  struct Kind {
    std::vector<double> to_place;  // from the chain's first
    double port_us = 0;
  };
  std::map<int, Kind> known;
  const auto kind_at = [&](int node) -> const Kind& {
    const auto [entry, is_new] = known.try_emplace(job_.kind_of(node));
    if (!is_new) return entry->second;
    const ChannelSummary& own = job_.channel(Family::kTree, node, channel);
    Kind& kind = entry->second;
    kind.to_place = {0};
    for (std::size_t i = 1; i < own.order.size(); ++i)
      kind.to_place.push_back(
          kind.to_place.back() + latency_us(kind_of(node), own.order[i - 1], own.order[i], protocol_.tree) +
          hop_us(kind_of(node), End::rank(own.order[i - 1]), End::rank(own.order[i]), bytes));
    if (job_.nodes() > 1)
      kind.port_us = hop_us(kind_of(node), End::port(own.port_in), End::rank(own.order[0]), bytes);
    return kind;
  };
  std::vector<double> at_node(static_cast<std::size_t>(job_.nodes()), -1);
  const auto arrival = [&](auto&& self, int node) -> double {
    double& us = at_node[static_cast<std::size_t>(node)];
    if (us >= 0) return us;
    const int parent = device::double_tree(tree, node, job_.nodes()).parent;
    if (parent == device::kNobody) return us = 0;
    const int which = device::double_tree(tree, parent, job_.nodes()).child[0] == node ? 0 : 1;
    const int place = child_place(job_.summary(parent).family(Family::kTree).pattern, which,
                                  job_.placement().ranks_on(parent));
    return us = self(self, parent) + kind_at(parent).to_place[static_cast<std::size_t>(place)] +
                net_us(protocol_.tree) + std::max(kind_at(parent).port_us, kind_at(node).port_us);
  };
  double longest = 0;
  for (int node = 0; node < job_.nodes(); ++node)
    longest = std::max(longest, arrival(arrival, node) + kind_at(node).to_place.back());
  return longest;
}

std::optional<Prediction> Simulator::tree() {
  const int channels = job_.agreed(Family::kTree).channels;
  if (channels == 0 || (!is_up(request_.collective) && !is_down(request_.collective))) return {};
  Prediction prediction;
  std::map<std::pair<int, int>, bool> seen;
  for (int node = 0; node < job_.nodes(); ++node) {
    int roles = 0;
    for (int tree = 0; tree < 2; ++tree) {
      const device::TreePlace place = device::double_tree(tree, node, job_.nodes());
      roles |= ((place.parent != device::kNobody ? kHasParent : 0) |
                (place.child[0] != device::kNobody ? kHasFirstChild : 0) |
                (place.child[1] != device::kNobody ? kHasSecondChild : 0))
               << (3 * tree);
    }
    if (seen.try_emplace({job_.kind_of(node), roles}, true).second) note_tree_node(node, roles, prediction);
  }
  double path = 0;
  for (int channel = 0; channel < channels; ++channel)
    for (const int tree : {0, 1}) path = std::max(path, tree_path_us(channel, tree));
  const int ways = request_.collective == Collective::kAllreduce ? 2 : 1;
  return finished("tree", protocol_.tree.call_us + ways * path + prediction.transfer_us, prediction);
}

/// What the protocol itself needs, however fast the links are.
double Simulator::least_transfer_us(const std::string& algorithm) const {
  if (protocol_.name != "LL") return 0;
  int capability = kLlGenerations.back();
  for (const Machine& machine : machines_)
    for (const topo::NodeId gpu : machine.paths->system().gpus())
      capability = std::min(capability, machine.paths->system().node(gpu).gpu().compute_capability);
  std::size_t generation = 0;
  while (generation + 1 < kLlGenerations.size() && kLlGenerations[generation + 1] <= capability) ++generation;
  const double factor = algorithm == "tree" && request_.collective == Collective::kAllreduce
                            ? 2
                            : bus_factor(request_.collective, job_.ranks());
  return request_.bytes * factor / (kBytesPerUs * kLlBusGbps[generation][std::min(job_.nodes(), 3) - 1]);
}

Prediction Simulator::finished(std::string algorithm, double us, Prediction prediction) const {
  prediction.algorithm = std::move(algorithm);
  prediction.protocol = protocol_.name;
  if (const double least = least_transfer_us(prediction.algorithm); least > prediction.transfer_us) {
    us += least - prediction.transfer_us;
    prediction.transfer_us = least;
    prediction.bottleneck = "the protocol";
  }
  prediction.us = us;
  prediction.algorithm_gbps = request_.bytes / (kBytesPerUs * us);
  prediction.bus_gbps = prediction.algorithm_gbps * bus_factor(request_.collective, job_.ranks());
  return prediction;
}

bool is_host(std::span<const Machine> machines) {
  for (const Machine& machine : machines)
    for (const topo::NodeId gpu : machine.paths->system().gpus())
      if (!machine.paths->system().node(gpu).gpu().is_virtual) return false;
  return true;
}

}  // namespace

std::string_view name_of(Collective collective) {
  constexpr std::array<std::string_view, 5> kNames = {"allreduce", "reduce-scatter", "allgather", "broadcast",
                                                      "reduce"};
  return kNames[static_cast<std::size_t>(collective)];
}

double bus_factor(Collective collective, int ranks) {
  const double n = ranks;
  if (collective == Collective::kAllreduce) return 2 * (n - 1) / n;
  return collective == Collective::kReduceScatter || collective == Collective::kAllGather ? (n - 1) / n : 1;
}

double ring_us(std::span<const RingHop> hops, int steps) {
  if (hops.size() < 2 || steps == 0) return 0;
  double slowest = 0;
  for (const RingHop& hop : hops) slowest = std::max(slowest, hop.chunk_us);
  // The run of at most `steps` hops with the largest sum of what each adds to waiting at the slowest hop.
  struct Prefix {
    std::size_t hop;
    double sum;
  };
  std::deque<Prefix> least = {{0, 0}};  // ascending candidates for where the run begins
  double sum = 0, most = 0;
  const std::size_t count = hops.size() + static_cast<std::size_t>(steps);
  for (std::size_t i = 0; i < count; ++i) {
    const RingHop& hop = hops[i % hops.size()];
    sum += hop.latency_us - (slowest - hop.chunk_us);
    while (i + 1 - least.front().hop > static_cast<std::size_t>(steps)) least.pop_front();
    most = std::max(most, sum - least.front().sum);
    while (!least.empty() && least.back().sum >= sum) least.pop_back();
    least.push_back({i + 1, sum});
  }
  return steps * slowest + most;
}

std::vector<Prediction> simulate(const Job& job, std::span<const Machine> machines,
                                 const SimulationRequest& request) {
  std::map<std::string, Prediction> best;
  const auto offer = [&](const std::optional<Prediction>& prediction) {
    if (!prediction) return;
    const auto [entry, is_new] = best.try_emplace(prediction->algorithm, *prediction);
    if (!is_new && prediction->us < entry->second.us) entry->second = *prediction;
  };
  const Agreed& rings = job.agreed(Family::kRing);
  if (job.ranks() < 2 || rings.channels == 0) return {};
  const bool host = is_host(machines);
  const bool ll128 = rings.type_intra <= topo::PathType::kNvb && rings.type_inter <= topo::PathType::kPxn;
  for (const Protocol& protocol : host ? std::span(&kHost, 1) : std::span<const Protocol>(kProtocols)) {
    if (protocol.name == "LL128" && !ll128) continue;
    if (!request.protocol.empty() && protocol.name != request.protocol) continue;
    Simulator simulator(job, machines, request, protocol);
    offer(simulator.ring());
    offer(simulator.tree());
    offer(simulator.rails());
  }
  std::vector<Prediction> sorted;
  for (const auto& [name, prediction] : best) sorted.push_back(prediction);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Prediction& a, const Prediction& b) { return a.us < b.us; });
  return sorted;
}

}  // namespace loom::connect
