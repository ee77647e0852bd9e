#include "component/select/select.hpp"

#include <algorithm>
#include <new>
#include <tuple>

#include "base/format.hpp"
#include "component/select/costs.hpp"
#include "device/host/immediate_exchange.hpp"

namespace loom {
namespace {

using device::Collective;

// The runner-up is worth a probe if it is predicted to take at most this many times as long: machines differ
// by as much.
constexpr double kProbeMargin = 4;

const AlgorithmRow* cheapest(const Conditions& conditions, Collective collective, std::size_t bytes,
                             bool may_wait) {
  const AlgorithmRow* best = nullptr;
  double least = 0;
  for (const AlgorithmRow& row : algorithms()) {
    if (row.on_devices || (row.may_wait && !may_wait)) continue;
    if (!row.can(conditions, collective, bytes) || !row.suits(conditions, collective, bytes)) continue;
    const double cost = row.cost(conditions, collective, bytes);
    if (best != nullptr && cost >= least) continue;
    best = &row;
    least = cost;
  }
  return best;
}

/// The best other algorithm, if a probe is worthwhile: one of the two must have a speed that the machine
/// decides. Where ranks share CPUs, times tell nothing. Both give the same bits, or those of a result would
/// depend on times.
std::optional<Algorithm> candidate_of(const AlgorithmRow& chosen, const Conditions& conditions,
                                      Collective collective, std::size_t bytes, bool may_wait) {
  if (conditions.oversubscribed) return {};
  if (conditions.shape.hosts == 1 &&
      device::offered_bytes(collective, bytes, conditions.shape.ranks) <= kMostUnprobed)
    return {};
  const AlgorithmRow* second = nullptr;
  for (const AlgorithmRow& row : algorithms()) {
    const bool same_bits = !device::is_reduction(collective) || row.in_groups == chosen.in_groups;
    if (row.on_devices || !same_bits || row.varies == chosen.varies || (row.may_wait && !may_wait)) continue;
    if (!row.can(conditions, collective, bytes)) continue;
    if (!row.varies && !row.suits(conditions, collective, bytes)) continue;
    if (second == nullptr ||
        row.cost(conditions, collective, bytes) < second->cost(conditions, collective, bytes))
      second = &row;
  }
  const bool is_close = second != nullptr && second->cost(conditions, collective, bytes) <=
                                                 kProbeMargin * chosen.cost(conditions, collective, bytes);
  return is_close ? std::optional(second->algorithm) : std::nullopt;
}

}  // namespace

bool may_make_an_id(Collective collective, std::size_t bytes, device::Op op, device::Type type) {
  constexpr std::size_t kMostInts = 4;
  if (collective == Collective::kBroadcast) return bytes == sizeof(int);
  return (collective == Collective::kAllreduce || collective == Collective::kReduce) &&
         bytes <= kMostInts * sizeof(int) && (op == device::Op::kMax || op == device::Op::kMin) &&
         type == device::Type::kInt32;
}

Choice choose(const Conditions& conditions, Collective collective, std::size_t bytes, bool may_wait,
              const Tune& tune) {
  const std::size_t all = whole_message(collective, conditions.shape.ranks, bytes);
  if (conditions.shape.ranks > 1) {
    const auto carries = [&](Algorithm algorithm) {
      if (algorithm == Algorithm::kFallback) return true;
      if (algorithm == Algorithm::kStaged) return false;
      const AlgorithmRow& row = row_of(algorithm);
      return !row.on_devices && (may_wait || !row.may_wait) && row.can(conditions, collective, bytes);
    };
    if (const auto wanted = tune.wanted(collective, all, carries)) return {*wanted, {}};
  }
  const AlgorithmRow* const row = cheapest(conditions, collective, bytes, may_wait);
  if (row == nullptr) return {};
  return {row->algorithm, tune.probes(collective, all)
                              ? candidate_of(*row, conditions, collective, bytes, may_wait)
                              : std::nullopt};
}

std::vector<Alternative> alternatives(const Conditions& conditions, Collective collective, std::size_t bytes,
                                      bool may_wait) {
  std::vector<Alternative> all;
  for (const AlgorithmRow& row : algorithms())
    if (!row.on_devices && (may_wait || !row.may_wait) && row.can(conditions, collective, bytes))
      all.push_back(
          {row.algorithm, row.cost(conditions, collective, bytes), row.suits(conditions, collective, bytes)});
  std::ranges::stable_sort(all, [](const Alternative& a, const Alternative& b) {
    return std::tuple(!a.suits, a.us) < std::tuple(!b.suits, b.us);
  });
  return all;
}

std::optional<double> staged_us(const Conditions& conditions, Collective collective, std::size_t bytes,
                                bool may_wait, const Tune& tune) {
  const Choice on_host = choose(conditions, collective, bytes, may_wait, tune);
  if (!has_row(on_host.algorithm)) return {};
  return costs::staged(conditions, collective, bytes,
                       row_of(on_host.algorithm).cost(conditions, collective, bytes));
}

bool may_pay_to_stage(const Conditions& conditions, Collective collective, std::size_t bytes,
                      double kernel_us, const Tune& tune, Algorithm on_gpus) {
  const std::size_t all = whole_message(collective, conditions.shape.ranks, bytes);
  if (conditions.oversubscribed || tune.has_rule_on_devices(collective, all, on_gpus) ||
      !tune.probes(collective, all))
    return false;
  const std::optional<double> us = staged_us(conditions, collective, bytes, true, tune);
  return !us || *us <= kProbeMargin * kernel_us;
}

namespace {

/// The last row has the algorithm that is for the most ranks.
std::string why_none(const Conditions& conditions, Collective collective) {
  std::string why = "loom has no algorithm for it on host memory";
  for (const AlgorithmRow& row : algorithms())
    if (!row.on_devices && row.carries(collective))
      if (const char* because = row.why_not(conditions, collective))
        why = loom::format("not by {}: {}", row.name, because);
  return why;
}

}  // namespace

std::string reason_of(const Conditions& conditions, Collective collective, std::size_t bytes, bool may_wait,
                      const Tune& tune) {
  const Choice choice = choose(conditions, collective, bytes, may_wait, tune);
  if (choice != choose(conditions, collective, bytes, may_wait)) return "a rule of coll_loom_tune";
  const std::vector<Alternative> all = alternatives(conditions, collective, bytes, may_wait);
  if (all.empty()) return why_none(conditions, collective);
  if (choice.algorithm == Algorithm::kFallback)
    return loom::format("faster than {} at this size, as measured", name_of(all[0].algorithm));
  if (choice.candidate)
    return loom::format("probes decide between {} and {}", name_of(choice.algorithm),
                        name_of(*choice.candidate));
  if (all.size() == 1) return "the only one here";
  if (all[1].suits) return "predicted to be the fastest";
  return all[1].us < all[0].us
             ? loom::format("faster than {} at this size, as measured", name_of(all[1].algorithm))
             : "the only one that beats the fallback at this size, as measured";
}

Choice Selector::choose(const Conditions& conditions, Collective collective, std::size_t bytes, bool may_wait,
                        const Tune& tune) {
  if (conditions != conditions_) {
    forget();
    conditions_ = conditions;
  }
  int& calls = calls_[static_cast<std::size_t>(collective)][may_wait];
  if (calls < kCallsBeforeCompiling) {
    ++calls;
    return loom::choose(conditions, collective, bytes, may_wait, tune);
  }
  Steps& steps = steps_[static_cast<std::size_t>(collective)][may_wait];
  try {
    if (steps.empty()) steps = compile(conditions, collective, may_wait, tune);
  } catch (const std::bad_alloc&) {  // the other ranks continue, so this one must too
    return loom::choose(conditions, collective, bytes, may_wait, tune);
  }
  return *compiled(collective, bytes, may_wait);
}

/// Asks for powers of two, the sizes next to them and halfway between, and the limits of the user's ranges.
/// Where two neighbours differ, searches for the first size that does.
Selector::Steps Selector::compile(const Conditions& conditions, Collective collective, bool may_wait,
                                  const Tune& tune) {
  const auto at = [&](std::size_t bytes) {
    return loom::choose(conditions, collective, bytes, may_wait, tune);
  };
  const std::size_t per_block =
      std::max<std::size_t>(1, whole_message(collective, conditions.shape.ranks, 1));
  std::vector<std::size_t> sizes;
  for (std::size_t power = 1; power <= std::size_t{1} << 40; power *= 2)
    for (const std::size_t size : {power, power + 1, power + power / 2}) sizes.push_back(size);
  for (const std::size_t limit : tune.limits(collective)) {
    sizes.push_back(limit / per_block);
    sizes.push_back(limit / per_block + 1);
  }
  std::ranges::sort(sizes);
  Steps steps{{0, at(0)}};
  std::size_t last = 0;
  for (const std::size_t size : sizes) {
    while (at(size) != steps.back().choice) {
      std::size_t same = last, other = size;
      while (other - same > 1) {
        const std::size_t middle = same + (other - same) / 2;
        (at(middle) == steps.back().choice ? same : other) = middle;
      }
      steps.push_back({other, at(other)});
      last = other;
    }
    last = std::max(last, size);
  }
  return steps;
}

std::size_t immediate_below(const Conditions& conditions, Collective collective, const Tune& tune) {
  if (!row_of(Algorithm::kImmediate).carries(collective)) return 0;
  const auto is_immediate = [&](std::size_t bytes) {
    return choose(conditions, collective, bytes, true, tune) == Choice{Algorithm::kImmediate, {}};
  };
  if (collective == Collective::kBarrier) return is_immediate(0) ? 1 : 0;
  if (!is_immediate(1)) return 0;
  // Between two limits of the user's ranges: if any messages are immediate, the short ones are.
  const std::size_t per_block = device::offered_bytes(collective, 1, conditions.shape.ranks);
  const std::size_t in_whole = whole_message(collective, conditions.shape.ranks, 1);
  const std::size_t most = std::max<std::size_t>(1, kMostUnprobed / per_block);
  std::vector<std::size_t> sizes{most};
  for (const std::size_t limit : tune.limits(collective))
    for (const std::size_t size : {limit / in_whole, limit / in_whole + 1})
      if (size > 1 && size < most) sizes.push_back(size);
  std::ranges::sort(sizes);
  std::size_t yes = 1;
  for (const std::size_t size : sizes) {
    if (is_immediate(size)) {
      yes = size;
      continue;
    }
    for (std::size_t no = size; no - yes > 1;) {
      const std::size_t middle = yes + (no - yes) / 2;
      (is_immediate(middle) ? yes : no) = middle;
    }
    break;
  }
  return yes * per_block + 1;
}

}  // namespace loom
