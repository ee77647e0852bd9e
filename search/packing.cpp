#include "search/packing.hpp"

#include <algorithm>
#include <cmath>

namespace loom::search {
namespace {

constexpr double kGain = 1e-9;    // smaller gains are rounding
constexpr double kPivot = 1e-9;   // smaller elements are zero
constexpr double kSpread = 1e-6;  // ties are broken by capacities that differ by less than this part
constexpr double kGoldenRatio = 0.6180339887498949;

}  // namespace

std::vector<Load> merged(std::vector<Load> loads) {
  std::sort(loads.begin(), loads.end(), [](const Load& a, const Load& b) {
    return a.resource != b.resource ? a.resource < b.resource : a.factor < b.factor;
  });
  std::vector<Load> sums;
  for (const Load& load : loads) {
    if (!sums.empty() && sums.back().resource == load.resource)
      sums.back().factor += load.factor;
    else
      sums.push_back(load);
  }
  return sums;
}

Packing::Packing(std::vector<double> capacities)
    : rows_(static_cast<int>(capacities.size())), capacities_(std::move(capacities)) {
  const auto rows = static_cast<std::size_t>(rows_);
  prices_.assign(rows, 0);
  direction_.assign(rows, 0);
  place_.assign(rows, kNone);
  // Capacities that are all different end the ties on which the method could turn in circles.
  for (std::size_t i = 0; i < rows; ++i) {
    const double turn = static_cast<double>(i + 1) * kGoldenRatio;
    slightly_less_.push_back(capacities_[i] * (1 - kSpread * (turn - std::floor(turn))));
    basis_.push_back(-1 - static_cast<int>(i));
    slack_row_.push_back(static_cast<int>(i));
  }
  amounts_ = slightly_less_;
  exact_ = capacities_;
}

int Packing::add(std::span<const Load> loads, double value) {
  columns_.push_back({loads, value});
  row_of_.push_back(kNone);
  offered_.push_back(static_cast<int>(columns_.size()) - 1);
  return static_cast<int>(columns_.size()) - 1;
}

double Packing::gain(std::span<const Load> loads, double value) const {
  for (const Load& load : loads) value -= prices_[static_cast<std::size_t>(load.resource)] * load.factor;
  return value;
}

/// The column, or as -1 - resource the unused part of a resource, that adds most of those offered; false: none
/// of all adds anything.
bool Packing::entering(int& column) {
  for (const bool all : {false, true}) {
    if (all) offer_columns();
    double best_gain = kGain;
    bool found = false;
    const auto consider = [&](double gain, int candidate) {
      if (gain > best_gain) best_gain = gain, column = candidate, found = true;
    };
    for (const int j : offered_)
      if (row_of_[static_cast<std::size_t>(j)] < 0) consider(gain_of(j), j);
    for (const UsedUp& used : used_up_)
      consider(-prices_[static_cast<std::size_t>(used.resource)], -1 - used.resource);
    steps_ += static_cast<std::int64_t>(offered_.size());
    if (found) return true;
  }
  return false;
}

void Packing::offer_columns() {
  offered_.clear();
  for (int j = 0; j < static_cast<int>(columns_.size()); ++j)
    if (row_of_[static_cast<std::size_t>(j)] < 0 && gain_of(j) > kGain) offered_.push_back(j);
  steps_ += static_cast<std::int64_t>(columns_.size());
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
  };
  if (column < 0) return take(-1 - column, 1);
  for (const Load& load : columns_[static_cast<std::size_t>(column)].loads) take(load.resource, load.factor);
}

bool Packing::pivot(int column) {
  find_direction(column);
  const double gained = column >= 0 ? gain_of(column) : -prices_[static_cast<std::size_t>(-1 - column)];
  std::size_t leaving = direction_.size();
  double step = 0;
  std::vector<std::size_t> changed;
  for (std::size_t i = 0; i < direction_.size(); ++i) {
    if (direction_[i] != 0) changed.push_back(i);
    if (direction_[i] <= kPivot) continue;
    const double ratio = amounts_[i] / direction_[i];
    if (leaving == direction_.size() || ratio < step) leaving = i, step = ratio;
  }
  if (leaving == direction_.size()) return false;  // unbounded: cannot be, every column takes something

  const double element = direction_[leaving];
  if (const int left = basis_[leaving]; left < 0) {  // its column was one of the unit matrix until now
    const auto resource = static_cast<std::size_t>(-1 - left);
    slack_row_[resource] = kNone;
    place_[resource] = static_cast<int>(used_up_.size());
    used_up_.push_back({-1 - left, std::vector<double>(direction_.size(), 0)});
    used_up_.back().inverse[leaving] = 1;
  } else {
    row_of_[static_cast<std::size_t>(left)] = kNone;
  }
  for (UsedUp& used : used_up_) {
    const double share = used.inverse[leaving] / element;
    if (share == 0) continue;
    for (const std::size_t i : changed) used.inverse[i] -= direction_[i] * share;
    used.inverse[leaving] = share;
    prices_[static_cast<std::size_t>(used.resource)] += gained * share;
    steps_ += static_cast<std::int64_t>(changed.size());
  }
  for (const std::size_t i : changed)
    amounts_[i] = i == leaving ? std::max(0.0, step) : std::max(0.0, amounts_[i] - direction_[i] * step);
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

bool Packing::optimize(int max_pivots) {
  bool done = false;
  for (int i = 0; i < max_pivots && !done; ++i) {
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
