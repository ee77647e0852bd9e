// persistent.cpp -- persistent requests. On one host each has a lane of its own, so ranks may start them in
// any order. Where there is none left, requests that the program promises to start in one order share a twin
// of the communicator.
#include <sched.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>

#include "base/format.hpp"
#include "component/communicator/communicator.hpp"
#include "component/communicator/lane.hpp"
#include "device/link/memory_near.hpp"

namespace loom {
namespace {

/// What all ranks give alike in a right program, as far as the executors depend on it. Not 0.
std::uint64_t signature_of(const device::Call& call, Algorithm algorithm, int ranks) {
  std::uint64_t hash = 1;
  const auto mix = [&](std::uint64_t number) {
    hash = (std::rotl(hash, 5) ^ number) * 0x9e37'79b9'7f4a'7c15;
    hash ^= hash >> 32;
  };
  mix(static_cast<std::uint64_t>(call.collective));
  mix(static_cast<std::uint64_t>(algorithm));
  mix(device::shared_bytes(call, ranks));
  mix(static_cast<std::uint64_t>(call.root));
  mix(static_cast<std::uint64_t>(call.type));
  mix(static_cast<std::uint64_t>(call.op));
  return std::max<std::uint64_t>(hash, 1);
}

}  // namespace

void ReleaseLane::operator()(Lane* lane) const noexcept {
  std::atomic<bool>& any = lane->any_released;  // the lane may be gone as soon as it is released
  lane->released.store(true, std::memory_order_release);
  any.store(true, std::memory_order_release);
}

void LaneOnGpu::mark_program(device::cuda::ProgramMark::Behind behind) noexcept {
  not_marked_ = nullptr;
  phase_ = Phase::kFollows;
  try {
    after_ = std::make_unique<device::cuda::ProgramMark>(driver_, gpus_.gpu().owner(), behind);
  } catch (...) {
    not_marked_ = std::current_exception();
  }
}

State LaneOnGpu::advance(Execution& execution, Operation& operation) {
  switch (phase_) {
    case Phase::kFollows:
      if (not_marked_) std::rethrow_exception(not_marked_);
      if (packed_) {
        gpus_.check_peers();
        if (!after_->has_passed()) return program_wait_.is_due() ? State::kMoved : State::kBlocked;
        packed_->pack(after_.get());
      }
      phase_ = Phase::kPacks;
      [[fallthrough]];
    case Phase::kPacks:
      if (packed_ && !packed_->is_done()) return State::kBlocked;
      operation.executor.emplace<device::cuda::ZeroCopyExecutor>(gpus_, links_, operation.call, after_.get());
      phase_ = Phase::kRuns;
      [[fallthrough]];
    case Phase::kRuns:
      if (const State state = execution.advance(operation); state != State::kDone) return state;
      after_.reset();
      if (!packed_) return State::kDone;
      phase_ = Phase::kUnpacks;
      try {
        packed_->unpack();
        return State::kMoved;
      } catch (const Error& error) {
        throw NotCopied(error);
      }
    case Phase::kUnpacks:
      try {
        return packed_->is_done() ? State::kDone : State::kBlocked;
      } catch (const Error& error) {
        throw NotCopied(error);
      }
  }
  throw Error(ErrorCode::kInternal, "A persistent call on GPUs has come nowhere.");
}

/// A call that has failed leaves its mark, which has gone with the context if that has.
LaneOnGpu::~LaneOnGpu() {
  if (after_ && !gpus_.is_alive()) static_cast<void>(after_.release());
}

Lane::Lane(Communicator& communicator, Member& member, const Links& of_communicator, LaneMemory::Place& at,
           const LaneForm& form, std::atomic<bool>& any_released_of_communicator)
    : execution(member, links),
      queue(communicator, execution),
      place(at),
      any_released(any_released_of_communicator) {
  links.state = LinkState::kReady;
  links.pids = of_communicator.pids;
  std::vector<std::byte*> memory;
  for (int rank = 0; rank < member.bootstrap.size(); ++rank)
    memory.push_back(of_communicator.lanes.address(rank, at));
  std::byte* const mine = memory[static_cast<std::size_t>(member.rank)];
  std::memset(mine, 0, form.bytes_to_clear());
  if (form.on_gpus) {
    std::vector<device::cuda::ZeroCopyBoard*> boards;
    for (std::byte* each : memory) boards.push_back(reinterpret_cast<device::cuda::ZeroCopyBoard*>(each));
    on_gpu.emplace(*of_communicator.gpus, member.process.staging()->driver(), std::move(boards), member.rank);
    return;
  }
  if (form.slots) {
    links.exchange.emplace(std::move(memory), member.rank, *form.slots);
    return;
  }
  const bool few_rounds = member.group->oversubscribed;
  if (form.rail_bank_bytes > 0) {
    std::vector<device::GroupsPlace> places;
    for (std::byte* each : memory) places.push_back(form.groups_in(each));
    links.groups.emplace(places, *member.group->tiers, member.rank, few_rounds, form.bank_bytes,
                         form.rail_bank_bytes);
    return;
  }
  std::vector<device::CicoPlace> places;
  for (std::byte* each : memory) places.push_back(form.cico_in(each));
  links.cico.emplace(places, member.rank, few_rounds, device::CicoBuffer::kBanks, form.bank_bytes);
}

bool Communicator::declines(const device::Call& call) {
  return links_.state == LinkState::kFailed || selector_.choose(call, true).algorithm == Algorithm::kFallback;
}

std::unique_ptr<Request> Communicator::make_request_with_lane(const device::Call& call,
                                                              loom_request_done done, void* context) {
  const bool one_host = member_.group->wiring.shape.hosts == 1 && member_.bootstrap.size() > 1;
  if (linking_ || !one_host || !device::has_kernel(call)) return nullptr;
  broken_.check();
  if (links_.state == LinkState::kNotMade) finish_requests();
  Algorithm algorithm;
  LaneLease lane;
  try {
    algorithm = selector_.leading(call, choose_when_linked(call));
    if (algorithm == Algorithm::kFallback) return nullptr;
    algorithm = selector_.in_a_lane(algorithm, call);
    // Where ranks describe different calls, none gets a lane: whoever carries these looks at their sizes as
    // they come.
    if (execution_.all_have(signature_of(call, algorithm, member_.bootstrap.size())))
      lane = take_lane(LaneForm::of(algorithm, call, member_.bootstrap.size()));
  } catch (...) {
    fail_call();
  }
  if (!lane) return nullptr;
  selector_.explain(algorithm, call, CallForm::kPersistent);
  start_thread();
  return std::unique_ptr<Request>(
      new Request{*this, nullptr, {call, algorithm}, done, context, LOOM_SUCCESS, nullptr, std::move(lane)});
}

/// In a program that is right all ranks describe the same call; those that do not are told apart like other
/// calls.
std::unique_ptr<Request> Communicator::make_request_on_gpus(const device::Call& given, loom_request_done done,
                                                            void* context) {
  if (linking_ || !device_calls_.may_ask(given)) return nullptr;
  if (member_.group->wiring.shape.hosts > 1) return make_request_of_twin_on_gpus(given, done, context);
  if (links_.state == LinkState::kNotMade) finish_requests();
  broken_.check();
  PackedCalls::Lease packed = device_calls_.packed_for_persistent(given);
  const device::Call& call = packed ? packed->call() : given;
  LaneLease lane;
  Operation tried{call, Algorithm::kZeroCopy};
  try {
    if (!is_linked()) return nullptr;
    const std::optional<device::cuda::Owner> owner = device_calls_.owner_for_persistent(call, device_calls_);
    if (!owner) return nullptr;
    const auto has_ended = [&] {
      engine_.progress();
      return requests_.empty();
    };
    if (!device_calls_.is_ready_for_persistent(call) && !device_calls_.comes_to_rest(*owner, has_ended, true))
      return nullptr;
    broken_.check();
    if (!device_calls_.make_ready_for_persistent(call, *owner)) return nullptr;
    lane = take_lane(LaneForm::for_gpus());
    if (!lane) return nullptr;
    lane->on_gpu->begin_try(tried);
    execution_.drive(tried);
  } catch (...) {
    fail_call();
  }
  if (std::get<device::cuda::ZeroCopyExecutor>(tried.executor).any_bounces()) return nullptr;
  device_calls_.explain_persistent(Algorithm::kZeroCopy, call);
  lane->on_gpu->pack_by(std::move(packed));
  start_thread();
  return std::unique_ptr<Request>(new Request{
      *this, nullptr, {call, Algorithm::kZeroCopy}, done, context, LOOM_SUCCESS, nullptr, std::move(lane)});
}

/// Whether no call of this communicator that does not wait is under way on any rank. False, on all ranks:
/// that takes long. Asked without its links, which such calls use.
bool Communicator::comes_to_rest() {
  enum Rest : std::uint64_t { kRests, kNotYet, kGivesUp };
  const auto until = std::chrono::steady_clock::now() + kPatienceOfMakers;
  Agreement agreement(member_.bootstrap, member_.process);
  for (;;) {
    engine_.progress();
    const bool waits = std::chrono::steady_clock::now() < until;
    const std::uint64_t all = agreement.largest({requests_.empty() ? kRests
                                                 : waits           ? kNotYet
                                                                   : kGivesUp,
                                                 0})[0];
    if (all != kNotYet) return all == kRests;
    ::sched_yield();
  }
}

/// Between hosts. The ranks ask each other over this communicator's links, for some may have started requests
/// of the twin that others have not.
std::unique_ptr<Request> Communicator::make_request_of_twin_on_gpus(const device::Call& given,
                                                                    loom_request_done done, void* context) {
  broken_.check();
  try {
    if (!comes_to_rest()) return nullptr;
    if (links_.state == LinkState::kNotMade && !device_calls_.may_be_on_gpus(given)) return nullptr;
    if (!is_linked()) return nullptr;
  } catch (...) {
    fail_call();
  }
  broken_.check();
  Communicator* const twin = for_persistent_calls();
  if (twin == nullptr) return nullptr;
  PackedCalls::Lease packed = device_calls_.packed_for_persistent(given);
  const device::Call& call = packed ? packed->call() : given;
  std::optional<device::cuda::Owner> owner;
  try {
    if (device_calls_.staging_leads(call)) return nullptr;
    owner = device_calls_.owner_for_persistent(call, twin->device_calls_);
    if (!owner) return nullptr;
    const auto has_ended = [&] {
      engine_.progress();
      return twin->requests_.empty();
    };
    if (!twin->device_calls_.is_ready_for_persistent(call) &&
        !device_calls_.comes_to_rest(*owner, has_ended, false))
      return nullptr;
  } catch (...) {
    fail_call();
  }
  return twin->make_request_in_queue_on_gpus(call, *owner, std::move(packed), done, context);
}

/// Of a twin, without a request under way on any rank if it is not ready for this one.
std::unique_ptr<Request> Communicator::make_request_in_queue_on_gpus(const device::Call& call,
                                                                     const device::cuda::Owner& owner,
                                                                     PackedCalls::Lease packed,
                                                                     loom_request_done done, void* context) {
  broken_.check();
  std::optional<Algorithm> algorithm;
  try {
    if (!is_linked()) return nullptr;
    algorithm = device_calls_.make_ready_for_persistent(call, owner);
  } catch (...) {
    fail_call();
  }
  if (!algorithm) return nullptr;
  device_calls_.explain_persistent(*algorithm, call);
  start_thread();
  auto on_device = std::make_unique<DeviceOperation>(DeviceOperation{.call = call,
                                                                     .on_host = Algorithm::kStaged,
                                                                     .owner = owner,
                                                                     .is_persistent = true,
                                                                     .on_gpus = algorithm,
                                                                     .packed = std::move(packed)});
  return std::unique_ptr<Request>(
      new Request{*this, std::move(on_device), {call, *algorithm}, done, context});
}

/// Collective.
LaneLease Communicator::take_lane(const LaneForm& form) {
  take_lanes_back();
  bool out_of_memory = false;
  LaneMemory::Place* place = links_.lanes.take(form.bytes(), out_of_memory);
  if (place == nullptr && !out_of_memory) {
    find_room_for_lanes(form.bytes());
    if (!links_.lanes.has_room(form.bytes())) return nullptr;
    place = links_.lanes.take(form.bytes(), out_of_memory);
  }
  std::list<Lane> made;
  try {
    if (place != nullptr) made.emplace_back(*this, member_, links_, *place, form, lanes_released_);
  } catch (const std::exception& error) {
    if (member_.process.runtime().parameters.verbose >= 1)
      without_failing([&] {
        member_.process.runtime().log(
            loom::format("{}: a persistent request has no room of its own: {}", where(), error.what())
                .c_str());
      });
  }
  if (!execution_.holds_everywhere(!made.empty())) {
    made.clear();
    // A place that all ranks have is theirs to free. Else their lists differ from now on.
    if (!execution_.holds_everywhere(place != nullptr))
      links_.lanes.close();
    else
      place->left = true;
    return nullptr;
  }
  Lane& lane = made.front();
  engine_.apart([&] {
    lanes_.splice(lanes_.end(), made);
    if (abandoned_) lane.links.abandon();
    if (abandoned_ && lane.on_gpu) links_.gpus->abandon();
  });
  return LaneLease(&lane);
}

/// Those whose requests have gone.
void Communicator::take_lanes_back() noexcept {
  if (!lanes_released_.exchange(false, std::memory_order_acquire)) return;
  std::list<Lane> left;
  engine_.apart([&] {
    for (auto lane = lanes_.begin(); lane != lanes_.end();) {
      const auto next = std::next(lane);
      if (lane->released.load(std::memory_order_acquire)) left.splice(left.end(), lanes_, lane);
      lane = next;
    }
  });
}

/// Collective: frees the lanes that all ranks have left, or makes more memory for lanes.
void Communicator::find_room_for_lanes(std::size_t bytes) {
  LaneMemory& lanes = links_.lanes;
  if (lanes.is_closed()) return;
  const int ranks = member_.bootstrap.size();
  Bootstrap bootstrap = member_.bootstrap;
  const std::string name = member_.name + " (persistent requests)";
  bootstrap.rename(name.c_str());
  const auto find = [&](Agreement& agreement) {
    lanes.free_left_by_all(agreement.all_gather_bytes(lanes.left_here()), ranks);
    if (lanes.has_room(bytes)) return;
    const std::uint64_t most = ~agreement.largest({~member_.process.runtime().parameters.lane_bytes, 0})[0];
    const std::size_t slab_bytes = lanes.next_slab_bytes(bytes, most);
    if (slab_bytes == 0) return;
    const device::MemoryNear near(member_.process.numa_node());
    device::Segment mine = device::Segment::create(slab_bytes);
    const auto handles = agreement.all_gather(mine.handle());
    std::vector<device::Segment> by_rank;
    for (int rank = 0; rank < ranks; ++rank)
      by_rank.push_back(
          rank == member_.rank ? mine : device::Segment::attach(handles[static_cast<std::size_t>(rank)]));
    lanes.add(std::move(by_rank), slab_bytes);
    agreement.agree();
    mine.close_handle();  // everybody has it mapped
  };
  const Linking linking(*this);
  if (!agree_on(bootstrap, member_.process, find)) lanes.close();
}

void Communicator::start_thread() noexcept {
  try {
    engine_.start_thread();
  } catch (const std::system_error&) {  // no thread to be had: requests advance in MPI calls alone
  }
}

Communicator* Communicator::for_persistent_calls() {
  if (member_.bootstrap.size() == 1) return this;       // there is nobody to be in another order
  if (links_.state == LinkState::kFailed) return this;  // which declines all calls
  if (twin_state_ == Twin::kNotMade && !linking_) {
    broken_.check();
    try {
      const Linking linking(*this);
      Bootstrap bootstrap = member_.bootstrap;
      const std::string name = member_.name + " (persistent requests)";
      bootstrap.rename(name.c_str());
      twin_ = create(bootstrap, member_.process, engine_);
    } catch (...) {
      fail_call();
    }
    twin_state_ = twin_ ? Twin::kReady : Twin::kDeclined;
    if (twin_) {
      twin_->twin_of_ = this;
      twin_->selector_.count_with(selector_);
      twin_->execution_.expect_promised_order();
    }
    engine_.apart([&] {
      if (twin_ && abandoned_) twin_->stop();
    });
  }
  return twin_.get();
}

}  // namespace loom
