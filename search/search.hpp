// search.hpp -- inside search: one search on one machine, limits after limits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "search/columns.hpp"
#include "search/packed.hpp"
#include "search/packing.hpp"

namespace loom::search {

/// The steps that `request` gives a machine of so many GPUs.
std::int64_t steps_for(const Request& request, std::size_t gpus);

/// Takes `proof` where it proves less than the plan's bound so far.
void lower_bound(ChannelPlan& plan, Proof proof);

class Search {
 public:
  static constexpr double kSame = 1e-5;  ///< totals that differ by less than this part are equal

  Search(const topo::Paths& paths, const Request& request);

  ChannelPlan run();
  /// What the ends of the paths allow; known before run().
  double at_most_gbps() const noexcept { return most_; }

 private:
  /// Why the machine does not have the pattern; "": it does, as far as can be seen without looking.
  std::string why_absent() const;
  bool connects(const Limits& limits) const;
  std::vector<int> cross_nics() const;
  Packed fill(const Limits& limits, double enough);
  Packed pack(const Limits& limits, double enough, const Packed& known);
  bool is_proven(const Packing& packing, double least) const;
  Packed widest_first(const Limits& limits);
  Packed exchanged(Packed few, const Limits& limits);
  Packed limited(Packed packed, const Limits& limits);
  void tighten(Limits& limits, Packed& best);
  Packed best_under(const Limits& limits, double target, bool quick, const Packed& known);
  bool try_limits(Limits limits, double enough, Limits& chosen, Packed& best);
  Proof bound_of(const Packed& packed, const Limits& loosest);
  void spread_over_heads(const Limits& limits, Packed& best);
  void prove_or_improve(ChannelPlan& plan, const Limits& loosest, Limits& limits, Packed& best);

  Request request_;
  Pattern pattern_;
  bool collnet_;
  const topo::Paths& paths_;
  HopTable table_;
  std::vector<topo::PathType> intra_, inter_;
  std::vector<double> capacities_;
  Proof ends_;                                 // what can enter and leave each GPU and port
  double most_ = 0;                            // GB/s, that
  std::vector<std::unique_ptr<Column>> pool_;  // all columns met so far, whatever the limits
  std::vector<std::unique_ptr<Column>> wide_;  // found by fill(), unknown to pack()
  std::vector<Attempt> attempts_;
  Steps steps_;
};

}  // namespace loom::search
