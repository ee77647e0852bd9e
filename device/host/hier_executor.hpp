// hier_executor.hpp -- small and medium collectives over several hosts: through the CICO buffers inside each
// host, between the node leaders over links, and through the CICO buffers again. Only one rank of a
// host uses the network, and few messages follow one another. Resumable: it never waits.
//
//   collective       inside    between the node leaders         inside
//   all-reduce       reduce    one-shot, or two-shot           broadcast
//   reduce-scatter   reduce    one-shot, or two-shot           broadcast; each keeps its block
//   barrier          reduce    one-shot                        broadcast
//   broadcast        *         to each                         broadcast
//   reduce           reduce    from each                       *
//   all-gather       gather    all-gather                      broadcast
//
// * Where the root is not the leader of its node, one passes the message on to the other by a broadcast on
// that host, which has no other broadcast.
//
//   h hosts     depth   messages      sent by the busiest
//   one-shot    1       h (h-1)       (h-1) S
//   two-shot    2       2 h (h-1)     2 (h-1)/h S
//   to each     1       h-1           (h-1) S
//   from each   1       h-1           S
//   all-gather  1       h (h-1)       (h-1)/h S, if hosts have equally many ranks
//
// All reduce in the same order: results have the same bits.
#pragma once

#include <optional>
#include <span>

#include "device/host/cico_executor.hpp"
#include "device/host/exchange_executor.hpp"
#include "device/host/scratch.hpp"

namespace loom::device {

/// A host, and a rank on it by its place there.
struct HostAndLocal {
  int host = 0, local = 0;
  friend bool operator==(const HostAndLocal&, const HostAndLocal&) = default;
};

/// A rank's place, and its links. Hosts and the ranks of a host are in the same order everywhere.
struct HierLinks {
  CicoBuffers* cico = nullptr;           ///< of this host's ranks; nullptr where there is one alone
  std::span<const HostAndLocal> places;  ///< of all ranks of the communicator
  int rank = 0;                          ///< this one
  int hosts = 1;
  std::span<const PeerLinks> links;  ///< of a node leader: to the other hosts' node leaders
  std::size_t slot_bytes = 0;        ///< of those links

  const HostAndLocal& place(int of) const { return places[static_cast<std::size_t>(of)]; }
  const HostAndLocal& self() const { return place(rank); }
};

class HierExecutor {
 public:
  /// A call of the whole communicator that takes() accepts; a reduction has contiguous buffers. What `levels`
  /// refers to must outlive this.
  HierExecutor(const HierLinks& levels, const Call& call);

  using State = RingExecutor::State;
  /// Goes on until it must wait. Throws what CICO buffers and links throw.
  State advance();
  /// The rank that a blocked executor waits for.
  HostAndLocal awaited() const noexcept;

  static constexpr bool takes(Collective collective) {
    return all_reduce(collective) || is_rooted(collective) || collective == Collective::kAllGather;
  }
  /// The reduced result goes to all hosts.
  static constexpr bool all_reduce(Collective collective) {
    return collective == Collective::kAllreduce || collective == Collective::kReduceScatter ||
           collective == Collective::kBarrier;
  }
  /// Longer messages are two-shot, between more than two hosts: the bytes that a one-shot sends cost more
  /// than a second round (three virtual hosts). Between two hosts both send as many.
  static constexpr std::size_t kMostShortBytes = 8 * 1024;
  static constexpr bool is_two_shot(int hosts, std::size_t bytes) {
    return hosts > 2 && bytes > kMostShortBytes;
  }

 private:
  static constexpr bool is_rooted(Collective collective) {
    return collective == Collective::kBroadcast || collective == Collective::kReduce;
  }
  void plan();
  void plan_rooted();
  void plan_all_gather();
  void count_bytes();
  bool gathers_in_order() const;
  std::byte* allocate(std::size_t bytes);
  Call inside_call(Collective collective, const std::byte* in, std::byte* out, std::size_t count) const;
  std::byte* gathered_from(const HostAndLocal& place) {
    return whole_ + static_cast<std::size_t>(place.host) * host_bytes_ +
           static_cast<std::size_t>(place.local) * call_.bytes();
  }
  void begin(const std::optional<Call>& inside);
  void finish();
  bool is_root() const { return levels_.rank == call_.root; }
  bool is_leader() const { return levels_.self().local == 0; }

  enum class Stage { kGather, kAcross, kSpread, kDone };
  HierLinks levels_;
  Call call_;
  /// The message, as far as it is reduced or gathered: in the caller's buffer where it can be.
  std::byte* whole_ = nullptr;
  Scratch scratch_;
  std::size_t host_bytes_ = 0;           ///< of an all-gather: the blocks of the host that has most
  std::optional<Call> gather_, spread_;  ///< nothing: this host has nothing to do
  ExchangeStage across_;
  Stage stage_ = Stage::kGather;
  std::optional<CicoExecutor> inside_;
  std::optional<ExchangeExecutor> between_;
};

}  // namespace loom::device
