#include "component/links/link_maker.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "base/bytes.hpp"
#include "base/format.hpp"
#include "component/links/idle_links.hpp"
#include "component/links/shared_layout.hpp"
#include "device/link/memory_near.hpp"
#include "device/link/peer_memory.hpp"

namespace loom {
namespace {

ByteReader reader_of(std::span<const std::byte> handle) {
  return {handle, kHandleOfLinks};
}

}  // namespace

void LinkMaker::make() {
  const bool made = make_over_ports([&](Failure* failure) {
    const auto make = [&](Agreement& agreement) {
      if (!take_over(agreement)) make_first(agreement);
    };
    if (agree_on(member_.bootstrap, member_.process, make, failure)) return true;
    // Nobody waits for links that are dropped: late messages go nowhere, and peers have mapped what they
    // need.
    Links none;
    none.tuner = std::move(links_.tuner);
    const Links dropped = std::exchange(links_, std::move(none));
    return false;
  });
  links_.state = made ? LinkState::kReady : LinkState::kFailed;
  member_.process.count_communicator(made);
}

/// What make() says, on all ranks, where it goes over the ports that ranks have chosen; where these do not
/// lead to all others, what it says where UCX chooses. It tells the cause where it gets no `failure` to keep
/// it in.
bool LinkMaker::make_over_ports(const std::function<bool(Failure* failure)>& make) {
  if (member_.group->wiring.shape.hosts == 1) return make(nullptr);
  Process& process = member_.process;
  const bool left_before = process.leaves_ports_to_ucx();
  Failure failure;
  if (make(&failure)) return true;
  const bool mine = process.chose_ports() && !left_before;
  bool try_again = false;
  agree_on(member_.bootstrap, process, [&](Agreement& agreement) {
    const auto [chosen, unreachable] = agreement.largest({mine ? 1U : 0U, failure.unreachable ? 1U : 0U});
    try_again = chosen != 0 && unreachable != 0;
  });
  if (!try_again) {
    if (member_.rank == 0) process.runtime().show(LOOM_MESSAGE_DECLINED, failure.where, failure.text);
    return false;
  }
  if (member_.tells(1))
    without_failing([&] {
      process.tell({loom::format("{}: UCX chooses the ports of links between hosts next: {}", failure.where,
                                 failure.text)});
    });
  process.leave_ports_to_ucx(true);
  bool made = false;
  try {
    made = make(nullptr);
  } catch (...) {
    process.leave_ports_to_ucx(left_before);
    throw;
  }
  if (!made) process.leave_ports_to_ucx(left_before);
  return made;
}

/// Takes the links that an earlier communicator over these processes has left, if all ranks offer the same
/// ones. Where ranks offer different ones the latest are put back: the ranks that offered earlier ones may
/// have these as well. So ranks whose communicators ended at different times agree again one call later.
bool LinkMaker::take_over(Agreement& agreement) {
  if (!member_.group_is_known) return false;
  member_.times.begin();
  std::optional<Links> left = member_.group->idle->take();
  const std::uint64_t mine = left && left->are_connected() ? left->number : 0;
  const auto [most, least_inverted] = agreement.largest({mine, ~mine});
  const std::uint64_t least = ~least_inverted;
  const bool taken_over = least != 0 && least == most;
  if (taken_over)
    links_ = std::move(*left);
  else if (least != 0 && mine == most)
    member_.group->idle->put(std::move(*left));
  member_.times.note("links left over", agreement);
  return taken_over;
}

void LinkMaker::make_first(Agreement& agreement) {
  member_.times.begin();
  std::vector<std::byte> mine = make_first_ends();
  const GatheredBytes handles = member_.group->wiring.shape.hosts == 1
                                    ? agreement.all_gather_bytes(std::move(mine))
                                    : agreement.gather_bytes_from(first_peers(), std::move(mine));
  join_first_ends(handles);
  std::vector<std::int64_t> pids = readable_peers(handles);
  // Rank 0 numbers the links; and may all ranks read?
  const std::uint64_t next = member_.rank == 0 ? member_.process.groups().next_number() : 0;
  const auto [number, may_not_read] = agreement.largest({next, pids.empty() ? 1U : 0U});
  links_.number = number;
  if (may_not_read == 0) links_.pids = std::move(pids);
  links_.segment.close_handle();  // everybody who needs it has it mapped
  member_.times.note("links", agreement);

  if (member_.group->wiring.shape.hosts == 1) return;
  try {
    try_network(links_.first_between_hosts(), member_.group->across().next);
  } catch (...) {
    links_.abandon();  // neighbours need not wait for this rank's word
    throw;
  }
  agreement.agree();
  member_.times.note("network", agreement);
}

/// Makes this rank's ends of its links; returns what the other ends need of them.
std::vector<std::byte> LinkMaker::make_first_ends() {
  const std::span<LinkSet> sets = links_.first_between_hosts();
  for (std::size_t kind = 0; kind < sets.size(); ++kind)
    sets[kind] = {kLinkSpecs[kind], *member_.group, member_.rank};
  // Opened first: UCX's own memory, and its threads, are not to be bound.
  ucx_transport::Transport* const transport =
      std::ranges::any_of(sets, &LinkSet::leads_anywhere) ? &member_.network() : nullptr;
  // What others write to is this rank's to read.
  const device::MemoryNear near(member_.process.numa_node());

  ByteWriter writer;
  writer.put(links_.make_segment(*member_.group));
  if (transport == nullptr) return writer.take();
  make_all(sets, *transport, member_.process.rail_of_host_links(), member_.group->names, writer);
  links_.trees = trees_of(links_.of(LinkKind::kTrees), *member_.group);
  return writer.take();
}

/// The ranks to which the first links lead; each of them has links to this one.
Peers LinkMaker::first_peers() const {
  std::set<int> ranks;
  for (const auto& [mate, process] : member_.group->host_mates) ranks.insert(mate);
  ranks.erase(member_.rank);
  for (const LinkSet& set : links_.first_between_hosts())
    for (const LinkPeer& peer : set.peers()) ranks.insert(peer.rank);
  return {ranks.begin(), ranks.end()};
}

void LinkMaker::join_first_ends(const GatheredBytes& handles) {
  links_.join_segments(*member_.group, member_.rank,
                       [&](int rank) { return reader_of(handles[rank]).get<device::SegmentHandle>(); });
  join_all(links_.first_between_hosts(), [&](int rank) {
    ByteReader reader = reader_of(handles[rank]);
    reader.get<device::SegmentHandle>();
    return reader;
  });
}

/// The processes of all ranks, in order of rank, if this one may read the memory of each; else nothing.
std::vector<std::int64_t> LinkMaker::readable_peers(const GatheredBytes& handles) const {
  if (member_.group->wiring.shape.hosts > 1 || member_.process.runtime().parameters.avoid_single_copy)
    return {};
  std::vector<std::int64_t> pids;
  for (int rank = 0; rank < member_.bootstrap.size(); ++rank) {
    const auto handle = reader_of(handles[rank]).get<device::SegmentHandle>();
    const auto* token = reinterpret_cast<const std::byte*>(handle.address);
    if (!device::can_read_peer_memory(handle.pid, token, handle.token)) return {};
    pids.push_back(handle.pid);
  }
  return pids;
}

/// See try_all(). to: the rank to name beside the one that is waited for; nothing: none.
void LinkMaker::try_network(std::span<const LinkSet> sets, std::optional<int> to) {
  const Group& group = *member_.group;
  device::WaitPolicy policy = wait_policy_;
  if (pause)  // the program may compute for as long as it likes before it, or a peer, comes by again
    policy.progress = [this] {
      pause();
      member_.network().progress();
    };
  else
    policy.timeout_s = kNetworkTrialSeconds;
  int awaited = group.across().previous;
  try {
    try_all(sets, member_.rank, group.names, policy, awaited);
  } catch (const Error& error) {
    // UCX may say so before the time is over, where ports lead nowhere: then others may lead there.
    const bool is_broken = error.code() == ErrorCode::kPeerFailed && !are_connected(sets);
    if (is_broken) throw Error(ErrorCode::kUnreachable, error.what());
    if (error.code() != ErrorCode::kTimeout) throw;
    const std::string& from = group.names.at(awaited);
    throw Error(ErrorCode::kUnreachable,
                loom::format("No data came through UCX within {} s: {} (see UCX_TLS, UCX_NET_DEVICES and "
                             "coll_loom_net_devices).",
                             policy.timeout_s,
                             to ? loom::format("from {}, to {}", from, group.names.at(*to))
                                : loom::format("waiting for {}", from)));
  }
}

void LinkMaker::make_pairwise() {
  const bool made = make_over_ports([&](Failure* failure) {
    const auto make = [&](Agreement& agreement) { make_every_pair(agreement); };
    if (agree_on(member_.bootstrap, member_.process, make, failure)) return true;
    links_.drop_pairwise();
    return false;
  });
  links_.pairwise_state = made ? LinkState::kReady : LinkState::kFailed;
}

void LinkMaker::make_every_pair(Agreement& agreement) {
  const GatheredBytes handles = agreement.all_gather_bytes(make_pairwise_ends());
  join_all(links_.pairwise(), [&](int rank) { return reader_of(handles[rank]); });
  agreement.agree();
  try {
    try_network(links_.pairwise(), {});
  } catch (...) {
    abandon_all(links_.pairwise());  // nobody need wait for this rank's words
    throw;
  }
  agreement.agree();
}

/// Makes this rank's ends; returns what the others need of them.
std::vector<std::byte> LinkMaker::make_pairwise_ends() {
  links_.of(LinkKind::kPairwise) = {spec_of(LinkKind::kPairwise), *member_.group, member_.rank};
  ucx_transport::Transport& transport = member_.network();
  const device::MemoryNear near(member_.process.numa_node());
  ByteWriter writer;
  make_all(links_.pairwise(), transport, member_.process.rail_of_host_links(), member_.group->names, writer);
  return writer.take();
}

std::string LinkMaker::description() const {
  const Group& group = *member_.group;
  const connect::Shape& shape = group.wiring.shape;
  const char* how = group.wiring.rail ? "rings inside and rails across" : "one ring over unequal hosts";
  if (shape.hosts == 1)
    how = links_.pids.empty() ? "CICO buffers in shared memory"
                              : "CICO buffers in shared memory and single copy";
  std::string way = links_.way();
  if (!way.empty()) way = " over " + way;
  return loom::format("{}: {} ranks on {} host{}, {}{}{}; set up in {}; {} KiB of memory for rank 0's links",
                      member_.name, shape.ranks, shape.hosts, shape.hosts == 1 ? "" : "s", how, way,
                      group.oversubscribed ? ", more ranks than CPUs" : "", member_.times.text(),
                      links_.bytes() / 1024);
}

}  // namespace loom
