// meetings.cpp -- where lanes that a branch has parted meet again: at its immediate post-dominator, the first
// op that all ways from there to the end go through.
#include "tests/virtual_gpu/run/flow_graph.hpp"

namespace virtual_gpu::run::detail {
namespace {

/// After Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm", on the edges turned round.
class PostDominators {
 public:
  explicit PostDominators(const FlowGraph& graph) : graph_(graph) {
    number();
    solve();
  }
  /// Of the op at the end of a block; kAtReturn: the function's end; kNowhere: no way leads there.
  std::uint32_t of(std::uint32_t pc) const {
    const std::size_t found = dominator_[graph_.block_of(pc)];
    return found == kNone ? kNowhere : found == end_block() ? kAtReturn : graph_.begins[found];
  }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};

  std::size_t end_block() const { return graph_.size(); }
  void number();
  void solve();
  /// The first that post-dominates both.
  std::size_t common(std::size_t a, std::size_t b) const {
    while (a != b) {
      std::size_t& later = number_[a] > number_[b] ? a : b;
      later = dominator_[later];
    }
    return a;
  }

  const FlowGraph& graph_;
  std::vector<std::size_t> order_, number_;  ///< blocks from the end; the place of each among them
  std::vector<std::size_t> dominator_;
};

void PostDominators::number() {
  number_.assign(graph_.size() + 1, kNone);
  std::vector<bool> seen(graph_.size() + 1);
  std::vector<std::pair<std::size_t, std::size_t>> path{{end_block(), 0}};
  seen[end_block()] = true;
  std::vector<std::size_t> post_order;
  while (!path.empty()) {
    auto& [block, tried] = path.back();
    if (tried == graph_.previous[block].size()) {
      post_order.push_back(block);
      path.pop_back();
    } else if (const std::size_t before = graph_.previous[block][tried++]; !seen[before]) {
      seen[before] = true;
      path.emplace_back(before, 0);
    }
  }
  order_.assign(post_order.rbegin(), post_order.rend());
  for (std::size_t i = 0; i < order_.size(); ++i) number_[order_[i]] = i;
}

void PostDominators::solve() {
  dominator_.assign(graph_.size() + 1, kNone);
  dominator_[end_block()] = end_block();
  for (bool changed = true; changed;) {
    changed = false;
    for (const std::size_t block : order_) {
      if (block == end_block()) continue;
      std::size_t found = kNone;
      for (const std::size_t next : graph_.next[block])
        if (dominator_[next] != kNone) found = found == kNone ? next : common(next, found);
      changed |= dominator_[block] != found;
      dominator_[block] = found;
    }
  }
}

}  // namespace

void find_meetings(std::vector<Op>& ops, const Function& function, const FlowGraph& graph) {
  const PostDominators dominators(graph);
  for (std::uint32_t pc = function.begin; pc < function.end; ++pc)
    if (ops[pc].guarded && ops[pc].flow >= Flow::kBranch) ops[pc].meeting = dominators.of(pc);
}

}  // namespace virtual_gpu::run::detail
