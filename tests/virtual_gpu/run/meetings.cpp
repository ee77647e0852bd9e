// meetings.cpp -- where lanes that a branch has parted meet again: at its immediate post-dominator, the first
// op that all ways from there to the end go through.
#include <algorithm>
#include <set>

#include "tests/virtual_gpu/run/code.hpp"

namespace virtual_gpu::run::detail {
namespace {

bool leaves(const Op& op) {
  return op.flow == Flow::kReturn || op.flow == Flow::kExit || op.flow == Flow::kTrap;
}

/// The blocks of a function, the last one standing for its end. After Cooper, Harvey and Kennedy, "A Simple,
/// Fast Dominance Algorithm", on the edges turned round.
class PostDominators {
 public:
  PostDominators(const std::vector<Op>& ops, const Function& function) : ops_(ops), function_(function) {
    find_blocks();
    number();
    solve();
  }
  /// Of the op at the end of a block; kAtReturn: the function's end; kNowhere: no way leads there.
  std::uint32_t of(std::uint32_t pc) const {
    const auto block =
        static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), pc) - begins_.begin()) - 1;
    const std::size_t found = dominator_[block];
    return found == kNone ? kNowhere : found == end_block() ? kAtReturn : begins_[found];
  }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};

  std::size_t end_block() const { return begins_.size(); }
  void find_blocks();
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

  const std::vector<Op>& ops_;
  const Function& function_;
  std::vector<std::uint32_t> begins_;
  std::vector<std::vector<std::size_t>> next_, previous_;
  std::vector<std::size_t> order_, number_;  ///< blocks from the end; the place of each among them
  std::vector<std::size_t> dominator_;
};

void PostDominators::find_blocks() {
  std::set<std::uint32_t> begins{function_.begin};
  for (std::uint32_t pc = function_.begin; pc < function_.end; ++pc) {
    const Op& op = ops_[pc];
    if (op.flow == Flow::kBranch) begins.insert(op.target);
    const bool parts = op.guarded && op.flow >= Flow::kBranch;
    if ((op.flow == Flow::kBranch || leaves(op) || parts) && pc + 1 < function_.end) begins.insert(pc + 1);
  }
  begins_.assign(begins.begin(), begins.end());
  next_.resize(begins_.size() + 1);
  previous_.resize(begins_.size() + 1);
  for (std::size_t block = 0; block < begins_.size(); ++block) {
    const std::uint32_t last = (block + 1 < begins_.size() ? begins_[block + 1] : function_.end) - 1;
    const Op& op = ops_[last];
    const auto add = [&](std::size_t to) {
      next_[block].push_back(to);
      previous_[to].push_back(block);
    };
    if (op.flow == Flow::kBranch)
      add(static_cast<std::size_t>(std::lower_bound(begins_.begin(), begins_.end(), op.target) -
                                   begins_.begin()));
    if (leaves(op)) add(end_block());
    if ((op.flow != Flow::kBranch && !leaves(op)) || op.guarded) add(block + 1);
  }
}

void PostDominators::number() {
  number_.assign(begins_.size() + 1, kNone);
  std::vector<bool> seen(begins_.size() + 1);
  std::vector<std::pair<std::size_t, std::size_t>> path{{end_block(), 0}};
  seen[end_block()] = true;
  std::vector<std::size_t> post_order;
  while (!path.empty()) {
    auto& [block, tried] = path.back();
    if (tried == previous_[block].size()) {
      post_order.push_back(block);
      path.pop_back();
    } else if (const std::size_t before = previous_[block][tried++]; !seen[before]) {
      seen[before] = true;
      path.emplace_back(before, 0);
    }
  }
  order_.assign(post_order.rbegin(), post_order.rend());
  for (std::size_t i = 0; i < order_.size(); ++i) number_[order_[i]] = i;
}

void PostDominators::solve() {
  dominator_.assign(begins_.size() + 1, kNone);
  dominator_[end_block()] = end_block();
  for (bool changed = true; changed;) {
    changed = false;
    for (const std::size_t block : order_) {
      if (block == end_block()) continue;
      std::size_t found = kNone;
      for (const std::size_t next : next_[block])
        if (dominator_[next] != kNone) found = found == kNone ? next : common(next, found);
      changed |= dominator_[block] != found;
      dominator_[block] = found;
    }
  }
}

}  // namespace

void find_meetings(std::vector<Op>& ops, const Function& function) {
  const PostDominators dominators(ops, function);
  for (std::uint32_t pc = function.begin; pc < function.end; ++pc)
    if (ops[pc].guarded && ops[pc].flow >= Flow::kBranch) ops[pc].meeting = dominators.of(pc);
}

}  // namespace virtual_gpu::run::detail
