// layout.hpp -- where the links of all channels lie: in one piece of memory of each rank, which all others of
// its host reach; and in memory of the host, and of the GPU, for those that lead to other hosts. Pure
// arithmetic on what all ranks know alike. Host code; only step code, and whoever carries messages between
// hosts, dereferences the pointers that it makes.
#pragma once

#include <span>
#include <vector>

#include "device/steps/far_end.hpp"
#include "device/steps/shape.hpp"

namespace loom::device::steps {

class Layout {
 public:
  /// Every two ranks of up to kMostPairwise have links in each channel, as far as the form has any; and those
  /// of an exchange in one channel, or in several where there are fewer distances. hosts: by rank; empty: all
  /// are on one. Throws Error (kInternal) if a ring or a grid is not all ranks, or a tree no
  /// tree of all ranks with up to kMostChildren children, or if the form has links between hosts by LL or
  /// LL128.
  Layout(const ChannelForm& form, int ranks, std::vector<ChannelShape> shapes, std::vector<int> hosts = {});

  int channels() const { return static_cast<int>(shapes_.size()); }
  /// Of the rank that needs most, for the first so many channels. Must be zeroed before the first call.
  std::size_t bytes(int channels) const;
  /// Task::total_weight of a call that goes by such links of the first so many channels.
  unsigned total_weight(LinkKind kind, int channels) const;

  /// A rank's own table of the first so many channels: `Channel`s, and what they refer to. Only this rank's
  /// threads use it.
  std::size_t table_bytes(int channels) const;
  /// What is to be copied to `at`, where the table will lie, at a multiple of 16. memory[r]: where this rank
  /// reaches rank r's memory, at a multiple of 128; of ranks that are not among near_peers() it is not looked
  /// at. far: this rank's ends on other hosts, in their places.
  std::vector<std::byte> table(std::span<std::byte* const> memory, int rank, int channels, std::byte* at,
                               std::span<const FarEnd> far = {}) const;

  /// By rank: those whose memory a rank has to reach, for it has links with them, and they are on its host.
  std::vector<bool> near_peers(int rank, int channels) const;
  /// A rank's ends of links to other hosts, by number, without places and not on its GPU.
  std::vector<FarEnd> far_ends(int rank, int channels) const;
  /// Of all memory for them, of the rank that needs most.
  std::size_t most_far_bytes(int channels) const;

 private:
  /// Where a FIFO lies.
  struct Link {
    std::size_t in_receiver = 0;  ///< the flag `filled`, then the slots
    std::size_t in_sender = 0;    ///< the flag `consumed`
    int far = kNear;              ///< number of a link between hosts, which lies where its ends do
  };
  static constexpr int kNear = -1;
  struct FarLink {
    int sender = 0, receiver = 0, channel = 0;
    LinkKind kind = LinkKind::kRing;
    FifoForm form;
  };
  /// A channel's links by protocol.
  struct Links {
    std::vector<Link> ring[kProtocols];          ///< by the position of the sender
    std::vector<Link> up[kTrees][kProtocols];    ///< by child, to its parent
    std::vector<Link> down[kTrees][kProtocols];  ///< by child, from its parent
    std::vector<Link> pairwise[kProtocols];      ///< by sender and receiver
    std::vector<Link> local, rail;               ///< of a grid, by the sender's place in it
    std::vector<Link> exchange;                  ///< by distance, of those of the channel, and sender
    std::vector<std::size_t> scratch;            ///< by rank, where it lies in its memory
  };
  class Place;
  struct Reach;

  Channel channel(const Reach& reach, int rank, int channel) const;
  Tree tree(const Reach& reach, int rank, int channel, int t) const;
  Grid grid(const Reach& reach, int rank, int channel) const;
  std::vector<DistanceLinks> exchange(const Reach& reach, int rank, int channel) const;

  int ranks_;
  std::vector<ChannelShape> shapes_;
  std::vector<Links> links_;
  std::vector<std::size_t> bytes_;  ///< by number of channels
  std::vector<FarLink> far_links_;
};

}  // namespace loom::device::steps
