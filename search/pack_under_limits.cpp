// pack_under_limits.cpp -- Search: what fits under one entry of the list of limits.
#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_set>

#include "search/search.hpp"

namespace loom::search {
namespace {

constexpr double kGain = 1e-9;                 // GB/s per GB/s: columns that add less are rounding
constexpr double kLeastShare = 1e-5;           // of the total: channels below are rounding
constexpr int kExchanges = 12;                 // of channels, where there are too many
constexpr std::size_t kOffered = 16;           // columns in one exchange
constexpr int kPatience = 8;                   // rounds in which the total must grow by
constexpr double kLeastProgress = 1e-3;        // this part
constexpr int kFills = 8, kMostOfOneFill = 4;  // rounds of wide channels; channels of one round
constexpr int kMostNarrow = 12;                // channels in turn that are too narrow
constexpr int kLongFills = 3;                  // rounds where orders are not exact
constexpr double kFillPrice = 1e-3;  // of a link by what is left of it, GB/s; channels must cost less than 1
constexpr int kSeeds = 3;            // local searches that find nothing before the search gives up

}  // namespace

/// What few, wide channels carry: the cheapest where links cost the more the less is left of them, each as
/// wide as what is left allows. Often that is all there is. Otherwise they are no good beginning for prices,
/// which would need more channels to make up for them.
Packed Search::fill(const Limits& limits, double enough) {
  ColumnSource source(table_, pattern_, limits, request_.exact_gpus, steps_);
  std::vector<std::unique_ptr<Column>> columns;
  std::vector<double> left = capacities_, prices(capacities_.size());
  double total = 0;
  const int rounds = source.is_exact() ? kFills : kLongFills;
  for (int round = 0; round < rounds && total < enough * (1 - kSame / 4); ++round) {
    if (round > 0 && steps_.are_spent()) break;
    for (std::size_t i = 0; i < left.size(); ++i)
      prices[i] = left[i] > kLeastShare * capacities_[i] ? kFillPrice / left[i] : 1;
    double widest = 0;
    int taken = 0, narrow = 0;
    std::vector<std::vector<Order>> found = source.cheaper(prices, round, source.is_exact());
    if (source.is_exact() && !is_possible(source.least())) {
      Packed none;
      none.impossible = true;
      return none;
    }
    for (std::vector<Order>& orders : found) {
      if (taken == kMostOfOneFill && source.is_exact()) break;  // the same hops over and over
      if (narrow == kMostNarrow) break;
      if (total >= enough * (1 - kSame / 4)) break;
      Column column = source.column(std::move(orders));
      const double gbps = width_in(left, column.loads);
      const bool wide = gbps > kLeastShare * enough && gbps >= widest / 2;
      narrow = wide ? 0 : narrow + 1;
      if (!wide) continue;
      widest = std::max(widest, gbps);
      ++taken;
      take_from(left, column.loads, gbps);
      total += gbps * column.channels();
      columns.push_back(std::make_unique<Column>(std::move(column)));
    }
    if (widest == 0) break;
  }
  if (total == 0) return {};
  std::vector<const Column*> filled;
  auto& owner = total < enough * (1 - kSame) ? wide_ : pool_;
  for (auto& column : columns) filled.push_back(column.get()), owner.push_back(std::move(column));
  return pack_best(filled, capacities_, steps_);
}

/// The prices of `packing`, at which no channel costs less than `least`, prove that nothing carries more.
bool Search::is_proven(const Packing& packing, double least) const {
  double worth = 0;
  for (std::size_t i = 0; i < capacities_.size(); ++i) worth += packing.prices()[i] * capacities_[i];
  return worth <= packing.total() * (1 + kSame / 4) * least;
}

/// Columns are added as long as one is cheaper than what it carries, or until `enough` is reached (0: never).
/// Begins with the columns `known` to go together. Of many GPUs, orders are found by local search as long as
/// that finds some, and exactly after that as far as the steps go.
Packed Search::pack(const Limits& limits, double enough, const Packed& known) {
  Packing packing(capacities_, steps_);
  std::vector<const Column*> columns;
  std::unordered_set<const Column*> added;
  const auto add = [&](const Column* column) {
    if (!allows(limits, *column) || !added.insert(column).second) return;
    columns.push_back(column);
    packing.add(column->loads, column->value());
  };
  for (const auto& [column, gbps] : known.columns) add(column);
  packing.optimize();
  for (const auto& column : pool_) add(column.get());
  ColumnSource source(table_, pattern_, limits, request_.exact_gpus, steps_);
  double reached = 0, before = 0;
  for (int round = 0, failures = 0, seeds = kSeeds; round == 0 || !steps_.are_spent(); ++round) {
    packing.optimize();
    const double total = packing.total();
    if (enough > 0 && total >= enough * (1 - kSame / 4)) break;
    if (round % kPatience == kPatience - 1) {  // the tail of many small gains is cut
      if (total <= before * (1 + kLeastProgress)) failures = seeds;
      before = total;
    }
    const bool exact = source.is_exact() || failures >= seeds;
    if (exact && !source.is_exact() &&
        (!source.can_be_exact() || is_proven(packing, source.quick_least_cost(packing.prices()))))
      break;
    std::vector<std::vector<Order>> found = source.cheaper(packing.prices(), round, exact);
    const bool grows = total > reached * (1 + kSame);  // else what is left to gain may be a few links
    reached = total;
    if (exact && round > 0 && !grows && is_proven(packing, source.least())) break;
    bool helps = false;
    for (std::vector<Order>& orders : found) {
      Column column = source.column(std::move(orders));
      steps_.take(static_cast<std::int64_t>(column.loads.size()) * 3);
      if (packing.gain(column.loads, column.value()) <= kGain) continue;
      helps = true;
      pool_.push_back(std::make_unique<Column>(std::move(column)));
      add(pool_.back().get());
    }
    if (exact && !helps) break;
    failures = helps ? 0 : failures + 1;
    if (exact) seeds = 1;
  }
  Packed packed;
  for (std::size_t j = 0; j < columns.size(); ++j)
    if (const double gbps = packing.amount(static_cast<int>(j)); gbps > 0)
      packed.columns.emplace_back(columns[j], gbps), packed.total += gbps * columns[j]->channels();
  if (steps_.are_spent()) {  // the last columns have no amounts yet
    Packed greedy = pack_best(columns, capacities_, steps_);
    if (greedy.total > packed.total) packed = std::move(greedy);
  }
  packed.unlimited = packed.total;
  packed.prices.assign(packing.prices().begin(), packing.prices().end());
  return packed;
}

/// Columns that each take all they can of what the ones before left.
Packed Search::widest_first(const Limits& limits) {
  std::vector<double> left = capacities_;
  struct Width {
    const Column* column;
    double gbps;  // or less: links only get fuller
  };
  std::vector<Width> widths;
  for (const auto& column : pool_)
    if (allows(limits, *column)) widths.push_back({column.get(), std::numeric_limits<double>::max()});
  std::vector<const Column*> kept;
  for (std::size_t count = 0; count < static_cast<std::size_t>(request_.max_channels);) {
    const Column* widest = nullptr;
    double gbps = 0;
    for (Width& width : widths) {
      if (width.gbps <= gbps * (1 + kSame)) continue;
      width.gbps = width_in(left, width.column->loads);
      steps_.take(static_cast<std::int64_t>(width.column->loads.size()));
      if (width.gbps > gbps * (1 + kSame)) widest = width.column, gbps = width.gbps;
    }
    steps_.take(static_cast<std::int64_t>(widths.size()));
    if (widest == nullptr || count + widest->orders.size() > static_cast<std::size_t>(request_.max_channels))
      break;
    take_from(left, widest->loads, gbps);
    kept.push_back(widest);
    count += widest->orders.size();
    if (steps_.are_spent()) break;
  }
  return pack_best(kept, capacities_, steps_);
}

/// Exchanges columns of `few` for those that are worth more at its prices, as long as that helps.
Packed Search::exchanged(Packed few, const Limits& limits) {
  ColumnSource source(table_, pattern_, limits, request_.exact_gpus, steps_);
  for (int round = 0; round < kExchanges && few.total < few.unlimited * (1 - kSame); ++round) {
    if (steps_.are_spent()) break;
    for (std::vector<Order>& orders : source.cheaper(few.prices, round, source.is_exact()))
      pool_.push_back(std::make_unique<Column>(source.column(std::move(orders))));
    std::vector<std::pair<double, const Column*>> better;
    for (const auto& column : pool_) {
      double gain = column->channels();
      for (const Load& load : column->loads)
        gain -= few.prices[static_cast<std::size_t>(load.resource)] * load.factor;
      steps_.take(static_cast<std::int64_t>(column->loads.size()));
      if (gain > kGain && allows(limits, *column))
        better.emplace_back(gain / column->channels(), column.get());
    }
    std::stable_sort(better.begin(), better.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<const Column*> columns;
    for (const auto& [column, gbps] : few.columns) columns.push_back(column);
    const std::size_t offered = columns.size() + std::min<std::size_t>(better.size(), kOffered);
    for (std::size_t i = 0; columns.size() < offered; ++i) columns.push_back(better[i].second);
    Packed more = pack_best(columns, capacities_, steps_);
    std::stable_sort(more.columns.begin(), more.columns.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    columns.clear();
    int count = 0;
    for (const auto& [column, gbps] : more.columns)
      if (count + static_cast<int>(column->orders.size()) <= request_.max_channels)
        count += static_cast<int>(column->orders.size()), columns.push_back(column);
    Packed next = pack_best(columns, capacities_, steps_);
    if (next.total <= few.total * (1 + kSame)) break;
    next.unlimited = few.unlimited;
    few = std::move(next);
  }
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
    Packed rest;  // with the amounts that they have
    count = 0;
    for (const auto& column : columns) {
      if (count + count_of(column) > target) continue;
      count += count_of(column);
      kept.push_back(column.first);
      rest.columns.push_back(column);
      rest.total += column.second * count_of(column);
    }
    Packed fewer = pack_best(kept, capacities_, steps_);
    if (rest.total > fewer.total * (1 + kSame)) {  // the steps ended too soon for better ones
      rest.prices = std::move(fewer.prices);
      fewer = std::move(rest);
    }
    if (greedy.total > fewer.total) fewer = greedy;
    fewer.unlimited = packed.unlimited;
    thinned_prices = fewer.prices;
    fewer.prices = std::move(packed.prices);
    packed = std::move(fewer);
  }
}

}  // namespace loom::search
