// blocking.cpp -- blocking calls: an algorithm is chosen, and an operation driven to its end.
#include "component/communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "component/links/shared_layout.hpp"

namespace loom {

/// The algorithm that has carried the call; nothing: it is declined.
std::optional<Algorithm> Communicator::try_perform(const device::Call& call) {
  using device::Collective;
  finish_requests_before_call();
  if (!device::has_kernel(call)) return {};
  count_small_call(call);
  try {
    const Choice choice = choose_when_ready(call);
    const Algorithm algorithm = choice.algorithm;
    // Where sizes differ from rank to rank, nobody knows alone that there is nothing to do.
    const bool nothing = device::is_empty(call);
    if (choice.candidate && !nothing) return perform_probing(call, algorithm, *choice.candidate);
    explain(algorithm, call);
    if (algorithm == Algorithm::kFallback) return {};
    if (!nothing) perform_by(algorithm, call);
    return algorithm;
  } catch (...) {
    return end_call(call);
  }
}

/// From inside a handler. A broadcast whose root has another size is performed as the root does; all else
/// ends the communicator, save what has ended the call alone.
std::optional<Algorithm> Communicator::end_call(const device::Call& call) {
  try {
    throw;
  } catch (const Truncated&) {
    throw;
  } catch (const device::DifferentCall& other) {
    if (!adopts(call, other, device::CallProgress::kNone)) {
      try {
        fail_for(other);
      } catch (...) {
        fail_call();
      }
    }
    const AdoptedBroadcast adopted(call, other.its().bytes());
    const std::optional<Algorithm> carried = try_perform(adopted.call());
    tell_adopted(adopted, call.root);
    return carried;
  } catch (...) {
    fail_call();
  }
}

/// This rank can perform the broadcast as its root does.
bool Communicator::adopts(const device::Call& call, const device::DifferentCall& other,
                          device::CallProgress progress) const {
  using device::Collective;
  return call.collective == Collective::kBroadcast && call.root != rank_ && group_->wiring.shape.hosts == 1 &&
         other.peer() == call.root && device::differ_in_size(other.its(), other.mine()) &&
         other.progress() == progress;
}

/// Throws Truncated if not all of it has had room.
void Communicator::tell_adopted(const AdoptedBroadcast& adopted, int root) const {
  if (adopted.fits()) return;
  tell_cut(device::Collective::kBroadcast, device::CutBlock{root, adopted.bytes(), adopted.room()});
}

/// From inside a handler. The others find out by what this rank says of its call, if not by themselves.
void Communicator::fail_for(const device::DifferentCall& other) {
  links_.cico->say_left(other.mine());
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
void Communicator::end_small_call(const device::Call& call) {
  try {
    fail_immediate();
  } catch (...) {
    end_call(call);
  }
}

/// From inside a handler: says who was waited for in vain.
void Communicator::fail_immediate() const {
  try {
    throw;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) throw;
    throw Error(error.code(), fmt::format("{} Waiting for {}.", error.what(),
                                          group_->names.at(links_.immediate->awaited())));
  }
}

void Communicator::count(const device::Call& call, std::optional<Algorithm> carried) noexcept {
  CallCounters::Counts& counts = calls_[call.collective];
  if (carried) {
    calls_.add(counts.by[static_cast<std::size_t>(*carried)], 1);
    calls_.add(counts.bytes, call.bytes());
  } else if (!linking_) {
    const FallbackReason reason = !device::has_kernel(call)           ? FallbackReason::kNoKernel
                                  : link_state_ == LinkState::kFailed ? FallbackReason::kNotConnected
                                                                      : FallbackReason::kNotBetter;
    calls_.add(counts.fallbacks[static_cast<std::size_t>(reason)], 1);
  }
}

void Communicator::count_small_call(const device::Call& call) {
  if (linking_ || link_state_ != LinkState::kNotMade || group_->hier_from == 0) return;
  Conditions with = conditions();
  with.hier = true;
  const std::size_t bytes = device::shared_bytes(call, with.shape.ranks);
  if (loom::choose(with, call.collective, bytes, true, group_->tune).algorithm == Algorithm::kHier)
    ++small_calls_;
}

Choice Communicator::choose(const device::Call& call, bool may_wait) {
  const std::size_t bytes = device::shared_bytes(call, group_->wiring.shape.ranks);
  return selector_.choose(conditions(), call.collective, bytes, may_wait, group_->tune);
}

/// Once what it needs is there. Whether all ranks may read each other's memory is known with the links.
Choice Communicator::choose_when_ready(const device::Call& call) {
  Choice choice = choose(call, true);
  if (choice.algorithm == Algorithm::kFallback || choice.algorithm == Algorithm::kCopy) return choice;
  const bool was_linked = link_state_ != LinkState::kNotMade;
  if (!is_linked()) return {};
  if (!was_linked) choice = choose(call, true);
  return choice.algorithm == Algorithm::kPairwise && !has_pairwise() ? Choice{} : choice;
}

/// Makes the links at its first call.
bool Communicator::is_linked() {
  if (linking_) return false;
  if (link_state_ == LinkState::kNotMade) link_state_ = link() ? LinkState::kReady : LinkState::kFailed;
  return link_state_ == LinkState::kReady;
}

/// A single rank's call.
void Communicator::copy_alone(const device::Call& call) const {
  using device::Collective;
  const bool moves = device::lists_blocks(call.collective) || call.collective == Collective::kAllGather ||
                     call.collective == Collective::kAllToAll;
  if (moves) return tell_cut(call.collective, device::move_own_block(call, 0));
  if (!device::is_reduction(call.collective) || call.collective == Collective::kExscan) return;
  if (call.in != call.out && call.count > 0) std::memcpy(call.out, call.in, call.bytes());
}

/// A call has ended. Throws Truncated if a block did not fit.
void Communicator::tell_cut(device::Collective collective, const std::optional<device::CutBlock>& cut) const {
  if (cut)
    throw Truncated(fmt::format("{}: {} bytes from {}, room for {}.", name_of(collective), cut->sent,
                                cut->peer == rank_ ? "itself" : group_->names.at(cut->peer), cut->room));
}

void Communicator::perform_by(Algorithm algorithm, const device::Call& call) {
  const bool streamed = row_of(algorithm).streams;
  // Packers read an operand without a word to anybody.
  if (call.streaming != nullptr && (!streamed || call.in_packer != nullptr)) call.streaming->need_all();
  if (call.streaming != nullptr && !streamed) {
    device::Call all_there = call;
    all_there.streaming = nullptr;
    return perform_by(algorithm, all_there);
  }
  if (algorithm == Algorithm::kCopy) return copy_alone(call);
  if (algorithm == Algorithm::kImmediate) return exchange_immediately(call);
  if (const auto family = row_of(algorithm).family) announce(call, *family);
  Operation operation{call, algorithm};
  drive(operation);
}

void Communicator::exchange_immediately(const device::Call& call) {
  device::Waiter waiter(wait_policy_);
  try {
    if (call.in_packer == nullptr && call.out_packer == nullptr) [[likely]]
      links_.immediate->perform(call, waiter);
    else
      pack_and_exchange(call, waiter, call.bytes());
  } catch (...) {
    fail_immediate();
  }
}

/// A small call whose buffers are not contiguous: they are packed on the stack, a long broadcast piece by
/// piece, cut as by those who are contiguous. plan() makes no other call direct that is larger.
void Communicator::pack_and_exchange(const device::Call& call, device::Waiter& waiter,
                                     std::size_t call_bytes) {
  using device::Collective;
  constexpr std::size_t kMostBytes = device::ImmediateArea::kMostOffered;
  alignas(device::kCacheLine) std::byte in[kMostBytes], out[2 * kMostBytes];
  const bool many_in = call.collective == Collective::kAllToAll;
  const bool many_out = many_in || call.collective == Collective::kAllGather;
  const bool bcast = call.collective == Collective::kBroadcast;
  if (const std::size_t most = device::ImmediateArea::kMostOffered; bcast && call.bytes() > most) {
    device::Call piece = call;
    piece.type = device::Type::kUint8;
    for (std::size_t at = 0; at < call.bytes(); at += most) {
      if (call.in != nullptr) piece.in = call.in + at;
      if (call.out != nullptr) piece.out = call.out + at;
      piece.count = std::min(most, call.bytes() - at);
      pack_and_exchange(piece, waiter, call_bytes);
      waiter.moved();
    }
    return;
  }
  const auto ranks = static_cast<std::size_t>(links_.immediate->size());
  const std::size_t in_blocks = many_in ? ranks : 1, out_blocks = many_out ? ranks : 1;
  if (in_blocks * call.bytes() > sizeof(in) || out_blocks * call.bytes() > sizeof(out))
    throw Error(ErrorCode::kInternal, "A message with gaps is too large for a direct exchange.");
  const bool sends = !bcast || rank_ == call.root, receives = !bcast || rank_ != call.root;
  device::Call packed = call;
  if (call.in_packer != nullptr) {
    for (std::size_t block = 0; sends && block < in_blocks; ++block)
      call.in_packer->move(call.in_packer->context, static_cast<int>(block), in + block * call.bytes(),
                           call.bytes());
    packed.in = in;
  }
  if (call.out_packer != nullptr) packed.out = out;
  links_.immediate->perform_part(packed, call_bytes, waiter);
  if (call.out_packer == nullptr || !receives) return;
  for (std::size_t block = 0; block < out_blocks; ++block)
    call.out_packer->move(call.out_packer->context, static_cast<int>(block), out + block * call.bytes(),
                          call.bytes());
}

/// What links of several hosts are told before a call.
device::CallNote Communicator::note_between_hosts(const device::Call& call) const {
  return {call.collective, device::CallFamily::kBetweenHosts,
          device::shared_bytes(call, group_->wiring.shape.ranks)};
}

/// On one host, before a call that does not go by immediate exchanges: whoever is in one that does shall not
/// wait for this rank, nor take its next one for this one. And the receivers of a broadcast learn its size
/// while they can still do as the root does.
void Communicator::announce(const device::Call& call, device::CallFamily family) {
  if (!links_.immediate) return;
  device::Waiter waiter(wait_policy_);
  try {
    links_.immediate->announce(call, family, waiter);
  } catch (...) {
    fail_immediate();
  }
}

/// The flat ring is a rail of all ranks. It crosses both kinds of link, and all its ranks must cut alike.
device::Grid Communicator::grid() const {
  static_assert(kSharedFifo.slot_bytes <= kNetFifo.slot_bytes &&
                kSharedFifo.slot_count <= kNetFifo.slot_count);
  const connect::Ring& ring = group_->across();
  const device::PeerLinks& between_hosts = links_.of(LinkKind::kRing).view()[0];
  device::Grid grid{.local = {},
                    .local_fifo = kSharedFifo,
                    .rail = {ring.position, ring.size, between_hosts.send, between_hosts.receive},
                    .rail_fifo = group_->wiring.rail ? kNetFifo : kSharedFifo,
                    .ranks = group_->grid_ranks};
  if (group_->wiring.rail) {
    grid.local = {group_->wiring.local.position, group_->wiring.local.size, links_.local.to_next.get(),
                  links_.local.from_previous.get()};
  } else {
    if (group_->on_my_host(ring.next)) grid.rail.next = links_.local.to_next.get();
    if (group_->on_my_host(ring.previous)) grid.rail.previous = links_.local.from_previous.get();
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

device::RootedExecutor Communicator::rooted(const device::Call& call) const {
  const device::HostAndLocal root = place_in_grid(call.root);
  return {grid(), call, root.host, root.local};
}

device::DbtExecutor Communicator::over_trees(const device::Call& call) const {
  const device::HostAndLocal root = place_in_grid(call.root);
  return {grid(), links_.trees, call, root.host, root.local};
}

/// To the end, and until nothing of it needs a further call of ours: the application may not call MPI again
/// for long.
void Communicator::drive(Operation& operation) {
  const std::function<bool()> is_excused = [&] { return links_.waits_too(*group_, awaited_rank(operation)); };
  device::Waiter waiter(wait_policy_, &is_excused);
  try {
    for (State state = advance(operation); state != State::kDone; state = advance(operation))
      state == State::kMoved ? waiter.moved() : waiter.pause();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) throw;
    throw Error(error.code(),
                fmt::format("{} Waiting for {}.", error.what(), awaited_text(awaited_rank(operation))));
  }
}

/// Who it is; on another host also the way there and how far both have come.
std::string Communicator::awaited_text(int peer) const {
  const std::string& name = group_->names.at(peer);
  const std::string standing = links_.standing(peer);
  return standing.empty() ? name : fmt::format("{}, {}", name, standing);
}

device::HierLinks Communicator::levels() {
  return {.cico = links_.cico ? &*links_.cico : nullptr,
          .places = group_->places,
          .rank = rank_,
          .hosts = group_->wiring.shape.hosts,
          .links = links_.of(LinkKind::kLeaders).view(),
          .slot_bytes = kHostsSlotBytes};
}

void Communicator::explain(Algorithm algorithm, const device::Call& call, bool may_wait) {
  if (process_.runtime().parameters.verbose < 2 || rank_ != 0) return;
  const std::pair kind{call.collective, algorithm};
  if (std::find(explained_.begin(), explained_.end(), kind) != explained_.end()) return;
  without_failing([&] {
    explained_.push_back(kind);
    const int ranks = group_->wiring.shape.ranks;
    const std::size_t bytes = whole_message(call.collective, ranks, device::shared_bytes(call, ranks));
    // Of other calls not all ranks know how long they are.
    const std::string size = bytes > 0 ? fmt::format(" of {} bytes", bytes) : "";
    const bool on_devices = algorithm != Algorithm::kFallback && row_of(algorithm).on_devices;
    const std::string why = on_devices ? "a rule of coll_loom_tune"
                                       : reason_of(conditions(), call.collective,
                                                   device::shared_bytes(call, ranks), may_wait, group_->tune);
    process_.runtime().log(
        fmt::format("{}: {}{} goes by {}: {}", name_, name_of(call.collective), size, name_of(algorithm), why)
            .c_str());
  });
}

void Communicator::check_peers() const {
  for (const auto& [rank, process] : group_->host_mates)
    if (!device::is_alive(process))
      throw Error(ErrorCode::kPeerFailed, fmt::format("{} has died.", group_->names.at(rank)));
  if (links_.immediate) links_.immediate->check_calls();
}

/// From inside a handler: as check_peers() would have found.
void Communicator::fail_for(const device::ProcessEnded& ended) const {
  for (const auto& [rank, process] : group_->host_mates)
    if (process.pid == ended.pid())
      throw Error(ended.code(), fmt::format("{} has died.", group_->names.at(rank)));
  throw;
}

/// While nobody advances requests.
void Communicator::abandon() noexcept {
  if (std::exchange(abandoned_, true)) return;
  for (std::uint64_t& below : small_below_) std::atomic_ref(below).store(0, std::memory_order_relaxed);
  links_.abandon();
  if (twin_) twin_->stop();
}

/// The communicator whose persistent calls this one carries is abandoned. Started ones find out when they are
/// next advanced, and links that are being made when they are done.
void Communicator::stop() noexcept {
  stopping_.store(true);
  if (requests_.empty() && !linking_) abandon();
}

}  // namespace loom
