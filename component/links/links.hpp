// links.hpp -- this rank's ends of all links of a communicator: in shared memory, between GPUs, to other
// hosts.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "component/links/lane_memory.hpp"
#include "component/links/link_set.hpp"
#include "component/links/link_specs.hpp"
#include "component/select/tuner.hpp"
#include "device/cuda/gpu_links.hpp"
#include "device/host/cico_executor.hpp"
#include "device/host/grid.hpp"
#include "device/host/tiered_cico_executor.hpp"
#include "device/host/tiered_exchange.hpp"
#include "device/link/shared_fifo.hpp"
#include "device/link/shared_memory.hpp"

namespace loom {

/// Links are made by the first call that needs them. The same on all ranks.
enum class LinkState { kNotMade, kReady, kFailed };

/// In shared memory, the ring of a host's ranks.
struct LocalRing {
  int next = 0, previous = 0;
  std::unique_ptr<device::SharedSendLink> to_next;
  std::unique_ptr<device::SharedRecvLink> from_previous;
};

struct Links {
  LinkState state = LinkState::kNotMade;  ///< of the first links; where they have failed, all calls fall back
  /// The same on all ranks; the links of a group have different ones. 0 before they are made, and once they
  /// have been abandoned.
  std::uint64_t number = 0;
  device::Segment segment;  ///< mine: immediate area and CICO buffer, or the FIFO from my local predecessor
  std::map<int, device::Segment> attached;               ///< of host mates, by rank
  std::unique_ptr<device::ImmediateExchange> immediate;  ///< where all ranks are on one host
  std::unique_ptr<device::TieredExchange> tiered;        ///< the same in groups
  std::optional<device::CicoBuffers> cico;               ///< of my host
  std::optional<device::CicoGroups> groups;              ///< where all ranks are on one host; see Group
  std::optional<device::LaneExchange> exchange;          ///< of a lane, for small calls
  LaneMemory lanes;                               ///< for persistent requests, where all are on one host
  LocalRing local;                                ///< on one of several hosts
  std::array<LinkSet, kLinkKinds> between_hosts;  ///< by kind
  device::DbtLinks trees;                         ///< those of them along trees, as executors see them
  LinkState pairwise_state = LinkState::kNotMade;
  std::vector<std::int64_t> pids;  ///< of all ranks, where they may read each other's memory; else empty
  /// On one host; the same on all ranks, save what each has yet to tell the others. Of a communicator: lanes
  /// have none.
  std::unique_ptr<Tuner> tuner;
  /// For calls with all buffers on GPUs. The communicator's own, never left to another.
  LinkState gpu_state = LinkState::kNotMade;
  std::unique_ptr<device::cuda::GpuLinks> gpus;

  const LinkSet& of(LinkKind kind) const { return between_hosts[static_cast<std::size_t>(kind)]; }
  LinkSet& of(LinkKind kind) { return between_hosts[static_cast<std::size_t>(kind)]; }
  std::span<const LinkSet> first_between_hosts() const {
    return std::span(between_hosts).first(kFirstLinkKinds);
  }
  std::span<LinkSet> first_between_hosts() { return std::span(between_hosts).first(kFirstLinkKinds); }
  std::span<LinkSet> pairwise() { return std::span(between_hosts).last(1); }

  /// Calls body(int rank, device::SendLink*, device::RecvLink*) with each link that is a FIFO; one of the two
  /// may be nullptr.
  template <class Body>
  void for_each_fifo(Body&& body) const {
    if (local.to_next) body(local.next, local.to_next.get(), nullptr);
    if (local.from_previous) body(local.previous, nullptr, local.from_previous.get());
    for_each_link(between_hosts, [&](const LinkSet::Ends& ends) {
      body(ends.peer.rank, ends.send.get(), ends.receive.get());
    });
  }

  /// Of several hosts, before a call.
  void enter(const device::CallNote& note) noexcept;
  /// See LinkSet.
  std::optional<int> not_quiet(std::uint64_t& released) const {
    return not_quiet_in(between_hosts, released);
  }
  /// Tells the other ends that this rank has been waiting for long. Between hosts; inside one, whoever is
  /// missing is seen by all.
  void say_waiting() noexcept;
  /// Whether the peer waits, too, as it has said by say_waiting() on every link between it and this rank. One
  /// link is not enough: a peer that goes on takes its word back only on the links that it uses.
  bool waits_too(const Group& group, int peer) const noexcept;
  /// The way to a rank of another host, and how far both have come; empty where no link leads there.
  std::string standing(int rank) const;
  /// Over what this rank reaches another host; empty where it does not.
  std::string way() const;
  /// Memory of this rank for its ends, without what UCX takes.
  std::size_t bytes() const;
  void abandon() noexcept;
  /// Of ready ones, beside all calls: throws Error when a rank that they lead to has abandoned them
  /// (kGivenUp) or a connection is broken (kPeerFailed).
  void check_peers() const;
  /// Whether no connection is known to be broken.
  bool are_connected() const noexcept;
  /// The next all-to-all that needs them makes them again.
  void drop_pairwise() noexcept;

  /// Memory that the ranks of this host share; an empty handle where the rank is alone there. Throws Error.
  device::SegmentHandle make_segment(const Group& group);
  /// Once all have made theirs; handle_of(rank) of a host mate. Throws Error.
  void join_segments(const Group& group, int rank,
                     const std::function<device::SegmentHandle(int rank)>& handle_of);
};

}  // namespace loom
