// exchange_executor.hpp -- performs any pattern of exchange_schedule.hpp on host memory over links.
// Resumable: it never waits. A position sends the tiles of a first round as far ahead as there are slots.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <span>
#include <vector>

#include "device/host/ring_executor.hpp"
#include "device/link/link.hpp"
#include "device/schedule/exchange_schedule.hpp"
#include "device/streaming.hpp"

namespace loom::device {

/// The links between this position and another; nullptr where nothing is sent.
struct PeerLinks {
  SendLink* send = nullptr;
  RecvLink* receive = nullptr;
};

/// One collective by one pattern. All positions give the same pattern, count, elem_bytes and root.
struct ExchangeStage {
  Pattern pattern = Pattern::kOneShotAllreduce;
  std::byte* data = nullptr;      ///< block_count(pattern, size) blocks: what this position gives, then its
                                  ///< result (of a reduce, at the root alone)
  const std::byte* in = nullptr;  ///< of a one-shot: what it gives, if that is not in `data`
  std::size_t count = 0;          ///< elements of a block
  std::size_t elem_bytes = 1;
  ReduceFn reduce = nullptr;       ///< of patterns that reduce
  int root = 0;                    ///< of patterns that have one
  Streaming* streaming = nullptr;  ///< told what is read of `in`, or `data`, and written to `data`
};

/// Reductions come out bitwise equal on all positions: operands are taken in order of position.
class ExchangeExecutor {
 public:
  ~ExchangeExecutor();  // not inline: GCC 14 would warn about members of one that does not exist
  /// links[p] leads to position p, of at least two; every link that the pattern uses is there, and each has
  /// at least slot_bytes per slot, which is at least elem_bytes.
  ExchangeExecutor(std::span<const PeerLinks> links, int position, std::size_t slot_bytes,
                   const ExchangeStage& stage);

  using State = RingExecutor::State;
  /// Goes on until it must wait. Throws what the links throw.
  State advance();
  /// The position that a blocked executor waits for.
  int awaited() const noexcept { return awaited_; }

 private:
  /// A round of a tile.
  struct Place {
    std::size_t first = 0;  ///< elements [first, first + elems(first)) of each block
    int round = 0;
    auto operator<=>(const Place&) const = default;
  };

  bool send();
  bool receive();
  bool receive_one(const Exchange& step);
  bool reduce_in_order();
  bool next_round(Place& place) const;
  /// A tile is received once it has been sent, for its result may take the place of what is sent; what a
  /// second round sends is what the first has received.
  bool may_receive() const { return received_ < sent_; }
  bool may_send() const { return sent_.round == 0 || received_ == sent_; }
  RecvLink& link_from(int position) const { return *links_[static_cast<std::size_t>(position)].receive; }
  Exchange step(const Place& place, int k) const {
    return exchange_step(stage_.pattern, place.round, position_, k, stage_.root);
  }
  std::size_t elems(std::size_t first) const { return std::min(tile_elems_, stage_.count - first); }
  std::byte* at(int block, std::size_t first) const {
    return stage_.data + (static_cast<std::size_t>(block) * stage_.count + first) * stage_.elem_bytes;
  }
  /// What this position gives of the one block that all reduce, or that it reduces.
  const std::byte* given(int block, std::size_t first) const {
    return stage_.in != nullptr ? stage_.in + first * stage_.elem_bytes : at(block, first);
  }

  std::span<const PeerLinks> links_;
  int position_, size_;
  ExchangeStage stage_;
  std::size_t tile_elems_;           ///< of a block that go in one slot
  Place sent_, received_;            ///< what comes next
  int next_to_ = 0, next_from_ = 0;  ///< exchanges of these
  bool all_sent_ = stage_.count == 0, all_received_ = stage_.count == 0;
  int awaited_ = 0;
  std::vector<std::byte> sum_;  ///< of a tile of a block, while its operands are still needed
};

}  // namespace loom::device
