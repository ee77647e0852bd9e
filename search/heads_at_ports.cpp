// heads_at_ports.cpp -- Search: multicast heads with ports. Totals count the ports, so where links inside the
// node are scarce, heads that multicast more slowly but reach more ports carry more.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "search/search.hpp"

namespace loom::search {
namespace {

constexpr double kWidest = 1e4;   // room inside: what ports carry that hardly need any
constexpr double kWider = 1.125;  // from one try to the next
constexpr int kTries = 8;

}  // namespace

/// Heads may send to the network more than they multicast: then the ports are what limits.
double Search::port_bound() {
  std::vector<Column> all;
  LoadSum sum(capacities_.size());
  for (int head = 0; head < table_.gpus(); ++head)
    for (int net = 0; net < table_.nets(); ++net)
      if (table_.hop(head, table_.net(net)).type < topo::PathType::kNet)
        all.push_back(make_column(table_, pattern_, {{{head}, net, net}}, sum));
  std::vector<const Column*> columns;
  double widest = 0;
  for (const Column& column : all) {
    columns.push_back(&column);
    widest = std::max(widest, width_in(capacities_, column.network_loads));
  }
  return std::min(pack_best(columns, capacities_, steps_, true).total, widest * request_.max_channels);
}

/// The capacities with `factor` times as much on links that no way to or from a port takes under `limits`:
/// what fits there fits the machine once it multicasts more slowly.
std::vector<double> Search::wider_inside(double factor, const Limits& limits) const {
  std::vector<double> wider = capacities_;
  for (double& gbps : wider) gbps *= factor;
  for (int gpu = 0; gpu < table_.gpus(); ++gpu)
    for (int net = 0; net < table_.nets(); ++net)
      for (const Hop* hop : {&table_.hop(gpu, table_.net(net)), &table_.hop(table_.net(net), gpu)}) {
        if (hop->type > limits.type_inter) continue;
        for (const Load& load : table_.loads(*hop)) {
          const auto i = static_cast<std::size_t>(load.resource);
          wider[i] = capacities_[i];
        }
      }
  return wider;
}

/// What fits there, until `enough` is reached. Begins with `known`.
Packed Search::pack_wider(double factor, const Limits& limits, double enough, const Packed& known) {
  const std::vector<double> capacities = std::exchange(capacities_, wider_inside(factor, limits));
  Packed packed = limited(pack(limits, enough, known), limits);
  capacities_ = capacities;
  return packed;
}

/// Fills `plan` with `best`, or with heads that carry more at their ports; proves its bound.
void Search::fill_with_heads(ChannelPlan& plan, const Packed& best, const Limits& loosest) {
  const ChannelPlan empty = plan;
  fill_plan(plan, table_, best, capacities_, steps_);
  if (best.total >= most_ * (1 - kSame)) return;
  plan.bound_gbps = most_;
  if (plan.total_gbps >= most_ * (1 - kSame)) return;
  const double bound = plan.bound_gbps = std::min(most_, port_bound());
  for (const topo::PathType type : inter_) {
    if (plan.total_gbps >= bound * (1 - kSame)) break;
    const Limits limits{0, type, loosest.type_intra};
    Packed packed = pack_wider(kWidest, limits, bound, best);
    const double target = packed.total;
    if (target <= plan.total_gbps * (1 + kSame)) continue;
    double factor = target / best.total;  // with less room `best` would be too little
    for (int i = 0; i < kTries; ++i, factor *= kWider)
      if (Packed faster = pack_wider(factor, limits, target, best); faster.total >= target * (1 - kSame)) {
        packed = std::move(faster);
        break;
      }
    ChannelPlan other = empty;
    other.limits = limits;
    fill_plan(other, table_, packed, capacities_, steps_);
    other.bound_gbps = bound;
    if (other.total_gbps <= plan.total_gbps * (1 + kSame)) continue;
    plan = std::move(other);
    attempts_.push_back(
        {limits, plan.total_gbps,
         fmt::format("{:.6g} GB/s by more ports, whose heads multicast less than half of that",
                     plan.total_gbps)});
  }
}

}  // namespace loom::search
