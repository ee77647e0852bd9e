#include "search/columns.hpp"

#include <algorithm>

#include "search/packing.hpp"

namespace loom::search {
namespace {

constexpr double kGain = 1e-9;

void add_chain(std::vector<Charge>& charges, const Order& order) {
  for (std::size_t i = 0; i + 1 < order.gpus.size(); ++i)
    charges.push_back({order.gpus[i], order.gpus[i + 1]});
}

/// Port to GPU or back.
Charge port(int from, int to, double factor = 1) {
  return {from, to, factor, true};
}

void add_ports(std::vector<Charge>& charges, const HopTable& table, Pattern pattern, const Order& order) {
  const int in = table.net(order.in), out = table.net(order.out), first = order.gpus.front();
  charges.push_back(port(in, first));
  switch (pattern) {
    case Pattern::kRing:
      charges.push_back(port(order.gpus.back(), out));
      break;
    case Pattern::kSplitTree:
      charges.push_back(port(order.gpus[1], out));
      break;
    case Pattern::kBalancedTree:
      charges.push_back(port(first, out, 0.5));
      charges.push_back(port(order.gpus[1], out, 0.5));
      break;
    case Pattern::kTree:
    case Pattern::kNvls:
    case Pattern::kCollnetChain:
    case Pattern::kCollnetDirect:
      charges.push_back(port(first, out));
      break;
  }
}

}  // namespace

Pattern effective(Pattern pattern, int gpus) {
  if (gpus > 1) return pattern;
  if (pattern == Pattern::kCollnetDirect) return Pattern::kCollnetChain;
  return is_tree(pattern) && pattern != Pattern::kCollnetChain ? Pattern::kTree : pattern;
}

Order order_of(const HopTable& table, const Channel& channel) {
  Order order;
  for (const int rank : channel.ranks) order.gpus.push_back(table.gpu_of_rank(rank));
  if (channel.nets.size() == 2)
    order.in = table.net_at(channel.nets[0]), order.out = table.net_at(channel.nets[1]);
  return order;
}

double share_of_port(const HopTable& table, int head, int net) {
  const int end = table.net(net);
  return 1 / std::min(table.width(table.hop(end, head)), table.width(table.hop(head, end)));
}

std::vector<Charge> charges_of(const HopTable& table, Pattern pattern, const Order& order) {
  std::vector<Charge> charges;
  const int head = order.gpus.front(), others = table.gpus() - 1;
  if (pattern == Pattern::kNvls) {
    // The field lets heads send up to twice as fast to the network as they multicast.
    const double inside = order.in >= 0 ? kNvlsShare : 1;
    for (int gpu = 0; gpu < table.gpus(); ++gpu) {
      const double factor = gpu == head ? 2 * inside : inside;
      charges.push_back({table.nv_switch(), gpu, factor});
      charges.push_back({gpu, table.nv_switch(), factor});
    }
  } else if (pattern == Pattern::kCollnetDirect) {
    for (int gpu = 0; gpu < table.gpus(); ++gpu) {
      if (gpu == head) continue;
      charges.push_back({head, gpu, 1.0 / others});
      charges.push_back({gpu, head, 1.0 / others});
    }
  } else {
    add_chain(charges, order);
  }
  if (order.in >= 0) {
    add_ports(charges, table, pattern, order);
  } else if (pattern == Pattern::kRing) {
    charges.push_back({order.gpus.back(), head});
  } else if (charges.empty()) {
    charges.push_back({head, head});
  }
  return charges;
}

Column make_column(const HopTable& table, Pattern pattern, std::vector<Order> orders, LoadSum& sum) {
  Column column;
  std::vector<Load> network_loads;
  column.limits = {0, topo::PathType::kLoc, topo::PathType::kLoc};
  for (const Order& order : orders) {
    for (const Charge& charge : charges_of(table, pattern, order)) {
      const Hop& hop = table.hop(charge.from, charge.to);
      for (const Load& load : table.loads(hop)) {
        sum.add(load.resource, load.factor * charge.factor);
        if (charge.network) network_loads.push_back({load.resource, load.factor * charge.factor});
      }
      if (charge.factor >= kNvlsShare) column.hops += hop.hops;  // a share each, the field does not count
      column.weighted_hops += charge.factor * hop.hops;
      topo::PathType type = hop.type;
      if (is_tree(pattern)) type = std::max(type, table.hop(charge.to, charge.from).type);
      topo::PathType& worst = charge.network ? column.limits.type_inter : column.limits.type_intra;
      worst = std::max(worst, type);
    }
    if (order.in >= 0 && !table.may_pair(order.in, order.out, 0)) column.limits.cross_nic = 2;
    if (order.in >= 0 && has_heads(pattern))
      sum.add(table.head_resource(order.gpus.front()), share_of_port(table, order.gpus.front(), order.in));
  }
  column.loads = sum.take();
  for (const Load& load : network_loads) sum.add(load.resource, load.factor);
  column.network_loads = sum.take();
  column.orders = std::move(orders);
  return column;
}

int hops_of(const HopTable& table, const ChannelPlan& plan) {
  LoadSum sum(table.resources().size());
  int hops = 0;
  for (const Channel& channel : plan.channels)
    hops += make_column(table, plan.pattern, {order_of(table, channel)}, sum).hops;
  return hops;
}

double Column::value() const {
  return channels() - kHopCost * weighted_hops;
}

bool allows(const Limits& limits, const Column& column) {
  return column.limits.type_intra <= limits.type_intra && column.limits.type_inter <= limits.type_inter &&
         (column.limits.cross_nic == 0 || limits.cross_nic != 0);
}

ColumnSource::ColumnSource(const HopTable& table, Pattern pattern, Limits limits, int exact_gpus,
                           Steps& steps)
    : table_(table),
      pattern_(pattern),
      limits_(limits),
      n_(table.gpus()),
      k_(table.nets()),
      exact_gpus_(std::min(exact_gpus, ExactOrders::kMost)),
      steps_(steps),
      sum_(table.resources().size()),
      zeros_(static_cast<std::size_t>(table.gpus()), 0.0) {
  // A ring that swaps ports has its own search, in pairs.
  const int cross_nic = pattern == Pattern::kRing && limits.cross_nic == 2 ? 0 : limits.cross_nic;
  for (int to = 0; to < k_; ++to) {
    partners_.emplace_back();
    for (int from = 0; from < k_; ++from)
      if (table.may_pair(from, to, cross_nic)) partners_.back().push_back(from);
    like_.push_back(static_cast<int>(std::find(partners_.begin(), partners_.end(), partners_.back()) -
                                     partners_.begin()));
  }
  steps_.take(static_cast<std::int64_t>(k_) * k_);
}

double ColumnSource::price_of(int from, int to) const {
  const Hop& hop = table_.hop(from, to);
  double price = hop_cost_ * hop.hops;
  for (const Load& load : table_.loads(hop))
    price += prices_[static_cast<std::size_t>(load.resource)] * load.factor;
  return price;
}

bool ColumnSource::within(int from, int to, topo::PathType limit) const {
  topo::PathType type = table_.hop(from, to).type;
  if (is_tree(pattern_)) type = std::max(type, table_.hop(to, from).type);
  return type <= limit;
}

void ColumnSource::set_prices(std::span<const double> prices, double hop_cost) {
  prices_ = prices;
  hop_cost_ = hop_cost;
  const auto size = static_cast<std::size_t>(n_);
  chain_.assign(size * size, kNever);
  in_.assign(size * static_cast<std::size_t>(k_), kNever);
  out_ = in_;
  for (int from = 0; from < n_; ++from) {
    for (int to = 0; to < n_; ++to)
      if ((n_ == 1 || from != to) && within(from, to, limits_.type_intra))
        chain_[static_cast<std::size_t>(from * n_ + to)] = price_of(from, to);
    for (int net = 0; net < k_; ++net) {
      const auto place = static_cast<std::size_t>(net * n_ + from);
      const int end = table_.net(net);
      if (within(end, from, limits_.type_inter)) in_[place] = price_of(end, from);
      if (within(from, end, limits_.type_inter)) out_[place] = price_of(from, end);
    }
  }
  steps_.take(static_cast<std::int64_t>(n_) * (n_ + 2 * k_) * 4);
  find_best_in();
  found_.clear();
  least_ = kNever;
  all_seen_ = true;
}

/// Of equals, the port itself.
void ColumnSource::find_best_in() {
  best_in_.resize(static_cast<std::size_t>(k_) * static_cast<std::size_t>(n_));
  for (int to = 0; to < k_; ++to) {
    const int like = like_[static_cast<std::size_t>(to)];
    const auto& partners = partners_[static_cast<std::size_t>(to)];
    if (like == to) steps_.take(static_cast<std::int64_t>(partners.size()) * n_);
    for (int gpu = 0; gpu < n_; ++gpu) {
      int best = to;
      if (like == to) {
        for (const int from : partners)
          if (in(from, gpu) < in(best, gpu)) best = from;
      } else if (const int other = best_in_[static_cast<std::size_t>(like * n_ + gpu)];
                 in(other, gpu) < in(best, gpu)) {
        best = other;
      }
      best_in_[static_cast<std::size_t>(to * n_ + gpu)] = best;
    }
  }
}

void ColumnSource::add(std::vector<Order> orders, double cost) {
  const double channels = static_cast<double>(orders.size());
  least_ = std::min(least_, cost / channels);
  if (cost <= channels * (1 - kGain)) found_.emplace_back(cost / channels, std::move(orders));
}

std::int64_t ColumnSource::exact_steps() const noexcept {
  const bool to_ports = pattern_ == Pattern::kRing && k_ > 0;
  return ExactOrders::steps_of(n_) * (to_ports ? std::min(k_, n_) : 1);
}

void ColumnSource::find_exactly(int round) {
  if (has_heads(pattern_))
    find_heads();
  else if (is_tree(pattern_))
    find_trees();
  else if (k_ == 0)
    find_rings();
  else
    find_rings_between_ports(round);
}

std::vector<std::vector<Order>> ColumnSource::cheaper(std::span<const double> prices, int round, bool exact) {
  set_prices(prices, kHopCost);
  if (exact)
    find_exactly(round);
  else
    find_long(round);
  std::stable_sort(found_.begin(), found_.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::vector<Order>> cheap;
  for (std::size_t i = 0; i < std::min(found_.size(), most_columns()); ++i)
    cheap.push_back(std::move(found_[i].second));
  steps_.take(static_cast<std::int64_t>(found_.size()) * (n_ + 20));
  return cheap;
}

double ColumnSource::quick_least_cost(std::span<const double> prices) {
  set_prices(prices, 0);
  return least_long_cost();
}

double ColumnSource::least_cost(std::span<const double> prices, double enough) {
  const double quick = is_exact() ? 0 : quick_least_cost(prices);
  if (!is_exact() && (quick >= enough || n_ > exact_gpus_)) return quick;
  set_prices(prices, 0);
  if (can_be_exact()) {
    find_exactly(0);
    found_.clear();
    return least_;
  }
  const std::int64_t groups = std::min<std::int64_t>(k_, steps_.left() / (2 * ExactOrders::steps_of(n_)));
  return groups > 0 ? std::max(quick, least_ring_in_groups(groups)) : quick;
}

void ColumnSource::find_heads() {
  const auto cost_of = [&](const Charge& charge) {
    const topo::PathType limit = charge.network ? limits_.type_inter : limits_.type_intra;
    return within(charge.from, charge.to, limit) ? charge.factor * price_of(charge.from, charge.to) : kNever;
  };
  for (int head = 0; head < n_; ++head) {
    double inside = 0;
    for (const Charge& charge : charges_of(table_, pattern_, {{head}}))
      inside += cost_of(charge) * (pattern_ == Pattern::kNvls && k_ > 0 ? kNvlsShare : 1);
    steps_.take(4 * n_ + 8 * k_);
    if (is_possible(inside) && k_ == 0) add({{{head}}}, inside);
    for (int net = 0; is_possible(inside) && net < k_; ++net) {
      const double ways = cost_of(port(table_.net(net), head)) + cost_of(port(head, table_.net(net)));
      if (!is_possible(inside + ways)) continue;
      const double place = prices_[static_cast<std::size_t>(table_.head_resource(head))];
      add({{{head}, net, net}}, inside + ways + (place > 0 ? place * share_of_port(table_, head, net) : 0));
    }
  }
}

}  // namespace loom::search
