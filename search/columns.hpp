// columns.hpp -- what each pattern asks of a machine, and the channel that is cheapest when every link has a
// price.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "search/channel_plan.hpp"
#include "search/hop_table.hpp"
#include "search/orders.hpp"
#include "search/packing.hpp"

namespace loom::search {

/// A channel by numbers of HopTable: GPUs in order (the head alone where the pattern has one), ports in and
/// out.
struct Order {
  std::vector<int> gpus;
  int in = -1, out = -1;
  friend bool operator==(const Order&, const Order&) = default;
};

/// A hop of a channel: it carries `factor` of the channel's bandwidth. Its path's type counts, however little
/// it carries. (NCCL counts hops of factor 1 only.)
struct Charge {
  int from, to;
  double factor = 1;
  bool network = false;  ///< between a GPU and a port
};

/// `channel` in the numbers of `table`; -1 where the table does not have a GPU or port.
Order order_of(const HopTable& table, const Channel& channel);
/// What a GB/s of a head's channel fills of a port.
double share_of_port(const HopTable& table, int head, int net);
/// All hops of a channel.
std::vector<Charge> charges_of(const HopTable& table, Pattern pattern, const Order& order);

/// The pattern that a node of so many GPUs really has: of a GPU alone all trees are one, and a head is a
/// chain.
Pattern effective(Pattern pattern, int gpus);
constexpr bool is_tree(Pattern pattern) {
  return pattern == Pattern::kTree || pattern == Pattern::kSplitTree || pattern == Pattern::kBalancedTree ||
         pattern == Pattern::kCollnetChain;
}
constexpr bool has_heads(Pattern pattern) {
  return pattern == Pattern::kNvls || pattern == Pattern::kCollnetDirect;
}

/// With ports, multicast heads carry this part of a channel's bandwidth inside the node: an inner node of the
/// trees over nodes passes each byte by its ports twice, so that ports up to twice as fast as the inside are
/// of use, and no faster.
inline constexpr double kNvlsShare = 0.5;

/// A hop costs this much beside its links, so that of equally good channels the one with fewer hops is taken.
inline constexpr double kHopCost = 1e-8;

/// What is packed: one channel, or two of one bandwidth whose ports are each other's swapped.
struct Column {
  std::vector<Order> orders;
  std::vector<Load> loads, network_loads;  ///< of all hops; of those to and from ports
  int hops = 0;
  double weighted_hops = 0;  ///< each by the share of the bandwidth that it carries
  Limits limits{};           ///< the strictest that allow it
  double channels() const { return static_cast<double>(orders.size()); }
  double value() const;  ///< `channels()` less what its hops cost
};
/// `sum`: of all of the table's resources, empty before and after.
Column make_column(const HopTable& table, Pattern pattern, std::vector<Order> orders, LoadSum& sum);
/// The links that all channels of a plan cross.
int hops_of(const HopTable& table, const ChannelPlan& plan);
bool allows(const Limits& limits, const Column& column);

/// The hops that limits allow, at the prices of the moment.
class ColumnSource {
 public:
  /// `exact_gpus`: up to so many (16 at most) cheaper() can be exact; up to kSoon of them it always is.
  ColumnSource(const HopTable& table, Pattern pattern, Limits limits, int exact_gpus, Steps& steps);

  /// The orders of columns that cost less than their value, cheapest first. None: there is none where that is
  /// `exact`, otherwise none was found.
  std::vector<std::vector<Order>> cheaper(std::span<const double> prices, int round, bool exact);
  Column column(std::vector<Order> orders) { return make_column(table_, pattern_, std::move(orders), sum_); }
  /// No channel costs less at the prices of the last cheaper(), which was exact; 0: it did not look at all.
  double least() const { return all_seen_ ? least_ : 0; }
  /// No channel costs less at these prices, counting links alone. With many GPUs a bound, unless it is below
  /// `enough` and there are steps for better ones.
  double least_cost(std::span<const double> prices, double enough);
  /// The same, quickly.
  double quick_least_cost(std::span<const double> prices);

  /// cheaper() is always exact.
  bool is_exact() const noexcept { return has_heads(pattern_) || n_ <= std::min(exact_gpus_, kSoon); }
  /// It can be, with the steps that are left.
  bool can_be_exact() const noexcept {
    return is_exact() || (n_ <= exact_gpus_ && exact_steps() <= steps_.left());
  }

 private:
  static constexpr int kFewColumns = 24, kManyColumns = 64;
  static constexpr int kSoon = 10;  // so few GPUs that dynamic programming is faster than failing otherwise

  void set_prices(std::span<const double> prices, double hop_cost);
  double price_of(int from, int to) const;
  void find_best_in();
  bool within(int from, int to, topo::PathType limit) const;
  void add(std::vector<Order> orders, double cost);
  std::int64_t exact_steps() const noexcept;
  std::size_t most_columns() const noexcept {  // of one call
    if (has_heads(pattern_)) return static_cast<std::size_t>(std::max(kFewColumns, 2 * n_));
    if (is_exact()) return kFewColumns;
    return static_cast<std::size_t>(std::max(kFewColumns, std::min(2 * n_, std::max(kManyColumns, n_))));
  }
  void find_exactly(int round);
  void find_rings();
  void find_rings_between_ports(int round);
  void find_pairs_of_rings();
  void find_trees();
  void find_heads();
  void solve_ends();
  double ring_between_ports(int from, int to, int* first) const;
  Order order_between(int from, int to, int first) const;
  struct Beginning {
    int first, second, in, to;
    double cost;
  };
  std::vector<Beginning> beginnings() const;

  double least_of_ends();
  void find_long(int round);
  std::vector<double> costs_of_beginning(int to) const;
  void keep_path(std::span<const double> begin, std::span<const double> end, int seed);
  void keep(std::vector<int> trip);
  void add_turns(const std::vector<int>& trip);
  struct Chain {
    double cost = kNever;
    const std::vector<int>* trip = nullptr;
    std::size_t first = 0;
  };
  std::vector<Chain> chains_between() const;
  void find_long_pairs();
  double end_cost(int first, int second, int last, int to) const;
  double least_beginning(int first) const;
  double least_long_cost();
  double least_ring_in_groups(std::int64_t groups);

  double chain(int from, int to) const { return chain_[static_cast<std::size_t>(from * n_ + to)]; }
  double in(int net, int gpu) const { return in_[static_cast<std::size_t>(net * n_ + gpu)]; }
  double out(int net, int gpu) const { return out_[static_cast<std::size_t>(net * n_ + gpu)]; }
  std::span<const double> out_to(int net) const {
    return std::span(out_).subspan(static_cast<std::size_t>(net * n_), static_cast<std::size_t>(n_));
  }

  const HopTable& table_;
  Pattern pattern_;
  Limits limits_;
  int n_, k_, exact_gpus_;
  Steps& steps_;
  LoadSum sum_;
  std::span<const double> prices_;
  double hop_cost_ = 0;
  std::vector<double> chain_, in_, out_;
  struct ToPort {
    double cost = kNever;
    int end = 0;  // in ends_
  };
  const ToPort& to_port(int to, int first) const {
    return to_port_[static_cast<std::size_t>(to * n_ + first)];
  }
  std::optional<ExactOrders> exact_;  // made when it is first asked for
  std::vector<ExactOrders> ends_;
  std::vector<ToPort> to_port_;  // [port * n_ + first GPU]
  std::vector<double> zeros_;
  std::vector<std::vector<int>> trips_;  // of many GPUs, kept from earlier rounds, each also backwards
  std::vector<std::pair<double, std::vector<Order>>> found_;  // with the cost of each channel
  std::vector<std::vector<int>> partners_;                    // per port out: ports in
  std::vector<int> like_;     // per port out: the first one with the same partners
  std::vector<int> best_in_;  // [port out * n_ + first GPU]: the partner from which coming in costs least
  double least_ = 0;          // of all that was looked at, per channel
  bool all_seen_ = false;
};

}  // namespace loom::search
