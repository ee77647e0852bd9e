#include "component/links/links.hpp"

#include "base/format.hpp"
#include "component/links/shared_layout.hpp"

namespace loom {

using device::RecvLink;
using device::SendLink;
using ucx_transport::NetEnd;

device::SegmentHandle Links::make_segment(const Group& group) {
  if (group.wiring.local.size == 1) return {};
  const std::size_t on_one_host = kOneHostBytes + (group.has_groups ? sizeof(device::GroupsBuffer) : 0);
  segment = device::Segment::create(group.wiring.shape.hosts == 1 ? on_one_host : kOneOfHostsBytes);
  return segment.handle();
}

void Links::join_segments(const Group& group, int rank,
                          const std::function<device::SegmentHandle(int rank)>& handle_of) {
  const connect::Ring& ring = group.wiring.local;
  if (ring.size == 1) return;
  const auto memory_of = [&](int mate) {
    if (mate == rank) return segment.data();
    auto entry = attached.find(mate);
    if (entry == attached.end())
      entry = attached.emplace(mate, device::Segment::attach(handle_of(mate))).first;
    return entry->second.data();
  };
  std::vector<device::CicoBuffer*> buffers;
  for (const auto& [mate, process] : group.host_mates)
    buffers.push_back(reinterpret_cast<device::CicoBuffer*>(memory_of(mate)));
  const bool one_host = group.wiring.shape.hosts == 1;
  cico.emplace(std::move(buffers), group.placement.local_of(rank), group.oversubscribed,
               one_host ? device::CicoBuffer::kBanks : banks_of_hosts(ring.size));
  const auto behind_cico = [&](int mate) { return memory_of(mate) + sizeof(device::CicoBuffer); };
  if (one_host) {
    std::vector<device::ImmediateArea*> areas;
    for (const auto& [mate, process] : group.host_mates)
      areas.push_back(reinterpret_cast<device::ImmediateArea*>(behind_cico(mate)));
    immediate = std::make_unique<device::ImmediateExchange>(std::move(areas), rank, group.oversubscribed);
    tiered = std::make_unique<device::TieredExchange>(*immediate, *group.tiers);
    if (!group.has_groups) return;
    std::vector<device::GroupsBuffer*> of_groups;
    for (const auto& [mate, process] : group.host_mates)
      of_groups.push_back(reinterpret_cast<device::GroupsBuffer*>(memory_of(mate) + kOneHostBytes));
    groups.emplace(of_groups, *group.tiers, rank, group.oversubscribed);
    return;
  }
  local.next = ring.next;
  local.previous = ring.previous;
  local.to_next = std::make_unique<device::SharedSendLink>(behind_cico(ring.next), kSharedFifo, ring.next);
  local.from_previous =
      std::make_unique<device::SharedRecvLink>(behind_cico(rank), kSharedFifo, ring.previous);
}

void Links::enter(const device::CallNote& note) noexcept {
  for_each_fifo([&](int, SendLink* send, RecvLink* receive) {
    if (send != nullptr) send->enter(note);
    if (receive != nullptr) receive->enter(note);
  });
}

void Links::say_waiting() noexcept {
  if (immediate) return;
  if (cico) cico->say_waiting();
  for_each_fifo([](int, SendLink* send, RecvLink* receive) {
    if (send != nullptr) send->say_waiting();
    if (receive != nullptr) receive->say_waiting();
  });
  if (gpus) gpus->say_waiting();
}

bool Links::waits_too(const Group& group, int peer) const noexcept {
  if (immediate) return false;
  bool on_any = false, on_all = true;
  const auto note = [&](bool waits) { waits ? on_any = true : on_all = false; };
  if (cico && group.on_my_host(peer)) note(cico->waits(group.placement.local_of(peer)));
  for_each_fifo([&](int rank, const SendLink* send, const RecvLink* receive) {
    if (rank != peer) return;
    if (send != nullptr) note(send->other_waits());
    if (receive != nullptr) note(receive->other_waits());
  });
  if (gpus)
    if (const auto waits = gpus->waits(peer)) note(*waits);
  return on_any && on_all;
}

std::string Links::standing(int rank) const {
  ucx_transport::Traffic traffic;
  for_each_link(between_hosts, [&](const LinkSet::Ends& ends) {
    if (ends.peer.rank != rank) return;
    if (ends.send) traffic.add(*ends.send);
    if (ends.receive) traffic.add(*ends.receive);
  });
  return traffic.text();
}

std::string Links::way() const {
  std::string way;
  for_each_net_end(between_hosts, [&](const NetEnd& end) {
    if (way.empty()) way = end.way();
  });
  return way;
}

std::size_t Links::bytes() const {
  std::size_t bytes = !cico ? 0 : immediate ? kOneHostBytes : kOneOfHostsBytes;
  if (groups) bytes += sizeof(device::GroupsBuffer);
  for_each_net_end(between_hosts, [&](const NetEnd& end) { bytes += end.bytes(); });
  return bytes;
}

void Links::abandon() noexcept {
  number = 0;
  if (immediate) immediate->abandon();
  if (cico) cico->abandon();
  if (groups) groups->abandon();
  if (exchange) exchange->abandon();
  if (gpus && gpu_state == LinkState::kReady) gpus->abandon();
  if (local.to_next) local.to_next->abandon();
  if (local.from_previous) local.from_previous->abandon();
  abandon_all(between_hosts);
}

void Links::check_peers() const {
  if (cico) cico->check_peers();
  for_each_net_end(std::span(between_hosts).first(kFirstLinkKinds),
                   [](const NetEnd& end) { end.check_other_end(); });
}

bool Links::are_connected() const noexcept {
  return loom::are_connected(between_hosts);
}

void Links::drop_pairwise() noexcept {
  pairwise_state = LinkState::kNotMade;
  of(LinkKind::kPairwise) = LinkSet();
}

}  // namespace loom
