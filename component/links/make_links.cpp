// make_links.cpp -- the second part of a communicator's set-up, at the first call that needs them:
// where do the links lie, and does the network carry data?
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "component/communicator.hpp"
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
      for (const std::string& line : group_->tune.without_effect(conditions()))
        process_.runtime().log(fmt::format("{}: {}", name_, line).c_str());
    });
  return linked;
}

void Communicator::learn_what_is_small() noexcept {
  // At coll_loom_verbose 2 the first call of each kind is told.
  if (!links_.immediate || process_.runtime().parameters.verbose >= 2) return;
  // Without memory for it calls take the longer way.
  without_failing([&] {
    for (std::size_t i = 0; i < small_below_.size(); ++i) {
      // A rule may name an algorithm that not all communicators of the group can use.
      const std::uint64_t below =
          group_->tune.empty()
              ? group_->small_below[i]
              : immediate_below(conditions(), static_cast<device::Collective>(i), group_->tune);
      std::atomic_ref(small_below_[i]).store(below, std::memory_order_relaxed);
    }
  });
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
    try_network(links_.first_between_hosts(), group_->across().next);
  } catch (...) {
    links_.abandon();  // neighbours need not wait for this rank's word
    throw;
  }
  agreement.agree();
  note_part("network", agreement, began);
}

/// Makes this rank's ends of its links; returns what the other ends need of them.
std::vector<std::byte> Communicator::make_ends() {
  const std::span<LinkSet> sets = links_.first_between_hosts();
  for (std::size_t kind = 0; kind < sets.size(); ++kind) sets[kind] = {kLinkSpecs[kind], *group_, rank_};
  // Opened first: UCX's own memory, and its threads, are not to be bound.
  ucx_transport::Transport* const transport =
      std::ranges::any_of(sets, &LinkSet::leads_anywhere) ? &network() : nullptr;
  const device::MemoryNear near(process_.numa_node());  // what others write to is this rank's to read

  ByteWriter writer;
  writer.value(links_.make_segment(*group_));
  if (transport == nullptr) return writer.take();
  make_all(sets, *transport, group_->names, writer);
  links_.trees = trees_of(links_.of(LinkKind::kTrees), *group_);
  return writer.take();
}

void Communicator::join_ends(const GatheredBytes& handles) {
  links_.join_segments(*group_, rank_,
                       [&](int rank) { return ByteReader(handles[rank]).value<device::SegmentHandle>(); });
  join_all(links_.first_between_hosts(), [&](int rank) {
    ByteReader reader(handles[rank]);
    reader.value<device::SegmentHandle>();
    return reader;
  });
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

/// See try_all(). to: the rank to name beside the one that is waited for; nothing: none.
void Communicator::try_network(std::span<const LinkSet> sets, std::optional<int> to) {
  device::WaitPolicy policy = wait_policy_;
  if (pause_)  // the program may compute for as long as it likes before it, or a peer, comes by again
    policy.progress = [this] {
      pause_();
      network().progress();
    };
  else
    policy.timeout_s = kNetworkTrialSeconds;
  int awaited = group_->across().previous;
  try {
    try_all(sets, rank_, group_->names, policy, awaited);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) throw;
    const std::string& from = group_->names.at(awaited);
    throw Error(ErrorCode::kUnreachable,
                fmt::format("No data came through UCX within {} s: {} (see UCX_TLS, UCX_NET_DEVICES and "
                            "coll_loom_net_devices).",
                            policy.timeout_s,
                            to ? fmt::format("from {}, to {}", from, group_->names.at(*to))
                               : fmt::format("waiting for {}", from)));
  }
}

std::string Communicator::describe_links() const {
  const connect::Shape& shape = group_->wiring.shape;
  const char* how = group_->wiring.rail ? "rings inside and rails across" : "one ring over unequal hosts";
  if (shape.hosts == 1)
    how = links_.pids.empty() ? "CICO buffers in shared memory" : "CICO buffers in shared memory and single copy";
  std::string way = links_.way();
  if (!way.empty()) way = " over " + way;
  std::string text = fmt::format("{}: {} ranks on {} host{}, {}{}{}; set up in", name_, shape.ranks,
                                 shape.hosts, shape.hosts == 1 ? "" : "s", how, way,
                                 group_->oversubscribed ? ", more ranks than CPUs" : "");
  const std::span parts(parts_.data(), part_count_);
  double sum = 0;
  for (const SetUpPart& part : parts) sum += part.milliseconds;
  text += fmt::format(" {:.1f} ms:", sum);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    text += fmt::format("{} {} {:.1f} ms", i == 0 ? "" : ",", parts[i].name, parts[i].milliseconds);
    text += fmt::format(" ({} bytes from each rank)", parts[i].bytes);
  }
  return text + fmt::format("; {} KiB of memory for rank 0's links", links_.bytes() / 1024);
}
}  // namespace loom
