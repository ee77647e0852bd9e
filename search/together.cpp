#include "search/together.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/format.hpp"
#include "search/bounds.hpp"
#include "search/joint_search.hpp"

namespace loom::search {
namespace {

constexpr double kGain = 1e-9;           // smaller gains are rounding
constexpr double kLeastPrice = 1e-9;     // a part whose channels cost less than this shares nothing
constexpr std::size_t kCombined = 8;     // the cheapest columns of a part, in one look
constexpr int kSeeds = 3;                // rounds of local search that find nothing before the end
constexpr int kPatience = 8;             // rounds in which the total must grow by
constexpr double kLeastProgress = 1e-3;  // this part

std::int64_t steps_of(std::span<const PartOfMachine* const> parts, std::span<const Request> requests) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) sum += steps_for(requests[i], parts[i]->ranks.size());
  return sum;
}

}  // namespace

Together::Together(std::span<const PartOfMachine* const> parts, std::span<const Request> requests)
    : steps_(steps_of(parts, requests)) {
  std::map<std::pair<int, topo::NodeId>, int> numbers;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts_.push_back(std::make_unique<Part>(*parts[i], requests[i], steps_));
    for (const Resource& resource : parts_.back()->table.resources()) {
      // Links and cables are common; what stands for a GPU is its part's own.
      const bool is_common = resource.number != Resource::kNone ||
                             parts[i]->system.node(resource.node).kind() == topo::NodeKind::kNet;
      const auto next = static_cast<int>(resources_.size());
      const int number =
          is_common ? numbers.try_emplace({resource.number, resource.node}, next).first->second : next;
      if (number == next) resources_.push_back(resource);
      parts_.back()->common.push_back(number);
    }
  }
  for (const Resource& resource : resources_) capacities_.push_back(resource.gbps);
  packing_ = std::make_unique<Packing>(capacities_, steps_);
}

/// Those of a part's own resources, of `prices` of all.
std::vector<double> Together::prices_of(const Part& part, std::span<const double> prices,
                                        double scale) const {
  std::vector<double> own;
  for (const int number : part.common) own.push_back(prices[static_cast<std::size_t>(number)] * scale);
  return own;
}

/// The cheapest first; returns what a GB/s of that costs.
double Together::sort_by_cost(const Part& part, std::vector<const Column*>& columns) {
  const std::vector<double> prices = prices_of(part, packing_->prices(), 1);
  std::vector<std::pair<double, const Column*>> costs;
  for (const Column* column : columns) {
    double cost = 0;
    for (const Load& load : column->loads)
      cost += prices[static_cast<std::size_t>(load.resource)] * load.factor;
    costs.emplace_back(cost / column->channels(), column);
    steps_.take(static_cast<std::int64_t>(column->loads.size()) + 4);
  }
  std::stable_sort(costs.begin(), costs.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t i = 0; i < costs.size(); ++i) columns[i] = costs[i].second;
  return costs.front().first;
}

/// The columns at `place` of all parts are one joint column, with the first of parts that have fewer.
bool Together::add_joint(const Columns& columns, std::size_t place) {
  auto joint = std::make_unique<Joint>();
  LoadSum sum(capacities_.size());
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Column* column = columns[i][place < columns[i].size() ? place : 0];
    joint->of_part.push_back(column);
    for (const Load& load : column->loads)
      sum.add(parts_[i]->common[static_cast<std::size_t>(load.resource)], load.factor / column->channels());
  }
  joint->loads = sum.take();
  if (packing_->gain(joint->loads, 1) <= kGain) return false;
  packing_->add(joint->loads, 1);
  joints_.push_back(std::move(joint));
  return true;
}

/// The best amounts of these columns.
void Together::pack(Columns columns) {
  for (bool helps = true; helps;) {
    packing_->optimize();
    std::size_t most = 0;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      sort_by_cost(*parts_[i], columns[i]);
      most = std::max(most, columns[i].size());
    }
    helps = false;
    for (std::size_t place = 0; place < std::min(most, kCombined); ++place)
      helps = add_joint(columns, place) || helps;
    if (steps_.are_spent()) break;
  }
  settle();
}

/// Where the steps ended too soon, each joint column may carry more as what the ones before left.
void Together::settle() {
  const bool done = packing_->optimize();
  amounts_.clear();
  for (std::size_t j = 0; j < joints_.size(); ++j) amounts_.push_back(packing_->amount(static_cast<int>(j)));
  total_ = packing_->total();
  if (done) return;
  std::vector<double> left = capacities_, amounts;
  double total = 0;
  for (const auto& joint : joints_) {
    amounts.push_back(width_in(left, joint->loads));
    take_from(left, joint->loads, amounts.back());
    total += amounts.back();
  }
  if (total > total_) amounts_ = std::move(amounts), total_ = total;
}

bool Together::can_be_exact(bool hard) const {
  return std::all_of(parts_.begin(), parts_.end(), [&](const auto& part) {
    return part->source.is_exact() || (hard && part->source.can_be_exact());
  });
}

/// Columns that cost less than the cheapest known ones of their part. Any of them makes the cheapest joint
/// column cheaper, and that costs 1 as yet.
bool Together::find_columns(int round, bool hard) {
  bool found = false;
  for (const auto& part : parts_) {
    std::vector<const Column*> known;
    for (const auto& column : part->columns) known.push_back(column.get());
    const double cost = sort_by_cost(*part, known);
    if (cost < kLeastPrice) continue;
    const bool exact = part->source.is_exact() || (hard && part->source.can_be_exact());
    for (std::vector<Order>& orders :
         part->source.cheaper(prices_of(*part, packing_->prices(), 1 / cost), round, exact))
      found = part->add(std::move(orders)) || found;
  }
  return found;
}

Together::Columns Together::all_columns() const {
  Columns all(parts_.size());
  for (std::size_t i = 0; i < parts_.size(); ++i)
    for (const auto& column : parts_[i]->columns) all[i].push_back(column.get());
  return all;
}

void Together::search() {
  pack(all_columns());
  double before = total_;
  for (int round = 0, failures = 0; !steps_.are_spent(); ++round) {
    if (round % kPatience == kPatience - 1) {  // the tail of many small gains is cut
      if (total_ <= before * (1 + kLeastProgress)) failures = std::max(failures, kSeeds - 1);
      before = total_;
    }
    const bool hard = failures > 0;
    if (find_columns(round, hard)) {
      pack(all_columns());
      if (failures < kSeeds - 1) failures = 0;
      continue;
    }
    if (can_be_exact(hard) || ++failures >= kSeeds) break;
  }
}

/// What of a part goes into the joint columns: GB/s of each channel of its columns.
Packed Together::packed_of(std::size_t part) const {
  Packed packed;
  for (const auto& column : parts_[part]->columns) {
    double gbps = 0;
    for (std::size_t j = 0; j < joints_.size(); ++j)
      if (joints_[j]->of_part[part] == column.get()) gbps += amounts_[j] / column->channels();
    if (gbps <= 0) continue;
    packed.columns.emplace_back(column.get(), gbps);
    packed.total += gbps * column->channels();
  }
  packed.unlimited = packed.total;
  return packed;
}

/// What the other parts leave of each of the table's resources.
std::vector<double> Together::left_for(const Part& part) const {
  std::vector<double> left = capacities_;
  const auto take = [&](const Part& other, const Load& load, double gbps) {
    left[static_cast<std::size_t>(other.common[static_cast<std::size_t>(load.resource)])] -=
        load.factor * gbps;
  };
  for (const auto& other : parts_) {
    if (other.get() == &part) continue;
    for (const auto& [column, gbps] : other->packed.columns) {
      for (const Load& load : column->loads) take(*other, load, gbps * other->raise);
      for (const Load& load : column->network_loads) take(*other, load, gbps * (1 - other->raise));
    }
  }
  std::vector<double> mine;
  for (const int number : part.common) mine.push_back(std::max(0.0, left[static_cast<std::size_t>(number)]));
  return mine;
}

/// A GB/s in every part costs at least what the cheapest channels of all cost.
Proof Together::proof() {
  const std::vector<double> prices = without_rounding(packing_->prices());
  double least = 0;
  for (const auto& part : parts_) {
    std::vector<const Column*> known;
    for (const auto& column : part->columns) known.push_back(column.get());
    const double cost = sort_by_cost(*part, known);
    least += part->source.least_cost(prices_of(*part, prices, 1), cost * (1 - Search::kSame));
  }
  return price_bound(resources_, prices, least);
}

void Together::run(std::span<ChannelPlan* const> plans) {
  Proof proof;
  for (std::size_t i = 0; i < parts_.size(); ++i) {  // what one cannot alone, all cannot
    parts_[i]->add(*plans[i]);
    if (plans[i]->bound_gbps >= proof.gbps) continue;
    proof = plans[i]->proof;
    proof.gbps = plans[i]->bound_gbps;
    if (!proof.because.empty())
      proof.because =
          loom::format("in the part of rank {}: {}", plans[i]->channels[0].ranks[0], proof.because);
  }
  search();
  if (Proof joint = this->proof(); joint.gbps < proof.gbps) proof = std::move(joint);
  proof.together = true;
  limit();
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    Part& part = *parts_[i];
    const std::vector<double> left = left_for(part);
    ChannelPlan plan;
    plan.pattern = part.pattern;
    plan.network = true;
    plan.proof = proof;
    plan.bound_gbps = proof.gbps;
    fill_plan(plan, part.table, part.packed, left);
    part.raise = plan.channels[0].intra_gbps / plan.channels[0].inter_gbps /
                 (part.pattern == Pattern::kNvls ? kNvlsShare : 1);
    plan.limits = {0, plan.type_inter, plan.type_intra};
    for (const auto& [column, gbps] : part.packed.columns)
      plan.limits.cross_nic = std::max(plan.limits.cross_nic, column->limits.cross_nic);
    if (part.request.cross_nic == 1) plan.limits.cross_nic = std::min(1, plan.limits.cross_nic);
    split_channels(plan, part.table, part.request);
    plan.attempts = std::move(plans[i]->attempts);
    plan.steps = plans[i]->steps;
    *plans[i] = std::move(plan);
  }
  plans[0]->steps += steps_.taken();
}

void plan_together(std::span<const std::unique_ptr<PartOfMachine>> parts, std::span<const Request> requests,
                   std::vector<ChannelPlan>& plans) {
  std::vector<const PartOfMachine*> sharing;
  std::vector<Request> asked;
  std::vector<ChannelPlan*> of_sharing;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (plans[i].in_order) continue;
    sharing.push_back(parts[i].get());
    asked.push_back(requests[i]);
    of_sharing.push_back(&plans[i]);
  }
  Together(sharing, asked).run(of_sharing);
}

}  // namespace loom::search
