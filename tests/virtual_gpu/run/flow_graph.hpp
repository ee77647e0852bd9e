// flow_graph.hpp -- the blocks of a function: ops that lanes run one after the other, and where they may go
// on.
#pragma once

#include "tests/virtual_gpu/run/code.hpp"

namespace virtual_gpu::run::detail {

struct FlowGraph {
  FlowGraph(const std::vector<Op>& ops, const Function& function);

  std::size_t size() const { return begins.size(); }
  std::size_t block_of(std::uint32_t pc) const;
  std::uint32_t end_of(std::size_t block) const { return block + 1 < size() ? begins[block + 1] : end; }

  std::vector<std::uint32_t> begins;  ///< the first op of each
  std::uint32_t end;                  ///< of the function
  std::vector<std::vector<std::size_t>> next,
      previous;  ///< by block; one more, the last, is the function's end
};

/// Sets Op::meeting of every op of the function at which lanes may part.
void find_meetings(std::vector<Op>& ops, const Function& function, const FlowGraph& graph);

/// Registers that no lane needs at the same time get one slot. Compilers have a register for each value:
/// thousands, which no cache would hold for all the lanes of a block.
void share_slots(std::vector<Op>& ops, Function& function, const FlowGraph& graph);

}  // namespace virtual_gpu::run::detail
