// group.hpp -- what the communicators over the same processes, in the same order, have in common: what the
// first of them has learned, and links that a freed one has left. Used only where all ranks have the same; a
// communicator finds that out in its set-up.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "component/core.h"
#include "component/select/select.hpp"
#include "connect/view.hpp"
#include "device/host/hier_executor.hpp"
#include "device/host/tiers.hpp"
#include "device/link/process_watch.hpp"
#include "topo/place.hpp"

namespace loom {

class IdleLinks;

/// By rank, for messages: "rank 3 (process 71 on host a)".
using RankNames = std::map<int, std::string>;

struct Group {
  std::uint64_t number =
      0;  ///< the same on all ranks; the groups over the same processes have different ones
  connect::Wiring wiring;
  connect::Placement placement;
  std::vector<int> grid_ranks;               ///< see device::Grid; empty on one host
  std::vector<device::HostAndLocal> places;  ///< of all ranks, where node leaders may be linked; else empty
  std::vector<topo::Place> host_places;      ///< where those of my host run, in order of rank
  std::size_t self_on_host = 0;              ///< which of them is this one
  std::optional<device::Tiers> tiers;        ///< of several ranks on one host
  int in_cache = 1;                          ///< of these, most that share a last-level cache
  bool has_groups = false;                   ///< of these, which have memory of their own
  bool oversubscribed = false;               ///< ranks outnumber CPUs; the same on all ranks of my host
  bool oversubscribed_somewhere = false;     ///< on some host; the same on all ranks
  /// The small call from which on the node leaders carry such calls, for links are not worth making for a
  /// few; 0: never.
  std::uint64_t hier_from = 0;
  Tune tune;  ///< the user's choice of algorithms
  /// By collective: immediate_below(), of one host and without rules.
  std::array<std::uint64_t, LOOM_BARRIER + 1> small_below{};
  bool reproducible = false;                      ///< coll_loom_reproducible
  std::string not_on_gpus = "there is one rank";  ///< why calls do not stay on GPUs; empty: they may
  std::map<int, device::ProcessId> host_mates;    ///< by rank, myself included
  RankNames names;                                ///< of host mates and neighbours
  std::shared_ptr<IdleLinks> idle;                ///< once the group is known

  /// What all communicators of the group have in common, before there are links.
  Conditions conditions() const {
    return {.shape = wiring.shape,
            .oversubscribed = oversubscribed_somewhere,
            .tiers = tiers ? tiers->tiers() : 1,
            .in_cache = in_cache,
            .groups = has_groups};
  }
  /// As far as it depends on more than its processes: between hosts there is nothing that keeps an order.
  bool may_use_devices() const { return wiring.shape.hosts == 1 || !reproducible; }
  /// It leaves calls to algorithms on GPUs, and all ranks can.
  bool uses_devices() const { return not_on_gpus.empty(); }
  /// Of several hosts: the ring that crosses them.
  const connect::Ring& across() const { return wiring.rail ? *wiring.rail : *wiring.flat; }
  bool has_trees() const {
    return wiring.shape.hosts > 1 && wiring.shape.ranks_per_host > 0 &&
           (suits_dbt(wiring.shape) || tune.names(Algorithm::kDbt));
  }
  /// On the rail of this group's rank.
  int rank_on_rail(int host) const {
    return grid_ranks[static_cast<std::size_t>(host * wiring.local.size + wiring.local.position)];
  }
  /// For messages, of any rank.
  std::string name_of(int rank) const;
  bool on_my_host(int rank) const { return host_mates.contains(rank); }
};

/// The groups of one process: those that communicators have, and a few others. From any thread.
class Groups {
 public:
  using Members = std::vector<std::uint64_t>;  ///< by rank, a random number that names the process

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
  /// In place of the members, which may be many.
  using Key = std::array<std::uint64_t, 2>;
  static Key key_of(const Members& members) noexcept;

  Mutex mutex_;
  std::map<Key, Entry> groups_ LOOM_GUARDED_BY(mutex_);
  std::uint64_t numbers_ LOOM_GUARDED_BY(mutex_) = 0, uses_ LOOM_GUARDED_BY(mutex_) = 0;
};

}  // namespace loom
