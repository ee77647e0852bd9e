// learn_peers.cpp -- the links follow at the first call that needs them (links/link_maker.cpp). What fails on
// one rank fails on all (agreement.hpp).
#include "component/communicator/learn_peers.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/format.hpp"
#include "component/links/idle_links.hpp"
#include "component/links/layout.hpp"
#include "component/setup/device_use.hpp"
#include "connect/exchange.hpp"
#include "device/host/cico_executor.hpp"
#include "search/channel_plan.hpp"

namespace loom {
namespace {

// Links between node leaders pay after so many small calls, or once a larger call has made links.
constexpr std::uint64_t kSmallCallsBeforeLinks = 64;

using HostName = std::array<char, 64>;

HostName host_name_of(const Member& member) {
  HostName name{};
  member.process.host_name().copy(name.data(), name.size() - 1);
  return name;
}

std::string text_of(int rank, std::int64_t pid, const char* host_name) {
  return loom::format("rank {} (process {} on host {})", rank, pid, host_name);
}

/// What all ranks must have alike. Plain data; the same form in every build, whose layouts it tells apart.
struct Settings {
  std::uint64_t layout = 0;
  std::uint64_t description = 0;   ///< which coll_loom_topo_file it reads
  std::uint64_t graph = 0;         ///< which coll_loom_graph_file
  std::uint64_t tune = 0;          ///< which coll_loom_tune, and text of coll_loom_tune_file
  std::uint64_t reproducible = 0;  ///< coll_loom_reproducible
};

/// The same of a rank that is not like the others, for the message.
struct NamedSettings {
  Settings settings;
  HostName host_name{};
};

/// What a rank tells those of its host. Plain data.
struct Mate {
  topo::Place place;
  device::ProcessId process;
};

/// What a rank tells its neighbours on other hosts, for messages. Plain data.
struct Name {
  std::int64_t pid = 0;
  HostName host_name{};
};

DeviceUse device_use_here(const Member& member) {
  return device_use(member.process, member.bootstrap.looks_for_devices());
}

Settings settings_of(const Member& member) {
  Process& process = member.process;
  return {.layout = kLayout,
          .description = process.description_mark(),
          .graph = process.graph_mark(),
          .tune = process.tune().mark(),
          .reproducible = process.runtime().parameters.reproducible};
}

/// Throws Error.
void check_alike(const std::vector<NamedSettings>& ranks, const Bootstrap& bootstrap) {
  const Settings& first = ranks[0].settings;
  const auto orders_as_first = [&](const NamedSettings& rank) {
    return rank.settings.reproducible == first.reproducible;
  };
  if (!std::ranges::all_of(ranks, orders_as_first)) bootstrap.say_orders_differ();
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const Settings& its = ranks[rank].settings;
    const auto differs = [&](ErrorCode code, std::string_view how) {
      throw Error(code, loom::format("Rank {} on host {} {}.", rank, ranks[rank].host_name.data(), how));
    };
    if (its.layout != kLayout) differs(ErrorCode::kUnreachable, "runs another build of loom");
    if (its.description != first.description)
      differs(ErrorCode::kBadInput, "reads another coll_loom_topo_file than rank 0, or one of them none");
    if (its.graph != first.graph)
      differs(ErrorCode::kBadInput, "reads another coll_loom_graph_file than rank 0, or one of them none");
    if (!orders_as_first(ranks[rank]))
      differs(ErrorCode::kBadInput, "has another coll_loom_reproducible than rank 0");
    if (its.tune != first.tune)
      differs(ErrorCode::kBadInput,
              "has another coll_loom_tune, or text in coll_loom_tune_file, than rank 0, or one of them none");
  }
}

/// Throws Error where ranks differ in what all must have alike. Only then does each hear of all.
void agree_on_settings(const Member& member, Agreement& agreement) {
  NamedSettings mine{.settings = settings_of(member)};
  const std::uint64_t mark =
      topo::fingerprint({reinterpret_cast<const char*>(&mine.settings), sizeof(mine.settings)});
  const auto [most, least_inverted] = agreement.largest({mark, ~mark});
  if (most == ~least_inverted) return;
  mine.host_name = host_name_of(member);
  check_alike(agreement.all_gather(mine), member.bootstrap);
}

/// What all ranks hear of each, in 8 bytes: its host, by most of its number, and whether it keeps calls on
/// GPUs.
class HostsAndUses {
 public:
  HostsAndUses(Agreement& agreement, const topo::HostId& host, DeviceUse use)
      : words_(agreement.all_gather((host.high & ~kUse) | static_cast<std::uint64_t>(use))) {
    std::unordered_map<std::uint64_t, std::int32_t> first_on;
    for (const std::uint64_t word : words_)
      leaders_.push_back(
          first_on.try_emplace(word & ~kUse, static_cast<std::int32_t>(leaders_.size())).first->second);
    hosts_ = static_cast<int>(first_on.size());
  }

  int hosts() const noexcept { return hosts_; }
  /// Throws Error, on all ranks alike, if one host has more ranks than its buffers are for.
  void check() const {
    std::unordered_map<std::int32_t, int> ranks_of;
    for (const std::int32_t leader : leaders_)
      if (++ranks_of[leader] > device::CicoBuffer::kMostRanks)
        throw Error(ErrorCode::kUnreachable, loom::format("The host of rank {} has more than {} ranks.",
                                                          leader, device::CicoBuffer::kMostRanks));
  }
  /// By rank: the lowest rank of its host.
  const std::vector<std::int32_t>& leaders() const noexcept { return leaders_; }
  /// The ranks of its host, ascending.
  std::vector<int> mates_of(int rank) const {
    std::vector<int> mates;
    const std::int32_t leader = leaders_[static_cast<std::size_t>(rank)];
    for (auto mate = static_cast<std::size_t>(leader); mate < leaders_.size(); ++mate)
      if (leaders_[mate] == leader) mates.push_back(static_cast<int>(mate));
    return mates;
  }
  std::vector<DeviceUse> uses() const {
    std::vector<DeviceUse> uses;
    for (const std::uint64_t word : words_) uses.push_back(static_cast<DeviceUse>(word & kUse));
    return uses;
  }

 private:
  static constexpr std::uint64_t kUse = 0xff;
  std::vector<std::uint64_t> words_;
  std::vector<std::int32_t> leaders_;
  int hosts_ = 0;
};

/// Where the ranks of my host run. On one host all are told, on several its ranks alone.
void meet_mates(Member& member, Agreement& agreement, const topo::Place& place, const std::vector<int>& ranks,
                int hosts) {
  Group& group = *member.group;
  const Mate mine{place, member.process.id()};
  const auto self = std::ranges::find(ranks, member.rank) - ranks.begin();
  std::vector<Mate> mates;
  if (hosts == 1) {
    mates = agreement.all_gather(mine);
  } else {
    Peers others(ranks);
    others.erase(others.begin() + self);
    mates = agreement.gather_from(others, mine);
    mates.insert(mates.begin() + self, mine);
  }
  group.self_on_host = static_cast<std::size_t>(self);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (!(mates[i].place.host == place.host))
      throw Error(
          ErrorCode::kInternal,
          loom::format("Rank {} is on the host of rank {}, and says that it is not.", ranks[i], member.rank));
    group.host_places.push_back(mates[i].place);
    // What cannot be seen must not be taken for dead later.
    group.host_mates[ranks[i]] = device::as_seen_here(mates[i].process);
    group.names[ranks[i]] = text_of(ranks[i], mates[i].process.pid, member.process.host_name().c_str());
  }
}

/// The ranks of `host` on a machine of which more is known, with what does not fit. places[i] is that of
/// mates[i].
topo::SystemWithNotes on_machine(const topo::System& machine, const topo::Host& host,
                                 const std::vector<int>& mates, const std::vector<topo::Place>& places) {
  std::vector<int> ranks;
  std::vector<topo::Place> theirs;
  for (const topo::NodeId id : host.system.gpus()) {
    ranks.push_back(host.system.node(id).gpu().rank);
    theirs.push_back(
        places[static_cast<std::size_t>(std::ranges::lower_bound(mates, ranks.back()) - mates.begin())]);
  }
  return {topo::with_virtual_gpus(machine, theirs, ranks), topo::placement_notes(machine, theirs, ranks)};
}

/// The channels of my host, as bytes.
std::vector<std::byte> learn_host(Member& member, const std::vector<int>& mates) {
  Process& process = member.process;
  Group& group = *member.group;
  const int rank = member.rank;
  topo::Host host = topo::host_of(group.host_places, mates);
  const topo::System* const description = process.described_machine();
  if (description != nullptr) {
    topo::SystemWithNotes described = on_machine(*description, host, mates, group.host_places);
    if (rank == 0) process.tell_of_description(described.notes);
    host.system = std::move(described.system);
  }
  group.oversubscribed = topo::oversubscribed(host.system);
  constexpr auto kWithRanks = Process::Described::kRanks;
  if (rank == 0 && process.wants_dump(kWithRanks) && description != nullptr) {
    process.dump(host.system, kWithRanks);
  } else if (rank == 0 && process.wants_dump(kWithRanks)) {
    const topo::SystemWithNotes live =
        on_machine(process.discovered_machine(), host, mates, group.host_places);
    process.tell(live.notes);
    process.dump(live.system, kWithRanks);
  }
  const search::ChannelPlan ring = search::find_ring(host.system);
  std::vector<int> placed;
  for (const topo::NodeId id : host.system.gpus()) placed.push_back(host.system.node(id).gpu().rank);
  return connect::encode(connect::summarize(host.system, placed, std::span(&ring, 1)));
}

/// From each host's summary, which equal hosts tell once, and not at all where all are equal: all ranks have
/// the same words, and so see the same here, even if the words contradict each other.
connect::Job join_hosts(const Member& member, Agreement& agreement, const std::vector<std::int32_t>& leaders,
                        const std::vector<std::byte>& summary) {
  const std::int32_t leader = leaders[static_cast<std::size_t>(member.rank)];
  const std::uint64_t word = connect::word_of(leader, leader, summary);
  const std::uint64_t mark =
      topo::fingerprint({reinterpret_cast<const char*>(summary.data()), summary.size()});
  const auto [most, least_inverted] = agreement.largest({mark, ~mark});
  const bool one_kind = most == ~least_inverted;
  std::vector<std::uint64_t> words;
  if (one_kind)
    for (std::size_t rank = 0; rank < leaders.size(); ++rank)
      words.push_back(
          static_cast<std::size_t>(leaders[rank]) == rank ? word : static_cast<std::uint64_t>(leaders[rank]));
  else
    words = agreement.all_gather(connect::word_of(member.rank, leader, summary));
  const connect::Announced announced(words);
  const std::vector<std::byte> slices =
      one_kind ? announced.all_slices(std::span(&summary, 1))
               : agreement.all_gather_slices(announced.slice(member.rank, summary));
  return announced.join(slices, member.rank, summary);
}

/// On one host.
void learn_what_is_small(Group& group) {
  group.oversubscribed_somewhere = group.oversubscribed;
  if (group.wiring.shape.ranks > 1) {
    std::vector<device::TierPlace> places;
    for (const topo::Place& place : group.host_places)
      places.push_back({place.first_of_cache, place.numa_node});
    group.tiers.emplace(places, device::Tiers::most_in_group(group.wiring.shape.ranks));
    group.in_cache = device::most_in_cache(places);
    // They do not keep the order of ranks.
    group.has_groups = !group.reproducible &&
                       may_have_groups(group.wiring.shape.ranks, group.tune.names(Algorithm::kTieredCico));
  }
  for (std::size_t i = 0; i < group.small_below.size(); ++i)
    group.small_below[i] = immediate_below(group.conditions(), static_cast<device::Collective>(i), {});
}

/// My neighbours in the job's rings.
void take_place(Member& member, const connect::Job& job, const std::vector<DeviceUse>& uses) {
  Group& group = *member.group;
  group.wiring = connect::wire(job, member.rank);
  const connect::Shape& shape = group.wiring.shape;
  group.tune = member.process.tune();
  group.reproducible = member.process.runtime().parameters.reproducible;
  group.not_on_gpus = why_not_on_gpus(uses, shape.hosts, group.reproducible);
  if (member.rank == 0 && !group.uses_devices() && any_has_a_driver(uses))
    without_failing([&] {
      member.process.tell({loom::format("{}: {}: {}.", member.where, kStagedCalls, group.not_on_gpus)});
    });
  if (shape.hosts == 1) learn_what_is_small(group);
  group.placement = job.placement();
  if (may_use_hier(shape)) {
    group.hier_from = group.tune.names(Algorithm::kHier) ? 1 : kSmallCallsBeforeLinks;
    for (int rank = 0; rank < shape.ranks; ++rank)
      group.places.push_back({group.placement.node_of(rank), group.placement.local_of(rank)});
  }
  for (int position = 0; position < shape.ranks && shape.hosts > 1; ++position)
    group.grid_ranks.push_back(connect::rank_at(job, 0, position));
}

/// Those of my neighbours on other hosts.
void learn_names(Member& member, Agreement& agreement) {
  Group& group = *member.group;
  const Name mine{.pid = member.process.id().pid, .host_name = host_name_of(member)};
  std::set<int> known;
  for (const LinkSpec& spec : kLinkSpecs)
    for (const LinkPeer& peer : spec.plan(group, member.rank).peers) known.insert(peer.rank);
  const Peers neighbours(known.begin(), known.end());
  const std::vector<Name> names = agreement.gather_from(neighbours, mine);
  for (std::size_t i = 0; i < neighbours.size(); ++i)
    group.names[neighbours[i]] = text_of(neighbours[i], names[i].pid, names[i].host_name.data());
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
  agree_on_settings(member, agreement);
  const topo::Place place = member.process.place();
  const HostsAndUses known(agreement, place.host, device_use_here(member));
  known.check();
  const std::vector<int> mates = known.mates_of(member.rank);
  meet_mates(member, agreement, place, mates, known.hosts());
  const std::vector<std::byte> summary = learn_host(member, mates);
  member.times.note("peers", agreement);

  take_place(member, join_hosts(member, agreement, known.leaders(), summary), known.uses());
  if (known.hosts() > 1) learn_names(member, agreement);
  Group& group = *member.group;
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
