// communicator_setup.cpp -- how a communicator comes about: who are the peers and which rings join them;
// then, at the first call that needs them, the links: where do they lie, does the network carry data. After
// each part that can fail all ranks agree whether to go on.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "component/byte_stream.hpp"
#include "component/communicator.hpp"
#include "component/fifo_shapes.hpp"
#include "connect/exchange.hpp"
#include "device/host/peer_memory.hpp"
#include "search/graph_xml.hpp"

namespace loom {
namespace {

/// Longest wait for the first data through the network, while every rank is known to be in the set-up.
constexpr double kNetworkTrialSeconds = 20;

/// Runs `body` unless an earlier part has failed; keeps what went wrong for the agreement.
template <class Body>
void attempt(std::string& cause, Body&& body) {
  if (!cause.empty()) return;
  try {
    body();
  } catch (const BootstrapFailed&) {
    throw;
  } catch (const std::exception& error) {
    cause = error.what();
    if (cause.empty()) cause = "unknown";
  }
}

/// A message that memory was too short for changes nothing of what the ranks have agreed on.
template <class Body>
void say(Body&& body) noexcept {
  try {
    body();
  } catch (const std::exception&) {
  }
}

template <std::size_t N>
void copy_text(std::array<char, N>& to, const std::string& from) {
  to.fill('\0');
  from.copy(to.data(), N - 1);
}

/// A rank's segment: its board, and then its direct area where all ranks are on one host, else the FIFO from
/// its local predecessor.
constexpr std::size_t kOneHostBytes = sizeof(device::Board) + sizeof(device::DirectArea);
constexpr std::size_t kOneOfHostsBytes = sizeof(device::Board) + device::shared_fifo_bytes(kSharedFifo);
static_assert(sizeof(device::Board) % device::kCacheLine == 0);

/// What the ranks must have in common to understand each other; to be counted up when a protocol changes.
constexpr std::uint64_t kProtocolVersion = 4;
constexpr std::uint64_t kLayout =
    (((kProtocolVersion * 1'000'003 + kOneHostBytes) * 1'000'003 + kSharedFifo.slot_bytes) * 1'000'003 +
     kSharedFifo.slot_count) *
        1'000'003 +
    kNetFifo.slot_bytes * 1009 + kNetFifo.slot_count * 101 + kHostsFifo.slot_bytes + kHostsFifo.slot_count;

/// The ranks of `host` on a machine of which more is known.
topo::System on_machine(const topo::System& machine, const topo::Host& host,
                        const std::vector<topo::Place>& places) {
  std::vector<int> ranks;
  std::vector<topo::Place> theirs;
  for (const topo::NodeId id : host.system.gpus()) {
    ranks.push_back(host.system.node(id).gpu().rank);
    theirs.push_back(places[static_cast<std::size_t>(ranks.back())]);
  }
  return topo::with_virtual_gpus(machine, theirs, ranks);
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
};

Communicator::Communicator(const Bootstrap& bootstrap, Process& process)
    : process_(process), bootstrap_(bootstrap), rank_(bootstrap.rank()) {
  where_ = fmt::format("rank {} of {} of {} on host {}", rank_, bootstrap.size(), bootstrap_.name(),
                       process.host_name());
  process_.include(calls_);
}

std::unique_ptr<Communicator> Communicator::create(const Bootstrap& bootstrap, Process& process) {
  std::unique_ptr<Communicator> communicator(new Communicator(bootstrap, process));
  if (bootstrap.size() > 1 && !communicator->learn()) return nullptr;
  return communicator;
}

Communicator::~Communicator() {
  process_.retire(calls_);
}

/// Adds what has been done since `began`, which moves on.
template <class Clock>
void Communicator::note_part(const char* name, std::size_t bytes, Clock& began) {
  const auto now = std::chrono::steady_clock::now();
  parts_.push_back({name, bytes, std::chrono::duration<double, std::milli>(now - began).count()});
  began = now;
}

/// First part of the set-up: who are the peers, and how do they join? Takes nothing that others would miss.
bool Communicator::learn() {
  auto began = std::chrono::steady_clock::now();
  std::string cause;
  PeerInfo mine;
  attempt(cause, [&] {
    mine.place = process_.place();
    mine.process = process_.id();
    copy_text(mine.host_name, process_.host_name());
    mine.description = process_.description_mark();
    mine.graph = process_.graph_mark();
    mine.two_levels = process_.runtime().parameters.two_levels ? 1 : 0;
    mine.layout = kLayout;
  });
  const std::vector<PeerInfo> peers = bootstrap_.all_gather(mine);

  std::vector<std::byte> summary;
  std::uint64_t word = 0;
  attempt(cause, [&] {
    summary = learn_node(peers);
    if (!summary.empty()) word = connect::word_of(rank_, host_mates_.begin()->first, summary);
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
      attempt(cause, [&] { take_place(announced->join(slices, rank_, summary), peers); });
      learned = agree(cause).has_value();
    }
    if (learned) note_part("nodes", sizeof(word) + (one_node ? 0 : announced->slice_bytes()), began);
  }
  if (!learned) process_.count_communicator(false);
  return learned;
}

/// Second part: the links. True on every rank or on none.
bool Communicator::link() {
  linking_ = true;
  const bool linked = make_links();
  linking_ = false;
  process_.count_communicator(linked);
  if (!linked) drop_links();
  if (linked && process_.runtime().parameters.verbose >= 1 && rank_ == 0)
    say([&] { process_.runtime().log(describe_links().c_str()); });
  return linked;
}

/// Nobody waits for them: late messages are dropped, and peers have mapped what they need.
void Communicator::drop_links() noexcept {
  hosts_.clear();
  host_links_.clear();
  net_previous_.reset();
  net_next_.reset();
  local_previous_.reset();
  local_next_.reset();
  direct_.reset();
  boards_.reset();
  pids_.clear();
  attached_.clear();
  segment_ = {};
}

bool Communicator::make_links() {
  auto began = std::chrono::steady_clock::now();
  std::string cause;
  std::vector<std::byte> ends;
  attempt(cause, [&] { ends = make_ends(); });
  const auto bytes_of = agree(cause, ends.size());
  if (!bytes_of) return false;
  const auto handles = bootstrap_.all_gather_bytes(ends, *bytes_of);

  std::vector<std::int64_t> pids;
  attempt(cause, [&] { join_ends(handles); });
  attempt(cause, [&] { pids = readable_peers(handles); });
  const auto may_read = agree(cause, pids.empty() ? 0 : 1);
  if (!may_read) return false;
  if (!std::count(may_read->begin(), may_read->end(), 0)) pids_ = std::move(pids);
  segment_.close_handle();  // everybody who needs it has it mapped
  note_part("links", *std::max_element(bytes_of->begin(), bytes_of->end()), began);

  if (wiring_.shape.hosts == 1) return true;
  attempt(cause, [&] { try_network(); });
  const bool reached = agree(cause).has_value();
  note_part("network", 0, began);
  return reached;
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
        LOOM_MESSAGE_DECLINED, fmt::format("{} ({} ranks)", bootstrap_.name(), bootstrap_.size()).c_str(),
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
  if (rank_ == 0) process_.tell_of_description();
  topo::Host host = topo::host_of(places, rank_);
  if (const topo::System* machine = process_.described_machine())
    host.system = on_machine(*machine, host, places);
  std::vector<int> mates;
  for (const topo::NodeId id : host.system.gpus()) {
    mates.push_back(host.system.node(id).gpu().rank);
    host_mates_[mates.back()] = peers[static_cast<std::size_t>(mates.back())].process;
  }
  oversubscribed_ = topo::oversubscribed(host.system);
  if (rank_ == 0 && process_.wants_dump())
    process_.dump(process_.described_machine() != nullptr
                      ? host.system
                      : on_machine(process_.discovered_machine(), host, places));
  const search::ChannelPlan ring = ring_of(host.system, process_);
  if (rank_ == 0 && process_.wants_graph_dump())
    process_.dump_graph([&] { return as_graph(host.system, ring); });
  return connect::encode(connect::summarize(host.system, mates, std::span(&ring, 1)));
}

/// My neighbours in the job's rings, and how I wait for them.
void Communicator::take_place(const connect::Job& job, const std::vector<PeerInfo>& peers) {
  wiring_ = connect::wire(job, rank_);
  two_levels_ = few_hosts(wiring_.shape) && std::all_of(peers.begin(), peers.end(), [](const PeerInfo& peer) {
                  return peer.two_levels != 0;
                });

  std::vector<int> known = {wiring_.local.previous, wiring_.local.next};
  for (const auto& ring : {wiring_.rail, wiring_.flat})
    if (ring) known.insert(known.end(), {ring->previous, ring->next});
  for (const auto& [rank, process] : host_mates_) known.push_back(rank);
  placement_ = job.placement();
  for (int host = 0; host < placement_.nodes(); ++host)
    ranks_by_host_.insert(ranks_by_host_.end(), placement_.ranks_of(host).begin(),
                          placement_.ranks_of(host).end());
  if (two_levels_)
    for (int host = 0; host < placement_.nodes(); ++host) known.push_back(placement_.ranks_of(host).front());
  for (const int rank : known) {
    const PeerInfo& peer = peers[static_cast<std::size_t>(rank)];
    names_[rank] =
        fmt::format("rank {} (process {} on host {})", rank, peer.process.pid, peer.host_name.data());
  }

  const loom_runtime& runtime = process_.runtime();
  if (runtime.yield_when_idle != nullptr && runtime.yield_when_idle()) oversubscribed_ = true;
  // A network answers so late that a CPU spent on spinning is better given to whoever moves its data.
  wait_policy_ = {runtime.progress, [this] { check_peers(); }, oversubscribed_ || wiring_.shape.hosts > 1,
                  runtime.parameters.timeout_s};
  // Whatever a rank waits for, what it has sent must get out: the library's own loop drives the transport
  // only now and then.
  if (wiring_.shape.hosts > 1)
    wait_policy_.progress = [this, library = runtime.progress] {
      if (library != nullptr) library();
      if (ucx_transport::Transport* transport = process_.open_transport()) transport->progress();
    };
}

/// Makes this rank's ends of its links; returns what the other ends need of them.
std::vector<std::byte> Communicator::make_ends() {
  ByteWriter writer;
  if (wiring_.local.size > 1) {
    segment_ = device::Segment::create(wiring_.shape.hosts == 1 ? kOneHostBytes : kOneOfHostsBytes);
    writer.value(segment_.handle());
  } else {
    writer.value(device::SegmentHandle{});
  }
  if (wiring_.shape.hosts == 1) return writer.take();

  const connect::Ring& ring = wiring_.rail ? *wiring_.rail : *wiring_.flat;
  const bool joins_hosts = is_first_of_host() && two_levels_;
  if (on_my_host(ring.next) && on_my_host(ring.previous) && !joins_hosts) return writer.take();
  ucx_transport::Transport& transport = process_.transport();
  if (!on_my_host(ring.next))
    net_next_ = std::make_unique<ucx_transport::NetSendLink>(transport, kNetFifo, names_.at(ring.next));
  if (!on_my_host(ring.previous))
    net_previous_ =
        std::make_unique<ucx_transport::NetRecvLink>(transport, kNetFifo, names_.at(ring.previous));
  writer.string(transport.address());
  writer.value(net_previous_ ? net_previous_->inbox() : ucx_transport::InboxId{});
  writer.value(net_next_ ? net_next_->inbox() : ucx_transport::InboxId{});
  if (!joins_hosts) return writer.take();
  host_links_.resize(static_cast<std::size_t>(wiring_.shape.hosts));
  for (int host = 0; host < wiring_.shape.hosts; ++host) {
    HostLinks& links = host_links_[static_cast<std::size_t>(host)];
    if (const int first = placement_.ranks_of(host).front(); first != rank_) {
      links.send = std::make_unique<ucx_transport::NetSendLink>(transport, kHostsFifo, names_.at(first));
      links.receive = std::make_unique<ucx_transport::NetRecvLink>(transport, kHostsFifo, names_.at(first));
    }
    writer.value(links.receive ? links.receive->inbox() : ucx_transport::InboxId{});
    writer.value(links.send ? links.send->inbox() : ucx_transport::InboxId{});
  }
  return writer.take();
}

void Communicator::join_ends(const std::vector<std::vector<std::byte>>& handles) {
  const auto handle_of = [&](int rank) -> const std::vector<std::byte>& {
    return handles[static_cast<std::size_t>(rank)];
  };

  if (wiring_.local.size > 1) {
    const auto memory_of = [&](int rank) {
      if (rank == rank_) return segment_.data();
      auto entry = attached_.find(rank);
      if (entry == attached_.end())
        entry =
            attached_
                .emplace(rank,
                         device::Segment::attach(ByteReader(handle_of(rank)).value<device::SegmentHandle>()))
                .first;
      return entry->second.data();
    };
    std::vector<device::Board*> boards;
    for (const auto& [rank, process] : host_mates_)
      boards.push_back(reinterpret_cast<device::Board*>(memory_of(rank)));
    boards_.emplace(std::move(boards), placement_.local_of(rank_));
    const auto behind_board = [&](int rank) { return memory_of(rank) + sizeof(device::Board); };
    if (wiring_.shape.hosts == 1) {
      std::vector<device::DirectArea*> areas;
      for (const auto& [rank, process] : host_mates_)
        areas.push_back(reinterpret_cast<device::DirectArea*>(behind_board(rank)));
      direct_ = std::make_unique<device::DirectExchange>(std::move(areas), rank_);
      return;
    }
    local_next_ = std::make_unique<device::SharedSendLink>(behind_board(wiring_.local.next), kSharedFifo,
                                                           wiring_.local.next);
    local_previous_ =
        std::make_unique<device::SharedRecvLink>(behind_board(rank_), kSharedFifo, wiring_.local.previous);
  }

  if (wiring_.shape.hosts == 1) return;
  const connect::Ring& ring = wiring_.rail ? *wiring_.rail : *wiring_.flat;
  struct NetHandle {
    ucx_transport::Bytes worker_address;
    ucx_transport::InboxId recv_end = 0, send_end = 0;
    ucx_transport::InboxId host_recv_end = 0,
                           host_send_end = 0;  ///< of the first rank of a host, towards my host
  };
  const int my_host = placement_.node_of(rank_);
  const auto net_handle_of = [&](int rank, bool of_first = false) {
    ByteReader reader(handle_of(rank));
    reader.value<device::SegmentHandle>();
    NetHandle handle;
    handle.worker_address = reader.string();
    handle.recv_end = reader.value<ucx_transport::InboxId>();
    handle.send_end = reader.value<ucx_transport::InboxId>();
    for (int host = 0; host <= my_host && of_first; ++host) {
      handle.host_recv_end = reader.value<ucx_transport::InboxId>();
      handle.host_send_end = reader.value<ucx_transport::InboxId>();
    }
    return handle;
  };
  if (net_next_) {
    const NetHandle peer = net_handle_of(ring.next);
    net_next_->connect(peer.worker_address, peer.recv_end);
  }
  if (net_previous_) {
    const NetHandle peer = net_handle_of(ring.previous);
    net_previous_->connect(peer.worker_address, peer.send_end);
  }
  for (std::size_t host = 0; host < host_links_.size(); ++host) {
    const HostLinks& links = host_links_[host];
    hosts_.push_back({links.send.get(), links.receive.get()});
    if (!links.send) continue;
    const NetHandle peer = net_handle_of(placement_.ranks_of(static_cast<int>(host)).front(), true);
    links.send->connect(peer.worker_address, peer.host_recv_end);
    links.receive->connect(peer.worker_address, peer.host_send_end);
  }
}

/// The processes of all ranks, in order of rank, if this one may read the memory of each; else nothing.
std::vector<std::int64_t> Communicator::readable_peers(
    const std::vector<std::vector<std::byte>>& handles) const {
  if (wiring_.shape.hosts > 1 || process_.runtime().parameters.avoid_single_copy) return {};
  std::vector<std::int64_t> pids;
  for (const auto& bytes : handles) {
    const auto handle = ByteReader(bytes).value<device::SegmentHandle>();
    const auto* token = reinterpret_cast<const std::byte*>(handle.address);
    if (!device::can_read_peer_memory(handle.pid, token, handle.token)) return {};
    pids.push_back(handle.pid);
  }
  return pids;
}

/// Sends one word to the next host and waits for the previous host's: UCX may find a transport that no packet
/// passes.
void Communicator::try_network() {
  device::WaitPolicy policy = wait_policy_;
  policy.timeout_s = kNetworkTrialSeconds;
  const auto wait_until = [&](auto&& condition) {
    device::Waiter waiter(policy);
    while (!condition()) waiter.pause();
  };
  const auto word_from = [](int rank) { return kLayout ^ (static_cast<std::uint64_t>(rank) << 20); };
  const connect::Ring& ring = wiring_.rail ? *wiring_.rail : *wiring_.flat;
  try {
    if (net_next_) {
      const std::uint64_t word = word_from(rank_);
      std::memcpy(net_next_->try_acquire(), &word, sizeof(word));
      net_next_->publish(sizeof(word));
    }
    if (net_previous_) {
      const std::byte* received = nullptr;
      wait_until([&] { return (received = net_previous_->try_receive()) != nullptr; });
      std::uint64_t word;
      std::memcpy(&word, received, sizeof(word));
      if (word != word_from(ring.previous))
        throw Error(ErrorCode::kUnreachable,
                    fmt::format("UCX delivered wrong data from {}.", names_.at(ring.previous)));
      net_previous_->release();
    }
    wait_until([&] {
      return (!net_next_ || net_next_->drained()) && (!net_previous_ || net_previous_->handed_over());
    });
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) throw;
    throw Error(
        ErrorCode::kUnreachable,
        fmt::format("No data came through UCX within {} s: from {}, to {} (see UCX_TLS and UCX_NET_DEVICES).",
                    kNetworkTrialSeconds, names_.at(ring.previous), names_.at(ring.next)));
  }
}

std::string Communicator::describe_links() const {
  const connect::Shape& shape = wiring_.shape;
  const char* how = wiring_.rail ? "rings inside and rails across" : "one ring over unequal hosts";
  if (shape.hosts == 1)
    how = pids_.empty() ? "boards in shared memory" : "boards in shared memory and single copy";
  std::string text =
      fmt::format("{}: {} ranks on {} host{}, {}{}; set up in", bootstrap_.name(), shape.ranks, shape.hosts,
                  shape.hosts == 1 ? "" : "s", how, oversubscribed_ ? ", more ranks than CPUs" : "");
  double sum = 0;
  for (const SetUpPart& part : parts_) sum += part.milliseconds;
  text += fmt::format(" {:.1f} ms:", sum);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    text += fmt::format("{} {} {:.1f} ms", i == 0 ? "" : ",", parts_[i].name, parts_[i].milliseconds);
    if (parts_[i].bytes > 0) text += fmt::format(" ({} bytes from each rank)", parts_[i].bytes);
  }
  return text;
}

}  // namespace loom
