#include "device/host/double_tree_executor.hpp"

#include <bit>

#include "device/host/pipeline.hpp"

namespace loom::device {
namespace {

/// Of one tree's part of a stage. The tree has half of the message; a part is cut into equal slices, for the
/// next stage follows at once.
std::size_t slice_elems(std::size_t message_bytes, const TreeStage& part, int hosts, bool up_and_down,
                        const FifoShape& fifo) {
  const int depth = std::bit_width(static_cast<unsigned>(hosts - 1));
  const std::size_t most =
      pipeline_slice_elems(divide_up(message_bytes / 2, part.elem_bytes), part.elem_bytes,
                           {.between_hosts = up_and_down ? 2 * depth : depth}, fifo.slot_bytes);
  return cut_evenly(part.count, part.elem_bytes, most);
}

}  // namespace

DoubleTreeExecutor::DoubleTreeExecutor(const DbtLinks& trees, int host, int hosts, int root,
                                       const TreeStage& stage, std::size_t message_bytes)
    : host_(host),
      halves_{half(trees, 0, host, hosts, root, stage, message_bytes),
              half(trees, 1, host, hosts, root, stage, message_bytes)} {}

DoubleTreeExecutor::Half DoubleTreeExecutor::half(const DbtLinks& trees, int tree, int host, int hosts,
                                                  int root, TreeStage stage, std::size_t message_bytes) {
  RootedPlace place;
  if (root == kNobody) {
    const TreePlace own = double_tree(tree, host, hosts);
    place = {own.parent, {own.child[0], own.child[1], kNobody}};
  } else {
    place = double_tree_from(tree, root, host, hosts);
  }
  const ChunkRange part = chunk_range(stage.count, stage.elem_bytes, 2, tree);
  if (stage.in != nullptr) stage.in += part.first * stage.elem_bytes;
  if (stage.out != nullptr) stage.out += part.first * stage.elem_bytes;
  stage.count = part.count;
  TreeLinks links{.parent = trees.to(tree, place.parent), .child = {}};
  for (std::size_t i = 0; i < links.child.size(); ++i) links.child[i] = trees.to(tree, place.child[i]);
  return {place,
          TreeExecutor(links, stage, slice_elems(message_bytes, stage, hosts, root == kNobody, trees.fifo))};
}

DoubleTreeExecutor::State DoubleTreeExecutor::advance() {
  bool moved = false;
  for (Half& half : halves_) {
    if (half.done) continue;
    const State state = half.executor.advance();
    half.done = state == State::kDone;
    moved |= state != State::kBlocked;
  }
  if (halves_[0].done && halves_[1].done) return State::kDone;
  return moved ? State::kMoved : State::kBlocked;
}

int DoubleTreeExecutor::awaited() const noexcept {
  for (const Half& half : halves_) {
    if (half.done) continue;
    const int link = half.executor.awaited();
    return link == TreeExecutor::kParent ? half.place.parent : half.place.child[link];
  }
  return host_;
}

}  // namespace loom::device
