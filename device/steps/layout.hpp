// layout.hpp -- where the links of all channels lie: in one piece of memory of each rank, which all others
// reach. Pure arithmetic on what all ranks know alike. Host code; only step code dereferences the pointers
// that it makes.
#pragma once

#include <span>
#include <vector>

#include "device/steps/channel.hpp"

namespace loom::device::steps {

/// What all ranks know of a channel: a ring and trees that have nothing to do with each other but their
/// number. A call goes by the first so many channels, which must all have its kind of links.
struct ChannelShape {
  std::vector<int> ring = {};  ///< ranks in the order in which data passes them. Empty: none
  std::vector<int> trees[kTrees] =
      {};  ///< by rank its parent, kNobody of the root. Empty: none; the second last
  unsigned weight = 1, tree_weight = 1;  ///< of the ring, and of the trees

  bool has(LinkKind kind) const {
    return kind == LinkKind::kPairwise || !(kind == LinkKind::kRing ? ring : trees[0]).empty();
  }
};

/// Rings in order of rank and one such chain as a tree, of equal weights.
std::vector<ChannelShape> plain_channels(int ranks, int channels);

class Layout {
 public:
  /// Every two ranks of up to kMostPairwise have links in each channel, as far as the form has any. Throws
  /// Error (kInternal) if a ring is not all ranks, or a tree no tree of all ranks with up to kMostChildren
  /// children.
  Layout(const ChannelForm& form, int ranks, std::vector<ChannelShape> shapes);

  int channels() const { return static_cast<int>(shapes_.size()); }
  /// Of the rank that needs most, for the first so many channels. Must be zeroed before the first call.
  std::size_t bytes(int channels) const;
  /// Task::total_weight of a call that goes by such links of the first so many channels.
  unsigned total_weight(LinkKind kind, int channels) const;

  /// A rank's own table of the first so many channels: `Channel`s, and what they refer to. Only this rank's
  /// threads use it.
  std::size_t table_bytes(int channels) const;
  /// What is to be copied to `at`, where the table will lie, at a multiple of 16. memory[r]: where this rank
  /// reaches rank r's memory, at a multiple of 128.
  std::vector<std::byte> table(std::span<std::byte* const> memory, int rank, int channels,
                               std::byte* at) const;

 private:
  /// Where a FIFO lies.
  struct Link {
    std::size_t in_receiver = 0;  ///< the flag `filled`, then the slots
    std::size_t in_sender = 0;    ///< the flag `consumed`
  };
  /// A channel's links by protocol.
  struct Links {
    std::vector<Link> ring[kProtocols];          ///< by the position of the sender
    std::vector<Link> up[kTrees][kProtocols];    ///< by child, to its parent
    std::vector<Link> down[kTrees][kProtocols];  ///< by child, from its parent
    std::vector<Link> pairwise[kProtocols];      ///< by sender and receiver
  };
  class Place;

  Channel channel(std::span<std::byte* const> memory, int rank, int channel) const;
  Tree tree(std::span<std::byte* const> memory, int rank, int channel, int t) const;

  ChannelForm form_;
  int ranks_;
  std::vector<ChannelShape> shapes_;
  std::vector<Links> links_;
  std::vector<std::size_t> bytes_;  ///< by number of channels
};

}  // namespace loom::device::steps
