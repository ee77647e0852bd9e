#include "tests/virtual_gpu/run/flow_graph.hpp"

#include <algorithm>
#include <set>

namespace virtual_gpu::run::detail {
namespace {

bool leaves(const Op& op) {
  return op.flow == Flow::kReturn || op.flow == Flow::kExit || op.flow == Flow::kTrap;
}

}  // namespace

FlowGraph::FlowGraph(const std::vector<Op>& ops, const Function& function) : end(function.end) {
  std::set<std::uint32_t> all{function.begin};
  for (std::uint32_t pc = function.begin; pc < end; ++pc) {
    const Op& op = ops[pc];
    if (op.flow == Flow::kBranch) all.insert(op.target);
    const bool parts = op.guarded && op.flow >= Flow::kBranch;
    if ((op.flow == Flow::kBranch || leaves(op) || parts) && pc + 1 < end) all.insert(pc + 1);
  }
  begins.assign(all.begin(), all.end());
  next.resize(size() + 1);
  previous.resize(size() + 1);
  for (std::size_t block = 0; block < size(); ++block) {
    const Op& op = ops[end_of(block) - 1];
    const auto add = [&](std::size_t to) {
      next[block].push_back(to);
      previous[to].push_back(block);
    };
    if (op.flow == Flow::kBranch) add(block_of(op.target));
    if (leaves(op)) add(size());
    if ((op.flow != Flow::kBranch && !leaves(op)) || op.guarded) add(block + 1);
  }
}

std::size_t FlowGraph::block_of(std::uint32_t pc) const {
  return static_cast<std::size_t>(std::ranges::upper_bound(begins, pc) - begins.begin()) - 1;
}

}  // namespace virtual_gpu::run::detail
