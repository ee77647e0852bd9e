// communicator_setup.cpp -- how a communicator comes about: who are the peers, which rings join them, where do the links
// lie, does the network carry data. After each part that can fail all ranks agree whether to go on.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "component/byte_stream.hpp"
#include "component/communicator.hpp"
#include "component/fifo_shapes.hpp"
#include "device/host/peer_memory.hpp"

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

template <std::size_t N>
void copy_text(std::array<char, N>& to, const std::string& from) {
  to.fill('\0');
  from.copy(to.data(), N - 1);
}

/// A rank's segment where all ranks are on one host: its direct area, then its board.
constexpr std::size_t kOneHostBytes = sizeof(device::DirectArea) + sizeof(device::Board);
static_assert(sizeof(device::DirectArea) % device::kCacheLine == 0);

/// What the ranks must have in common to understand each other; to be counted up when a protocol changes.
constexpr std::uint64_t kProtocolVersion = 1;
constexpr std::uint64_t kLayout = (((kProtocolVersion * 1'000'003 + kOneHostBytes) * 1'000'003 +
                                    kSharedFifo.slot_bytes) * 1'000'003 + kSharedFifo.slot_count) * 1'000'003 +
                                  kNetFifo.slot_bytes * 1009 + kNetFifo.slot_count;

}  // namespace

/// What every rank knows of every other. Plain data.
struct Communicator::PeerInfo {
  std::uint64_t layout = 0;
  topo::Place place;
  device::ProcessId process;
  std::array<char, 64> host_name{};
};

Communicator::Communicator(const Bootstrap& bootstrap, Process& process)
    : process_(process), rank_(bootstrap.rank()), name_(bootstrap.name()) {
  where_ = fmt::format("rank {} of {} of {} on host {}", rank_, bootstrap.size(), name_, process.host_name());
  process_.include(calls_);
}

std::unique_ptr<Communicator> Communicator::create(const Bootstrap& bootstrap, Process& process) {
  const auto began = std::chrono::steady_clock::now();
  std::unique_ptr<Communicator> communicator(new Communicator(bootstrap, process));
  if (bootstrap.size() == 1) return communicator;
  const bool connected = communicator->set_up(bootstrap);
  process.count_communicator(connected);
  if (!connected) return nullptr;
  if (process.runtime().parameters.verbose >= 1 && bootstrap.rank() == 0) {
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
    process.runtime().log(communicator->describe_set_up(took.count()).c_str());
  }
  return communicator;
}

Communicator::~Communicator() {
  process_.retire(calls_);
  // A peer may still be giving back the last slots: the transport keeps the memory until it has.
  if (net_next_) process_.transport().retire(std::move(net_next_));
  if (net_previous_) process_.transport().retire(std::move(net_previous_));
}

bool Communicator::set_up(const Bootstrap& bootstrap) {
  std::string cause;
  PeerInfo mine;
  attempt(cause, [&] {
    mine.layout = kLayout;
    mine.place = process_.place();
    mine.process = process_.id();
    copy_text(mine.host_name, process_.host_name());
  });
  const std::vector<PeerInfo> peers = bootstrap.all_gather(mine);
  if (!agree(bootstrap, cause)) return false;

  std::vector<std::byte> ends;
  attempt(cause, [&] { learn_peers(peers); });
  attempt(cause, [&] { ends = make_ends(); });
  const auto bytes_of = bootstrap.all_gather(ends.size());
  const auto handles = bootstrap.all_gather_bytes(ends, bytes_of);
  if (!agree(bootstrap, cause)) return false;

  attempt(cause, [&] { join_ends(handles); });
  if (!agree(bootstrap, cause)) return false;
  if (wiring_.shape.hosts == 1) agree_on_single_copy(bootstrap, handles);
  segment_.close_handle();  // everybody who needs it has it mapped

  if (wiring_.shape.hosts > 1) {
    attempt(cause, [&] { try_network(); });
    if (!agree(bootstrap, cause)) {
      abandon();  // a word may still be under way: the transport keeps the memory that it will meet
      return false;
    }
  }
  return true;
}

/// True if no rank has a cause to stop. Otherwise rank 0 shows one message with the first cause.
bool Communicator::agree(const Bootstrap& bootstrap, const std::string& cause) {
  struct Outcome {
    std::array<char, 64> host;
    std::array<char, 448> cause;
  } mine;
  copy_text(mine.host, process_.host_name());
  copy_text(mine.cause, cause);
  const std::vector<Outcome> all = bootstrap.all_gather(mine);
  int failed = 0, first = -1;
  for (int rank = 0; rank < bootstrap.size(); ++rank) {
    if (all[static_cast<std::size_t>(rank)].cause[0] == '\0') continue;
    if (failed++ == 0) first = rank;
  }
  if (failed == 0) return true;
  if (rank_ == 0) {
    const Outcome& outcome = all[static_cast<std::size_t>(first)];
    process_.runtime().show(LOOM_MESSAGE_DECLINED,
                            fmt::format("{} ({} ranks)", name_, bootstrap.size()).c_str(),
                            fmt::format("Rank {} on host {}{}: {}", first, outcome.host.data(),
                                        failed > 1 ? fmt::format(" (and {} more)", failed - 1) : "",
                                        outcome.cause.data())
                                .c_str());
  }
  return false;
}

void Communicator::learn_peers(const std::vector<PeerInfo>& peers) {
  std::vector<topo::Place> places;
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    if (peers[rank].layout != kLayout)
      throw Error(ErrorCode::kUnreachable, fmt::format("Rank {} on host {} runs another build of loom.", rank,
                                                       peers[rank].host_name.data()));
    places.push_back(peers[rank].place);
  }
  std::vector<search::ChannelPlan> plans;
  for (const topo::System& host : topo::hosts_of(places)) {
    plans.push_back(search::find_ring(host));
    if (host.host != places[static_cast<std::size_t>(rank_)].host) continue;
    for (const topo::Gpu& gpu : host.gpus)
      host_mates_[gpu.rank] = peers[static_cast<std::size_t>(gpu.rank)].process;
    oversubscribed_ = host.oversubscribed();
  }
  wiring_ = connect::wire(plans, rank_);

  std::vector<int> known = {wiring_.local.previous, wiring_.local.next};
  for (const auto& ring : {wiring_.rail, wiring_.flat})
    if (ring) known.insert(known.end(), {ring->previous, ring->next});
  for (const auto& [rank, process] : host_mates_) known.push_back(rank);
  for (const int rank : known) {
    const PeerInfo& peer = peers[static_cast<std::size_t>(rank)];
    names_[rank] = fmt::format("rank {} (process {} on host {})", rank, peer.process.pid, peer.host_name.data());
  }

  const loom_runtime& runtime = process_.runtime();
  if (runtime.yield_when_idle != nullptr && runtime.yield_when_idle()) oversubscribed_ = true;
  // A network answers so late that a CPU spent on spinning is better given to whoever moves its data.
  // Whatever a rank waits for, its network links must go on: a counter follows its data only when the flush is through.
  const auto progress = [this] {
    if (process_.runtime().progress != nullptr) process_.runtime().progress();
    if (ucx_transport::Transport* transport = process_.open_transport()) transport->progress();
  };
  wait_policy_ = {wiring_.shape.hosts > 1 ? std::function<void()>(progress) : runtime.progress, [this] { check_peers(); }, oversubscribed_ || wiring_.shape.hosts > 1,
                  runtime.parameters.timeout_s};
}

/// Makes this rank's ends of its links; returns what the other ends need of them.
std::vector<std::byte> Communicator::make_ends() {
  ByteWriter writer;
  if (wiring_.local.size > 1) {
    segment_ =
        device::Segment::create(wiring_.shape.hosts == 1 ? kOneHostBytes : device::shared_fifo_bytes(kSharedFifo));
    writer.value(segment_.handle());
  } else {
    writer.value(device::SegmentHandle{});
  }
  if (wiring_.shape.hosts == 1) return writer.take();

  const connect::Ring& ring = wiring_.rail ? *wiring_.rail : *wiring_.flat;
  if (on_my_host(ring.next) && on_my_host(ring.previous)) return writer.take();
  ucx_transport::Transport& transport = process_.transport();
  if (!on_my_host(ring.next))
    net_next_ = std::make_unique<ucx_transport::NetSendLink>(transport, kNetFifo, names_.at(ring.next));
  if (!on_my_host(ring.previous))
    net_previous_ = std::make_unique<ucx_transport::NetRecvLink>(transport, kNetFifo, names_.at(ring.previous));
  const auto write_offer = [&](const ucx_transport::Offer& offer) {
    writer.value(offer.address);
    writer.string(offer.key);
  };
  writer.string(transport.address());
  write_offer(net_previous_ ? net_previous_->offer() : ucx_transport::Offer{});
  write_offer(net_next_ ? net_next_->offer() : ucx_transport::Offer{});
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
        entry = attached_
                    .emplace(rank, device::Segment::attach(
                                       ByteReader(handle_of(rank)).value<device::SegmentHandle>()))
                    .first;
      return entry->second.data();
    };
    if (wiring_.shape.hosts == 1) {
      std::vector<device::DirectArea*> areas;
      std::vector<device::Board*> boards;
      for (const auto& [rank, process] : host_mates_) {
        areas.push_back(reinterpret_cast<device::DirectArea*>(memory_of(rank)));
        boards.push_back(reinterpret_cast<device::Board*>(memory_of(rank) + sizeof(device::DirectArea)));
      }
      direct_ = std::make_unique<device::DirectExchange>(std::move(areas), rank_);
      boards_.emplace(std::move(boards), rank_);
      return;
    }
    local_next_ = std::make_unique<device::SharedSendLink>(memory_of(wiring_.local.next), kSharedFifo,
                                                           wiring_.local.next);
    local_previous_ =
        std::make_unique<device::SharedRecvLink>(segment_.data(), kSharedFifo, wiring_.local.previous);
  }

  if (wiring_.shape.hosts == 1) return;
  const connect::Ring& ring = wiring_.rail ? *wiring_.rail : *wiring_.flat;
  struct NetHandle {
    ucx_transport::Bytes worker_address;
    ucx_transport::Offer recv_end, send_end;
  };
  const auto net_handle_of = [&](int rank) {
    ByteReader reader(handle_of(rank));
    reader.value<device::SegmentHandle>();
    NetHandle handle;
    handle.worker_address = reader.string();
    for (ucx_transport::Offer* offer : {&handle.recv_end, &handle.send_end}) {
      offer->address = reader.value<std::uint64_t>();
      offer->key = reader.string();
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
}

/// Ranks read each other's memory only if every one of them may read every other's.
void Communicator::agree_on_single_copy(const Bootstrap& bootstrap, const std::vector<std::vector<std::byte>>& handles) {
  int mine = process_.runtime().parameters.avoid_single_copy ? 0 : 1;  // a std::vector<bool> could not be gathered
  std::vector<std::int64_t> pids;
  for (const auto& bytes : handles) {
    const auto handle = ByteReader(bytes).value<device::SegmentHandle>();
    pids.push_back(handle.pid);
    const auto* token = reinterpret_cast<const std::byte*>(handle.address);
    if (mine == 1 && !device::can_read_peer_memory(handle.pid, token, handle.token)) mine = 0;
  }
  const auto all = bootstrap.all_gather(mine);
  if (std::all_of(all.begin(), all.end(), [](int may) { return may == 1; })) pids_ = std::move(pids);
}

/// Sends one word to the next host and waits for the previous host's: UCX may find a transport that no packet passes.
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
    wait_until([&] { return !net_next_ || net_next_->drained(); });
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) throw;
    throw Error(ErrorCode::kUnreachable,
                fmt::format("No data came through UCX within {} s: from {}, to {} (see UCX_TLS and UCX_NET_DEVICES).",
                            kNetworkTrialSeconds, names_.at(ring.previous), names_.at(ring.next)));
  }
}

std::string Communicator::describe_set_up(double milliseconds) const {
  const connect::Shape& shape = wiring_.shape;
  const char* rings = shape.hosts == 1 ? (pids_.empty() ? "boards in shared memory" : "boards in shared memory, reading each other's") : wiring_.rail ? "rings inside and rails across"
                                                                                  : "one ring over unequal hosts";
  return fmt::format("{}: {} ranks on {} host{}, {}{}; set up in {:.1f} ms", name_, shape.ranks, shape.hosts,
                     shape.hosts == 1 ? "" : "s", rings, oversubscribed_ ? ", more ranks than CPUs" : "",
                     milliseconds);
}

}  // namespace loom
