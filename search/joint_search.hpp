// joint_search.hpp -- inside search: see together.hpp.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "search/packed.hpp"
#include "search/packing.hpp"
#include "search/path_tables.hpp"
#include "search/search.hpp"

namespace loom::search {

/// One of several parts, with the columns found for it so far.
class Part {
 public:
  Part(const PartOfMachine& machine, const Request& asked, Steps& steps)
      : request(asked),
        pattern(effective(asked.pattern, static_cast<int>(machine.ranks.size()))),
        table(machine.paths, true, pattern == Pattern::kCollnetChain || pattern == Pattern::kCollnetDirect,
              pattern == Pattern::kNvls),
        source(table, pattern, loosest(), asked.exact_gpus, steps) {}

  /// Columns are added once. False: it is there already.
  bool add(std::vector<Order> orders) {
    const auto same = [&](const auto& known) { return known->orders == orders; };
    if (std::any_of(columns.begin(), columns.end(), same)) return false;
    columns.push_back(std::make_unique<Column>(source.column(std::move(orders))));
    return true;
  }
  /// The channels of the plan of this part alone.
  void add(const ChannelPlan& plan) {
    for (std::size_t i = 0; i < plan.channels.size(); ++i) {
      std::vector<Order> orders = {order_of(table, plan.channels[i])};
      const bool crosses = pattern == Pattern::kRing && plan.limits.cross_nic == 2 &&
                           !table.may_pair(orders[0].in, orders[0].out, 0);
      if (crosses) orders.push_back(order_of(table, plan.channels[++i]));
      add(std::move(orders));
    }
    alone = columns.size();
  }

  Request request;
  Pattern pattern;
  HopTable table;
  ColumnSource source;
  std::vector<int> common;  // number among all parts' resources, of each of the table's
  std::vector<std::unique_ptr<Column>> columns;
  std::size_t alone = 0;  // the first of them are the part's own plan
  Packed packed;
  double raise = 1;  // of what passes between GPUs, beyond `packed`

 private:
  Limits loosest() const {
    const bool crosses =
        pattern == Pattern::kRing || pattern == Pattern::kBalancedTree || pattern == Pattern::kSplitTree;
    const bool in_pairs = pattern == Pattern::kRing && request.cross_nic == 2;
    const bool may = crosses && table.nets() > 1 && !(in_pairs && request.max_channels < 2);
    return {may ? request.cross_nic : 0, topo::PathType::kSys, topo::PathType::kSys};
  }
};

/// What several parts carry at the same time is one linear program, as that of one part. A joint column has a
/// channel of every part, each with the same GB/s, and takes what all of them take. The cheapest joint column
/// is made of the cheapest ones of all parts.
class Together {
 public:
  Together(std::span<const PartOfMachine* const> parts, std::span<const Request> requests);

  /// Replaces channels, totals and bounds of `plans`.
  void run(std::span<ChannelPlan* const> plans);

 private:
  struct Joint {
    std::vector<const Column*> of_part;
    std::vector<Load> loads;  // of a GB/s in every part
  };
  using Columns = std::vector<std::vector<const Column*>>;  // of each part

  std::vector<double> prices_of(const Part& part, std::span<const double> prices, double scale) const;
  double sort_by_cost(const Part& part, std::vector<const Column*>& columns);
  bool add_joint(const Columns& columns, std::size_t place);
  void pack(Columns columns);
  void settle();
  bool can_be_exact(bool hard) const;
  bool find_columns(int round, bool hard);
  Columns all_columns() const;
  void search();
  Packed packed_of(std::size_t part) const;
  bool keep_widest(std::size_t part, std::vector<const Column*>& kept);
  bool take_packed(Columns& kept);
  void pack_few(Columns columns);
  void limit();
  std::vector<const Column*> widest_in(const Part& part, std::vector<double> left);
  void exchange();
  std::vector<double> left_for(const Part& part) const;
  Proof proof();

  Steps steps_;
  std::vector<std::unique_ptr<Part>> parts_;
  std::vector<Resource> resources_;  // of all parts
  std::vector<double> capacities_;
  std::vector<std::unique_ptr<Joint>> joints_;
  std::unique_ptr<Packing> packing_;
  std::vector<double> amounts_;  // GB/s of each joint column
  double total_ = 0;             // of them
};

}  // namespace loom::search
