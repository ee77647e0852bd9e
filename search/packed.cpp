#include "search/packed.hpp"

#include <algorithm>
#include <limits>

#include "search/packing.hpp"

namespace loom::search {
namespace {

constexpr double kMostRaise = 2;     // chains more than twice as fast as the network are of no use
constexpr double kSimpleGbps = 0.1;  // what the field writes for a channel that nothing is known of

/// How much faster than packed everything between GPUs may be, at least 1.
double raise_inside(const Packed& packed, std::span<const double> capacities) {
  std::vector<double> inside(capacities.size(), 0), left(capacities.begin(), capacities.end());
  for (const auto& [column, gbps] : packed.columns) {
    for (const Load& load : column->loads)
      inside[static_cast<std::size_t>(load.resource)] += load.factor * gbps;
    for (const Load& load : column->network_loads) {
      inside[static_cast<std::size_t>(load.resource)] -= load.factor * gbps;
      left[static_cast<std::size_t>(load.resource)] -= load.factor * gbps;
    }
  }
  double raise = kMostRaise;
  for (std::size_t i = 0; i < left.size(); ++i)
    if (inside[i] > 1e-9) raise = std::min(raise, left[i] / inside[i]);
  return std::max(1.0, raise);
}

Channel channel_of(const HopTable& table, const Order& order, double intra, double inter) {
  Channel channel;
  for (const int gpu : order.gpus) channel.ranks.push_back(table.rank(gpu));
  if (order.in >= 0) channel.nets = {table.node(table.net(order.in)), table.node(table.net(order.out))};
  channel.intra_gbps = intra;
  channel.inter_gbps = inter;
  return channel;
}

}  // namespace

bool is_partner(const Channel& a, const Channel& b) {
  return a.nets.size() == 2 && b.nets.size() == 2 && a.nets[0] != a.nets[1] && a.nets[0] == b.nets[1] &&
         a.nets[1] == b.nets[0] && a.inter_gbps == b.inter_gbps;
}

double width_in(std::span<const double> left, std::span<const Load> loads) {
  double gbps = std::numeric_limits<double>::max();
  for (const Load& load : loads)
    gbps = std::min(gbps, left[static_cast<std::size_t>(load.resource)] / load.factor);
  return gbps;
}

void take_from(std::vector<double>& left, std::span<const Load> loads, double gbps) {
  for (const Load& load : loads) {
    double& rest = left[static_cast<std::size_t>(load.resource)];
    rest = std::max(0.0, rest - load.factor * gbps);
  }
}

Packed pack_best(const std::vector<const Column*>& columns, std::span<const double> capacities,
                 Steps& steps) {
  Packing packing(capacities, steps);
  for (const Column* column : columns) packing.add(column->loads, column->value());
  const bool done = packing.optimize();
  Packed packed;
  std::vector<double> left(capacities.begin(), capacities.end());
  for (std::size_t j = 0; j < columns.size(); ++j) {
    const double gbps = done ? packing.amount(static_cast<int>(j)) : width_in(left, columns[j]->loads);
    if (gbps <= 0) continue;
    packed.columns.emplace_back(columns[j], gbps), packed.total += gbps * columns[j]->channels();
    if (!done) take_from(left, columns[j]->loads, gbps);
  }
  packed.unlimited = packed.total;
  packed.prices.assign(packing.prices().begin(), packing.prices().end());
  return packed;
}

void fill_plan(ChannelPlan& plan, const HopTable& table, const Packed& packed,
               std::span<const double> capacities) {
  double inside = 1;
  if (plan.network && is_tree(plan.pattern)) inside = raise_inside(packed, capacities);
  if (plan.network && plan.pattern == Pattern::kNvls) inside = kNvlsShare * raise_inside(packed, capacities);
  for (const bool pairs : {true, false})  // partners stand at 2k and 2k + 1
    for (const auto& [column, gbps] : packed.columns) {
      if ((column->orders.size() == 2) != pairs) continue;
      for (const Order& order : column->orders)
        plan.channels.push_back(channel_of(table, order, gbps * inside, gbps));
      plan.hops += column->hops;
      plan.type_intra = std::max(plan.type_intra, column->limits.type_intra);
      plan.type_inter = std::max(plan.type_inter, column->limits.type_inter);
    }
  plan.same_channels = std::all_of(plan.channels.begin(), plan.channels.end(), [&](const Channel& channel) {
    return channel.ranks == plan.channels[0].ranks;
  });
  for (const Channel& channel : plan.channels) plan.total_gbps += channel.inter_gbps;
}

void split_channels(ChannelPlan& plan, const HopTable& table, const Request& request) {
  struct Group {
    std::size_t first, size;
    int copies = 1;
  };
  std::vector<Group> groups;
  for (std::size_t i = 0; i < plan.channels.size(); i += groups.back().size) {
    const bool partners = i + 1 < plan.channels.size() && is_partner(plan.channels[i], plan.channels[i + 1]);
    groups.push_back({i, partners ? 2U : 1U});
  }
  const auto gbps_of = [&](const Group& group) {
    const Channel& channel = plan.channels[group.first];
    return std::max(channel.intra_gbps, channel.inter_gbps) / group.copies;
  };
  for (int count = static_cast<int>(plan.channels.size());;) {
    Group* fastest = nullptr;
    for (Group& group : groups)
      if (count + static_cast<int>(group.size) <= request.max_channels &&
          (fastest == nullptr || gbps_of(group) > gbps_of(*fastest)))
        fastest = &group;
    if (fastest == nullptr) break;
    const bool too_fast = request.most_gbps > 0 && gbps_of(*fastest) > request.most_gbps * (1 + 1e-9);
    if (!too_fast && count >= request.min_channels) break;
    ++fastest->copies;
    count += static_cast<int>(fastest->size);
  }
  std::vector<Channel> channels;
  for (const Group& group : groups)
    for (int copy = 0; copy < group.copies; ++copy)
      for (std::size_t i = group.first; i < group.first + group.size; ++i) {
        channels.push_back(plan.channels[i]);
        channels.back().intra_gbps /= group.copies;
        channels.back().inter_gbps /= group.copies;
      }
  plan.channels = std::move(channels);
  if (!plan.in_order) plan.hops = hops_of(table, plan);
}

void take_simple_order(ChannelPlan& plan, const topo::Paths& paths, const HopTable& table) {
  Order order;
  for (int gpu = 0; gpu < table.gpus(); ++gpu) order.gpus.push_back(gpu);
  Channel channel = channel_of(table, order, kSimpleGbps, kSimpleGbps);
  if (plan.network) {
    const topo::NodeId any = table.node(table.net(0));
    for (const int gpu : {0, table.gpus() - 1}) {
      const topo::NodeId net = paths.local_net(table.node(gpu), 0);
      channel.nets.push_back(net == topo::kNoNode ? any : net);
    }
  }
  plan.in_order = true;
  plan.total_gbps = kSimpleGbps;
  plan.bound_gbps = std::max(plan.bound_gbps, kSimpleGbps);
  plan.type_intra = plan.type_inter = topo::PathType::kSys;
  plan.channels = {std::move(channel)};
}

}  // namespace loom::search
