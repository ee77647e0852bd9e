// learn_peers.cpp -- the links follow at the first call that needs them (links/link_maker.cpp). What fails on
// one rank fails on all (agreement.hpp).
#include "component/communicator/learn_peers.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "base/format.hpp"
#include "component/links/idle_links.hpp"
#include "component/links/layout.hpp"
#include "component/setup/device_use.hpp"
#include "connect/exchange.hpp"
#include "search/channel_plan.hpp"

namespace loom {
namespace {

// Links between node leaders pay after so many small calls, or once a larger call has made links.
constexpr std::uint64_t kSmallCallsBeforeLinks = 64;

template <std::size_t N>
void copy_text(std::array<char, N>& to, const std::string& from) {
  to.fill('\0');
  from.copy(to.data(), N - 1);
}

/// The ranks of `host` on a machine of which more is known, with what does not fit.
topo::SystemWithNotes on_machine(const topo::System& machine, const topo::Host& host,
                                 const std::vector<topo::Place>& places) {
  std::vector<int> ranks;
  std::vector<topo::Place> theirs;
  for (const topo::NodeId id : host.system.gpus()) {
    ranks.push_back(host.system.node(id).gpu().rank);
    theirs.push_back(places[static_cast<std::size_t>(ranks.back())]);
  }
  return {topo::with_virtual_gpus(machine, theirs, ranks), topo::placement_notes(machine, theirs, ranks)};
}

/// What every rank knows of every other. Plain data.
struct PeerInfo {
  std::uint64_t layout = 0;
  topo::Place place;
  device::ProcessId process;
  std::array<char, 64> host_name{};
  std::uint64_t description = 0;   ///< which coll_loom_topo_file it reads
  std::uint64_t graph = 0;         ///< which coll_loom_graph_file
  std::uint64_t tune = 0;          ///< which coll_loom_tune, and text of coll_loom_tune_file
  std::uint64_t reproducible = 0;  ///< coll_loom_reproducible
  DeviceUse device_use{};          ///< whether it keeps calls on GPUs
};

DeviceUse device_use_here(const Member& member) {
  return device_use(member.process, member.bootstrap.looks_for_devices());
}

PeerInfo info_of(const Member& member) {
  Process& process = member.process;
  PeerInfo info;
  info.layout = kLayout;
  info.place = process.place();
  info.process = process.id();
  copy_text(info.host_name, process.host_name());
  info.description = process.description_mark();
  info.graph = process.graph_mark();
  info.tune = process.tune().mark();
  info.reproducible = process.runtime().parameters.reproducible;
  info.device_use = device_use_here(member);
  return info;
}

/// Throws Error where ranks differ in what all must have alike.
void check_alike(const std::vector<PeerInfo>& peers, const Bootstrap& bootstrap) {
  const auto orders_as_first = [&](const PeerInfo& peer) {
    return peer.reproducible == peers[0].reproducible;
  };
  if (!std::ranges::all_of(peers, orders_as_first)) bootstrap.say_orders_differ();
  const auto differs = [&](std::size_t rank, ErrorCode code, std::string_view how) {
    throw Error(code, loom::format("Rank {} on host {} {}.", rank, peers[rank].host_name.data(), how));
  };
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    if (peers[rank].layout != kLayout) differs(rank, ErrorCode::kUnreachable, "runs another build of loom");
    if (peers[rank].description != peers[0].description)
      differs(rank, ErrorCode::kBadInput,
              "reads another coll_loom_topo_file than rank 0, or one of them none");
    if (peers[rank].graph != peers[0].graph)
      differs(rank, ErrorCode::kBadInput,
              "reads another coll_loom_graph_file than rank 0, or one of them none");
    if (!orders_as_first(peers[rank]))
      differs(rank, ErrorCode::kBadInput, "has another coll_loom_reproducible than rank 0");
    if (peers[rank].tune != peers[0].tune)
      differs(rank, ErrorCode::kBadInput,
              "has another coll_loom_tune, or text in coll_loom_tune_file, than rank 0, or one of them none");
  }
}

/// Who is on my host, and its channels as bytes.
std::vector<std::byte> learn_host(Member& member, const std::vector<PeerInfo>& peers) {
  Process& process = member.process;
  Group& group = *member.group;
  const int rank = member.rank;
  const topo::HostId own_host = peers[static_cast<std::size_t>(rank)].place.host;
  std::vector<topo::Place> places;
  for (std::size_t peer = 0; peer < peers.size(); ++peer) {
    places.push_back(peers[peer].place);
    if (places.back().host != own_host) continue;
    if (static_cast<int>(peer) == rank) group.self_on_host = group.host_places.size();
    group.host_places.push_back(places.back());
  }
  topo::Host host = topo::host_of(places, rank);
  const topo::System* const description = process.described_machine();
  if (description != nullptr) {
    topo::SystemWithNotes described = on_machine(*description, host, places);
    if (rank == 0) process.tell_of_description(described.notes);
    host.system = std::move(described.system);
  }
  std::vector<int> mates;
  for (const topo::NodeId id : host.system.gpus()) {
    mates.push_back(host.system.node(id).gpu().rank);
    group.host_mates[mates.back()] = peers[static_cast<std::size_t>(mates.back())].process;
  }
  group.oversubscribed = topo::oversubscribed(host.system);
  constexpr auto kWithRanks = Process::Described::kRanks;
  if (rank == 0 && process.wants_dump(kWithRanks) && description != nullptr) {
    process.dump(host.system, kWithRanks);
  } else if (rank == 0 && process.wants_dump(kWithRanks)) {
    const topo::SystemWithNotes live = on_machine(process.discovered_machine(), host, places);
    process.tell(live.notes);
    process.dump(live.system, kWithRanks);
  }
  const search::ChannelPlan ring = search::find_ring(host.system);
  return connect::encode(connect::summarize(host.system, mates, std::span(&ring, 1)));
}

/// On one host.
void learn_what_is_small(Group& group) {
  group.oversubscribed_somewhere = group.oversubscribed;
  if (group.wiring.shape.ranks > 1) {
    std::vector<device::TierPlace> places;
    for (const topo::Place& place : group.host_places)
      places.push_back({place.first_of_cache, place.numa_node});
    group.tiers.emplace(places, device::Tiers::most_in_group(group.wiring.shape.ranks));
  }
  for (std::size_t i = 0; i < group.small_below.size(); ++i)
    group.small_below[i] = immediate_below(group.conditions(), static_cast<device::Collective>(i), {});
}

/// My neighbours in the job's rings.
void take_place(Member& member, const connect::Job& job, const std::vector<PeerInfo>& peers) {
  Group& group = *member.group;
  group.wiring = connect::wire(job, member.rank);
  group.tune = member.process.tune();
  group.reproducible = peers[0].reproducible != 0;
  std::vector<DeviceUse> uses;
  for (const PeerInfo& peer : peers) uses.push_back(peer.device_use);
  group.not_on_gpus = why_not_on_gpus(uses, group.wiring.shape.hosts, group.reproducible);
  if (member.rank == 0 && !group.uses_devices() && any_has_a_driver(uses))
    without_failing([&] {
      member.process.tell({loom::format("{}: {}: {}.", member.where, kStagedCalls, group.not_on_gpus)});
    });
  if (group.wiring.shape.hosts == 1) learn_what_is_small(group);
  if (may_use_hier(group.wiring.shape))
    group.hier_from = group.tune.names(Algorithm::kHier) ? 1 : kSmallCallsBeforeLinks;

  std::vector<int> known = {group.wiring.local.previous, group.wiring.local.next};
  for (const auto& ring : {group.wiring.rail, group.wiring.flat})
    if (ring) known.insert(known.end(), {ring->previous, ring->next});
  for (const auto& [rank, process] : group.host_mates) known.push_back(rank);
  group.placement = job.placement();
  for (int rank = 0; rank < group.placement.ranks(); ++rank)
    group.places.push_back({group.placement.node_of(rank), group.placement.local_of(rank)});
  if (group.hier_from > 0)
    for (int host = 0; host < group.placement.nodes(); ++host)
      known.push_back(group.placement.ranks_of(host).front());
  for (int position = 0; position < job.ranks() && group.wiring.shape.hosts > 1; ++position)
    group.grid_ranks.push_back(connect::rank_at(job, 0, position));
  for (const LinkSpec& spec : kLinkSpecs)
    for (const LinkPeer& peer : spec.plan(group, member.rank).peers) known.push_back(peer.rank);
  for (const int rank : known) {
    const PeerInfo& peer = peers[static_cast<std::size_t>(rank)];
    group.names[rank] =
        loom::format("rank {} (process {} on host {})", rank, peer.process.pid, peer.host_name.data());
  }
}

/// Takes what an earlier communicator over these processes has learned, if all ranks have the same.
bool find_group(Member& member, Agreement& agreement, const Groups::Members& members) {
  std::uint64_t number = 0;
  if (std::shared_ptr<Group> known = member.process.groups().find(members)) {
    member.group = std::move(known);
    number = member.group->number;
  }
  // The lowest bit: some rank does not look for GPUs, as in a communicator that was made before CUDA's driver
  // was loaded; others of the group may.
  const std::uint64_t without = device_use_here(member) == DeviceUse::kKeepsCalls ? 0 : 1;
  const Agreement::Words all = agreement.largest({number << 1 | without, ~number << 1});
  const bool found =
      number != 0 && all[0] >> 1 == number && all[1] == ~number << 1 &&
      (!member.group->may_use_devices() || member.group->uses_devices() == ((all[0] & 1) == 0));
  if (!found) member.group = std::make_shared<Group>();
  return found;
}

void learn_group(Member& member, Agreement& agreement) {
  const std::vector<PeerInfo> peers = agreement.all_gather(info_of(member));
  check_alike(peers, member.bootstrap);
  const std::vector<std::byte> summary = learn_host(member, peers);
  Group& group = *member.group;
  const std::vector<std::uint64_t> words =
      agreement.all_gather(connect::word_of(member.rank, group.host_mates.begin()->first, summary));
  member.times.note("peers", agreement);

  // On one host everybody has the only summary. All ranks have the same words, and so see the same here, even
  // if the words contradict each other.
  const bool one_node =
      std::count(words.begin() + 1, words.end(), 0) == static_cast<std::ptrdiff_t>(words.size()) - 1;
  const connect::Announced announced(words);
  const std::vector<std::byte> slices =
      one_node ? announced.all_slices(std::span(&summary, 1))
               : agreement.all_gather_slices(announced.slice(member.rank, summary));
  take_place(member, announced.join(slices, member.rank, summary), peers);
  if (member.rank == 0 && !group.uses_devices())
    without_failing([&] { member.process.tell_graphs_unused(group.not_on_gpus); });
  group.idle = std::make_shared<IdleLinks>();
  const std::uint64_t number = member.rank == 0 ? member.process.groups().next_number() : 0;
  const Agreement::Words all = agreement.largest({number, group.oversubscribed ? 1U : 0U});
  group.number = all[0];
  group.oversubscribed_somewhere = all[1] != 0;
  member.times.note("nodes", agreement);
}

}  // namespace

void learn_peers(Member& member, Agreement& agreement) {
  member.times.begin();
  const Groups::Members members = agreement.all_gather(member.process.number());
  member.group_is_known = find_group(member, agreement, members);
  member.times.note("group", agreement);
  if (member.group_is_known) return;
  learn_group(member, agreement);
  member.process.groups().keep(members, member.group);
}

}  // namespace loom
