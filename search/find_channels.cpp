// find_channels.cpp -- the list of limits, what is packed under each, and how the best becomes a plan.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "search/bounds.hpp"
#include "search/columns.hpp"
#include "search/packed.hpp"
#include "search/packing.hpp"
#include "search/path_tables.hpp"

namespace loom::search {
namespace {

constexpr double kSame = 1e-5;           // totals that differ by less than this part are equal
constexpr double kGain = 1e-9;           // GB/s per GB/s: columns that add less are rounding
constexpr int kMostPivots = 20'000;      // of one optimum
constexpr double kLeastShare = 1e-5;     // of the total: channels below are rounding
constexpr int kExchanges = 12;           // of channels, where there are too many
constexpr std::size_t kOffered = 16;     // columns in one exchange
constexpr int kPatience = 8;             // rounds in which the total must grow by
constexpr double kLeastProgress = 1e-3;  // this part
constexpr int kFills = 10, kMostOfOneFill = 4;  // rounds of wide channels; channels of one round
constexpr double kFillPrice = 1e-3;      // of a link by what is left of it, GB/s; channels must cost less than 1
constexpr int kSeeds = 3;                // local searches that find nothing before the search gives up

/// Types between the given ends that occur, ascending.
std::vector<topo::PathType> types_of(const HopTable& table, bool network) {
  std::vector<topo::PathType> types;
  const int end = network ? table.gpus() + table.nets() : table.gpus();
  for (int i = 0; i < table.gpus(); ++i) {
    for (int j = network ? table.gpus() : 0; j < end; ++j)
      if (i != j) types.insert(types.end(), {table.hop(i, j).type, table.hop(j, i).type});
    if (!network && table.nv_switch() >= 0) types.push_back(table.hop(i, table.nv_switch()).type);
  }
  std::sort(types.begin(), types.end());
  types.erase(std::unique(types.begin(), types.end()), types.end());
  std::erase(types, topo::PathType::kDis);
  if (types.empty()) types.push_back(topo::PathType::kLoc);
  return types;
}

class Search {
 public:
  Search(const topo::Paths& paths, const Request& request)
      : request_(request),
        pattern_(effective(request.pattern, static_cast<int>(paths.system().gpus().size()))),
        collnet_(pattern_ == Pattern::kCollnetChain || pattern_ == Pattern::kCollnetDirect),
        paths_(paths),
        table_(paths, request.nodes > 1, collnet_, pattern_ == Pattern::kNvls),
        intra_(types_of(table_, false)),
        inter_(types_of(table_, true)) {
    for (const Resource& resource : table_.resources()) capacities_.push_back(resource.gbps);
    most_ = end_bound(table_, pattern_, request.nodes > 1, request.max_channels);
  }

  ChannelPlan run();

 private:
  bool can_run() const;
  bool connects(const Limits& limits) const;
  std::vector<int> cross_nics() const;
  Packed fill(const Limits& limits, double enough);
  Packed pack(const Limits& limits, double enough);
  bool is_proven(const Packing& packing, ColumnSource& source) const;
  Packed widest_first(const Limits& limits) const;
  Packed exchanged(Packed few, const Limits& limits);
  Packed limited(Packed packed, const Limits& limits);
  void tighten(Limits& limits, Packed& best);
  bool try_limits(Limits limits, double enough, Limits& chosen, Packed& best);
  double bound_of(const Packed& packed, const Limits& loosest);
  void prove_or_improve(ChannelPlan& plan, const Limits& loosest, Limits& limits, Packed& best);
  double port_bound();

  Request request_;
  Pattern pattern_;
  bool collnet_;
  const topo::Paths& paths_;
  HopTable table_;
  std::vector<topo::PathType> intra_, inter_;
  std::vector<double> capacities_;
  double most_ = 0;  // what can enter and leave each GPU allows
  std::vector<std::unique_ptr<Column>> pool_;  // all columns met so far, whatever the limits
  std::vector<std::unique_ptr<Column>> wide_;  // found by fill(), unknown to pack()
  std::vector<Attempt> attempts_;
  std::int64_t steps_ = 0;
};

bool Search::can_run() const {
  if (table_.gpus() == 0) return false;
  if (request_.nodes > 1 && table_.nets() == 0) return false;
  if (collnet_ && request_.nodes <= 1) return false;
  return pattern_ != Pattern::kNvls || table_.nv_switch() >= 0;
}

std::vector<int> Search::cross_nics() const {
  const bool chooses =
      table_.nets() > 1 &&
      (pattern_ == Pattern::kRing || pattern_ == Pattern::kBalancedTree || pattern_ == Pattern::kSplitTree);
  if (!chooses || request_.cross_nic == 0) return {0};
  return request_.cross_nic == 1 ? std::vector{1} : std::vector{0, 2};
}

/// What few, wide channels carry: the cheapest where links cost the more the less is left of them, each as wide as
/// what is left allows. Often that is all there is. Otherwise they are no good beginning for prices, which
/// would need more channels to make up for them.
Packed Search::fill(const Limits& limits, double enough) {
  ColumnSource source(table_, pattern_, limits, request_.exact_gpus);
  std::vector<std::unique_ptr<Column>> columns;
  std::vector<double> left = capacities_, prices(capacities_.size());
  double total = 0;
  for (int round = 0; round < kFills && total < enough * (1 - kSame / 4); ++round) {
    for (std::size_t i = 0; i < left.size(); ++i)
      prices[i] = left[i] > kLeastShare * capacities_[i] ? kFillPrice / left[i] : 1;
    double widest = 0;
    int taken = 0;
    for (Column& column : source.cheaper(prices, round)) {
      if (taken == kMostOfOneFill && source.is_exact()) break;  // the same hops over and over
      double gbps = std::numeric_limits<double>::max();
      for (const Load& load : column.loads)
        gbps = std::min(gbps, left[static_cast<std::size_t>(load.resource)] / load.factor);
      if (gbps <= kLeastShare * enough || gbps < widest / 2) continue;
      widest = std::max(widest, gbps);
      ++taken;
      for (const Load& load : column.loads) {
        double& rest = left[static_cast<std::size_t>(load.resource)];
        rest = std::max(0.0, rest - gbps * load.factor);
      }
      total += gbps * column.channels();
      columns.push_back(std::make_unique<Column>(std::move(column)));
    }
    if (widest == 0) break;
  }
  steps_ += source.steps();
  if (total == 0) return {};
  std::vector<const Column*> filled;
  auto& owner = total < enough * (1 - kSame) ? wide_ : pool_;
  for (auto& column : columns) filled.push_back(column.get()), owner.push_back(std::move(column));
  return pack_best(filled, capacities_);
}

/// The prices of `packing` prove that under these limits nothing carries more.
bool Search::is_proven(const Packing& packing, ColumnSource& source) const {
  double worth = 0;
  for (std::size_t i = 0; i < capacities_.size(); ++i) worth += packing.prices()[i] * capacities_[i];
  return worth <= packing.total() * (1 + kSame / 4) * source.least_cost(packing.prices());
}

/// Columns are added as long as one is cheaper than what it carries, or until `enough` is reached (0: never).
Packed Search::pack(const Limits& limits, double enough) {
  Packing packing(capacities_);
  std::vector<const Column*> columns;
  const auto add = [&](const Column* column) {
    columns.push_back(column);
    packing.add(column->loads, column->value());
  };
  for (const auto& column : pool_)
    if (allows(limits, *column)) add(column.get());
  ColumnSource source(table_, pattern_, limits, request_.exact_gpus);
  std::int64_t counted = 0;
  double reached = 0;
  double total_before = 0;  // the tail of many small gains is cut where orders are not exact anyway
  for (int round = 0, failures = 0; failures < kSeeds && steps_ < request_.max_steps; ++round) {
    packing.optimize(kMostPivots);
    if (!source.is_exact() && round % kPatience == kPatience - 1) {
      if (packing.total() <= total_before * (1 + kLeastProgress)) break;
      total_before = packing.total();
    }
    if (enough > 0 && packing.total() >= enough * (1 - kSame / 4)) break;
    if (source.is_exact() && round > 0) {  // what is left to gain may be a few links, hardly worth the time
      const bool grows = packing.total() > reached * (1 + kSame);
      reached = packing.total();
      if (!grows && is_proven(packing, source)) break;
    }
    std::vector<Column> found = source.cheaper(packing.prices(), round);
    steps_ += packing.steps() + source.steps() - counted;
    counted = packing.steps() + source.steps();
    std::erase_if(found,
                  [&](const Column& column) { return packing.gain(column.loads, column.value()) <= kGain; });
    if (found.empty() && source.is_exact()) break;
    failures = found.empty() ? failures + 1 : 0;
    for (Column& column : found) {
      pool_.push_back(std::make_unique<Column>(std::move(column)));
      add(pool_.back().get());
    }
  }
  Packed packed;
  for (std::size_t j = 0; j < columns.size(); ++j)
    if (const double gbps = packing.amount(static_cast<int>(j)); gbps > 0)
      packed.columns.emplace_back(columns[j], gbps), packed.total += gbps * columns[j]->channels();
  packed.unlimited = packed.total;
  packed.prices.assign(packing.prices().begin(), packing.prices().end());
  return packed;
}

/// Columns that each take all they can of what the ones before left.
Packed Search::widest_first(const Limits& limits) const {
  std::vector<double> left = capacities_;
  struct Width {
    const Column* column;
    double gbps;  // or less: links only get fuller
  };
  std::vector<Width> widths;
  for (const auto& column : pool_)
    if (allows(limits, *column)) widths.push_back({column.get(), std::numeric_limits<double>::max()});
  const auto update = [&](Width& width) {
    width.gbps = std::numeric_limits<double>::max();
    for (const Load& load : width.column->loads)
      width.gbps = std::min(width.gbps, left[static_cast<std::size_t>(load.resource)] / load.factor);
  };
  std::vector<const Column*> kept;
  for (std::size_t count = 0; count < static_cast<std::size_t>(request_.max_channels);) {
    const Column* widest = nullptr;
    double gbps = 0;
    for (Width& width : widths) {
      if (width.gbps <= gbps * (1 + kSame)) continue;
      update(width);
      if (width.gbps > gbps * (1 + kSame)) widest = width.column, gbps = width.gbps;
    }
    if (widest == nullptr || count + widest->orders.size() > static_cast<std::size_t>(request_.max_channels))
      break;
    for (const Load& load : widest->loads) {
      double& rest = left[static_cast<std::size_t>(load.resource)];
      rest = std::max(0.0, rest - gbps * load.factor);
    }
    kept.push_back(widest);
    count += widest->orders.size();
  }
  return pack_best(kept, capacities_);
}

/// Exchanges columns of `few` for those that are worth more at its prices, as long as that helps.
Packed Search::exchanged(Packed few, const Limits& limits) {
  ColumnSource source(table_, pattern_, limits, request_.exact_gpus);
  for (int round = 0; round < kExchanges && few.total < few.unlimited * (1 - kSame); ++round) {
    for (Column& column : source.cheaper(few.prices, round))
      pool_.push_back(std::make_unique<Column>(std::move(column)));
    std::vector<std::pair<double, const Column*>> better;
    for (const auto& column : pool_) {
      double gain = column->channels();
      for (const Load& load : column->loads)
        gain -= few.prices[static_cast<std::size_t>(load.resource)] * load.factor;
      if (gain > kGain && allows(limits, *column))
        better.emplace_back(gain / column->channels(), column.get());
    }
    std::stable_sort(better.begin(), better.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<const Column*> columns;
    for (const auto& [column, gbps] : few.columns) columns.push_back(column);
    const std::size_t offered = columns.size() + std::min<std::size_t>(better.size(), kOffered);
    for (std::size_t i = 0; columns.size() < offered; ++i) columns.push_back(better[i].second);
    Packed more = pack_best(columns, capacities_);
    std::stable_sort(more.columns.begin(), more.columns.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    columns.clear();
    int count = 0;
    for (const auto& [column, gbps] : more.columns)
      if (count + static_cast<int>(column->orders.size()) <= request_.max_channels)
        count += static_cast<int>(column->orders.size()), columns.push_back(column);
    Packed next = pack_best(columns, capacities_);
    if (next.total <= few.total * (1 + kSame)) break;
    next.unlimited = few.unlimited;
    few = std::move(next);
  }
  steps_ += source.steps();
  return few;
}

/// At most Request::max_channels: the thinnest go, half of what is too many at a time, and the rest share
/// what they left.
Packed Search::limited(Packed packed, const Limits& limits) {
  bool thinned = false;
  std::vector<double> thinned_prices;
  Packed greedy;
  for (;;) {
    auto& columns = packed.columns;
    std::stable_sort(columns.begin(), columns.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    std::erase_if(columns, [&](const auto& column) { return column.second < kLeastShare * packed.total; });
    const auto count_of = [](const auto& column) { return static_cast<int>(column.first->orders.size()); };
    int count = 0;
    for (const auto& column : columns) count += count_of(column);
    if (count <= request_.max_channels) {
      if (!thinned) return packed;  // all fit
      std::vector<double> prices = packed.prices;
      packed.prices = std::move(thinned_prices);
      packed = exchanged(std::move(packed), limits);
      packed.prices = std::move(prices);
      return packed;
    }
    if (!thinned) greedy = widest_first(limits);
    thinned = true;
    const int target = count - (count - request_.max_channels + 1) / 2;
    std::vector<const Column*> kept;
    count = 0;
    for (const auto& column : columns)
      if (count + count_of(column) <= target) count += count_of(column), kept.push_back(column.first);
    Packed fewer = pack_best(kept, capacities_);
    if (greedy.total > fewer.total) fewer = greedy;
    fewer.unlimited = packed.unlimited;
    thinned_prices = fewer.prices;
    fewer.prices = std::move(packed.prices);
    packed = std::move(fewer);
  }
}

/// Paths that `limits` allow lead from the first GPU to every other one, whichever way; without them no chain
/// does.
bool Search::connects(const Limits& limits) const {
  if (has_heads(pattern_)) return true;
  std::vector<int> reached = {0}, left;
  for (int gpu = 1; gpu < table_.gpus(); ++gpu) left.push_back(gpu);
  for (std::size_t i = 0; i < reached.size() && !left.empty(); ++i)
    std::erase_if(left, [&](int gpu) {
      const bool near = std::min(table_.hop(reached[i], gpu).type, table_.hop(gpu, reached[i]).type) <=
                        limits.type_intra;
      if (near) reached.push_back(gpu);
      return near;
    });
  return left.empty();
}

bool Search::try_limits(Limits limits, double enough, Limits& chosen, Packed& best) {
  const bool already = enough > 0 && std::all_of(best.columns.begin(), best.columns.end(),
                                                 [&](const auto& entry) { return allows(limits, *entry.first); });
  if (already) {
    attempts_.push_back({limits, best.total, "the channels found under looser limits keep to them"});
    chosen = limits;
    return true;
  }
  if (!connects(limits)) {
    attempts_.push_back({limits, 0, "no channel reaches every GPU"});
    return false;
  }
  const double target = enough > 0 ? enough : most_;
  Packed packed;
  if (!has_heads(pattern_) && target > 0) packed = limited(fill(limits, target), limits);
  if (packed.total < target * (1 - kSame)) {
    Packed wide = std::exchange(packed, limited(pack(limits, target), limits));
    if (wide.total > packed.total * (1 + kSame)) {
      packed.columns = std::move(wide.columns);
      packed.total = wide.total;
    }
  }
  if (target > 0 && packed.total < target * (1 - kSame) && packed.unlimited >= target * (1 - kSame))
    packed = limited(pack(limits, 0), limits);  // it took too many channels
  const bool reached = packed.total > 0 && packed.total >= enough * (1 - kSame);
  attempts_.push_back({limits, packed.total, ""});
  if (packed.total <= 0)
    attempts_.back().outcome = "no channel reaches every GPU";
  else if (!reached)
    attempts_.back().outcome =
        fmt::format("{:.6g} GB/s are less than the {:.6g} of looser limits", packed.total, enough);
  else
    attempts_.back().outcome =
        fmt::format("{:.6g} GB/s: taken unless stricter limits carry as much", packed.total);
  if (!reached) return false;
  chosen = limits;
  best = std::move(packed);
  return true;
}

/// The strictest limits that carry as much as `best`: ways to ports first, then ways between GPUs, then
/// ports.
void Search::tighten(Limits& limits, Packed& best) {
  const double enough = best.total;
  Limits chosen = limits;
  for (const topo::PathType type : inter_)
    if (type >= chosen.type_inter ||
        try_limits({chosen.cross_nic, type, chosen.type_intra}, enough, chosen, best))
      break;
  for (const topo::PathType type : intra_)
    if (type >= chosen.type_intra ||
        try_limits({chosen.cross_nic, chosen.type_inter, type}, enough, chosen, best))
      break;
  for (const int cross : cross_nics())
    if (cross == chosen.cross_nic ||
        try_limits({cross, chosen.type_inter, chosen.type_intra}, enough, chosen, best))
      break;
  limits = chosen;
}

/// The prices of any packing bound all of them: no set of channels carries more than the links are worth by
/// what the cheapest channel costs.
double Search::bound_of(const Packed& packed, const Limits& loosest) {
  double worth = 0;
  for (std::size_t i = 0; i < packed.prices.size(); ++i) worth += packed.prices[i] * capacities_[i];
  ColumnSource source(table_, pattern_, loosest, request_.exact_gpus);
  const double least = source.least_cost(packed.prices);
  steps_ += source.steps();
  if (!is_possible(least)) return 0;
  return least > 0 ? worth / least : std::numeric_limits<double>::max();
}

/// With multicast, heads may send to the network more than they multicast: then the ports are what limits.
double Search::port_bound() {
  std::vector<Column> all;
  for (int head = 0; head < table_.gpus(); ++head)
    for (int net = 0; net < table_.nets(); ++net)
      if (table_.hop(head, table_.net(net)).type < topo::PathType::kNet)
        all.push_back(make_column(table_, pattern_, {{{head}, net, net}}));
  std::vector<const Column*> columns;
  for (const Column& column : all) columns.push_back(&column);
  double widest = 0;
  for (const Column& column : all) {
    double gbps = std::numeric_limits<double>::max();
    for (const Load& load : column.network_loads)
      gbps = std::min(gbps, capacities_[static_cast<std::size_t>(load.resource)] / load.factor);
    widest = std::max(widest, gbps);
  }
  return std::min(pack_best(columns, capacities_, true).total, widest * request_.max_channels);
}

/// Bounds `best` by its prices, and looks under the loosest limits where these allow more.
void Search::prove_or_improve(ChannelPlan& plan, const Limits& loosest, Limits& limits, Packed& best) {
  if (best.total > 0) plan.bound_gbps = std::min(plan.bound_gbps, bound_of(best, loosest));
  if (best.unlimited < plan.bound_gbps * (1 - kSame) && limits != loosest) {
    Packed loose;
    Limits found = loosest;
    if (try_limits(loosest, 0, found, loose)) {
      if (loose.total < plan.bound_gbps * (1 - kSame))
        plan.bound_gbps = std::min(plan.bound_gbps, bound_of(loose, loosest));
      if (loose.total > best.total * (1 + kSame)) {
        limits = loosest;
        best = std::move(loose);
        tighten(limits, best);
      }
    }
  }
  if (pattern_ == Pattern::kRing && best.unlimited < plan.bound_gbps * (1 - kSame))
    plan.bound_gbps = std::min(plan.bound_gbps, ring_cut_bound(paths_.system(), table_, plan.network));
  if (pattern_ == Pattern::kNvls && plan.network) plan.bound_gbps = std::min(most_, port_bound());
}

ChannelPlan Search::run() {
  ChannelPlan plan;
  plan.pattern = pattern_;
  plan.network = request_.nodes > 1;
  if (!can_run()) return plan;
  const Limits loosest{cross_nics().back(), inter_.back(), intra_.back()};
  Limits limits{cross_nics().front(), inter_.front(), intra_.front()};
  Packed best;
  try_limits(limits, 0, limits, best);
  plan.bound_gbps = most_;
  if (best.total < most_ * (1 - kSame)) prove_or_improve(plan, loosest, limits, best);
  plan.limits = limits;
  if (best.total > 0) {  // the same with fewer channels, where wide ones do
    Packed wide = widest_first(limits);
    if (wide.total >= best.total * (1 - kSame / 10) && wide.columns.size() < best.columns.size())
      best = std::move(wide);
  }
  if (best.total > 0)
    fill_plan(plan, table_, best, capacities_);
  else if (!has_heads(pattern_))
    take_simple_order(plan, paths_, table_);
  plan.type_intra = std::max(plan.type_intra, intra_.front());
  if (plan.network) plan.type_inter = std::max(plan.type_inter, inter_.front());
  if (plan.channels.empty()) plan.bound_gbps = 0;
  if (table_.gpus() > 1 && pattern_ != Pattern::kCollnetDirect &&
      !plan.network)  // no channel is faster than a hop
    plan.bound_gbps =
        std::min(plan.bound_gbps, static_cast<double>(topo::max_gbps(paths_, false)) * request_.max_channels);
  split_channels(plan, request_);
  plan.attempts = std::move(attempts_);
  plan.steps = steps_;
  return plan;
}

}  // namespace

ChannelPlan find_channels(const topo::Paths& paths, const Request& request) {
  return Search(paths, request).run();
}

NodePlans find_plans(const PathTables& tables, const Request& request) {
  NodePlans whole, split;
  if (const PartOfMachine* all = tables.whole()) {
    whole = {{find_channels(all->paths, request)}, {all->ranks}, 0};
    whole.total_gbps = whole.parts[0].total_gbps;
  }
  if (tables.parts().size() <= 1) return whole;
  Request between = request;
  between.nodes = std::max(2, request.nodes);
  for (const auto& part : tables.parts()) {
    split.ranks.push_back(part->ranks);
    split.parts.push_back(find_channels(part->paths, between));
    const double total = split.parts.back().total_gbps;
    split.total_gbps = split.parts.size() == 1 ? total : std::min(split.total_gbps, total);
  }
  return whole.parts.empty() || split.total_gbps > whole.total_gbps * (1 + kSame) ? split : whole;
}

NodePlans find_plans(const topo::System& system, const Request& request, topo::PathRules rules) {
  return find_plans(PathTables(system, rules), request);
}

ChannelPlan find_ring(const topo::System& system) {
  topo::PathRules rules;
  rules.network_inside_host = false;
  Request request;
  request.max_channels = 1;
  return find_channels(topo::Paths(system, rules), request);
}

}  // namespace loom::search
