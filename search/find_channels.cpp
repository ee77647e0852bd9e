// find_channels.cpp -- the list of limits, and how the best becomes a plan.
#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "base/format.hpp"
#include "search/bounds.hpp"
#include "search/search.hpp"

namespace loom::search {
namespace {

constexpr std::int64_t kStepsPerGpu = 1'500'000;
constexpr int kFewGpus = 16;  // fewer get as many steps as these
// Per cent of the steps left.
constexpr std::int64_t kForStrictest = 40, kForOnlyLimits = 70, kForColumns = 60, kForBound = 40,
                       kForTightening = 40;

/// The third generation of NVSwitches, which came with sm_90, is the first that multicasts.
constexpr int kFirstMulticast = 90;
std::optional<int> first_that_cannot_multicast(const topo::System& system) {
  for (const topo::NodeId gpu : system.gpus())
    if (system.node(gpu).gpu().compute_capability < kFirstMulticast) return system.node(gpu).gpu().rank;
  return std::nullopt;
}

/// Types between the given ends that occur, ascending.
std::vector<topo::PathType> types_of(const HopTable& table, bool network) {
  std::array<bool, static_cast<std::size_t>(topo::PathType::kDis)> occurs{};  // and below
  const auto note = [&](const Hop& hop) {
    if (hop.type < topo::PathType::kDis) occurs[static_cast<std::size_t>(hop.type)] = true;
  };
  const int end = network ? table.gpus() + table.nets() : table.gpus();
  for (int i = 0; i < table.gpus(); ++i) {
    for (int j = network ? table.gpus() : 0; j < end; ++j)
      if (i != j) note(table.hop(i, j)), note(table.hop(j, i));
    if (!network && table.nv_switch() >= 0) note(table.hop(i, table.nv_switch()));
  }
  std::vector<topo::PathType> types;
  for (std::size_t type = 0; type < occurs.size(); ++type)
    if (occurs[type]) types.push_back(static_cast<topo::PathType>(type));
  if (types.empty()) types.push_back(topo::PathType::kLoc);
  return types;
}

}  // namespace

void lower_bound(ChannelPlan& plan, Proof proof) {
  if (proof.gbps >= plan.bound_gbps) return;
  plan.bound_gbps = proof.gbps;
  plan.proof = std::move(proof);
}

std::int64_t steps_for(const Request& request, std::size_t gpus) {
  return request.max_steps > 0 ? request.max_steps
                               : kStepsPerGpu * std::max(static_cast<int>(gpus), kFewGpus);
}

Search::Search(const topo::Paths& paths, const Request& request)
    : request_(request),
      pattern_(effective(request.pattern, static_cast<int>(paths.system().gpus().size()))),
      collnet_(pattern_ == Pattern::kCollnetChain || pattern_ == Pattern::kCollnetDirect),
      paths_(paths),
      table_(paths, request.nodes > 1, collnet_, pattern_ == Pattern::kNvls),
      intra_(types_of(table_, false)),
      inter_(types_of(table_, true)),
      steps_(steps_for(request, paths.system().gpus().size())) {
  for (const Resource& resource : table_.resources()) capacities_.push_back(resource.gbps);
  ends_ = end_bound(table_, pattern_, request.nodes > 1, request.max_channels);
  most_ = ends_.gbps;
}

std::string Search::why_absent() const {
  if (table_.gpus() == 0) return "it has no GPUs";
  if (collnet_ && request_.nodes <= 1) return "what the network reduces comes from several nodes";
  if (request_.nodes > 1 && table_.nets() == 0)
    return collnet_ ? "it has no port whose network reduces" : "it has no port to other nodes";
  if (pattern_ != Pattern::kNvls) return "";
  if (table_.gpus() == 1) return "a GPU alone has nothing to multicast to";
  if (table_.nv_switch() < 0) return "it has no NVSwitch";
  if (const std::optional<int> rank = first_that_cannot_multicast(paths_.system()))
    return loom::format("rank {}'s GPU is sm_{}, and switches multicast from sm_{} on", *rank,
                        paths_.system().node(paths_.system().gpu_of_rank(*rank)).gpu().compute_capability,
                        kFirstMulticast);
  for (int gpu = 0; gpu < table_.gpus(); ++gpu)
    if (table_.hop(gpu, table_.nv_switch()).count == 0 || table_.hop(table_.nv_switch(), gpu).count == 0)
      return loom::format("rank {} does not hang from the NVSwitch", table_.rank(gpu));
  return "";
}

std::vector<int> Search::cross_nics() const {
  const bool chooses =
      table_.nets() > 1 &&
      (pattern_ == Pattern::kRing || pattern_ == Pattern::kBalancedTree || pattern_ == Pattern::kSplitTree);
  if (!chooses || request_.cross_nic == 0) return {0};
  return request_.cross_nic == 1 ? std::vector{1} : std::vector{0, 2};
}

/// Paths that `limits` allow lead from the first GPU to every other one, whichever way; without them no chain
/// does.
bool Search::connects(const Limits& limits) const {
  if (has_heads(pattern_)) return true;
  std::vector<int> reached = {0}, left;
  for (int gpu = 1; gpu < table_.gpus(); ++gpu) left.push_back(gpu);
  for (std::size_t i = 0; i < reached.size() && !left.empty(); ++i)
    std::erase_if(left, [&](int gpu) {
      const bool near =
          std::min(table_.hop(reached[i], gpu).type, table_.hop(gpu, reached[i]).type) <= limits.type_intra;
      if (near) reached.push_back(gpu);
      return near;
    });
  return left.empty();
}

/// What is found under `limits`, beginning with the columns `known`; no more than `target` is sought.
/// `quick`: a few wide channels are tried first.
Packed Search::best_under(const Limits& limits, double target, bool quick, const Packed& known) {
  const auto in_part = [&](auto&& find) {
    const PartOfSteps part(steps_, kForColumns);
    return find();
  };
  Packed filled;
  if (!has_heads(pattern_) && target > 0 && quick)
    filled = limited(in_part([&] { return fill(limits, target); }), limits);
  if (filled.total >= target * (1 - kSame) || filled.impossible) return filled;
  if (filled.total > 0 && steps_.are_spent()) return filled;
  const Packed all = in_part([&] { return pack(limits, target, known); });
  Packed packed = limited(all, limits);
  const auto take_better = [&](Packed other) {  // but not its prices
    packed.unlimited = std::max(packed.unlimited, other.unlimited);
    if (other.total <= packed.total * (1 + kSame)) return;
    packed.total = other.total;
    packed.columns = std::move(other.columns);
  };
  if (target > 0 && packed.total < target * (1 - kSame) && packed.unlimited >= target * (1 - kSame) &&
      !steps_.are_spent())
    take_better(limited(in_part([&] { return pack(limits, 0, all); }), limits));  // it took too many channels
  take_better(std::move(filled));
  return packed;
}

bool Search::try_limits(Limits limits, double enough, Limits& chosen, Packed& best) {
  const bool already =
      enough > 0 && std::all_of(best.columns.begin(), best.columns.end(),
                                [&](const auto& entry) { return allows(limits, *entry.first); });
  if (already) {
    attempts_.push_back({limits, best.total, "the channels found under looser limits keep to them"});
    chosen = limits;
    return true;
  }
  const bool in_vain = std::any_of(attempts_.begin(), attempts_.end(), [&](const Attempt& attempt) {
    return attempt.limits == limits && attempt.total_gbps <= 0;
  });
  if (in_vain) return false;
  if (best.total > 0 && steps_.are_spent()) {
    attempts_.push_back({limits, 0, "not tried: no steps are left"});
    return false;
  }
  if (!connects(limits)) {
    attempts_.push_back({limits, 0, "no channel reaches every GPU"});
    return false;
  }
  const bool quick = enough == 0 || table_.gpus() <= kFewGpus;  // of many, `best` is there to begin with
  Packed packed = best_under(limits, enough > 0 ? enough : most_, quick, best);
  const bool reached = packed.total > 0 && packed.total >= enough * (1 - kSame);
  attempts_.push_back({limits, packed.total, ""});
  if (packed.total <= 0)
    attempts_.back().outcome = "no channel reaches every GPU";
  else if (!reached)
    attempts_.back().outcome =
        loom::format("{:.6g} GB/s are less than the {:.6g} of looser limits", packed.total, enough);
  else
    attempts_.back().outcome =
        loom::format("{:.6g} GB/s: taken unless stricter limits carry as much", packed.total);
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
  const auto holds = [&](Limits stricter) {
    const PartOfSteps part(steps_, kForTightening);
    return try_limits(stricter, enough, chosen, best);
  };
  for (const topo::PathType type : inter_)
    if (type >= chosen.type_inter || holds({chosen.cross_nic, type, chosen.type_intra})) break;
  for (const topo::PathType type : intra_)
    if (type >= chosen.type_intra || holds({chosen.cross_nic, chosen.type_inter, type})) break;
  for (const int cross : cross_nics())
    if (cross == chosen.cross_nic || holds({cross, chosen.type_inter, chosen.type_intra})) break;
  limits = chosen;
}

/// The prices of any packing bound all of them: no set of channels carries more than the links are worth by
/// what the cheapest channel costs.
Proof Search::bound_of(const Packed& packed, const Limits& loosest) {
  const std::vector<double> prices = without_rounding(packed.prices);
  double worth = 0;
  for (std::size_t i = 0; i < prices.size(); ++i) worth += prices[i] * capacities_[i];
  const PartOfSteps part(steps_, kForBound);
  ColumnSource source(table_, pattern_, loosest, request_.exact_gpus, steps_);
  const double least = source.least_cost(prices, worth / (packed.unlimited * (1 + kSame)));
  return price_bound(table_.resources(), prices, least);
}

/// Bounds `best` by its prices, and looks under the loosest limits where these allow more.
void Search::prove_or_improve(ChannelPlan& plan, const Limits& loosest, Limits& limits, Packed& best) {
  if (best.total > 0 && !steps_.are_spent()) lower_bound(plan, bound_of(best, loosest));
  if (best.unlimited < plan.bound_gbps * (1 - kSame) && limits != loosest) {
    Packed loose = best;  // to begin with
    Limits found = loosest;
    const bool fits = [&] {
      const PartOfSteps part(steps_, kForOnlyLimits);
      return try_limits(loosest, 0, found, loose);
    }();
    if (fits) {
      if (loose.total < plan.bound_gbps * (1 - kSame) && !steps_.are_spent())
        lower_bound(plan, bound_of(loose, loosest));
      if (loose.total > best.total * (1 + kSame)) {
        limits = loosest;
        best = std::move(loose);
        tighten(limits, best);
      }
    }
  }
  if (pattern_ == Pattern::kRing && best.unlimited < plan.bound_gbps * (1 - kSame))
    lower_bound(plan, ring_cut_bound(paths_.system(), table_, plan.network, steps_));
}

/// As much by heads that fill one port each, where that is possible.
void Search::spread_over_heads(const Limits& limits, Packed& best) {
  const std::vector<double> capacities = capacities_;
  for (int head = 0; head < table_.gpus(); ++head)
    capacities_[static_cast<std::size_t>(table_.head_resource(head))] = 1;
  Packed spread = limited(pack(limits, best.total, {}), limits);
  capacities_ = capacities;
  if (spread.total >= best.total * (1 - kSame)) best = std::move(spread);
}

ChannelPlan Search::run() {
  ChannelPlan plan;
  plan.pattern = pattern_;
  plan.network = request_.nodes > 1;
  if (plan.absent = why_absent(); !plan.absent.empty()) {
    plan.pattern = request_.pattern;
    return plan;
  }
  const Limits loosest{cross_nics().back(), inter_.back(), intra_.back()};
  Limits limits{cross_nics().front(), inter_.front(), intra_.front()};
  Packed best;
  {
    const PartOfSteps part(steps_, limits == loosest ? kForOnlyLimits : kForStrictest);
    try_limits(limits, 0, limits, best);
  }
  plan.bound_gbps = most_;
  plan.proof = ends_;
  if (best.total < most_ * (1 - kSame)) prove_or_improve(plan, loosest, limits, best);
  plan.limits = limits;
  if (best.total > 0 && plan.network && has_heads(pattern_) && !steps_.are_spent())
    spread_over_heads(limits, best);
  const bool is_few = best.columns.size() < static_cast<std::size_t>(request_.max_channels);
  if (best.total > 0 && is_few && !steps_.are_spent()) {
    // the same with fewer channels, where wide ones do
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
  if (plan.channels.empty()) {
    plan.bound_gbps = 0;
    plan.proof = {};
    plan.absent = plan.network ? "no GPU reaches all others and a port, as a head must"
                               : "no GPU reaches all others, as a head must";
  }
  if (table_.gpus() > 1 && pattern_ != Pattern::kCollnetDirect &&
      !plan.network) {  // no channel is faster than a hop
    const auto fastest = static_cast<double>(topo::max_gbps(paths_, false));
    Proof few;
    few.gbps = fastest * request_.max_channels;
    few.because = loom::format("{} channels, none faster than the fastest path between GPUs, {:.6g} GB/s",
                               request_.max_channels, fastest);
    lower_bound(plan, std::move(few));
  }
  split_channels(plan, table_, request_);
  plan.attempts = std::move(attempts_);
  plan.steps = steps_.taken();
  return plan;
}

ChannelPlan find_channels(const topo::Paths& paths, const Request& request) {
  return Search(paths, request).run();
}

ChannelPlan find_ring(const topo::System& system) {
  topo::PathRules rules;
  rules.network_inside_host = false;
  Request request;
  request.max_channels = 1;
  return find_channels(topo::Paths(system, rules), request);
}

}  // namespace loom::search
