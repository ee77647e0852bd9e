// link_set.hpp -- this rank's ends of one kind of link to ranks of other hosts, and what is done with the
// ends of several kinds together. What kinds there are, and where they lead: link_specs.hpp.
//
// To make them each rank makes its ends, learns through the bootstrap what the others tell of theirs,
// connects, and tries whether the network carries data.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "component/setup/group.hpp"
#include "device/host/exchange_executor.hpp"
#include "device/link/waiter.hpp"
#include "ucx_transport/net_fifo.hpp"

namespace loom {

/// The other end of a link.
struct LinkPeer {
  enum class Ways { kBoth, kSend, kReceive };

  int rank = 0;
  Ways ways = Ways::kBoth;
  /// Where this link is in the view and the handle of its set, and where the other end is in the peer's. Two
  /// links of one way each may share a place.
  std::size_t place = 0, place_there = 0;
};

/// Where the links of one set lead.
struct LinkPlan {
  std::size_t places = 0;
  std::vector<LinkPeer> peers;  ///< without this rank itself, and its host mates
};

/// One kind of link. Ends that ranks make of it fit together.
struct LinkSpec {
  /// For a rank of the group, which is the group's own.
  LinkPlan (*plan)(const Group& group, int rank);
  device::FifoShape (*fifo)(int hosts);
  /// A call may end while a few slots are on their way, as most_untaken() says, once UCX is done with them,
  /// for which all is sent eagerly; else the peers have taken all. Of links that lead both ways.
  bool few_untaken_suffice = false;
};

/// What a rank tells of the ends at one place of a set; 0 for one that there is not.
struct InboxIds {
  ucx_transport::InboxId receive = 0, send = 0;
};

/// Movable; views stay valid as long as the links live.
class LinkSet {
 public:
  struct Ends {
    LinkPeer peer;
    std::unique_ptr<ucx_transport::NetSendLink> send;     ///< null where the link leads here only
    std::unique_ptr<ucx_transport::NetRecvLink> receive;  ///< goes first: it passes news on to `send`
  };

  LinkSet() = default;
  /// Where the links lead; none is made yet.
  LinkSet(const LinkSpec& spec, const Group& group, int rank);

  bool leads_anywhere() const noexcept { return !plan_.peers.empty(); }
  /// May name a rank twice.
  std::span<const LinkPeer> peers() const noexcept { return plan_.peers; }
  /// Makes this rank's ends, which are to go over the rail. Throws Error.
  void make(ucx_transport::Transport& transport, ucx_transport::RailId rail, const RankNames& names);
  /// What the other ends need of these.
  void write_handle(ByteWriter& writer) const;
  static std::vector<InboxIds> read_handle(ByteReader& reader);
  /// Joins an end to the peer's, of which these are the address and the handle. Throws Error.
  void join(const Ends& ends, const ucx_transport::Bytes& worker_address,
            const std::vector<InboxIds>& handle) const;

  std::span<const Ends> ends() const noexcept { return ends_; }
  /// The links as executors see them, by place; null where none leads.
  std::span<const device::PeerLinks> view() const noexcept { return view_; }

  /// The rank of a link on which something that this rank has sent depends on its calling MPI again; nothing
  /// where there is none. `released` is increased by what the peers have taken; where few untaken slots
  /// suffice, only if a rank is returned. Throws Error.
  std::optional<int> not_quiet(std::uint64_t& released) const {
    return ends_.empty() ? std::nullopt : find_not_quiet(released);
  }

 private:
  std::optional<int> find_not_quiet(std::uint64_t& released) const;
  bool has_few_untaken(const Ends& ends) const;

  LinkPlan plan_;
  ucx_transport::RailId rail_ = ucx_transport::kAllRails;
  device::FifoShape fifo_;
  bool few_untaken_suffice_ = false;
  std::vector<Ends> ends_;
  std::vector<device::PeerLinks> view_;
};

/// Calls body(ends) with those of all sets.
template <class Body>
void for_each_link(std::span<const LinkSet> sets, Body&& body) {
  for (const LinkSet& set : sets)
    for (const LinkSet::Ends& ends : set.ends()) body(ends);
}
/// Calls body(end) with each ucx_transport::NetEnd.
template <class Body>
void for_each_net_end(std::span<const LinkSet> sets, Body&& body) {
  for_each_link(sets, [&](const LinkSet::Ends& ends) {
    if (ends.send) body(static_cast<ucx_transport::NetEnd&>(*ends.send));
    if (ends.receive) body(static_cast<ucx_transport::NetEnd&>(*ends.receive));
  });
}

/// See LinkSet::not_quiet(). All sets are looked at: a peer may wait for this rank's word by any.
inline std::optional<int> not_quiet_in(std::span<const LinkSet> sets, std::uint64_t& released) {
  std::optional<int> waits_for;
  released = 0;
  for (const LinkSet& set : sets)
    if (const std::optional<int> rank = set.not_quiet(released); rank && !waits_for) waits_for = rank;
  return waits_for;
}

/// Makes this rank's ends of several sets, over a rail, and writes what the others need of them. Throws
/// Error.
void make_all(std::span<LinkSet> sets, ucx_transport::Transport& transport, ucx_transport::RailId rail,
              const RankNames& names, ByteWriter& writer);
/// What handles are called in messages.
inline constexpr const char* kHandleOfLinks = "What a rank tells of its links";
/// Joins them to the others' ends. handle_of(rank) begins where that rank wrote. Throws Error.
void join_all(std::span<const LinkSet> sets, const std::function<ByteReader(int rank)>& handle_of);
/// Sends one word by each rail of each link and waits for those of the others: UCX may find a transport that
/// no packet passes. `awaited` becomes the rank whose word it waits for. Throws Error: kUnreachable, and what
/// the policy throws.
void try_all(std::span<const LinkSet> sets, int rank, const RankNames& names,
             const device::WaitPolicy& policy, int& awaited);
/// Whether no connection of theirs has ended, as far as is known.
bool are_connected(std::span<const LinkSet> sets) noexcept;
/// Tells all other ends that nothing further will come, and waits a little for that to leave.
void abandon_all(std::span<const LinkSet> sets) noexcept;

}  // namespace loom
