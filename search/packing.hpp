// packing.hpp -- how much of each of many things fits into limited resources: the linear program
//   maximise sum value_j x_j  subject to  sum load_ij x_j <= capacity_i,  x_j >= 0,
// whose columns come one after another, with the price of each resource at the optimum so far. Knows no
// machines. Only + - * / on doubles, in a fixed order: every platform gets the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "search/hop_table.hpp"
#include "search/steps.hpp"

namespace loom::search {

/// The revised simplex method. Of the inverse of the basis it keeps the columns of resources that are used
/// up; all others are columns of the unit matrix. Rows are the resources that some column takes. Memory: 8
/// bytes for each row and each resource used up.
class Packing {
 public:
  Packing(std::span<const double> capacities, Steps& steps);

  /// A resource appears in `loads` once; they must live on. Returns the column's number.
  int add(std::span<const Load> loads, double value);
  /// The best amounts of the columns so far. False: the steps were spent before that; amounts fit all the
  /// same.
  bool optimize();

  double total() const;
  double amount(int column) const;
  /// What one more unit of a resource would add, never negative.
  std::span<const double> prices() const noexcept { return prices_; }
  /// What a GB/s of a column would add now.
  double gain(std::span<const Load> loads, double value) const;

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
  void add_row(int resource);
  bool entering(int& column);
  void offer_columns();
  void find_direction(int column);
  bool pivot(int column);
  void settle();

  Steps& steps_;
  std::vector<double> capacities_;
  std::vector<Column> columns_;
  std::vector<int> basis_;      // per row: a column, or -1 - resource for what is left of a resource
  std::vector<int> row_of_;     // per column; -1: amount 0
  std::vector<int> slack_row_;  // per resource: where what is left of it stands; kNone: used up, or no row
  std::vector<int> place_;      // per resource: in used_up_, or kNone
  std::vector<UsedUp> used_up_;
  std::vector<int> offered_;  // columns that added most when all were last looked at
  double least_offered_ = 0;  // of those that were left out then none added more
  std::int64_t load_count_ = 0;
  std::vector<double> amounts_, exact_;  // per row, for slightly smaller capacities and for the true ones
  std::vector<double> prices_;
  std::vector<double> direction_;  // per row: what a GB/s of the entering column takes
};

/// Sums of loads, each resource once.
class LoadSum {
 public:
  explicit LoadSum(std::size_t resources) : sums_(resources, 0.0) {}
  void add(int resource, double factor) {
    double& sum = sums_[static_cast<std::size_t>(resource)];
    if (sum == 0) touched_.push_back(resource);
    sum += factor;
  }
  /// The sums, in the order in which resources first came; begins anew.
  std::vector<Load> take();

 private:
  std::vector<double> sums_;
  std::vector<int> touched_;
};

}  // namespace loom::search
