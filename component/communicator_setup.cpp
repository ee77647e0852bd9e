// communicator_setup.cpp -- how a communicator comes about: who are the peers, and which rings join them? The
// links follow at the first call that needs them (communicator_links.cpp). After each part that can fail all
// ranks agree whether to go on.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "component/attempt.hpp"
#include "component/communicator.hpp"
#include "component/shared_layout.hpp"
#include "connect/exchange.hpp"
#include "search/graph_xml.hpp"

namespace loom {
namespace {

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
  std::uint64_t description = 0;  ///< which coll_loom_topo_file it reads
  std::uint64_t two_levels = 0;   ///< whether it wants them
  std::uint64_t graph = 0;        ///< which coll_loom_graph_file
  std::uint64_t protocol = 0;     ///< coll_loom_protocol
};

Communicator::Communicator(const Bootstrap& bootstrap, Process& process)
    : process_(process), bootstrap_(bootstrap), rank_(bootstrap.rank()) {
  where_ = fmt::format("rank {} of {} of {} on host {}", rank_, bootstrap.size(), bootstrap_.name(),
                       process.host_name());
  process_.include(calls_);
}

std::unique_ptr<Communicator> Communicator::create(const Bootstrap& bootstrap, Process& process) {
  std::unique_ptr<Communicator> communicator(new Communicator(bootstrap, process));
  // A rank that is alone has nobody to meet, but files to read and write.
  const bool learns = bootstrap.size() > 1 || (bootstrap.alone() && process.names_files());
  if (learns && !communicator->learn()) return nullptr;
  return communicator;
}

Communicator::~Communicator() {
  process_.retire(calls_);
  if (jobs_.empty())
    group_->idle.put(std::move(links_));
  else
    process_.jobs().forget(jobs_);  // before anything goes that a job may use
  group_.reset();
  process_.groups().trim();
}

/// Adds what has been done since `began`, which moves on.
void Communicator::note_part(const char* name, std::size_t bytes,
                             std::chrono::steady_clock::time_point& began) {
  const auto now = std::chrono::steady_clock::now();
  parts_.push_back({name, bytes, std::chrono::duration<double, std::milli>(now - began).count()});
  began = now;
}

/// First part of the set-up. Takes nothing that others would miss.
bool Communicator::learn() {
  auto began = std::chrono::steady_clock::now();
  std::string cause;
  std::uint64_t number = 0;
  attempt(cause, [&] { number = process_.number(); });
  const Groups::Members members = bootstrap_.all_gather(number);
  group_is_known_ = find_group(members, cause);
  note_part("group", 2 * sizeof(number), began);
  if (group_is_known_) return true;
  const bool learned = learn_group(cause, began);
  if (learned)
    process_.groups().keep(members, group_);
  else
    process_.count_communicator(false);
  return learned;
}

/// Takes what an earlier communicator over these processes has learned, if all ranks have the same.
bool Communicator::find_group(const Groups::Members& members, std::string& cause) {
  std::uint64_t number = 0;
  attempt(cause, [&] {
    std::shared_ptr<Group> known = process_.groups().find(members);
    if (!known) return;
    group_ = std::move(known);
    set_wait_policy();
    number = group_->number;
  });
  if (all_have(number)) return true;
  attempt(cause, [&] { group_ = std::make_shared<Group>(); });
  return false;
}

/// Whether all ranks have this number, and it is not 0.
bool Communicator::all_have(std::uint64_t number) const {
  const std::vector<std::uint64_t> numbers = bootstrap_.all_gather(number);
  return number != 0 && std::count(numbers.begin(), numbers.end(), number) == bootstrap_.size();
}

/// Who are the peers, and how do they join? True on every rank or on none.
bool Communicator::learn_group(std::string& cause, std::chrono::steady_clock::time_point& began) {
  PeerInfo mine;
  attempt(cause, [&] {
    mine.place = process_.place();
    mine.process = process_.id();
    copy_text(mine.host_name, process_.host_name());
    mine.description = process_.description_mark();
    mine.graph = process_.graph_mark();
    mine.two_levels = process_.runtime().parameters.two_levels ? 1 : 0;
    mine.protocol = static_cast<std::uint64_t>(process_.runtime().parameters.protocol);
    mine.layout = kLayout;
  });
  const std::vector<PeerInfo> peers = bootstrap_.all_gather(mine);

  std::vector<std::byte> summary;
  std::uint64_t word = 0;
  attempt(cause, [&] {
    summary = learn_node(peers);
    if (!summary.empty()) word = connect::word_of(rank_, group_->host_mates.begin()->first, summary);
  });
  const auto words = agree(cause, word);
  bool learned = words.has_value();
  if (learned) {
    note_part("peers", sizeof(mine), began);
    // On one host everybody has the only summary. All ranks have the same words, and so see the same here,
    // even if the words contradict each other.
    const bool one_node =
        std::count(words->begin() + 1, words->end(), 0) == static_cast<std::ptrdiff_t>(words->size()) - 1;
    std::optional<connect::Announced> announced;
    std::vector<std::byte> slices;
    attempt(cause, [&] {
      announced.emplace(*words);
      slices = one_node ? announced->all_slices(std::span(&summary, 1)) : announced->slice(rank_, summary);
    });
    // Who could not make its slice does not know how much the others send: all have to know of it first.
    if (!one_node && (learned = agree(cause).has_value())) slices = bootstrap_.all_gather_slices(slices);
    if (learned) {
      attempt(cause, [&] {
        take_place(announced->join(slices, rank_, summary), peers);
        set_wait_policy();
      });
      const auto numbers = agree(cause, process_.groups().next_number());
      learned = numbers.has_value();
      if (learned) group_->number = numbers->front();
    }
    if (learned) note_part("nodes", sizeof(word) + (one_node ? 0 : announced->slice_bytes()), began);
  }
  return learned;
}

/// Every rank's number; or nothing, once any rank has a cause to stop, after rank 0 has shown the first of
/// the causes.
std::optional<std::vector<std::uint64_t>> Communicator::agree(const std::string& cause,
                                                              std::uint64_t number) const {
  constexpr std::uint64_t kStop = ~std::uint64_t{0};
  std::vector<std::uint64_t> numbers = bootstrap_.all_gather(cause.empty() ? number : kStop);
  const auto stopped = std::count(numbers.begin(), numbers.end(), kStop);
  if (stopped == 0) return numbers;

  struct Cause {
    std::array<char, 64> host;
    std::array<char, 448> text;
  } mine;
  copy_text(mine.host, process_.host_name());
  copy_text(mine.text, cause);
  const std::vector<Cause> causes = bootstrap_.all_gather(mine);
  if (rank_ != 0) return {};
  const auto first = std::find(numbers.begin(), numbers.end(), kStop) - numbers.begin();
  const Cause& shown = causes[static_cast<std::size_t>(first)];
  say([&] {
    const std::string more = stopped > 1 ? fmt::format(" (and {} more)", stopped - 1) : "";
    process_.runtime().show(
        LOOM_MESSAGE_DECLINED,
        fmt::format("{} ({} {})", bootstrap_.name(), bootstrap_.size(),
                    bootstrap_.size() == 1 ? "rank" : "ranks")
            .c_str(),
        fmt::format("Rank {} on host {}{}: {}", first, shown.host.data(), more, shown.text.data()).c_str());
  });
  return {};
}

/// Who is on my host, and its channels as bytes; nothing if some rank has a cause of its own to stop.
std::vector<std::byte> Communicator::learn_node(const std::vector<PeerInfo>& peers) {
  std::vector<topo::Place> places;
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    if (peers[rank].layout == 0) return {};
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
    places.push_back(peers[rank].place);
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
  group_->two_levels =
      few_hosts(group_->wiring.shape) &&
      std::all_of(peers.begin(), peers.end(), [](const PeerInfo& peer) { return peer.two_levels != 0; });
  const bool one_protocol = std::all_of(
      peers.begin(), peers.end(), [&](const PeerInfo& peer) { return peer.protocol == peers[0].protocol; });
  if (one_protocol) group_->protocol = static_cast<device::OfferProtocol>(peers[0].protocol);

  std::vector<int> known = {group_->wiring.local.previous, group_->wiring.local.next};
  for (const auto& ring : {group_->wiring.rail, group_->wiring.flat})
    if (ring) known.insert(known.end(), {ring->previous, ring->next});
  for (const auto& [rank, process] : group_->host_mates) known.push_back(rank);
  group_->placement = job.placement();
  for (int host = 0; host < group_->placement.nodes(); ++host)
    group_->ranks_by_host.insert(group_->ranks_by_host.end(), group_->placement.ranks_of(host).begin(),
                                 group_->placement.ranks_of(host).end());
  if (group_->two_levels)
    for (int host = 0; host < group_->placement.nodes(); ++host)
      known.push_back(group_->placement.ranks_of(host).front());
  for (int position = 0; position < job.ranks() && group_->wiring.shape.hosts > 1; ++position)
    group_->grid_ranks.push_back(connect::rank_at(job, 0, position));
  for (int rank = 0; rank < job.ranks() && may_mesh(group_->wiring.shape); ++rank) known.push_back(rank);
  for (const int rank : known) {
    const PeerInfo& peer = peers[static_cast<std::size_t>(rank)];
    group_->names[rank] =
        fmt::format("rank {} (process {} on host {})", rank, peer.process.pid, peer.host_name.data());
  }

  const loom_runtime& runtime = process_.runtime();
  if (runtime.yield_when_idle != nullptr && runtime.yield_when_idle()) group_->oversubscribed = true;
}

void Communicator::set_wait_policy() {
  const loom_runtime& runtime = process_.runtime();
  // A network answers so late that a CPU spent on spinning is better given to whoever moves its data.
  wait_policy_ = {runtime.progress, [this] { check_peers(); }, [this] { say_waiting(); },
                  group_->oversubscribed || group_->wiring.shape.hosts > 1, runtime.parameters.timeout_s};
  // Whatever a rank waits for, what it has sent must get out: the library's own loop drives the transport
  // only now and then.
  if (group_->wiring.shape.hosts > 1)
    wait_policy_.progress = [this, library = runtime.progress] {
      if (library != nullptr) library();
      if (ucx_transport::Transport* transport = process_.open_transport()) transport->progress();
    };
}

}  // namespace loom
