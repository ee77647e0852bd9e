// registers.cpp -- which registers share a slot: liveness of each on the flow graph, then a linear scan
// (Poletto and Sarkar, "Linear Scan Register Allocation") without a limit. What is alive is a matter of each
// lane alone, as each has slots of its own.
#include <algorithm>
#include <functional>
#include <queue>

#include "tests/virtual_gpu/run/flow_graph.hpp"

namespace virtual_gpu::run::detail {
namespace {

/// A set of registers: a bit for each.
class Registers {
 public:
  explicit Registers(std::size_t count) : words_((count + 63) / 64) {}

  void insert(std::int32_t at) { words_[word(at)] |= bit(at); }
  void erase(std::int32_t at) { words_[word(at)] &= ~bit(at); }
  void insert(const Registers& others) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= others.words_[i];
  }
  template <class Body>
  void for_each(Body&& body) const {
    for (std::size_t i = 0; i < words_.size(); ++i)
      for (std::uint64_t left = words_[i]; left != 0; left &= left - 1)
        body(i * 64 + static_cast<std::size_t>(std::countr_zero(left)));
  }
  friend bool operator==(const Registers&, const Registers&) = default;

 private:
  static std::size_t word(std::int32_t at) { return static_cast<std::size_t>(at) / 64; }
  static std::uint64_t bit(std::int32_t at) { return std::uint64_t{1} << at % 64; }

  std::vector<std::uint64_t> words_;
};

template <class Body>
void for_read(Op& op, Body&& body) {
  if (op.guarded) body(op.guard);
  for (std::int32_t& from : op.from)
    if (from >= 0) body(from);
}
template <class Body>
void for_written(Op& op, Body&& body) {
  for (std::int32_t& to : op.to)
    if (to != kNoSlot) body(to);
}

/// From the first op to the last at which some lane may need the register's value.
struct Interval {
  std::uint32_t first = ~0U, last = 0;
  void hold(std::uint32_t pc) {
    first = std::min(first, pc);
    last = std::max(last, pc);
  }
};

class Liveness {
 public:
  Liveness(std::vector<Op>& ops, std::size_t registers, const FlowGraph& graph)
      : ops_(ops), graph_(graph), intervals_(registers), live_(graph.size() + 1, Registers(registers)) {
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t block = graph.size(); block-- > 0;) {
        Registers live = at_begin(block, at_end(block));
        changed |= live != live_[block];
        live_[block] = std::move(live);
      }
    }
    for (std::size_t block = 0; block < graph.size(); ++block) hold(block);
  }
  const std::vector<Interval>& intervals() const { return intervals_; }

 private:
  Registers at_end(std::size_t block) const {
    Registers live(intervals_.size());
    for (const std::size_t next : graph_.next[block]) live.insert(live_[next]);
    return live;
  }
  Registers at_begin(std::size_t block, Registers live) const {
    for (std::uint32_t pc = graph_.end_of(block); pc-- > graph_.begins[block];) {
      Op& op = ops_[pc];
      // Lanes for which a guard does not hold keep what they have.
      if (!op.guarded) for_written(op, [&](std::int32_t slot) { live.erase(slot); });
      for_read(op, [&](std::int32_t slot) { live.insert(slot); });
      if (op.guarded) for_written(op, [&](std::int32_t slot) { live.insert(slot); });
    }
    return live;
  }
  void hold(std::size_t block) {
    live_[block].for_each([&](std::size_t i) { intervals_[i].hold(graph_.begins[block]); });
    at_end(block).for_each([&](std::size_t i) { intervals_[i].hold(graph_.end_of(block) - 1); });
    for (std::uint32_t pc = graph_.begins[block]; pc < graph_.end_of(block); ++pc) {
      const auto use = [&](std::int32_t slot) { intervals_[static_cast<std::size_t>(slot)].hold(pc); };
      for_read(ops_[pc], use);
      for_written(ops_[pc], use);
    }
  }

  std::vector<Op>& ops_;
  const FlowGraph& graph_;
  std::vector<Interval> intervals_;
  std::vector<Registers> live_;  ///< by block: at its begin
};

}  // namespace

void share_slots(std::vector<Op>& ops, Function& function, const FlowGraph& graph) {
  const Liveness liveness(ops, function.slots, graph);
  const std::vector<Interval>& intervals = liveness.intervals();
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < intervals.size(); ++i)
    if (intervals[i].first <= intervals[i].last) order.push_back(i);
  std::ranges::sort(order, {}, [&](std::size_t i) { return intervals[i].first; });
  using Held = std::pair<std::uint32_t, std::int32_t>;  ///< until which op, and which slot
  std::priority_queue<Held, std::vector<Held>, std::greater<>> held;
  std::vector<std::int32_t> free, slots(intervals.size(), kNoSlot);
  std::int32_t count = 0;
  for (const std::size_t i : order) {
    // Not within one op either: no handler has to read all before it writes.
    for (; !held.empty() && held.top().first < intervals[i].first; held.pop())
      free.push_back(held.top().second);
    if (free.empty()) free.push_back(count++);
    slots[i] = free.back();
    free.pop_back();
    held.push({intervals[i].last, slots[i]});
  }
  const auto replace = [&](std::int32_t& slot) { slot = slots[static_cast<std::size_t>(slot)]; };
  for (std::uint32_t pc = function.begin; pc < function.end; ++pc) {
    for_read(ops[pc], replace);
    for_written(ops[pc], replace);
  }
  function.slots = static_cast<std::size_t>(count);
}

}  // namespace virtual_gpu::run::detail
