// pairwise_executor.hpp -- all-to-alls of several hosts: through links to every rank of the other hosts, all
// at once, and through the CICO buffers inside. Each block crosses the network once, straight to its
// receiver. Resumable: it never waits.
//
// Where blocks are listed, only sender and receiver know how long theirs is. So the first slot of each says
// it: a receiver with less room takes what fits, lets the rest pass, and tells its caller.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "device/host/cico_blocks_executor.hpp"
#include "device/host/exchange_executor.hpp"

namespace loom::device {

/// Where a rank stands, and its links.
struct PairwiseLinks {
  std::span<const PeerLinks> links;  ///< by rank; to those of other hosts
  std::size_t slot_bytes = 0;        ///< of these links
  CicoBuffers* cico = nullptr;       ///< of my host; nullptr where I am alone
  std::span<const int> mates;        ///< the ranks of my host, myself among them, as in `cico`
  int rank = 0;
};

class PairwiseExecutor {
 public:
  /// An all-to-all of the whole communicator, in any of its three forms. What `pairwise` refers to must
  /// outlive this.
  PairwiseExecutor(const PairwiseLinks& pairwise, const Call& call);
  PairwiseExecutor(const PairwiseExecutor&) = delete;
  PairwiseExecutor& operator=(const PairwiseExecutor&) = delete;

  using State = RingExecutor::State;
  /// Moves a slot to and from each rank, as far as possible without waiting. Throws what CICO buffers and
  /// links throw.
  State advance();
  /// The rank that a blocked executor waits for.
  int awaited() const noexcept { return awaited_; }
  /// The first block that did not fit, once this is done.
  const std::optional<CutBlock>& cut() const noexcept { return cut_; }

 private:
  /// Another host's rank, and the bytes of its blocks that are through.
  struct Peer {
    int rank;
    std::size_t to_send, room;
    std::optional<std::size_t> to_receive = {};  ///< once that is known
    bool has_begun = false;                      ///< to send
    std::size_t sent = 0, received = 0;

    bool has_sent() const { return has_begun && sent == to_send; }
    bool is_done() const { return has_sent() && received == to_receive; }
  };
  /// Some ranks' blocks of a non-contiguous buffer.
  struct Selected {
    const Packer* all = nullptr;
    std::span<const int> ranks;
    static void move(void* context, int block, std::byte* packed, std::size_t bytes);
  };
  bool lists_blocks() const { return device::lists_blocks(call_.collective); }
  Block in_block(int rank) const;
  Block out_block(int rank) const;
  void plan_inside();
  State advance_inside();
  bool send(Peer& peer);
  bool receive(Peer& peer);
  void store(const Peer& peer, const std::byte* from, std::size_t bytes);

  PairwiseLinks pairwise_;
  Call call_;
  std::vector<Peer> peers_;
  std::vector<Block> in_blocks_, out_blocks_;  ///< of my host
  Selected in_selected_, out_selected_;
  Packer in_packer_, out_packer_;
  Call inside_call_;
  std::optional<CicoBlocksExecutor> inside_;
  bool is_inside_done_ = false;
  bool may_overwrite_;  ///< a result what has yet to be sent
  std::optional<CutBlock> cut_;
  int awaited_ = 0;
};

}  // namespace loom::device
