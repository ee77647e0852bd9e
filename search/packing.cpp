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
  inverse_.assign(rows * rows, 0);
  prices_.assign(rows, 0);
  direction_.assign(rows, 0);
  // Capacities that are all different end the ties on which the method could turn in circles.
  for (std::size_t i = 0; i < rows; ++i) {
    const double turn = static_cast<double>(i + 1) * kGoldenRatio;
    slightly_less_.push_back(capacities_[i] * (1 - kSpread * (turn - std::floor(turn))));
    inverse_[i * rows + i] = 1;
    basis_.push_back(-1 - static_cast<int>(i));
  }
  amounts_ = slightly_less_;
  exact_ = capacities_;
}

int Packing::add(std::vector<Load> loads, double value) {
  columns_.push_back({std::move(loads), value});
  row_of_.push_back(-1);
  return static_cast<int>(columns_.size()) - 1;
}

double Packing::gain(std::span<const Load> loads, double value) const {
  for (const Load& load : loads) value -= prices_[static_cast<std::size_t>(load.resource)] * load.factor;
  return value;
}

/// The column, or as -1 - resource the unused part of a resource, that adds most; the count of columns: none
/// does.
int Packing::entering() const {
  const int count = static_cast<int>(columns_.size());
  int best = count;
  double best_gain = kGain;
  for (int j = 0; j < count; ++j)
    if (row_of_[static_cast<std::size_t>(j)] < 0)
      if (const double found = gain_of(j); found > best_gain) best_gain = found, best = j;
  for (int i = 0; i < rows_; ++i)
    if (-prices_[static_cast<std::size_t>(i)] > best_gain)
      best_gain = -prices_[static_cast<std::size_t>(i)], best = -1 - i;
  return best;
}

bool Packing::pivot(int column) {
  const auto rows = static_cast<std::size_t>(rows_);
  std::fill(direction_.begin(), direction_.end(), 0.0);
  double gained = 0;
  if (column >= 0) {
    gained = gain_of(column);
    for (const Load& load : columns_[static_cast<std::size_t>(column)].loads)
      for (std::size_t i = 0; i < rows; ++i)
        direction_[i] += inverse_[i * rows + static_cast<std::size_t>(load.resource)] * load.factor;
  } else {
    const auto resource = static_cast<std::size_t>(-1 - column);
    gained = -prices_[resource];
    for (std::size_t i = 0; i < rows; ++i) direction_[i] = inverse_[i * rows + resource];
  }
  std::size_t leaving = rows;
  double step = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    if (direction_[i] <= kPivot) continue;
    const double ratio = amounts_[i] / direction_[i];
    if (leaving == rows || ratio < step) leaving = i, step = ratio;
  }
  if (leaving == rows) return false;  // unbounded: cannot be, every column takes something

  const double element = direction_[leaving];
  double* const pivot_row = &inverse_[leaving * rows];
  std::vector<std::size_t> filled;
  for (std::size_t k = 0; k < rows; ++k)
    if (pivot_row[k] != 0) pivot_row[k] /= element, filled.push_back(k);
  amounts_[leaving] = std::max(0.0, step);
  for (std::size_t i = 0; i < rows; ++i) {
    const double factor = direction_[i];
    if (i == leaving || factor == 0) continue;
    for (const std::size_t k : filled) inverse_[i * rows + k] -= factor * pivot_row[k];
    amounts_[i] = std::max(0.0, amounts_[i] - factor * step);
    steps_ += static_cast<std::int64_t>(filled.size());
  }
  for (const std::size_t k : filled) prices_[k] += gained * pivot_row[k];
  if (basis_[leaving] >= 0) row_of_[static_cast<std::size_t>(basis_[leaving])] = -1;
  basis_[leaving] = column;
  if (column >= 0) row_of_[static_cast<std::size_t>(column)] = static_cast<int>(leaving);
  return true;
}

bool Packing::optimize(int max_pivots) {
  for (int i = 0; i < max_pivots; ++i) {
    const int column = entering();
    steps_ += static_cast<std::int64_t>(columns_.size());
    if (column == static_cast<int>(columns_.size()) || !pivot(column)) {
      settle();
      return true;
    }
  }
  settle();
  return false;
}

/// Amounts for the true capacities; where those would be negative, for the ones that break ties.
void Packing::settle() {
  const auto rows = static_cast<std::size_t>(rows_);
  for (double& price : prices_) price = std::max(0.0, price);
  exact_ = amounts_;
  std::vector<double> amounts(rows, 0);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t k = 0; k < rows; ++k) amounts[i] += inverse_[i * rows + k] * capacities_[k];
    if (amounts[i] < -1e-9) return;
    amounts[i] = std::max(0.0, amounts[i]);
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
