// communicator.cpp -- the calls. How a communicator comes about is in communicator_setup.cpp.
#include "component/communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "component/links/shared_layout.hpp"

namespace loom {

/// The algorithm that has carried the call; nothing: it is declined.
std::optional<Algorithm> Communicator::try_perform(const device::HostJob& job) {
  using device::Collective;
  finish_jobs_before_call();
  if (device::is_reduction(job.collective) && job.reduce == nullptr) return {};
  count_small_call(job);
  try {
    Algorithm algorithm = ready_plan(job);
    // Where sizes differ from rank to rank, nobody knows alone that there is nothing to do.
    const bool nothing =
        job.count == 0 && job.collective != Collective::kBarrier && !device::lists_blocks(job.collective);
    const std::optional<Algorithm> rival = nothing ? std::nullopt : rival_of(algorithm, job);
    if (rival == Algorithm::kTwoLevelStar)
      algorithm = one_shot_or_star();
    else if (rival)
      return perform_racing(job, algorithm, *rival);
    explain(algorithm, job);
    if (algorithm == Algorithm::kBelow) return {};
    if (!nothing) perform_by(algorithm, job);
    return algorithm;
  } catch (...) {
    return end_call(job);
  }
}

/// From inside a handler. A broadcast whose root has another size is performed as the root does; all else
/// ends the communicator, save what has ended the call alone.
std::optional<Algorithm> Communicator::end_call(const device::HostJob& job) {
  try {
    throw;
  } catch (const Truncated&) {
    throw;
  } catch (const device::DifferentCall& other) {
    if (!adopts(job, other, device::CallProgress::kNone)) {
      try {
        fail_for(other);
      } catch (...) {
        fail_call();
      }
    }
    const AdoptedBroadcast adopted(job, other.its().bytes());
    const std::optional<Algorithm> carried = try_perform(adopted.call());
    tell_adopted(adopted, job.root);
    return carried;
  } catch (...) {
    fail_call();
  }
}

/// This rank can perform the broadcast as its root does.
bool Communicator::adopts(const device::HostJob& job, const device::DifferentCall& other,
                          device::CallProgress progress) const {
  using device::Collective;
  return job.collective == Collective::kBroadcast && job.root != rank_ && group_->wiring.shape.hosts == 1 &&
         other.peer() == job.root && device::differ_in_size(other.its(), other.mine()) &&
         other.progress() == progress;
}

/// Throws Truncated if not all of it has had room.
void Communicator::tell_adopted(const AdoptedBroadcast& adopted, int root) const {
  if (adopted.fits()) return;
  tell_cut(device::Collective::kBroadcast, device::CutBlock{root, adopted.bytes(), adopted.room()});
}

/// From inside a handler. The others find out by what this rank says of its call, if not by themselves.
void Communicator::fail_for(const device::DifferentCall& other) {
  links_.boards->say_left(other.mine());
  const bool one_host = group_->wiring.shape.hosts == 1;
  const int rank =
      one_host ? other.peer() : rank_at({group_->places[static_cast<std::size_t>(rank_)].host, other.peer()});
  const std::string& peer = group_->names.at(rank);
  const std::string_view what = name_of(other.mine().collective());
  const std::uint64_t mine = other.mine().bytes(), its = other.its().bytes();
  const char* const promise =
      twin_of_ == nullptr
          ? ""
          : " The program has promised to start persistent requests in one order on all ranks.";
  if (device::differ_in_size(other.its(), other.mine()))
    throw Error(other.code(), fmt::format("{} is in a call of {} with {} bytes, this rank in one with {}.{}",
                                          peer, what, its, mine, promise));
  if (other.its().collective() == other.mine().collective() && its == mine)
    throw Error(other.code(),
                fmt::format("{} has found a rank in another call than this one of {} with {} bytes.", peer,
                            what, mine));
  throw Error(other.code(),
              fmt::format("{} is in another call than this rank, which is in one of {} with {} bytes.{}",
                          peer, what, mine, promise));
}

/// From inside a handler: every later call fails too.
void Communicator::fail_call() {
  leave();
  try {
    throw;
  } catch (const Error& error) {
    broken_ = error;
    throw;
  } catch (...) {
    broken_.emplace(ErrorCode::kInternal, "An earlier call on this communicator failed.");
    throw;
  }
}

/// From inside a handler.
void Communicator::end_small_call(const device::HostJob& job) {
  try {
    fail_direct();
  } catch (...) {
    end_call(job);
  }
}

/// From inside a handler: says who was waited for in vain.
void Communicator::fail_direct() const {
  try {
    throw;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) throw;
    throw Error(error.code(),
                fmt::format("{} Waiting for {}.", error.what(), group_->names.at(links_.direct->awaited())));
  }
}

void Communicator::count(const device::HostJob& job, std::optional<Algorithm> carried) noexcept {
  CallCounters::Counts& counts = calls_[job.collective];
  if (carried) {
    calls_.add(counts.by[static_cast<std::size_t>(*carried)], 1);
    calls_.add(counts.bytes, job.bytes());
  } else if (!linking_) {
    const bool reduces = device::is_reduction(job.collective);
    const Fallback reason = reduces && job.reduce == nullptr ? Fallback::kNoKernel
                            : linked_ == false               ? Fallback::kNotConnected
                                                             : Fallback::kNotBetter;
    calls_.add(counts.fallbacks[static_cast<std::size_t>(reason)], 1);
  }
}

void Communicator::count_small_call(const device::HostJob& job) {
  if (linking_ || linked_ || group_->two_levels_from == 0) return;
  Abilities with = abilities();
  with.two_levels = true;
  const connect::Shape& shape = group_->wiring.shape;
  const Algorithm planned = plan(job.collective, shape, device::shared_bytes(job, shape.ranks), with);
  if (planned == Algorithm::kTwoLevels || planned == Algorithm::kTwoLevelStar) ++small_calls_;
}

/// The plan, once what it needs is there. Whether all ranks may read each other's memory is known with the
/// links.
Algorithm Communicator::ready_plan(const device::HostJob& job) {
  const auto planned = [&] {
    return plan(job.collective, group_->wiring.shape, device::shared_bytes(job, group_->wiring.shape.ranks),
                abilities());
  };
  Algorithm algorithm = planned();
  if (algorithm == Algorithm::kBelow || algorithm == Algorithm::kCopy) return algorithm;
  const bool was_linked = linked_.has_value();
  if (!is_linked()) return Algorithm::kBelow;
  if (!was_linked) algorithm = planned();
  return algorithm == Algorithm::kMesh && !is_meshed() ? Algorithm::kBelow : algorithm;
}

/// Makes the links at its first call.
bool Communicator::is_linked() {
  if (linking_) return false;
  if (!linked_) linked_ = link();
  return *linked_;
}

/// A single rank's call.
void Communicator::perform_alone(const device::HostJob& job) const {
  using device::Collective;
  const bool moves = device::lists_blocks(job.collective) || job.collective == Collective::kAllGather ||
                     job.collective == Collective::kAllToAll;
  if (moves) return tell_cut(job.collective, device::move_own_block(job, 0));
  if (!device::is_reduction(job.collective) || job.collective == Collective::kExscan) return;
  if (job.in != job.out && job.count > 0) std::memcpy(job.out, job.in, job.bytes());
}

/// A call has ended. Throws Truncated if a block did not fit.
void Communicator::tell_cut(device::Collective collective, const std::optional<device::CutBlock>& cut) const {
  if (cut)
    throw Truncated(fmt::format("{}: {} bytes from {}, room for {}.", name_of(collective), cut->sent,
                                cut->peer == rank_ ? "itself" : group_->names.at(cut->peer), cut->room));
}

namespace {

/// Its executors say what they need of the operand and have of the result (HostJob::transit).
constexpr bool knows_of_transit(Algorithm algorithm) {
  return algorithm == Algorithm::kBoards || algorithm == Algorithm::kRails ||
         algorithm == Algorithm::kFlatRing || algorithm == Algorithm::kTrees;
}

}  // namespace

void Communicator::perform_by(Algorithm algorithm, const device::HostJob& job) {
  // An operand with gaps they pack by their own means; where it is on the host, as it is, nothing is fetched.
  if (job.transit != nullptr && job.in_gaps != nullptr) job.transit->need_all();
  if (job.transit != nullptr && !knows_of_transit(algorithm)) {
    job.transit->need_all();
    device::HostJob on_host = job;
    on_host.transit = nullptr;
    return perform_by(algorithm, on_host);
  }
  const auto peer_of = [](const auto& executor) { return executor.awaited(); };
  if (group_->wiring.shape.hosts > 1) enter_links(job);
  switch (algorithm) {
    case Algorithm::kCopy:
      return perform_alone(job);
    case Algorithm::kDirect: {
      device::Waiter waiter(wait_policy_);
      try {
        if (job.in_gaps == nullptr && job.out_gaps == nullptr) [[likely]]
          links_.direct->perform(job, waiter);
        else
          perform_directly(job, waiter, job.bytes());
      } catch (...) {
        fail_direct();
      }
      return;
    }
    case Algorithm::kBoards:
      announce(job, device::CallFamily::kBoards);
      return drive(device::BoardExecutor(*links_.boards, job), peer_of);
    case Algorithm::kSingleCopy:
      announce(job, device::CallFamily::kSingleCopy);
      return drive(device::SingleCopyExecutor(*links_.boards, links_.pids, job), peer_of);
    case Algorithm::kBlocks: {
      announce(job, device::CallFamily::kBlocks);
      device::BlockExecutor executor(*links_.boards, job);
      drive(executor, peer_of);
      return tell_cut(job.collective, executor.cut());
    }
    case Algorithm::kScan:
      announce(job, device::CallFamily::kBlocks);
      return drive(device::ScanExecutor(*links_.boards, job), peer_of);
    case Algorithm::kTwoLevels:
      return run_two_levels(job, device::Across::kOneShot);
    case Algorithm::kTwoLevelStar:
      return run_two_levels(job, device::Across::kStar);
    case Algorithm::kRails:
    case Algorithm::kFlatRing:
      if (device::RailsExecutor::takes(job.collective))
        return drive(device::RailsExecutor(grid(), job), peer_of);
      return drive(rooted(job), peer_of);
    case Algorithm::kTrees:
      return drive(over_trees(job), peer_of);
    case Algorithm::kMesh:
      return drive(device::MeshExecutor(mesh(), job), peer_of);
    case Algorithm::kHandedOver:  // this and the next: perform_on_device()
    case Algorithm::kPersistent:
    case Algorithm::kBelow:
      break;
  }
  throw Error(ErrorCode::kInternal, "A call that loom had declined was performed.");
}

/// Of several hosts, before a call.
void Communicator::enter_links(const device::HostJob& job) {
  const device::CallNote note(job.collective, device::CallFamily::kBetweenHosts,
                              device::shared_bytes(job, group_->wiring.shape.ranks));
  if (links_.local_next) links_.local_next->enter(note);
  if (links_.local_previous) links_.local_previous->enter(note);
  for_net_links([&](int, ucx_transport::NetSendLink* send, ucx_transport::NetRecvLink* receive) {
    if (send != nullptr) send->enter(note);
    if (receive != nullptr) receive->enter(note);
  });
}

/// On one host, before a call that does not go by direct exchanges: whoever is in one that does shall not
/// wait for this rank, nor take its next one for this one. And the receivers of a broadcast learn its size
/// while they can still do as the root does.
void Communicator::announce(const device::HostJob& job, device::CallFamily family) {
  if (!links_.direct) return;
  device::Waiter waiter(wait_policy_);
  try {
    links_.direct->announce(job, family, waiter);
  } catch (...) {
    fail_direct();
  }
}

/// The flat ring is a rail of all ranks. It crosses both kinds of link, and all its ranks must cut alike.
device::Grid Communicator::grid() const {
  static_assert(kSharedFifo.slot_bytes <= kNetFifo.slot_bytes &&
                kSharedFifo.slot_count <= kNetFifo.slot_count);
  const connect::Ring& ring = across();
  device::Grid grid{.local = {},
                    .local_fifo = kSharedFifo,
                    .rail = {ring.position, ring.size, links_.net_next.get(), links_.net_previous.get()},
                    .rail_fifo = group_->wiring.rail ? kNetFifo : kSharedFifo,
                    .ranks = group_->grid_ranks};
  if (group_->wiring.rail) {
    grid.local = {group_->wiring.local.position, group_->wiring.local.size, links_.local_next.get(),
                  links_.local_previous.get()};
  } else {
    if (on_my_host(ring.next)) grid.rail.next = links_.local_next.get();
    if (on_my_host(ring.previous)) grid.rail.previous = links_.local_previous.get();
  }
  return grid;
}

/// Of a rank: its place on its rail, and in its host.
device::HostAndLocal Communicator::place_in_grid(int rank) const {
  const std::vector<int>& ranks = group_->grid_ranks;
  const auto seat = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  const int per_host = group_->wiring.rail ? group_->wiring.local.size : 1;
  return {seat / per_host, seat % per_host};
}

device::RootedExecutor Communicator::rooted(const device::HostJob& job) const {
  const device::HostAndLocal root = place_in_grid(job.root);
  return {grid(), job, root.host, root.local};
}

device::RailTreesExecutor Communicator::over_trees(const device::HostJob& job) const {
  const device::HostAndLocal root = place_in_grid(job.root);
  return {grid(), links_.trees, job, root.host, root.local};
}

/// Performs to the end, and until nothing of it needs a further call of ours: the application may not call
/// MPI again for long. `awaited_rank` names whom a blocked executor waits for.
template <class Executor, class PeerOf>
void Communicator::drive(Executor&& executor, PeerOf&& awaited_rank) {
  bool done = false;
  std::optional<int> not_quiet;
  const auto peer = [&] { return done ? not_quiet.value_or(rank_) : awaited_rank(executor); };
  const std::function<bool()> is_excused = [&] { return waits_too(peer()); };
  device::Waiter waiter(wait_policy_, &is_excused);
  std::uint64_t released = 0;
  const auto drained = [&] {
    const std::uint64_t before = released;
    not_quiet = this->not_quiet(released);
    if (released != before) waiter.moved();
    return !not_quiet;
  };
  try {
    while (!done || !drained()) {
      const auto state = done ? device::RingExecutor::State::kBlocked : executor.advance();
      done |= state == device::RingExecutor::State::kDone;
      if (state == device::RingExecutor::State::kMoved) waiter.moved();
      if (state == device::RingExecutor::State::kBlocked) waiter.pause();
    }
  } catch (const device::ProcessEnded& ended) {
    fail_for(ended);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) throw;
    throw Error(error.code(), fmt::format("{} Waiting for {}.", error.what(), awaited_text(peer())));
  }
}

/// The rank of a link on which something that this rank has sent depends on its calling MPI again; nothing
/// where there is none. `released` counts what its peers have taken.
std::optional<int> Communicator::not_quiet(std::uint64_t& released) const {
  const std::size_t most = most_untaken(hosts_fifo(group_->wiring.shape.hosts));
  const auto is_quiet = [&](const Links::HostLinks& ends) {
    const auto few = [&](std::uint64_t taken) {
      return ends.send->steps() - taken <= most && ends.send->bytes_after(taken) <= kMostUntakenBytes;
    };
    return (few(ends.send->taken()) || few(ends.send->released())) && ends.send->handed_over() &&
           ends.receive->handed_over();
  };
  for (std::size_t host = 0; host < links_.host_links.size(); ++host)
    if (const Links::HostLinks& ends = links_.host_links[host]; ends.send && !is_quiet(ends))
      return group_->placement.ranks_of(static_cast<int>(host)).front();
  released = 0;
  std::optional<int> waits_for;
  const auto note = [&](bool quiet, int rank) {
    if (!quiet) waits_for = rank;
  };
  for (std::size_t tree = 0; tree < links_.tree_ends.size(); ++tree)
    for (std::size_t i = 0; i < links_.tree_ends[tree].size(); ++i) {
      const Links::HostLinks& ends = links_.tree_ends[tree][i];
      if (!ends.send) continue;
      ends.receive->settle();
      released += ends.send->released();
      note(ends.send->drained() && ends.receive->handed_over(),
           rank_on_rail(links_.trees.neighbours[tree][i].host));
    }
  for (std::size_t rank = 0; rank < links_.mesh_ends.size(); ++rank) {
    const Links::HostLinks& ends = links_.mesh_ends[rank];
    if (!ends.send) continue;
    released += ends.send->released();
    note(ends.send->drained() && ends.receive->handed_over(), static_cast<int>(rank));
  }
  if (links_.net_previous) note(links_.net_previous->handed_over(), across().previous);
  if (links_.net_next) {
    released += links_.net_next->released();
    note(links_.net_next->drained(), across().next);
  }
  return waits_for;
}

/// Who it is; on another host also the way there and how far both have come.
std::string Communicator::awaited_text(int peer) const {
  std::string way;
  std::uint64_t sent = 0, taken = 0, received = 0;
  for_net_links(
      [&](int rank, const ucx_transport::NetSendLink* send, const ucx_transport::NetRecvLink* receive) {
        if (rank != peer) return;
        way = send != nullptr ? send->way() : receive->way();
        if (send != nullptr) sent += send->steps(), taken += send->taken();
        if (receive != nullptr) received += receive->steps();
      });
  const std::string& name = group_->names.at(peer);
  if (way.empty()) return name;
  return fmt::format("{}, over {}: {} slots sent, {} of them taken, {} received", name, way, sent, taken,
                     received);
}

/// Between hosts; inside one, whoever is missing is seen by all.
void Communicator::say_waiting() noexcept {
  if (group_->wiring.shape.hosts == 1) return;
  if (links_.boards) links_.boards->say_waiting();
  if (links_.local_next) links_.local_next->say_waiting();
  if (links_.local_previous) links_.local_previous->say_waiting();
  for_net_links([](int, ucx_transport::NetSendLink* send, ucx_transport::NetRecvLink* receive) {
    if (send != nullptr) send->say_waiting();
    if (receive != nullptr) receive->say_waiting();
  });
}

/// The peer has said so on every link that it has with this rank: on those that it moves on it is taken back,
/// and on others nobody looks.
bool Communicator::waits_too(int peer) const noexcept {
  if (group_->wiring.shape.hosts == 1) return false;
  bool on_any = false, on_all = true;
  const auto note = [&](bool waits) { waits ? on_any = true : on_all = false; };
  const connect::Ring& local = group_->wiring.local;
  if (links_.boards && on_my_host(peer)) note(links_.boards->waits(group_->placement.local_of(peer)));
  if (links_.local_next && peer == local.next) note(links_.local_next->other_waits());
  if (links_.local_previous && peer == local.previous) note(links_.local_previous->other_waits());
  for_net_links(
      [&](int rank, const ucx_transport::NetSendLink* send, const ucx_transport::NetRecvLink* receive) {
        if (rank != peer) return;
        if (send != nullptr) note(send->other_waits());
        if (receive != nullptr) note(receive->other_waits());
      });
  return on_any && on_all;
}

void Communicator::run_two_levels(const device::HostJob& job, device::Across across) {
  drive(device::TwoLevelExecutor(levels(across), job),
        [&](const device::TwoLevelExecutor& executor) { return rank_at(executor.awaited()); });
}

void Communicator::perform_handed_over(const device::HostJob& job, device::Op op, device::Type type) {
  drive(device::cuda::HandedOverExecutor(links_.gpus->boards(), job, op, type),
        [](const auto& executor) { return executor.awaited(); });
}

device::TwoLevels Communicator::levels(device::Across across) {
  return {.boards = links_.boards ? &*links_.boards : nullptr,
          .places = group_->places,
          .rank = rank_,
          .hosts = group_->wiring.shape.hosts,
          .links = links_.hosts,
          .slot_bytes = kHostsSlotBytes,
          .across = across};
}

void Communicator::explain(Algorithm algorithm, const device::HostJob& job) {
  if (process_.runtime().parameters.verbose < 2 || rank_ != 0) return;
  const std::pair kind{job.collective, algorithm};
  if (std::find(explained_.begin(), explained_.end(), kind) != explained_.end()) return;
  without_failing([&] {
    explained_.push_back(kind);
    const int ranks = group_->wiring.shape.ranks;
    const std::size_t bytes = whole_message(job.collective, ranks, device::shared_bytes(job, ranks));
    // Of other calls not all ranks know how long they are.
    const std::string size = bytes > 0 ? fmt::format(" of {} bytes", bytes) : "";
    process_.runtime().log(
        fmt::format("{}: {}{} goes by {}", name_, name_of(job.collective), size, name_of(algorithm)).c_str());
  });
}

void Communicator::check_peers() const {
  for (const auto& [rank, process] : group_->host_mates)
    if (!device::is_alive(process))
      throw Error(ErrorCode::kPeerFailed, fmt::format("{} has died.", group_->names.at(rank)));
  if (links_.direct) links_.direct->check_calls();
}

/// From inside a handler: as check_peers() would have found.
void Communicator::fail_for(const device::ProcessEnded& ended) const {
  for (const auto& [rank, process] : group_->host_mates)
    if (process.pid == ended.pid())
      throw Error(ended.code(), fmt::format("{} has died.", group_->names.at(rank)));
  throw;
}

/// While nobody advances jobs.
void Communicator::abandon() noexcept {
  if (std::exchange(abandoned_, true)) return;
  std::atomic_ref(small_below_).store(0, std::memory_order_relaxed);
  links_.abandon();
  if (twin_) twin_->stop();
}

/// The communicator whose persistent calls this one carries is abandoned. Started ones find out when they are
/// next advanced, and links that are being made when they are done.
void Communicator::stop() noexcept {
  stopping_.store(true);
  if (jobs_.empty() && !linking_) abandon();
}

}  // namespace loom
