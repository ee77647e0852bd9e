// layout.hpp -- where the links of a rank's channels lie: in one piece of memory for each rank, which all
// others reach. Host code; only step code dereferences the pointers that it makes.
#pragma once

#include <span>

#include "device/schedule/exchange_schedule.hpp"
#include "device/steps/collective.hpp"

namespace loom::device::steps {

class Layout {
 public:
  /// Rings in order of rank. At most kMostRanks ranks; a form without slots has no links.
  constexpr Layout(const ChannelForm& form, int ranks) : form_(form), ranks_(ranks) {}

  /// Of one rank, for this many channels; must be zeroed before the first call.
  constexpr std::size_t bytes(int channels) const {
    return static_cast<std::size_t>(channels) * channel_bytes();
  }

  /// memory[r]: where this rank reaches rank r's memory, at a multiple of 128.
  Channel channel(std::span<std::byte* const> memory, int rank, int channel) const {
    Channel result;
    const int next = (rank + 1) % ranks_, previous = (rank + ranks_ - 1) % ranks_;
    const auto at = [&](int of, std::size_t offset) {
      return memory[static_cast<std::size_t>(of)] + static_cast<std::size_t>(channel) * channel_bytes() +
             offset;
    };
    for (int p = 0; p < kProtocols && ranks_ > 1; ++p) {
      if (has_ring(p)) {
        const std::size_t begin = ring_begin(p);
        result.ring[p] = {.from = receive(at(rank, begin), at(previous, begin)),
                          .to = send(at(next, begin), at(rank, begin)),
                          .passed = {}};
      }
      for (int k = 0; k < ranks_ - 1 && has_pairwise(p); ++k) {
        const int peer = other_position(rank, k);
        const std::size_t mine = pairwise_begin(p, peer, rank), theirs = pairwise_begin(p, rank, peer);
        result.pairwise[p].from[k] = receive(at(rank, mine), at(peer, theirs));
        result.pairwise[p].to[k] = send(at(peer, theirs), at(rank, mine));
      }
    }
    return result;
  }

 private:
  // What a rank's memory has for a link: its flag as the receiver, its flag as the sender on the link in the
  // other direction (of a ring: to the next), and the slots that it receives in.
  static constexpr std::size_t kFilled = 0, kConsumed = 128, kSlots = 256;

  static RecvEnd receive(std::byte* mine, std::byte* senders) {
    return {mine + kSlots, word(mine + kFilled), word(senders + kConsumed)};
  }
  static SendEnd send(std::byte* receivers, std::byte* mine) {
    return {receivers + kSlots, word(receivers + kFilled), word(mine + kConsumed)};
  }
  static Word* word(std::byte* at) { return reinterpret_cast<Word*>(at); }

  constexpr bool has_ring(int p) const { return form_.ring[p].slot_count > 0; }
  constexpr bool has_pairwise(int p) const { return form_.pairwise[p].slot_count > 0; }
  constexpr std::size_t ring_bytes(int p) const { return has_ring(p) ? kSlots + form_.ring[p].bytes() : 0; }
  constexpr std::size_t pairwise_bytes(int p) const {
    return has_pairwise(p) ? kSlots + form_.pairwise[p].bytes() : 0;
  }
  constexpr std::size_t protocol_bytes(int p) const {
    return ring_bytes(p) + static_cast<std::size_t>(ranks_ - 1) * pairwise_bytes(p);
  }
  constexpr std::size_t channel_bytes() const { return ring_begin(kProtocols); }
  constexpr std::size_t ring_begin(int p) const {
    std::size_t begin = 0;
    for (int before = 0; before < p; ++before) begin += protocol_bytes(before);
    return begin;
  }
  /// Where `of`'s memory has its links with a peer.
  constexpr std::size_t pairwise_begin(int p, int peer, int of) const {
    return ring_begin(p) + ring_bytes(p) +
           static_cast<std::size_t>(peer < of ? peer : peer - 1) * pairwise_bytes(p);
  }

  ChannelForm form_;
  int ranks_;
};

}  // namespace loom::device::steps
