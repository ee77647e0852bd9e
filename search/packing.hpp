// packing.hpp -- how much of each of many things fits into limited resources: the linear program
//   maximise sum value_j x_j  subject to  sum load_ij x_j <= capacity_i,  x_j >= 0,
// whose columns come one after another, with the price of each resource at the optimum so far. Knows no
// machines. Only + - * / on doubles, in a fixed order: every platform gets the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "search/hop_table.hpp"

namespace loom::search {

/// The revised simplex method. Of the inverse of the basis it keeps the columns of resources that are used up;
/// all others are columns of the unit matrix. Memory: 8 bytes for each resource and each one used up.
class Packing {
 public:
  explicit Packing(std::vector<double> capacities);

  /// A resource appears in `loads` once; they must live on. Returns the column's number.
  int add(std::span<const Load> loads, double value);
  /// The best amounts of the columns so far. False: stopped after `max_pivots`.
  bool optimize(int max_pivots);

  double total() const;
  double amount(int column) const;
  /// What one more unit of a resource would add, never negative.
  std::span<const double> prices() const noexcept { return prices_; }
  /// What a GB/s of a column would add now.
  double gain(std::span<const Load> loads, double value) const;
  std::int64_t steps() const noexcept { return steps_; }

 private:
  struct Column {
    std::span<const Load> loads;
    double value;
  };
  struct UsedUp {
    int resource;
    std::vector<double> inverse;  // this resource's column, per row
  };
  static constexpr int kNone = -1;
  double gain_of(int column) const {
    const Column& entry = columns_[static_cast<std::size_t>(column)];
    return gain(entry.loads, entry.value);
  }
  bool entering(int& column);
  void offer_columns();
  void find_direction(int column);
  bool pivot(int column);
  void settle();

  int rows_;
  std::vector<double> capacities_, slightly_less_;
  std::vector<Column> columns_;
  std::vector<int> basis_;               // per row: a column, or -1 - resource for what is left of a resource
  std::vector<int> row_of_;              // per column; -1: amount 0
  std::vector<int> slack_row_;           // per resource: where what is left of it stands; kNone: used up
  std::vector<int> place_;               // per resource: in used_up_, or kNone
  std::vector<UsedUp> used_up_;
  std::vector<int> offered_;             // columns that added something when all were last looked at
  std::vector<double> amounts_, exact_;  // per row, for slightly_less_ and for capacities_
  std::vector<double> prices_;
  std::vector<double> direction_;        // per row: what a GB/s of the entering column takes
  std::int64_t steps_ = 0;
};

/// `loads` with each resource once, ascending.
std::vector<Load> merged(std::vector<Load> loads);

}  // namespace loom::search
