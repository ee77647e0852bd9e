#include "device/host/grid.hpp"

#include <algorithm>

#include "device/host/pipeline.hpp"

namespace loom::device {
namespace {

std::size_t slice_elems(const Grid& grid, const Call& call) {
  std::size_t slot_bytes = grid.rail_fifo.slot_bytes;
  if (grid.local.size > 1) slot_bytes = std::min(slot_bytes, grid.local_fifo.slot_bytes);
  return pipeline_slice_elems(call.count, call.elem_bytes(),
                              {.between_hosts = grid.rail.size - 1, .inside = grid.local.size - 1},
                              slot_bytes);
}

TreeStage tree_stage(const Call& call) {
  return {.collective =
              call.collective == Collective::kReduce ? TreeCollective::kReduce : TreeCollective::kBroadcast,
          .in = call.in,
          .out = call.out,
          .count = call.count,
          .elem_bytes = call.elem_bytes(),
          .reduce = call.reduce(),
          .in_packer = call.in_packer,
          .out_packer = call.out_packer,
          .streaming = call.streaming};
}

}  // namespace

RootedExecutor::RootedExecutor(const Grid& grid, const Call& call, int root_host, int root_place)
    : grid_(grid),
      reduces_(call.collective == Collective::kReduce),
      on_root_rail_(grid.local.position == root_place),
      tree_(links_of(grid, call.collective, root_host, root_place), tree_stage(call),
            slice_elems(grid, call)) {}

/// Along both kinds of ring data flows from previous to next: a broadcast begins at the root, a reduction
/// behind it.
TreeLinks RootedExecutor::links_of(const Grid& grid, Collective collective, int root_host, int root_place) {
  const auto after = [](const RingLinks& ring, int root) {
    return (ring.position - root + ring.size) % ring.size;
  };
  const int host = after(grid.rail, root_host), place = after(grid.local, root_place);
  const bool last_host = host == grid.rail.size - 1, last_place = place == grid.local.size - 1;
  TreeLinks links;
  if (collective == Collective::kBroadcast) {
    if (place > 0)
      links.parent.receive = grid.local.previous;
    else if (host > 0)
      links.parent.receive = grid.rail.previous;
    if (place == 0 && !last_host) links.child[kAlongRail].send = grid.rail.next;
    if (!last_place) links.child[kInside].send = grid.local.next;
    return links;
  }
  if (place > 0)
    links.parent.send = grid.local.next;
  else if (host > 0)
    links.parent.send = grid.rail.next;
  if (place == 0 && host != 1) links.child[kAlongRail].receive = grid.rail.previous;
  if (place != 1 && grid.local.size > 1) links.child[kInside].receive = grid.local.previous;
  return links;
}

int RootedExecutor::awaited() const noexcept {
  const bool to_parent = tree_.awaited() == TreeExecutor::kParent;
  const bool rail = to_parent ? on_root_rail_ : tree_.awaited() == kAlongRail;
  const int step = to_parent == reduces_ ? 1 : -1;
  return rail ? grid_.rail_neighbour(step) : grid_.local_neighbour(step);
}

}  // namespace loom::device
