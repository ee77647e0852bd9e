#include "component/links/link_set.hpp"

#include <algorithm>
#include <cstring>

#include "base/format.hpp"
#include "component/links/layout.hpp"
#include "component/links/shared_layout.hpp"

namespace loom {
namespace {

using ucx_transport::NetEnd;
using ucx_transport::NetRecvLink;
using ucx_transport::NetSendLink;

// For the words of all ends that are abandoned together.

/// By which a link is tried.
std::uint64_t trial_word(int from, int to) {
  return kLayout ^ (static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint64_t>(to));
}

}  // namespace

LinkSet::LinkSet(const LinkSpec& spec, const Group& group, int rank)
    : plan_(spec.plan(group, rank)),
      fifo_(spec.fifo(group.wiring.shape.hosts)),
      few_untaken_suffice_(spec.few_untaken_suffice),
      view_(plan_.places) {}

void LinkSet::make(ucx_transport::Transport& transport, ucx_transport::RailId rail, const RankNames& names) {
  using Ways = LinkPeer::Ways;
  rail_ = rail;
  ends_.reserve(plan_.peers.size());
  for (const LinkPeer& peer : plan_.peers) {
    const std::string& name = names.at(peer.rank);
    Ends ends{.peer = peer, .send = nullptr, .receive = nullptr};
    device::PeerLinks& links = view_.at(peer.place);
    if (peer.ways != Ways::kReceive) {
      ends.send = std::make_unique<NetSendLink>(transport, fifo_, name);
      if (few_untaken_suffice_) ends.send->send_along();
      links.send = ends.send.get();
    }
    if (peer.ways != Ways::kSend) {
      ends.receive = std::make_unique<NetRecvLink>(transport, fifo_, name);
      links.receive = ends.receive.get();
    }
    if (peer.ways == Ways::kBoth) ends.send->pair_with(*ends.receive);
    ends_.push_back(std::move(ends));
  }
}

void LinkSet::write_handle(ByteWriter& writer) const {
  std::vector<InboxIds> places(plan_.places);
  for (const Ends& ends : ends_) {
    InboxIds& ids = places.at(ends.peer.place);
    if (ends.send) ids.send = ends.send->inbox();
    if (ends.receive) ids.receive = ends.receive->inbox();
  }
  writer.put(static_cast<std::uint32_t>(places.size()));
  for (const InboxIds& ids : places) writer.put(ids);
}

std::vector<InboxIds> LinkSet::read_handle(ByteReader& reader) {
  std::vector<InboxIds> places;
  for (auto left = reader.get<std::uint32_t>(); left > 0; --left) places.push_back(reader.get<InboxIds>());
  return places;
}

void LinkSet::join(const Ends& ends, const ucx_transport::Bytes& worker_address,
                   const std::vector<InboxIds>& handle) const {
  if (ends.peer.place_there >= handle.size()) cannot_be_read(kHandleOfLinks, "a link is not there");
  const InboxIds& there = handle[ends.peer.place_there];
  if (ends.send) ends.send->connect(worker_address, there.receive, rail_);
  if (ends.receive) ends.receive->connect(worker_address, there.send, rail_);
}

bool LinkSet::has_few_untaken(const Ends& ends) const {
  const auto few = [&](std::uint64_t taken) {
    return ends.send->steps() - taken <= most_untaken(fifo_) &&
           ends.send->bytes_after(taken) <= kMostUntakenBytes;
  };
  return few(ends.send->taken()) || few(ends.send->released());
}

std::optional<int> LinkSet::find_not_quiet(std::uint64_t& released) const {
  if (few_untaken_suffice_) {
    const auto not_quiet = std::ranges::find_if_not(ends_, [&](const Ends& ends) {
      return has_few_untaken(ends) && ends.send->is_flushed() && ends.receive->is_flushed();
    });
    if (not_quiet == ends_.end()) return {};
    for (const Ends& ends : ends_) released += ends.send->taken();
    return not_quiet->peer.rank;
  }
  std::optional<int> waits_for;
  for (const Ends& ends : ends_) {
    bool quiet = true;
    if (ends.receive) ends.receive->settle();
    if (ends.send) {
      const std::uint64_t taken = ends.send->released();
      released += taken;
      quiet = taken == ends.send->steps();
    }
    if (quiet && ends.receive) quiet = ends.receive->is_flushed();
    if (!quiet && !waits_for) waits_for = ends.peer.rank;
  }
  return waits_for;
}

void make_all(std::span<LinkSet> sets, ucx_transport::Transport& transport, ucx_transport::RailId rail,
              const RankNames& names, ByteWriter& writer) {
  writer.put_all(transport.address_of(rail));
  for (LinkSet& set : sets) {
    set.make(transport, rail, names);
    set.write_handle(writer);
  }
}

void join_all(std::span<const LinkSet> sets, const std::function<ByteReader(int rank)>& handle_of) {
  for (std::size_t which = 0; which < sets.size(); ++which)
    for (const LinkSet::Ends& ends : sets[which].ends()) {
      ByteReader reader = handle_of(ends.peer.rank);
      const std::span<const std::byte> address = reader.get_all();
      const ucx_transport::Bytes worker_address(address.begin(), address.end());
      for (std::size_t before = 0; before < which; ++before) LinkSet::read_handle(reader);
      sets[which].join(ends, worker_address, LinkSet::read_handle(reader));
    }
}

void try_all(std::span<const LinkSet> sets, int rank, const RankNames& names,
             const device::WaitPolicy& policy, int& awaited) {
  const auto wait_until = [&](auto&& condition) {
    device::Waiter waiter(policy);
    while (!condition()) waiter.pause();
  };
  std::size_t rails = 0;
  for_each_net_end(sets, [&](const NetEnd& end) { rails = std::max(rails, end.rails()); });
  for (std::size_t rail = 0; rail < rails; ++rail) {
    for_each_link(sets, [&](const LinkSet::Ends& ends) {
      if (!ends.send || rail >= ends.send->rails()) return;
      const std::uint64_t word = trial_word(rank, ends.peer.rank);
      std::byte* slot = nullptr;
      wait_until([&] { return (slot = ends.send->try_acquire()) != nullptr; });
      std::memcpy(slot, &word, sizeof(word));
      ends.send->publish(sizeof(word));
    });
    for_each_link(sets, [&](const LinkSet::Ends& ends) {
      if (!ends.receive || rail >= ends.receive->rails()) return;
      awaited = ends.peer.rank;
      const std::byte* received = nullptr;
      wait_until([&] { return (received = ends.receive->try_receive()) != nullptr; });
      std::uint64_t word;
      std::memcpy(&word, received, sizeof(word));
      if (word != trial_word(awaited, rank))
        throw Error(ErrorCode::kUnreachable,
                    loom::format("UCX delivered wrong data from {}.", names.at(awaited)));
      ends.receive->release();
    });
  }
  wait_until([&] {
    std::uint64_t released = 0;
    return !not_quiet_in(sets, released);
  });
}

bool are_connected(std::span<const LinkSet> sets) noexcept {
  bool connected = true;
  for_each_net_end(sets, [&](const NetEnd& end) { connected &= end.is_connected(); });
  return connected;
}

void abandon_all(std::span<const LinkSet> sets) noexcept {
  for_each_net_end(sets, [](NetEnd& end) { end.abandon_end(); });
  ucx_transport::give_last_words_time([&] {
    bool all = true;
    for_each_net_end(sets, [&](NetEnd& end) { all &= end.has_flushed_or_failed(); });
    return all;
  });
}

}  // namespace loom
