#include "search/together.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "search/bounds.hpp"
#include "search/search.hpp"

namespace loom::search {
namespace {

constexpr double kGain = 1e-9, kSame = 1e-6;
constexpr double kScale =
    0.5;  // of prices, so that the cheapest channel of a part costs less than it is worth
constexpr std::size_t kOfAPart = 8;  // columns in one round
constexpr int kSeeds = 3;            // rounds of local search that find nothing before the end

/// What several parts carry at the same time is one linear program, as that of one part. A column has a
/// channel of every part, each with the same GB/s, and takes what all of them take.
class Together {
 public:
  Together(std::span<const std::unique_ptr<PartOfMachine>> parts, std::span<const Request> requests)
      : steps_(0) {
    std::int64_t most = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) most += steps_for(requests[i], parts[i]->ranks.size());
    steps_ = Steps(most);
    for (std::size_t i = 0; i < parts.size(); ++i)
      parts_.push_back(std::make_unique<Part>(*parts[i], requests[i], steps_));
    for (const auto& part : parts_)
      for (const Resource& resource : part->table.resources()) {
        const auto [entry, is_new] =
            numbers_.try_emplace({resource.number, resource.node}, static_cast<int>(capacities_.size()));
        if (is_new) capacities_.push_back(resource.gbps);
        part->common.push_back(entry->second);
      }
  }

  std::vector<ChannelPlan> run();

 private:
  struct Part {
    Part(const PartOfMachine& machine, const Request& asked, Steps& steps)
        : request(asked),
          pattern(effective(asked.pattern, static_cast<int>(machine.ranks.size()))),
          table(machine.paths, true, pattern == Pattern::kCollnetChain || pattern == Pattern::kCollnetDirect,
                pattern == Pattern::kNvls),
          source(table, pattern, loosest(), asked.exact_gpus, steps) {}
    Limits loosest() const {
      const bool crosses =
          pattern == Pattern::kRing || pattern == Pattern::kBalancedTree || pattern == Pattern::kSplitTree;
      const int cross_nic = crosses && table.nets() > 1 ? request.cross_nic : 0;
      return {cross_nic, topo::PathType::kSys, topo::PathType::kSys};
    }

    const Column* column(std::vector<Order> orders) {
      const auto known = std::find_if(columns.begin(), columns.end(),
                                      [&](const auto& other) { return other->orders == orders; });
      if (known != columns.end()) return known->get();
      return columns.emplace_back(std::make_unique<Column>(source.column(std::move(orders)))).get();
    }

    Request request;
    Pattern pattern;
    HopTable table;
    ColumnSource source;
    std::vector<int> common;  // number among all parts' resources, of each of the table's
    std::vector<std::unique_ptr<Column>> columns;
    Packed packed;
    double raise = 1;  // of what passes between GPUs, beyond `packed`
  };
  struct Joint {
    std::vector<const Column*> of_part;
    std::vector<Load> loads;  // of a GB/s in every part
  };

  bool add_joints(const std::vector<std::vector<const Column*>>& found, LoadSum& sum);
  std::vector<double> prices_of(const Part& part, double scale) const;
  Packed packed_of(std::size_t part) const;
  void limit(Part& part, std::span<const double> left);
  std::vector<double> left_for(const Part& part) const;
  double bound() const;

  Steps steps_;
  std::vector<std::unique_ptr<Part>> parts_;
  std::map<std::pair<int, topo::NodeId>, int> numbers_;
  std::vector<double> capacities_;
  std::vector<std::unique_ptr<Joint>> joints_;
  std::unique_ptr<Packing> packing_;
};

std::vector<double> Together::prices_of(const Part& part, double scale) const {
  std::vector<double> prices;
  for (const int number : part.common)
    prices.push_back(packing_->prices()[static_cast<std::size_t>(number)] * scale);
  return prices;
}

/// The k-th columns of all parts are one joint column, with the cheapest of parts that have fewer.
bool Together::add_joints(const std::vector<std::vector<const Column*>>& found, LoadSum& sum) {
  std::size_t most = 0;
  for (const auto& columns : found) most = std::max(most, columns.size());
  bool helps = false;
  for (std::size_t k = 0; k < most; ++k) {
    auto joint = std::make_unique<Joint>();
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const Column* column = found[i][k < found[i].size() ? k : 0];
      joint->of_part.push_back(column);
      for (const Load& load : column->loads)
        sum.add(parts_[i]->common[static_cast<std::size_t>(load.resource)], load.factor / column->channels());
    }
    joint->loads = sum.take();
    if (packing_->gain(joint->loads, 1) <= kGain) continue;
    packing_->add(joint->loads, 1);
    joints_.push_back(std::move(joint));
    helps = true;
  }
  return helps;
}

/// What of `part` goes into the joint columns: GB/s of each channel of its columns.
Packed Together::packed_of(std::size_t part) const {
  std::map<std::size_t, double> gbps;  // by place in Part::columns, which is the order they were found in
  for (std::size_t j = 0; j < joints_.size(); ++j) {
    const double amount = packing_->amount(static_cast<int>(j));
    if (amount <= 0) continue;
    const Column* column = joints_[j]->of_part[part];
    const auto place = std::find_if(parts_[part]->columns.begin(), parts_[part]->columns.end(),
                                    [&](const auto& other) { return other.get() == column; });
    gbps[static_cast<std::size_t>(place - parts_[part]->columns.begin())] += amount / column->channels();
  }
  Packed packed;
  for (const auto& [place, amount] : gbps) {
    const Column* column = parts_[part]->columns[place].get();
    packed.columns.emplace_back(column, amount);
    packed.total += amount * column->channels();
  }
  packed.unlimited = packed.total;
  return packed;
}

/// At most as many channels as are asked for: the widest, which share what the others had.
void Together::limit(Part& part, std::span<const double> left) {
  auto& columns = part.packed.columns;
  std::stable_sort(columns.begin(), columns.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<const Column*> kept;
  std::size_t count = 0;
  for (const auto& [column, gbps] : columns)
    if (count + column->orders.size() <= static_cast<std::size_t>(part.request.max_channels))
      kept.push_back(column), count += column->orders.size();
  if (kept.size() < columns.size()) part.packed = pack_best(kept, left, steps_);
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

/// All parts carry at least the total, so a GB/s of it costs at least what the cheapest channels of all cost.
double Together::bound() const {
  double worth = 0, least = 0;
  for (std::size_t i = 0; i < capacities_.size(); ++i) worth += packing_->prices()[i] * capacities_[i];
  for (const auto& part : parts_) least += part->source.least_cost(prices_of(*part, 1), 0);
  return least > 0 ? worth / least : std::numeric_limits<double>::infinity();
}

std::vector<ChannelPlan> Together::run() {
  std::vector<ChannelPlan> plans(parts_.size());
  packing_ = std::make_unique<Packing>(capacities_, steps_);
  LoadSum sum(capacities_.size());
  for (int round = 0, failures = 0; round == 0 || !steps_.are_spent(); ++round) {
    packing_->optimize();
    std::vector<std::vector<const Column*>> found;
    bool exact = true;
    for (const auto& part : parts_) {
      const bool part_exact = part->source.is_exact() || (failures > 0 && part->source.can_be_exact());
      exact = exact && part_exact;
      found.emplace_back();
      for (std::vector<Order>& orders : part->source.cheaper(prices_of(*part, kScale), round, part_exact)) {
        if (found.back().size() == kOfAPart) break;
        found.back().push_back(part->column(std::move(orders)));
      }
      if (found.back().empty()) return plans;
    }
    if (add_joints(found, sum)) {
      failures = 0;
      continue;
    }
    if (exact || ++failures >= kSeeds) break;
  }
  packing_->optimize();
  const double bound = this->bound();
  for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i]->packed = packed_of(i);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    Part& part = *parts_[i];
    const std::vector<double> left = left_for(part);
    limit(part, left);
    ChannelPlan& plan = plans[i];
    plan.pattern = part.pattern;
    plan.network = true;
    plan.bound_gbps = bound;
    fill_plan(plan, part.table, part.packed, left);
    part.raise = plan.channels[0].intra_gbps / plan.channels[0].inter_gbps /
                 (part.pattern == Pattern::kNvls ? kNvlsShare : 1);
    plan.limits = {0, plan.type_inter, plan.type_intra};
    for (const auto& [column, gbps] : part.packed.columns)
      plan.limits.cross_nic = std::max(plan.limits.cross_nic, column->limits.cross_nic);
    if (part.request.cross_nic == 1) plan.limits.cross_nic = std::min(1, plan.limits.cross_nic);
    split_channels(plan, part.table, part.request);
  }
  return plans;
}

}  // namespace

std::vector<ChannelPlan> plan_together(std::span<const std::unique_ptr<PartOfMachine>> parts,
                                       std::span<const Request> requests) {
  return Together(parts, requests).run();
}

}  // namespace loom::search
