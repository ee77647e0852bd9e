// group.hpp -- what the communicators over the same processes, in the same order, have in common: what the
// first of them has learned, and links that a freed one has left. Used only where all ranks have the same; a
// communicator finds that out in its set-up.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "component/core.h"
#include "component/select/plan.hpp"
#include "component/select/race.hpp"
#include "connect/view.hpp"
#include "device/cuda/gpu_links.hpp"
#include "device/host/cico_executor.hpp"
#include "device/host/grid.hpp"
#include "device/host/hier_executor.hpp"
#include "device/host/immediate_exchange.hpp"
#include "device/link/process_watch.hpp"
#include "device/link/shared_memory.hpp"
#include "topo/place.hpp"
#include "ucx_transport/net_fifo.hpp"

namespace loom {

/// Of links that the first call which needs them makes; the same on all ranks.
enum class LinkState { kNotMade, kReady, kFailed };

/// This rank's ends of a communicator's links.
struct Links {
  /// The same on all ranks; the links of a group have different ones. 0 before they are made, and once they
  /// have been abandoned.
  std::uint64_t number = 0;
  device::Segment segment;  ///< mine: direct area and CICO buffer, or the FIFO from my local predecessor
  std::map<int, device::Segment> attached;  ///< of host mates, by rank
  std::unique_ptr<device::ImmediateExchange> immediate;
  std::unique_ptr<device::SendLink> local_next;
  std::unique_ptr<device::RecvLink> local_previous;
  std::unique_ptr<ucx_transport::NetSendLink> net_next;
  std::unique_ptr<ucx_transport::NetRecvLink> net_previous;
  std::optional<device::CicoBuffers> cico;  ///< of my host
  /// Both ways to a rank of another host: between the node leaders, by host; none to my own.
  struct HostLinks {
    std::unique_ptr<ucx_transport::NetSendLink> send;
    std::unique_ptr<ucx_transport::NetRecvLink> receive;  ///< goes first: it passes news on to `send`
    /// To whom `peer` names. Throws Error.
    static HostLinks make(ucx_transport::Transport& transport, const device::FifoShape& fifo,
                          const std::string& peer);
  };
  std::vector<HostLinks> host_links;
  std::vector<device::PeerLinks> hosts;  ///< the same, as executors see them
  /// To my neighbours in the trees over the hosts of my rail, as device::DbtLinks has them.
  std::array<std::array<HostLinks, device::DbtLinks::kMostNeighbours>, 2> tree_ends;
  device::DbtLinks trees;  ///< the same, as executors see them
  LinkState pairwise_state = LinkState::kNotMade;
  std::vector<HostLinks> pairwise_ends;     ///< between all ranks of different hosts, by rank; none to my own
  std::vector<device::PeerLinks> pairwise;  ///< the same, as executors see them
  std::vector<std::int64_t> pids;  ///< of all ranks, where they may read each other's memory; else empty
  Races races;    ///< on one host; the same on all ranks, save what each has yet to tell the others
  Trials trials;  ///< between hosts; the same on all ranks
  /// For calls with all buffers on GPUs. The communicator's own, never left to another.
  LinkState gpu_state = LinkState::kNotMade;
  std::unique_ptr<device::cuda::GpuLinks> gpus;

  void abandon() noexcept;
  /// Whether no connection is known to be broken.
  bool are_connected() const noexcept;
  void abandon_pairwise() noexcept;
  /// The next all-to-all that needs it makes it again.
  void drop_pairwise() noexcept;
};

/// Links that no communicator has. Their counters stand where the last call left them, on all ranks alike.
class IdleLinks {
 public:
  /// Keeps a few that have a number, without their mesh; which ones does not depend on the order of the
  /// calls.
  void put(Links links) noexcept;
  /// Those with the lowest number, for the caller alone.
  std::optional<Links> take();

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, Links> by_number_;
};

struct Group {
  std::uint64_t number =
      0;  ///< the same on all ranks; the groups over the same processes have different ones
  connect::Wiring wiring;
  connect::Placement placement;
  std::vector<int> grid_ranks;               ///< see device::Grid; empty on one host
  std::vector<device::HostAndLocal> places;  ///< of all ranks
  std::vector<topo::Place> host_places;      ///< where those of my host run, in order of rank
  std::size_t self_on_host = 0;              ///< which of them is this one
  bool oversubscribed = false;               ///< ranks outnumber CPUs; the same on all ranks of my host
  std::uint64_t hier_from = 0;               ///< coll_loom_two_levels; 0: never
  device::OfferProtocol protocol = device::OfferProtocol::kInline;  ///< of small messages inside the host
  Preference preference = Preference::kBest;
  loom_cuda_executor cuda_executor = LOOM_STAGED;
  std::uint64_t small_bytes = 0;                ///< calls on device buffers below this are staged
  std::map<int, device::ProcessId> host_mates;  ///< by rank, myself included
  std::map<int, std::string> names;  ///< of host mates and neighbours: "rank 3 (process 71 on host a)"
  IdleLinks idle;
};

/// The groups of one process: those that communicators have, and a few others. From any thread.
class Groups {
 public:
  using Members = std::vector<std::uint64_t>;  ///< by rank, what names the process

  /// nullptr where there is none.
  std::shared_ptr<Group> find(const Members& members);
  /// In place of another one over the same members. Without memory for it nothing is kept.
  void keep(const Members& members, std::shared_ptr<Group> group) noexcept;
  /// A communicator has let go of its group.
  void trim() noexcept;
  /// Never the same twice, and ascending. Not 0.
  std::uint64_t next_number() noexcept;

 private:
  struct Entry {
    std::shared_ptr<Group> group;
    std::uint64_t used = 0;  ///< when last found or kept
  };
  std::mutex mutex_;
  std::map<Members, Entry> groups_;
  std::uint64_t numbers_ = 0, uses_ = 0;
};

}  // namespace loom
