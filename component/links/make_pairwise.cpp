// communicator_mesh.cpp -- links between every two ranks of different hosts, for all-to-alls. The first call
// that needs them makes them: most programs never do.
#include <fmt/format.h>

#include <algorithm>

#include "component/communicator.hpp"
#include "component/links/shared_layout.hpp"
#include "component/setup/byte_stream.hpp"
#include "device/link/memory_near.hpp"

namespace loom {

/// True on every rank or on none.
bool Communicator::has_pairwise() {
  if (linking_) return false;
  if (links_.pairwise_state == LinkState::kNotMade) {
    linking_ = true;
    const bool made = meet(bootstrap_, process_, [&](Agreement& agreement) { make_pairwise(agreement); });
    linking_ = false;
    if (!made) links_.drop_pairwise();
    links_.pairwise_state = made ? LinkState::kReady : LinkState::kFailed;
  }
  return links_.pairwise_state == LinkState::kReady;
}

void Communicator::make_pairwise(Agreement& agreement) {
  const GatheredBytes handles = agreement.all_gather_bytes(make_pairwise_ends());
  join_pairwise(handles);
  std::size_t rails = 0;
  for (int rank = 0; rank < group_->wiring.shape.ranks; ++rank)
    rails = std::max(rails, ucx_transport::rails_of(ByteReader(handles[rank]).string()));
  agreement.agree();
  try {
    for (std::size_t rail = 0; rail < rails; ++rail) try_pairwise();
  } catch (...) {
    links_.abandon_pairwise();  // nobody need wait for this rank's words
    throw;
  }
  agreement.agree();
}

/// Makes this rank's ends; returns what the others need of them.
std::vector<std::byte> Communicator::make_pairwise_ends() {
  ucx_transport::Transport& transport = network();
  const device::MemoryNear near(process_.numa_node());
  ByteWriter writer;
  writer.string(transport.address());
  links_.pairwise_ends.resize(static_cast<std::size_t>(group_->wiring.shape.ranks));
  for (int rank = 0; rank < group_->wiring.shape.ranks; ++rank) {
    Links::HostLinks& ends = links_.pairwise_ends[static_cast<std::size_t>(rank)];
    if (!on_my_host(rank)) ends = Links::HostLinks::make(transport, kPairwiseFifo, group_->names.at(rank));
    writer.value(ends.receive ? ends.receive->inbox() : ucx_transport::InboxId{});
    writer.value(ends.send ? ends.send->inbox() : ucx_transport::InboxId{});
  }
  return writer.take();
}

void Communicator::join_pairwise(const GatheredBytes& handles) {
  for (std::size_t rank = 0; rank < links_.pairwise_ends.size(); ++rank) {
    const Links::HostLinks& ends = links_.pairwise_ends[rank];
    links_.pairwise.push_back({ends.send.get(), ends.receive.get()});
    if (!ends.send) continue;
    ByteReader reader(handles[static_cast<int>(rank)]);
    const ucx_transport::Bytes address = reader.string();
    ucx_transport::InboxId recv_end = 0, send_end = 0;
    for (int of = 0; of <= rank_; ++of) {
      recv_end = reader.value<ucx_transport::InboxId>();
      send_end = reader.value<ucx_transport::InboxId>();
    }
    ends.send->connect(address, recv_end);
    ends.receive->connect(address, send_end);
  }
}

device::PairwiseLinks Communicator::pairwise() {
  return {.links = links_.pairwise,
          .slot_bytes = kPairwiseFifo.slot_bytes,
          .cico = links_.cico ? &*links_.cico : nullptr,
          .mates = group_->placement.ranks_of(group_->placement.node_of(rank_)),
          .rank = rank_};
}

/// An all-to-all of one word between hosts, for the next rail: UCX may find a transport that no packet
/// passes. Without the CICO buffers, whose rounds must stay level where the trial fails on one rank only.
void Communicator::try_pairwise() {
  const auto word_of = [&](int from, int to) {
    return kLayout ^ static_cast<std::uint64_t>(from * group_->wiring.shape.ranks + to);
  };
  std::vector<std::uint64_t> sent, received(links_.pairwise.size());
  for (int rank = 0; rank < group_->wiring.shape.ranks; ++rank) sent.push_back(word_of(rank_, rank));
  device::Call call{device::Collective::kAllToAll, reinterpret_cast<const std::byte*>(sent.data()),
                    reinterpret_cast<std::byte*>(received.data()), sizeof(std::uint64_t)};
  device::PairwiseLinks between_hosts = pairwise();
  between_hosts.cico = nullptr;
  between_hosts.mates = std::span(&rank_, 1);
  device::PairwiseExecutor executor(between_hosts, call);
  device::WaitPolicy policy = wait_policy_;
  policy.timeout_s = kNetworkTrialSeconds;
  device::Waiter waiter(policy);
  try {
    std::uint64_t released = 0;
    while (executor.advance() != device::RingExecutor::State::kDone || not_quiet(released)) waiter.pause();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) throw;
    throw Error(ErrorCode::kUnreachable,
                fmt::format("No data came through UCX within {} s: waiting for {} (see UCX_TLS, "
                            "UCX_NET_DEVICES and coll_loom_net_devices).",
                            kNetworkTrialSeconds, group_->names.at(executor.awaited())));
  }
  for (int rank = 0; rank < group_->wiring.shape.ranks; ++rank)
    if (!on_my_host(rank) && received[static_cast<std::size_t>(rank)] != word_of(rank, rank_))
      throw Error(ErrorCode::kUnreachable,
                  fmt::format("UCX delivered wrong data from {}.", group_->names.at(rank)));
}

}  // namespace loom
