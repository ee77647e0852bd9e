// tree_schedule.hpp -- the double binary tree over positions, which are hosts in the product: who is whose
// parent. Each tree carries half of the message, cut into slices. A reduction goes up, a broadcast down, an
// all-reduce up and then down.
//
// Depth 2 log2 n for an all-reduce over n positions, half of that for the other two, and one step more for
// each further slice. An inner position of one tree is a leaf of the other (except one where n is odd), so
// that with a full pipeline none sends or receives more than 2 S for an all-reduce (least: 2 (n-1)/n S), or
// 1 S for the other two (Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction
// and scan", 2009).
#pragma once

#include <bit>

#include "device/reduce/element_types.hpp"

namespace loom::device {

inline constexpr int kNobody = -1;

/// A place in one binary tree over positions 0..n-1; kNobody where there is none.
struct TreePlace {
  int parent = kNobody;
  int child[2] = {kNobody, kNobody};
};

/// The first tree. Position 0 is the root and has one child. Any other position is the parent of the two
/// halves of its interval, the positions around it that its lowest set bit spans; where the tree is not full,
/// the upper child moves up.
///
///   n = 6:  0 - 4        n = 8:  0 - 4
///             2   5                2   6
///            1 3                  1 3 5 7
LOOM_HOST_DEVICE constexpr TreePlace first_tree(int position, int size) {
  TreePlace place;
  int span = position & -position;
  if (position == 0) {
    span = 1;
    while (span < size) span <<= 1;
  } else {
    const int above = (position ^ span) | (span << 1);
    place.parent = above < size ? above : position ^ span;
  }
  if (position != 0 && span > 1) place.child[0] = position - span / 2;
  for (int step = span / 2; step > 0 && place.child[1] == kNobody; step /= 2)
    if (position + step < size) place.child[1] = position + step;
  return place;
}

/// Tree 0 is the first tree; tree 1 the same, mirrored where n is even and shifted by one where it is odd, so
/// that inner positions become leaves.
LOOM_HOST_DEVICE constexpr TreePlace double_tree(int tree, int position, int size) {
  if (tree == 0) return first_tree(position, size);
  const bool mirrored = size % 2 == 0;
  const auto map = [&](int p) { return p == kNobody ? kNobody : mirrored ? size - 1 - p : (p + 1) % size; };
  TreePlace place = first_tree(mirrored ? size - 1 - position : (position - 1 + size) % size, size);
  place.parent = map(place.parent);
  place.child[0] = map(place.child[0]);
  place.child[1] = map(place.child[1]);
  return place;
}

/// The same tree, rooted at `root`: on the path between the two roots, links are used in the other direction.
struct RootedPlace {
  int parent = kNobody;
  int child[3] = {kNobody, kNobody, kNobody};
};
LOOM_HOST_DEVICE constexpr RootedPlace double_tree_from(int tree, int root, int position, int size) {
  const TreePlace place = double_tree(tree, position, size);
  if (position == root) return {kNobody, {place.parent, place.child[0], place.child[1]}};
  // The last position on the way up from the new root before this one, or kNobody past the old root.
  int below = root;
  while (below != kNobody && double_tree(tree, below, size).parent != position)
    below = double_tree(tree, below, size).parent;
  if (below == kNobody) return {place.parent, {place.child[0], place.child[1], kNobody}};
  return {below, {place.parent, place.child[below == place.child[0] ? 1 : 0], kNobody}};
}

}  // namespace loom::device
