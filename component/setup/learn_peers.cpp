// learn_peers.cpp -- how a communicator comes about: who are the peers, and which rings join them? The
// links follow at the first call that needs them (links/make_links.cpp). What fails on one rank fails on
// all (agreement.hpp).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "component/communicator.hpp"
#include "component/links/layout.hpp"
#include "connect/exchange.hpp"
#include "device/cuda/images.hpp"
#include "search/graph_xml.hpp"

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

search::PathTables tables_of(const topo::System& host) {
  topo::PathRules rules;
  rules.network_inside_host = false;  // a host's ranks share its memory
  return search::PathTables(host, rules);
}

/// A host's ring: the one of coll_loom_graph_file, or the best.
search::ChannelPlan ring_of(const topo::System& host, Process& process) {
  const std::string* graph = process.graph();
  if (graph == nullptr) return search::find_ring(host);
  const char* path = process.runtime().parameters.graph_file;
  for (search::NodePlans& plans : search::parse_graph_xml(*graph, path, tables_of(host)))
    if (plans.parts[0].pattern == search::Pattern::kRing) return std::move(plans.parts[0]);
  throw Error(ErrorCode::kBadInput, fmt::format("{}: it has no ring (<graph id=\"0\">).", path));
}

std::string as_graph(const topo::System& host, const search::ChannelPlan& ring) {
  const search::PathTables tables = tables_of(host);
  if (tables.whole() == nullptr) return search::to_graph_xml(tables, {});
  const search::NodePlans plans{{ring}, {tables.whole()->ranks}, ring.total_gbps};
  return search::to_graph_xml(tables, {&plans, 1});
}

}  // namespace

/// What every rank knows of every other. Plain data.
struct Communicator::PeerInfo {
  std::uint64_t layout = 0;
  topo::Place place;
  device::ProcessId process;
  std::array<char, 64> host_name{};
  std::uint64_t description = 0;   ///< which coll_loom_topo_file it reads
  std::uint64_t graph = 0;         ///< which coll_loom_graph_file
  std::uint64_t tune = 0;          ///< which coll_loom_tune, and text of coll_loom_tune_file
  std::uint64_t reproducible = 0;  ///< coll_loom_reproducible
  std::uint64_t uses_devices = 0;  ///< it keeps calls on GPUs, as far as this rank can
};

Communicator::Communicator(const Bootstrap& bootstrap, Process& process)
    : process_(process), name_(bootstrap.name()), bootstrap_(bootstrap), rank_(bootstrap.rank()) {
  bootstrap_.rename(name_.c_str());
  where_ = fmt::format("rank {} of {} of {} on host {}", rank_, bootstrap.size(), name_, process.host_name());
  process_.include(calls_);
}

std::unique_ptr<Communicator> Communicator::create(const Bootstrap& bootstrap, Process& process) {
  std::unique_ptr<Communicator> communicator;
  const auto make = [&] { communicator.reset(new Communicator(bootstrap, process)); };
  // A rank that is alone has nobody to meet, but files to read and write.
  const bool learns = bootstrap.size() > 1 || (bootstrap.alone() && process.names_files());
  const auto make_and_learn = [&](Agreement& agreement) {
    make();
    communicator->learn(agreement);
  };
  if (!learns) {
    make();
  } else if (!meet(bootstrap, process, make_and_learn)) {
    process.count_communicator(false);
    return nullptr;
  }
  return communicator;
}

Communicator::~Communicator() {
  twin_.reset();
  process_.retire(calls_);
  if (links_.gpus) process_.retire(std::move(links_.gpus));
  links_.gpu_state = LinkState::kNotMade;
  if (requests_.empty())
    group_->idle.put(std::move(links_));
  else
    process_.engine().forget(requests_);  // before anything goes that a request may use
  group_.reset();
  process_.groups().trim();
}

/// Adds what has been done since `began`, which moves on.
void Communicator::note_part(const char* name, Agreement& agreement,
                             std::chrono::steady_clock::time_point& began) noexcept {
  const auto now = std::chrono::steady_clock::now();
  parts_[part_count_++] = {name, agreement.take_bytes(),
                           std::chrono::duration<double, std::milli>(now - began).count()};
  began = now;
}

/// First part of the set-up. Takes nothing that others would miss.
void Communicator::learn(Agreement& agreement) {
  auto began = std::chrono::steady_clock::now();
  const Groups::Members members = agreement.all_gather(process_.number());
  group_is_known_ = find_group(agreement, members);
  note_part("group", agreement, began);
  if (group_is_known_) return;
  learn_group(agreement, began);
  process_.groups().keep(members, group_);
}

/// Takes what an earlier communicator over these processes has learned, if all ranks have the same.
bool Communicator::find_group(Agreement& agreement, const Groups::Members& members) {
  std::uint64_t offer = 0;
  if (std::shared_ptr<Group> known = process_.groups().find(members)) {
    group_ = std::move(known);
    // A communicator made before CUDA's driver was there has no eye for GPUs, unlike one that the group is
    // of.
    offer = group_->number << 1 | static_cast<std::uint64_t>(uses_devices_here());
    set_wait_policy();
  }
  const bool found =
      agreement.all_have(offer) && (offer & 1) == static_cast<std::uint64_t>(group_->uses_devices);
  if (!found) group_ = std::make_shared<Group>();
  return found;
}

/// The user keeps calls on GPUs, and this rank can on this communicator.
bool Communicator::uses_devices_here() const {
  return bootstrap_.looks_for_devices() && process_.staging() != nullptr &&
         device::cuda::kernel_image(0) != nullptr && process_.wants_devices();
}

/// Who are the peers, and how do they join?
void Communicator::learn_group(Agreement& agreement, std::chrono::steady_clock::time_point& began) {
  PeerInfo mine;
  mine.place = process_.place();
  mine.process = process_.id();
  copy_text(mine.host_name, process_.host_name());
  mine.description = process_.description_mark();
  mine.graph = process_.graph_mark();
  mine.tune = process_.tune().mark();
  mine.reproducible = process_.runtime().parameters.reproducible;
  mine.uses_devices = uses_devices_here();
  mine.layout = kLayout;
  const std::vector<PeerInfo> peers = agreement.all_gather(mine);

  const std::vector<std::byte> summary = learn_node(peers);
  const std::vector<std::uint64_t> words =
      agreement.all_gather(connect::word_of(rank_, group_->host_mates.begin()->first, summary));
  note_part("peers", agreement, began);

  // On one host everybody has the only summary. All ranks have the same words, and so see the same here, even
  // if the words contradict each other.
  const bool one_node =
      std::count(words.begin() + 1, words.end(), 0) == static_cast<std::ptrdiff_t>(words.size()) - 1;
  const connect::Announced announced(words);
  const std::vector<std::byte> slices = one_node
                                            ? announced.all_slices(std::span(&summary, 1))
                                            : agreement.all_gather_slices(announced.slice(rank_, summary));
  take_place(announced.join(slices, rank_, summary), peers);
  set_wait_policy();
  group_->number = agreement.largest({rank_ == 0 ? process_.groups().next_number() : 0, 0})[0];
  note_part("nodes", agreement, began);
}

/// Who is on my host, and its channels as bytes.
std::vector<std::byte> Communicator::learn_node(const std::vector<PeerInfo>& peers) {
  std::vector<topo::Place> places;
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    if (peers[rank].layout != kLayout)
      throw Error(ErrorCode::kUnreachable, fmt::format("Rank {} on host {} runs another build of loom.", rank,
                                                       peers[rank].host_name.data()));
    if (peers[rank].description != peers[0].description)
      throw Error(ErrorCode::kBadInput,
                  fmt::format("Rank {} on host {} reads another coll_loom_topo_file than rank 0, or one of "
                              "them none.",
                              rank, peers[rank].host_name.data()));
    if (peers[rank].graph != peers[0].graph)
      throw Error(ErrorCode::kBadInput,
                  fmt::format("Rank {} on host {} reads another coll_loom_graph_file than rank 0, or one of "
                              "them none.",
                              rank, peers[rank].host_name.data()));
    if (peers[rank].tune != peers[0].tune)
      throw Error(
          ErrorCode::kBadInput,
          fmt::format("Rank {} on host {} has another coll_loom_tune, or text in coll_loom_tune_file, than "
                      "rank 0, or one of them none.",
                      rank, peers[rank].host_name.data()));
    places.push_back(peers[rank].place);
    if (places.back().host != peers[static_cast<std::size_t>(rank_)].place.host) continue;
    if (static_cast<int>(rank) == rank_) group_->self_on_host = group_->host_places.size();
    group_->host_places.push_back(places.back());
  }
  topo::Host host = topo::host_of(places, rank_);
  if (const topo::System* machine = process_.described_machine()) {
    topo::SystemWithNotes described = on_machine(*machine, host, places);
    if (rank_ == 0) process_.tell_of_description(described.notes);
    host.system = std::move(described.system);
  }
  std::vector<int> mates;
  for (const topo::NodeId id : host.system.gpus()) {
    mates.push_back(host.system.node(id).gpu().rank);
    group_->host_mates[mates.back()] = peers[static_cast<std::size_t>(mates.back())].process;
  }
  group_->oversubscribed = topo::oversubscribed(host.system);
  if (rank_ == 0 && process_.wants_dump() && process_.described_machine() != nullptr) {
    process_.dump(host.system);
  } else if (rank_ == 0 && process_.wants_dump()) {
    const topo::SystemWithNotes live = on_machine(process_.discovered_machine(), host, places);
    process_.tell(live.notes);
    process_.dump(live.system);
  }
  const search::ChannelPlan ring = ring_of(host.system, process_);
  if (rank_ == 0 && process_.wants_graph_dump())
    process_.dump_graph([&] { return as_graph(host.system, ring); });
  return connect::encode(connect::summarize(host.system, mates, std::span(&ring, 1)));
}

/// My neighbours in the job's rings.
void Communicator::take_place(const connect::Job& job, const std::vector<PeerInfo>& peers) {
  group_->wiring = connect::wire(job, rank_);
  group_->tune = process_.tune();
  group_->reproducible =
      std::ranges::any_of(peers, [](const PeerInfo& peer) { return peer.reproducible != 0; });
  group_->uses_devices =
      std::ranges::all_of(peers, [](const PeerInfo& peer) { return peer.uses_devices != 0; });
  for (std::size_t i = 0; i < group_->small_below.size() && group_->wiring.shape.hosts == 1; ++i)
    group_->small_below[i] =
        immediate_below({.shape = group_->wiring.shape}, static_cast<device::Collective>(i), {});
  if (may_use_hier(group_->wiring.shape))
    group_->hier_from = group_->tune.names(Algorithm::kHier) ? 1 : kSmallCallsBeforeLinks;

  std::vector<int> known = {group_->wiring.local.previous, group_->wiring.local.next};
  for (const auto& ring : {group_->wiring.rail, group_->wiring.flat})
    if (ring) known.insert(known.end(), {ring->previous, ring->next});
  for (const auto& [rank, process] : group_->host_mates) known.push_back(rank);
  group_->placement = job.placement();
  for (int rank = 0; rank < group_->placement.ranks(); ++rank)
    group_->places.push_back({group_->placement.node_of(rank), group_->placement.local_of(rank)});
  if (group_->hier_from > 0)
    for (int host = 0; host < group_->placement.nodes(); ++host)
      known.push_back(group_->placement.ranks_of(host).front());
  for (int position = 0; position < job.ranks() && group_->wiring.shape.hosts > 1; ++position)
    group_->grid_ranks.push_back(connect::rank_at(job, 0, position));
  for (const LinkSpec& spec : kLinkSpecs)
    for (const LinkPeer& peer : spec.plan(*group_, rank_).peers) known.push_back(peer.rank);
  for (const int rank : known) {
    const PeerInfo& peer = peers[static_cast<std::size_t>(rank)];
    group_->names[rank] =
        fmt::format("rank {} (process {} on host {})", rank, peer.process.pid, peer.host_name.data());
  }
}

void Communicator::set_wait_policy() {
  const loom_runtime& runtime = process_.runtime();
  // A network answers so late that a CPU spent on spinning is better given to whoever moves its data.
  const bool yields = group_->oversubscribed || group_->wiring.shape.hosts > 1 ||
                      (runtime.yield_when_idle != nullptr && runtime.yield_when_idle());
  wait_policy_ = {runtime.progress, [this] { check_peers(); }, [this] { links_.say_waiting(); }, yields,
                  runtime.parameters.timeout_s};
  // Whatever a rank waits for, what it has sent must get out: the library's own loop drives the transport
  // only now and then.
  if (group_->wiring.shape.hosts > 1)
    wait_policy_.progress = [this, library = runtime.progress] {
      if (library != nullptr) library();
      if (ucx_transport::Transport* transport = process_.open_transport()) transport->progress();
    };
}

}  // namespace loom
