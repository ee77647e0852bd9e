// communicator_links.cpp -- the second part of a communicator's set-up, at the first call that needs them:
// where do the links lie, and does the network carry data?
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "component/attempt.hpp"
#include "component/byte_stream.hpp"
#include "component/communicator.hpp"
#include "component/shared_layout.hpp"
#include "device/host/peer_memory.hpp"

namespace loom {
namespace {

/// Longest wait for the first data through the network, while every rank is known to be in the set-up.
constexpr double kNetworkTrialSeconds = 20;
}  // namespace

/// Second part: the links. True on every rank or on none.
bool Communicator::link() {
  linking_ = true;
  const bool linked = make_links();
  linking_ = false;
  process_.count_communicator(linked);
  if (!linked) drop_links();
  // At coll_loom_verbose 2 the first call of each kind is told.
  if (linked && direct_ && process_.runtime().parameters.verbose < 2)
    most_small_ = most_direct_bytes(bootstrap_.size(), protocol_) + 1;
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
  most_small_ = 0;
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
      direct_ = std::make_unique<device::DirectExchange>(std::move(areas), rank_, protocol_);
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
