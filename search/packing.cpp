#include "search/packing.hpp"

#include <algorithm>
#include <cmath>

namespace loom::search {
namespace {

constexpr double kGain = 1e-9;    // smaller gains are rounding
constexpr double kPivot = 1e-9;   // smaller elements are zero
constexpr double kSpread = 1e-6;  // ties are broken by capacities that differ by less than this part
constexpr double kGoldenRatio = 0.6180339887498949;
constexpr std::size_t kOffered = 24;  // columns looked at in each pivot
constexpr double kFaded = 0.5;        // of what was left out: what is offered now adds less, look at all

}  // namespace

std::vector<Load> LoadSum::take() {
  std::vector<Load> loads;
  loads.reserve(touched_.size());
  for (const int resource : touched_) {
    double& sum = sums_[static_cast<std::size_t>(resource)];
    loads.push_back({resource, sum});
    sum = 0;
  }
  touched_.clear();
  return loads;
}

Packing::Packing(std::span<const double> capacities, Steps& steps)
    : steps_(steps),
      capacities_(capacities.begin(), capacities.end()),
      slack_row_(capacities.size(), kNone),
      place_(capacities.size(), kNone),
      prices_(capacities.size(), 0) {}

void Packing::add_row(int resource) {
  const auto i = static_cast<std::size_t>(resource);
  slack_row_[i] = static_cast<int>(basis_.size());
  basis_.push_back(-1 - resource);
  // Capacities that are all different end the ties on which the method could turn in circles.
  const double turn = static_cast<double>(resource + 1) * kGoldenRatio;
  amounts_.push_back(capacities_[i] * (1 - kSpread * (turn - std::floor(turn))));
  exact_.push_back(capacities_[i]);
  direction_.push_back(0);
  for (UsedUp& used : used_up_) used.inverse.push_back(0);
}

int Packing::add(std::span<const Load> loads, double value) {
  for (const Load& load : loads) {
    const auto i = static_cast<std::size_t>(load.resource);
    if (slack_row_[i] == kNone && place_[i] == kNone) add_row(load.resource);
  }
  load_count_ += static_cast<std::int64_t>(loads.size());
  columns_.push_back({loads, value});
  row_of_.push_back(kNone);
  return static_cast<int>(columns_.size()) - 1;
}

double Packing::gain(std::span<const Load> loads, double value) const {
  for (const Load& load : loads) value -= prices_[static_cast<std::size_t>(load.resource)] * load.factor;
  return value;
}

/// The column, or as -1 - resource the unused part of a resource, that adds most of those offered; false:
/// none of all adds anything.
bool Packing::entering(int& column) {
  for (const bool all : {false, true}) {
    if (all) offer_columns();
    double best_gain = kGain;
    bool found = false;
    const auto consider = [&](double gain, int candidate) {
      if (gain > best_gain) best_gain = gain, column = candidate, found = true;
    };
    for (const int j : offered_)
      if (row_of_[static_cast<std::size_t>(j)] < 0) {
        consider(gain_of(j), j);
        steps_.take(static_cast<std::int64_t>(columns_[static_cast<std::size_t>(j)].loads.size()));
      }
    for (const UsedUp& used : used_up_)
      consider(-prices_[static_cast<std::size_t>(used.resource)], -1 - used.resource);
    if (found && (all || best_gain >= kFaded * least_offered_)) return true;
  }
  return false;
}

void Packing::offer_columns() {
  std::vector<std::pair<double, int>> gains;  // negative, so that the most comes first
  for (int j = 0; j < static_cast<int>(columns_.size()); ++j)
    if (row_of_[static_cast<std::size_t>(j)] < 0)
      if (const double gain = gain_of(j); gain > kGain) gains.emplace_back(-gain, j);
  steps_.take(load_count_);
  least_offered_ = 0;
  if (gains.size() > kOffered) {
    std::nth_element(gains.begin(), gains.begin() + kOffered, gains.end());
    least_offered_ = -gains[kOffered].first;
    gains.resize(kOffered);
    std::sort(gains.begin(), gains.end());
  }
  offered_.clear();
  for (const auto& [gain, j] : gains) offered_.push_back(j);
}

void Packing::find_direction(int column) {
  std::fill(direction_.begin(), direction_.end(), 0.0);
  const auto take = [&](int resource, double factor) {
    const int place = place_[static_cast<std::size_t>(resource)];
    if (place == kNone) {
      direction_[static_cast<std::size_t>(slack_row_[static_cast<std::size_t>(resource)])] += factor;
      return;
    }
    const std::vector<double>& inverse = used_up_[static_cast<std::size_t>(place)].inverse;
    for (std::size_t i = 0; i < inverse.size(); ++i) direction_[i] += inverse[i] * factor;
    steps_.take(static_cast<std::int64_t>(inverse.size()) / 2);
  };
  if (column < 0) return take(-1 - column, 1);
  for (const Load& load : columns_[static_cast<std::size_t>(column)].loads) take(load.resource, load.factor);
}

bool Packing::pivot(int column) {
  find_direction(column);
  const double gained = column >= 0 ? gain_of(column) : -prices_[static_cast<std::size_t>(-1 - column)];
  const std::size_t rows = direction_.size();
  std::size_t leaving = rows;
  double step = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    if (direction_[i] <= kPivot) continue;
    const double ratio = amounts_[i] / direction_[i];
    if (leaving == rows || ratio < step) leaving = i, step = ratio;
  }
  if (leaving == rows) return false;  // unbounded: cannot be, every column takes something

  const double element = direction_[leaving];
  if (const int left = basis_[leaving]; left < 0) {  // its column was one of the unit matrix until now
    const auto resource = static_cast<std::size_t>(-1 - left);
    slack_row_[resource] = kNone;
    place_[resource] = static_cast<int>(used_up_.size());
    used_up_.push_back({-1 - left, std::vector<double>(rows, 0)});
    used_up_.back().inverse[leaving] = 1;
  } else {
    row_of_[static_cast<std::size_t>(left)] = kNone;
  }
  const double* const direction = direction_.data();
  steps_.take(static_cast<std::int64_t>(4 * rows));
  for (UsedUp& used : used_up_) {
    double* const inverse = used.inverse.data();
    const double share = inverse[leaving] / element;
    if (share == 0) continue;
    for (std::size_t i = 0; i < rows; ++i) inverse[i] -= direction[i] * share;
    inverse[leaving] = share;
    prices_[static_cast<std::size_t>(used.resource)] += gained * share;
    steps_.take(static_cast<std::int64_t>(rows) / 2);
  }
  for (std::size_t i = 0; i < rows; ++i) amounts_[i] = std::max(0.0, amounts_[i] - direction[i] * step);
  amounts_[leaving] = std::max(0.0, step);
  basis_[leaving] = column;
  if (column >= 0) {
    row_of_[static_cast<std::size_t>(column)] = static_cast<int>(leaving);
  } else {
    const auto resource = static_cast<std::size_t>(-1 - column);
    const auto place = static_cast<std::size_t>(place_[resource]);
    place_[static_cast<std::size_t>(used_up_.back().resource)] = static_cast<int>(place);
    std::swap(used_up_[place], used_up_.back());
    used_up_.pop_back();
    place_[resource] = kNone;
    slack_row_[resource] = static_cast<int>(leaving);
    prices_[resource] = 0;
  }
  return true;
}

bool Packing::optimize() {
  offer_columns();  // those that came since are not among them
  bool done = false;
  while (!done && !steps_.are_spent()) {
    int column = 0;
    done = !entering(column) || !pivot(column);
  }
  settle();
  return done;
}

/// Amounts for the true capacities; where those would be negative, for the ones that break ties.
void Packing::settle() {
  for (double& price : prices_) price = std::max(0.0, price);
  exact_ = amounts_;
  std::vector<double> amounts(basis_.size(), 0);
  for (std::size_t i = 0; i < basis_.size(); ++i)
    if (basis_[i] < 0) amounts[i] = capacities_[static_cast<std::size_t>(-1 - basis_[i])];
  for (const UsedUp& used : used_up_)
    for (std::size_t i = 0; i < basis_.size(); ++i)
      amounts[i] += used.inverse[i] * capacities_[static_cast<std::size_t>(used.resource)];
  steps_.take(static_cast<std::int64_t>(basis_.size() * (used_up_.size() + 2)) / 2);
  for (double& amount : amounts) {
    if (amount < -1e-9) return;
    amount = std::max(0.0, amount);
  }
  exact_ = std::move(amounts);
}

double Packing::amount(int column) const {
  const int row = row_of_[static_cast<std::size_t>(column)];
  return row < 0 ? 0 : exact_[static_cast<std::size_t>(row)];
}

double Packing::total() const {
  double total = 0;
  for (std::size_t j = 0; j < columns_.size(); ++j) total += columns_[j].value * amount(static_cast<int>(j));
  return total;
}

}  // namespace loom::search
