// channel.hpp -- the channels of a rank, and its share of a call, as plain data that kernels read.
#pragma once

#include "device/schedule/share.hpp"
#include "device/steps/fifo.hpp"

namespace loom::device::steps {

inline constexpr int kMostPairwise = 8;  ///< ranks with links between every two of them
inline constexpr int kTrees = 2, kMostChildren = 3, kMostNeighbours = kMostChildren + 1, kHalves = 2;
inline constexpr int kNoHead = -1;

enum class Protocol : int { kSimple, kLL, kLL128 };
inline constexpr int kProtocols = 3;

/// Messages received from each end and sent to each.
struct Passed {
  Word received = 0, sent = 0;
};

/// Ends whose messages go together: from all of `from`, to all of `to`.
template <int kMost>
struct Ends {
  RecvEnd from[kMost];
  SendEnd to[kMost];
  int froms = 0, tos = 0;
  Passed passed;  ///< in the calls before this one
};

/// From the previous rank, to the next.
struct Ring {
  int position = 0, size = 1;
  const int* ranks = nullptr;  ///< by position
  Ends<1> ends[kProtocols];
};

/// Ranks in rows, one for each host, of equally many. A ring joins a row, one a column.
struct Grid {
  int row = 0, rows = 1, column = 0, columns = 1;
  const int* ranks = nullptr;  ///< row by row
  Ends<1> local, rail;         ///< in the row, and in the column; Simple alone
  /// For the sums of a row that are no part of the result, a round of them. This rank's own.
  std::byte* scratch = nullptr;
};

/// A rank's links with its neighbours in a tree. They stand in a circle: the parent first, then the children,
/// and all but the last once more. So those from behind one up to before it again are all others.
struct TreeEnds {
  RecvEnd from[2 * kMostNeighbours - 1];
  SendEnd to[2 * kMostNeighbours - 1];
  /// Messages on each link and in both directions, in the calls before this one, as each half counts them. A
  /// call passes over a direction that it does not use as if as many had gone there.
  Word passed[kHalves] = {};
};

/// A rank's place in a tree. A call's root is the top of the tree, whatever its shape: then one neighbour,
/// the head, is above this rank, and all others below it.
struct Tree {
  int neighbours = 0;
  int parent = kNoHead;        ///< 0: there is one, the head of an all-reduce
  const int* heads = nullptr;  ///< by root; kNoHead where that is this rank
  TreeEnds ends[kProtocols];
};

/// This rank's links with the two ranks at one distance behind and ahead of it, in a circle of all ranks.
struct DistanceLinks {
  RecvEnd from;
  SendEnd to;
  Passed passed;  ///< in the calls before this one
};

/// What a channel has of the links of every two ranks: those at the distances first, first + stride and so
/// on below the number of ranks. Where there are fewer distances than channels, several share one.
struct Distances {
  int first = 1, stride = 1;
  Share of_blocks, of_own;         ///< of each other rank's block, and of what a rank has for itself
  DistanceLinks* links = nullptr;  ///< by distance; this rank's own
};

inline constexpr Word kAllMoves = ~Word{0};

/// A channel's part of the calls that go by its kind of links.
struct Weight {
  unsigned before = 0, own = 1;  ///< of the channels before this one, and of this one
  unsigned place = 0;            ///< how many are before it
};

struct Channel {
  Weight of_ring, of_trees, of_pairs, of_grid;
  int trees = 0;
  Ring ring;
  Grid grid;
  Tree tree[kTrees];
  Ends<kMostPairwise - 1> pairwise[kProtocols];  ///< in order of rank
  Distances exchange;
  // How far each half has come in a call whose kernel has left, and each of its threads inside the next move.
  Word moves_done[kHalves] = {};
  std::uint32_t* turns = nullptr;
};
static_assert(sizeof(Channel) % sizeof(Word) == 0);
inline constexpr std::size_t kMostThreads = 512;  ///< of a block

/// Of all channels alike. A form without slots: there are no such links.
struct ChannelForm {
  FifoForm ring[kProtocols], tree[kProtocols], pairwise[kProtocols], exchange[kProtocols];
};

enum class Algorithm : int {
  kAllreduceRing,
  kReduceScatterRing,
  kAllGatherRing,
  kBroadcastChain,
  kReduceChain,
  kOneShot,        ///< all-reduce: each rank sends its operand to all. Reduces in order of rank
  kTwoShot,        ///< all-reduce: each rank reduces a chunk and sends the result to all. In order of rank
  kAllreduceTree,  ///< up to the root and down again, each of a channel's trees for its part
  kBroadcastTree,  ///< down the same trees, from any rank
  kReduceTree,     ///< up, to any rank
  kAllGatherTree,  ///< down from each rank in turn
  kReduceScatterTree,  ///< up to each
  kAllreduceHier,      ///< in a grid: what hosts send each other has been reduced inside them
  kReduceScatterHier,
  kAllGatherHier,
  kAllToAll  ///< each rank sends all others their blocks, at a time those at one distance
};
enum class LinkKind : int { kRing, kTree, kPairwise, kGrid, kExchange };
LOOM_HOST_DEVICE constexpr LinkKind links_of(Algorithm algorithm) {
  if (algorithm == Algorithm::kAllToAll) return LinkKind::kExchange;
  if (algorithm == Algorithm::kOneShot || algorithm == Algorithm::kTwoShot) return LinkKind::kPairwise;
  if (algorithm >= Algorithm::kAllreduceHier) return LinkKind::kGrid;
  return algorithm >= Algorithm::kAllreduceTree ? LinkKind::kTree : LinkKind::kRing;
}
LOOM_HOST_DEVICE constexpr bool is_pairwise(Algorithm algorithm) {
  return links_of(algorithm) == LinkKind::kPairwise;
}
/// Each rank's block goes another way over trees.
LOOM_HOST_DEVICE constexpr bool is_in_blocks(Algorithm algorithm) {
  return algorithm == Algorithm::kAllGatherTree || algorithm == Algorithm::kReduceScatterTree;
}
/// How many groups of threads perform a channel's share at the same time.
LOOM_HOST_DEVICE constexpr int groups_of(Algorithm algorithm) {
  return algorithm == Algorithm::kAllreduceTree || algorithm == Algorithm::kAllToAll ? kHalves : 1;
}

/// The form of an algorithm's links.
LOOM_HOST_DEVICE constexpr const FifoForm* forms_of(Algorithm algorithm, const ChannelForm& forms) {
  switch (links_of(algorithm)) {
    case LinkKind::kRing:
    case LinkKind::kGrid:
      return forms.ring;
    case LinkKind::kTree:
      return forms.tree;
    case LinkKind::kExchange:
      return forms.exchange;
    default:
      return forms.pairwise;
  }
}

/// One rank's share of one call; equal on all ranks but for rank, buffers and `resumes`, and the sizes of an
/// all-to-all. Sizes in elements.
///
///   algorithm            in                    out                    message
///   kAllreduceRing       count                 count                  blocks of `chunk`; a shorter last one
///   kReduceScatterRing   all blocks            its block              count = size x chunk, or `blocks`
///   kAllGatherRing       its block             all blocks             the same
///   kBroadcastChain      count, at the root    count, elsewhere       one block
///   kReduceChain         count                 count, at the root     one block
///   kOneShot             count                 count                  one block
///   kTwoShot             count                 count                  as of kAllreduceRing
///   k...Hier             as of k...Ring
///   kAllreduceTree       count                 count                  one block
///   kBroadcastTree       as of kBroadcastChain
///   kReduceTree          as of kReduceChain
///   kAllGatherTree, kReduceScatterTree  as of those by rings
///   kAllToAll            a block for each      one of each            `blocks`, which are this rank's own
///
/// Block b belongs to rank b, wherever it stands in a ring or a grid.
///
/// `out` may be `in`. Of an all-gather `in` may be its block in `out`. Of a reduce-scatter `out` may be its
/// block in `in`; it may be `in` itself if the blocks are equally long (see collective.hpp). Of an all-to-all
/// they have nothing in common.
struct Task {
  Algorithm algorithm = Algorithm::kAllreduceRing;
  Protocol protocol = Protocol::kSimple;
  int rank = 0, size = 1, root = 0;
  unsigned total_weight = 1;  ///< of the channels that take part, by the algorithm's kind of links
  bool resumes = false;       ///< the same task again, whose kernel has left
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  std::size_t chunk = 0;  ///< with `blocks`: the longest of them
  /// What Simple moves at once in chains and trees; in rings and grids the least of it. 0: a slot.
  std::size_t slice_bytes = 0;
  /// By rank, where their sizes differ; of an all-to-all those of `in`, and then those of `out`. In memory
  /// that all threads reach.
  const Part* blocks = nullptr;
};

/// Elements in a line of 128 bytes.
template <class T>
inline constexpr std::size_t line_elems = sizeof(T) < 128 ? 128 / sizeof(T) : 1;

LOOM_HOST_DEVICE inline Part block_of(const Task& task, int block) {
  if (task.blocks != nullptr) return task.blocks[block];
  const auto least = [](std::size_t a, std::size_t b) { return a < b ? a : b; };
  const std::size_t first = least(task.count, static_cast<std::size_t>(block) * task.chunk);
  return {first, least(task.count - first, task.chunk)};
}
LOOM_HOST_DEVICE inline Share share_of(const Task& task, const Channel& channel) {
  const LinkKind kind = links_of(task.algorithm);
  const Weight& weight = kind == LinkKind::kRing   ? channel.of_ring
                         : kind == LinkKind::kTree ? channel.of_trees
                         : kind == LinkKind::kGrid ? channel.of_grid
                                                   : channel.of_pairs;
  return {weight.before, weight.own, task.total_weight};
}
/// This channel's elements of a block, counted from the start of the message.
template <class T>
LOOM_HOST_DEVICE Part part_of(const Task& task, const Share& share, int block) {
  const Part whole = block_of(task, block), part = window(whole.length, line_elems<T>, share);
  return {whole.first + part.first, part.length};
}

}  // namespace loom::device::steps
