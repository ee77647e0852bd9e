// communicator_links.cpp -- the second part of a communicator's set-up, at the first call that needs them:
// where do the links lie, and does the network carry data?
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "component/communicator.hpp"
#include "component/links/net_handle.hpp"
#include "component/links/shared_layout.hpp"
#include "component/setup/byte_stream.hpp"
#include "device/link/memory_near.hpp"
#include "device/link/peer_memory.hpp"

namespace loom {

/// Second part: the links. True on every rank or on none.
bool Communicator::link() {
  linking_ = true;
  const bool linked = meet(bootstrap_, process_, [&](Agreement& agreement) {
    if (!take_over_links(agreement)) make_links(agreement);
  });
  linking_ = false;
  if (stopping_) leave();
  process_.count_communicator(linked);
  // Nobody waits for them: late messages are dropped, and peers have mapped what they need.
  if (!linked) const Links dropped = std::exchange(links_, {});
  if (linked) learn_what_is_small();
  if (linked && process_.runtime().parameters.verbose >= 1 && rank_ == 0)
    without_failing([&] {
      process_.runtime().log(describe_links().c_str());
      if (const char* why = why_no_preference())
        process_.runtime().log(fmt::format("{}: coll_loom_algorithm has no effect: {}", name_, why).c_str());
    });
  return linked;
}

void Communicator::learn_what_is_small() noexcept {
  // At coll_loom_verbose 2 the first call of each kind is told.
  if (links_.immediate && process_.runtime().parameters.verbose < 2 &&
      (group_->preference == Preference::kBest || group_->preference == Preference::kBySize))
    std::atomic_ref(small_below_)
        .store(most_small_bytes(bootstrap_.size(), group_->protocol) + 1, std::memory_order_relaxed);
}

/// Links that an earlier communicator over these processes has left, if all ranks offer the same. Of
/// different ones the latest go back, since the ranks that have offered earlier ones may have those too: so
/// ranks whose communicators went at different times are level again one call later.
bool Communicator::take_over_links(Agreement& agreement) {
  if (!group_is_known_) return false;
  auto began = std::chrono::steady_clock::now();
  std::optional<Links> left = group_->idle.take();
  const std::uint64_t mine = left && left->are_connected() ? left->number : 0;
  const auto [most, least_inverted] = agreement.largest({mine, ~mine});
  const std::uint64_t least = ~least_inverted;
  const bool taken_over = least != 0 && least == most;
  if (taken_over)
    links_ = std::move(*left);
  else if (least != 0 && mine == most)
    group_->idle.put(std::move(*left));
  note_part("links left over", agreement, began);
  return taken_over;
}

void Communicator::make_links(Agreement& agreement) {
  auto began = std::chrono::steady_clock::now();
  const GatheredBytes handles = agreement.all_gather_bytes(make_ends());
  join_ends(handles);
  std::vector<std::int64_t> pids = readable_peers(handles);
  // Rank 0 numbers the links; and may all ranks read?
  const auto [number, may_not_read] =
      agreement.largest({rank_ == 0 ? process_.groups().next_number() : 0, pids.empty() ? 1U : 0U});
  links_.number = number;
  if (may_not_read == 0) links_.pids = std::move(pids);
  links_.segment.close_handle();  // everybody who needs it has it mapped
  note_part("links", agreement, began);

  if (group_->wiring.shape.hosts == 1) return;
  try {
    try_network();
  } catch (...) {
    links_.abandon();  // neighbours need not wait for this rank's word
    throw;
  }
  agreement.agree();
  note_part("network", agreement, began);
}

/// Makes this rank's ends of its links; returns what the other ends need of them.
std::vector<std::byte> Communicator::make_ends() {
  const connect::Ring* ring = group_->wiring.shape.hosts > 1 ? &across() : nullptr;
  const bool joins_hosts = ring != nullptr && is_leader() && group_->hier_from > 0;
  const bool has_net_ends = ring != nullptr && !(on_my_host(ring->next) && on_my_host(ring->previous));
  // Opened first: UCX's own memory, and its threads, are not to be bound.
  ucx_transport::Transport* const transport_if_any = has_net_ends || joins_hosts ? &network() : nullptr;
  const device::MemoryNear near(process_.numa_node());  // what others write to is this rank's to read

  ByteWriter writer;
  if (group_->wiring.local.size > 1) {
    links_.segment =
        device::Segment::create(group_->wiring.shape.hosts == 1 ? kOneHostBytes : kOneOfHostsBytes);
    writer.value(links_.segment.handle());
  } else {
    writer.value(device::SegmentHandle{});
  }
  if (transport_if_any == nullptr) return writer.take();

  ucx_transport::Transport& transport = *transport_if_any;
  if (!on_my_host(ring->next))
    links_.net_next =
        std::make_unique<ucx_transport::NetSendLink>(transport, kNetFifo, group_->names.at(ring->next));
  if (!on_my_host(ring->previous))
    links_.net_previous =
        std::make_unique<ucx_transport::NetRecvLink>(transport, kNetFifo, group_->names.at(ring->previous));
  if (joins_hosts) links_.host_links.resize(static_cast<std::size_t>(group_->wiring.shape.hosts));
  // A short call between node leaders ends when UCX is done with what was sent, not when it has been taken.
  static_assert(kHostsSlotBytes <= ucx_transport::kMostSentAlong);
  const device::FifoShape fifo = hosts_fifo(group_->wiring.shape.hosts);
  for (std::size_t host = 0; host < links_.host_links.size(); ++host) {
    const int first = group_->placement.ranks_of(static_cast<int>(host)).front();
    if (first != rank_)
      links_.host_links[host] = Links::HostLinks::make(transport, fifo, group_->names.at(first));
  }
  make_tree_ends();

  NetHandle handle{.worker_address = transport.address(), .ring = {}, .trees = {}, .hosts = {}};
  if (links_.net_previous) handle.ring.receive = links_.net_previous->inbox();
  if (links_.net_next) handle.ring.send = links_.net_next->inbox();
  for (std::size_t tree = 0; tree < handle.trees.size(); ++tree)
    std::ranges::transform(links_.tree_ends[tree], handle.trees[tree].begin(), &InboxIds::of);
  for (const Links::HostLinks& links : links_.host_links) handle.hosts.push_back(InboxIds::of(links));
  handle.write(writer);
  return writer.take();
}

void Communicator::join_ends(const GatheredBytes& handles) {
  if (group_->wiring.local.size > 1) {
    const auto memory_of = [&](int rank) {
      if (rank == rank_) return links_.segment.data();
      auto entry = links_.attached.find(rank);
      if (entry == links_.attached.end())
        entry =
            links_.attached
                .emplace(rank,
                         device::Segment::attach(ByteReader(handles[rank]).value<device::SegmentHandle>()))
                .first;
      return entry->second.data();
    };
    std::vector<device::CicoBuffer*> cico;
    for (const auto& [rank, process] : group_->host_mates)
      cico.push_back(reinterpret_cast<device::CicoBuffer*>(memory_of(rank)));
    const std::uint64_t banks = group_->wiring.shape.hosts == 1 ? device::CicoBuffer::kBanks
                                                                : banks_of_hosts(group_->wiring.local.size);
    links_.cico.emplace(std::move(cico), group_->placement.local_of(rank_), group_->oversubscribed, banks);
    const auto behind_cico = [&](int rank) { return memory_of(rank) + sizeof(device::CicoBuffer); };
    if (group_->wiring.shape.hosts == 1) {
      std::vector<device::ImmediateArea*> areas;
      for (const auto& [rank, process] : group_->host_mates)
        areas.push_back(reinterpret_cast<device::ImmediateArea*>(behind_cico(rank)));
      links_.immediate = std::make_unique<device::ImmediateExchange>(
          std::move(areas), rank_, group_->protocol, group_->oversubscribed);
      return;
    }
    links_.local_next = std::make_unique<device::SharedSendLink>(behind_cico(group_->wiring.local.next),
                                                                 kSharedFifo, group_->wiring.local.next);
    links_.local_previous = std::make_unique<device::SharedRecvLink>(behind_cico(rank_), kSharedFifo,
                                                                     group_->wiring.local.previous);
  }

  if (group_->wiring.shape.hosts == 1) return;
  const connect::Ring& ring = across();
  if (links_.net_next) {
    const NetHandle peer = net_handle_of(handles, ring.next);
    links_.net_next->connect(peer.worker_address, peer.ring.receive);
  }
  if (links_.net_previous) {
    const NetHandle peer = net_handle_of(handles, ring.previous);
    links_.net_previous->connect(peer.worker_address, peer.ring.send);
  }
  const int my_host = group_->placement.node_of(rank_);
  for (std::size_t host = 0; host < links_.host_links.size(); ++host) {
    const Links::HostLinks& links = links_.host_links[host];
    links_.hosts.push_back({links.send.get(), links.receive.get()});
    if (!links.send) continue;
    const NetHandle peer = net_handle_of(handles, group_->placement.ranks_of(static_cast<int>(host)).front());
    join(links, peer.worker_address, peer.hosts.at(static_cast<std::size_t>(my_host)));
  }
  join_tree_ends(handles);
}

/// The processes of all ranks, in order of rank, if this one may read the memory of each; else nothing.
std::vector<std::int64_t> Communicator::readable_peers(const GatheredBytes& handles) const {
  if (group_->wiring.shape.hosts > 1 || process_.runtime().parameters.avoid_single_copy) return {};
  std::vector<std::int64_t> pids;
  for (int rank = 0; rank < bootstrap_.size(); ++rank) {
    const auto handle = ByteReader(handles[rank]).value<device::SegmentHandle>();
    const auto* token = reinterpret_cast<const std::byte*>(handle.address);
    if (!device::can_read_peer_memory(handle.pid, token, handle.token)) return {};
    pids.push_back(handle.pid);
  }
  return pids;
}

/// Sends one word by each rail of each link to another host and waits for those of the others: UCX may find a
/// transport that no packet passes.
void Communicator::try_network() {
  device::WaitPolicy policy = wait_policy_;
  if (pause_)  // the program may compute for as long as it likes before it, or a peer, comes by again
    policy.progress = [this] {
      pause_();
      network().progress();
    };
  else
    policy.timeout_s = kNetworkTrialSeconds;
  const auto wait_until = [&](auto&& condition) {
    device::Waiter waiter(policy);
    while (!condition()) waiter.pause();
  };
  const auto word_from = [](int rank) { return kLayout ^ (static_cast<std::uint64_t>(rank) << 20); };
  const connect::Ring& ring = across();
  std::vector<ucx_transport::NetSendLink*> sends;
  std::vector<std::pair<ucx_transport::NetRecvLink*, int>> receives;  // and from whom
  for_net_links([&](int peer, ucx_transport::NetSendLink* send, ucx_transport::NetRecvLink* receive) {
    if (send != nullptr) sends.push_back(send);
    if (receive != nullptr) receives.push_back({receive, peer});
  });
  int awaited = ring.previous;
  try {
    std::size_t rails = 0;
    for (const auto* link : sends) rails = std::max(rails, link->rails());
    for (const auto& [link, peer] : receives) rails = std::max(rails, link->rails());
    for (std::size_t rail = 0; rail < rails; ++rail) {
      for (auto* link : sends) {
        if (rail >= link->rails()) continue;
        const std::uint64_t word = word_from(rank_);
        std::byte* slot = nullptr;
        wait_until([&] { return (slot = link->try_acquire()) != nullptr; });
        std::memcpy(slot, &word, sizeof(word));
        link->publish(sizeof(word));
      }
      for (const auto& [link, peer] : receives) {
        if (rail >= link->rails()) continue;
        awaited = peer;
        const std::byte* received = nullptr;
        wait_until([&, link = link] { return (received = link->try_receive()) != nullptr; });
        std::uint64_t word;
        std::memcpy(&word, received, sizeof(word));
        if (word != word_from(peer))
          throw Error(ErrorCode::kUnreachable,
                      fmt::format("UCX delivered wrong data from {}.", group_->names.at(peer)));
        link->release();
      }
    }
    wait_until([&] {
      std::uint64_t released = 0;
      return !not_quiet(released);
    });
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) throw;
    throw Error(ErrorCode::kUnreachable,
                fmt::format("No data came through UCX within {} s: from {}, to {} (see UCX_TLS, "
                            "UCX_NET_DEVICES and coll_loom_net_devices).",
                            policy.timeout_s, group_->names.at(awaited), group_->names.at(ring.next)));
  }
}

/// Memory of this rank for its ends of the links, without what UCX takes.
std::size_t Communicator::link_bytes() const {
  std::size_t bytes = 0;
  if (group_->wiring.local.size > 1)
    bytes += group_->wiring.shape.hosts == 1 ? kOneHostBytes : kOneOfHostsBytes;
  for_net_links([&](int, const ucx_transport::NetEnd* send, const ucx_transport::NetEnd* receive) {
    for (const ucx_transport::NetEnd* end : {send, receive}) bytes += end != nullptr ? end->bytes() : 0;
  });
  return bytes;
}

/// nullptr where coll_loom_algorithm has its effect, or is not set.
const char* Communicator::why_no_preference() const {
  if (process_.runtime().parameters.preference == LOOM_BEST) return nullptr;
  const connect::Shape& shape = group_->wiring.shape;
  switch (group_->preference) {
    case Preference::kBest:
      return "the ranks do not set the same";
    case Preference::kBySize:
      return nullptr;
    case Preference::kRings:
      return shape.hosts == 1 ? "there are rings between hosts only" : nullptr;
    case Preference::kTrees:
      return shape.hosts == 1 ? "there are trees between hosts only"
             : shape.ranks_per_host == 0
                 ? "there are no trees between hosts with different numbers of ranks, but rings"
                 : nullptr;
    case Preference::kStar:
      if (!may_use_hier(shape) || shape.hosts == 2) return "there are stars between 3 and 16 hosts only";
      return group_->hier_from == 0 ? "coll_loom_two_levels is 0" : nullptr;
    case Preference::kCico:
      return shape.hosts > 1 ? "boards are a choice inside one host only" : nullptr;
    case Preference::kSingleCopy:
      if (shape.hosts > 1) return "single copies are a choice inside one host only";
      return links_.pids.empty() ? "the ranks may not read each other's memory" : nullptr;
  }
  return nullptr;
}

/// Over what rank 0 reaches another host; empty where it does not.
std::string Communicator::way_to_hosts() const {
  std::string way;
  for_net_links([&](int, const ucx_transport::NetEnd* send, const ucx_transport::NetEnd* receive) {
    if (way.empty()) way = send != nullptr ? send->way() : receive->way();
  });
  return way.empty() ? way : " over " + way;
}

std::string Communicator::describe_links() const {
  const connect::Shape& shape = group_->wiring.shape;
  const char* how = group_->wiring.rail ? "rings inside and rails across" : "one ring over unequal hosts";
  if (shape.hosts == 1)
    how = links_.pids.empty() ? "boards in shared memory" : "boards in shared memory and single copy";
  std::string text = fmt::format("{}: {} ranks on {} host{}, {}{}{}; set up in", name_, shape.ranks,
                                 shape.hosts, shape.hosts == 1 ? "" : "s", how, way_to_hosts(),
                                 group_->oversubscribed ? ", more ranks than CPUs" : "");
  const std::span parts(parts_.data(), part_count_);
  double sum = 0;
  for (const SetUpPart& part : parts) sum += part.milliseconds;
  text += fmt::format(" {:.1f} ms:", sum);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    text += fmt::format("{} {} {:.1f} ms", i == 0 ? "" : ",", parts[i].name, parts[i].milliseconds);
    text += fmt::format(" ({} bytes from each rank)", parts[i].bytes);
  }
  return text + fmt::format("; {} KiB of memory for rank 0's links", link_bytes() / 1024);
}
}  // namespace loom
