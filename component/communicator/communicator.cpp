// communicator.cpp -- a communicator's life, its blocking calls, and how they fail. Those that do not wait
// are in nonblocking.cpp.
#include "component/communicator/communicator.hpp"

#include <algorithm>
#include <utility>

#include "base/format.hpp"
#include "component/communicator/failure.hpp"
#include "component/communicator/lane.hpp"
#include "component/communicator/learn_peers.hpp"
#include "component/links/idle_links.hpp"

namespace loom {
namespace {

// The library hears of a failed rank, or of a revoked communicator, within some ten milliseconds.
constexpr std::chrono::seconds kPatience{1};

}  // namespace

Communicator::Communicator(const Bootstrap& bootstrap, Process& process, ProgressEngine& engine)
    : member_(bootstrap, process), engine_(engine) {
  links_.tuner = std::make_unique<Tuner>();
  process.include(calls_);
  process.include(queued_calls_);
}

std::unique_ptr<Communicator> Communicator::create(const Bootstrap& bootstrap, Process& process,
                                                   ProgressEngine& engine) {
  std::unique_ptr<Communicator> communicator;
  const auto make = [&] { communicator.reset(new Communicator(bootstrap, process, engine)); };
  // A rank that is alone has no peers, but files to read and write.
  const bool learns = bootstrap.size() > 1 || (bootstrap.alone() && process.names_files());
  const auto make_and_learn = [&](Agreement& agreement) {
    make();
    learn_peers(communicator->member_, agreement);
    communicator->execution_.set_wait_policy();
    communicator->look_after_links();
  };
  if (!learns) {
    make();
    return communicator;
  }
  SetUpWatch watch(process.runtime().parameters.timeout_s);
  const Bootstrap watched = bootstrap.is_watched() ? bootstrap : bootstrap.watched_by(watch);
  if (agree_on(watched, process, make_and_learn)) return communicator;
  process.count_communicator(false);
  return nullptr;
}

Communicator::~Communicator() {
  twin_.reset();
  Process& process = member_.process;
  if (!Process::may_wait_for_gpus) process.keep_gpus();
  const bool is_idle =
      requests_.empty() && std::ranges::all_of(lanes_, [](const Lane& lane) { return lane.queue.empty(); });
  if (!requests_.empty()) engine_.forget(requests_);  // before anything goes that a request may use
  lanes_.clear();
  process.retire(calls_);
  process.retire(queued_calls_);
  if (links_.gpus) process.retire(std::move(links_.gpus));
  links_.gpu_state = LinkState::kNotMade;
  if (is_idle && member_.group->idle) member_.group->idle->put(std::move(links_));
  member_.group.reset();
  process.groups().trim();
}

/// Makes the links at its first call.
bool Communicator::is_linked() {
  if (linking_) return false;
  if (links_.state == LinkState::kNotMade) {
    {
      const Linking linking(*this);
      link_maker_.make();
    }
    if (stopping_) leave();
    if (links_.state == LinkState::kReady) {
      learn_what_is_small();
      if (member_.tells(1))
        without_failing([&] {
          const loom_runtime& runtime = member_.process.runtime();
          runtime.log(link_maker_.description().c_str());
          for (const std::string& line :
               member_.group->tune.without_effect(selector_.conditions(), member_.group->not_on_gpus))
            runtime.log(loom::format("{}: {}", member_.name, line).c_str());
        });
    }
  }
  return links_.state == LinkState::kReady;
}

/// Makes them at its first call.
bool Communicator::has_pairwise() {
  if (linking_) return false;
  if (links_.pairwise_state == LinkState::kNotMade) {
    const Linking linking(*this);
    link_maker_.make_pairwise();
  }
  return links_.pairwise_state == LinkState::kReady;
}

void Communicator::learn_what_is_small() noexcept {
  selector_.forget();
  // At coll_loom_verbose 2 the first call of each kind is told.
  if (!links_.immediate || member_.process.runtime().parameters.verbose >= 2) return;
  // Without memory for it calls take the slow path.
  without_failing([&] {
    const Group& group = *member_.group;
    for (std::size_t i = 0; i <= LOOM_BARRIER; ++i) {
      // A rule may name an algorithm that not all communicators of the group can use.
      const auto collective = static_cast<device::Collective>(i);
      const std::uint64_t below = group.tune.empty()
                                      ? group.small_below[i]
                                      : immediate_below(selector_.conditions(), collective, group.tune);
      const std::uint64_t middle = most_exchanged(group.conditions(), collective, !group.tune.empty()) + 1;
      std::atomic_ref(fast_below_.small[i]).store(below, std::memory_order_relaxed);
      std::atomic_ref(fast_below_.middle[i]).store(middle, std::memory_order_relaxed);
    }
  });
}

/// Counts as the slow path does.
bool Communicator::perform_middle(const device::Call& call) {
  Window* window = nullptr;
  switch (selector_.plain_exchange(call, window)) {
    case Algorithm::kImmediate:
      if (exchange(call, *links_.immediate, Algorithm::kImmediate) && window != nullptr) window->pass();
      return true;
    case Algorithm::kTiered:
      exchange(call, *links_.tiered, Algorithm::kTiered);
      return true;
    default:
      return false;
  }
}

/// Once what it needs is there. Whether all ranks may read each other's memory is known with the links.
Choice Communicator::choose_when_linked(const device::Call& call) {
  Choice choice = selector_.choose(call, true);
  if (choice.algorithm == Algorithm::kFallback || choice.algorithm == Algorithm::kCopy) return choice;
  const bool was_linked = links_.state != LinkState::kNotMade;
  if (!is_linked()) return {};
  if (!was_linked) choice = selector_.choose(call, true);
  return choice.algorithm == Algorithm::kPairwise && !has_pairwise() ? Choice{} : choice;
}

/// The algorithm that has carried the call; nothing: it is declined.
std::optional<Algorithm> Communicator::try_perform(const device::Call& call) {
  finish_requests_before_call();
  if (!device::has_kernel(call)) return {};
  if (!linking_) selector_.count_small_call(call);
  try {
    const Choice choice = choose_when_linked(call);
    // Where sizes differ from rank to rank, nobody knows alone that there is nothing to do.
    const bool nothing = device::is_empty(call);
    if (choice.candidate && !nothing) return selector_.perform_probing(call, choice);
    selector_.explain(choice.algorithm, call);
    if (choice.algorithm == Algorithm::kFallback) return {};
    if (!nothing) execution_.perform(choice.algorithm, call);
    return choice.algorithm;
  } catch (...) {
    return end_call(call);
  }
}

/// An all-to-all on GPUs that does not wait may have to go through the host, and cannot make the links that
/// it needs there. All ranks have just performed one that may.
void Communicator::make_links_for_nonblocking(const device::Call& call) {
  if (call.collective != device::Collective::kAllToAll || member_.group->wiring.shape.hosts == 1 ||
      links_.pairwise_state != LinkState::kNotMade ||
      selector_.choose(call, true).algorithm != Algorithm::kPairwise)
    return;
  make_pairwise();
}

/// In a call that all ranks make for something else: some may have failed alone meanwhile.
void Communicator::make_pairwise() {
  execution_.holds_everywhere(true);  // finds that; has_pairwise() would wait
  has_pairwise();
}

bool Communicator::perform_on_device(const device::Call& call) {
  if (linking_) return false;
  finish_requests_before_call();  // first: what they have found out decides, too
  if (!device_calls_.may_carry(call)) return false;
  std::optional<Algorithm> carried;
  try {
    const bool asks_first = links_.state == LinkState::kNotMade && member_.group->wiring.shape.hosts > 1;
    if (asks_first && !device_calls_.may_be_on_gpus(call)) return false;
    if (is_linked()) carried = device_calls_.try_perform(call);
    if (carried) make_links_for_nonblocking(call);
  } catch (const Truncated&) {
    throw;
  } catch (...) {
    fail_call();
  }
  if (carried) count(call, carried);
  return carried.has_value();
}

bool Communicator::copy_on_device(const device::Call& call, LocalCalls& by) {
  finish_requests_before_call();
  try {
    if (!by.copy(call)) return false;
  } catch (...) {
    fail_call();
  }
  count(call, Algorithm::kCopy);
  return true;
}

void Communicator::count(const device::Call& call, std::optional<Algorithm> carried) noexcept {
  if (carried) {
    count(calls_, call, *carried);
  } else if (!linking_) {
    const FallbackReason reason = !device::has_kernel(call)            ? FallbackReason::kNoKernel
                                  : links_.state == LinkState::kFailed ? FallbackReason::kNotConnected
                                                                       : FallbackReason::kNotBetter;
    calls_.add(calls_[call.collective].fallbacks[static_cast<std::size_t>(reason)], 1);
  }
}

void Communicator::count(CallCounters& calls, const device::Call& call, Algorithm carried) noexcept {
  CallCounters::Counts& counts = calls[call.collective];
  calls.add(counts.by[static_cast<std::size_t>(carried)], 1);
  calls.add(counts.bytes, call.bytes());
}

/// From inside a handler. A broadcast whose root has another size is performed as the root does; all else
/// ends the communicator, save what has ended the call alone.
std::optional<Algorithm> Communicator::end_call(const device::Call& call) {
  try {
    throw;
  } catch (const Truncated&) {
    throw;
  } catch (const device::DifferentCall& other) {
    if (!execution_.adopts(call, other, device::CallProgress::kNone)) {
      try {
        execution_.fail_for(other);
      } catch (...) {
        fail_call();
      }
    }
    const AdoptedBroadcast adopted(call, other.its().bytes());
    const std::optional<Algorithm> carried = try_perform(adopted.call());
    execution_.tell_adopted(adopted, call.root);
    return carried;
  } catch (...) {
    fail_call();
  }
}

/// From inside a handler.
void Communicator::end_exchange(const device::Call& call) {
  try {
    execution_.fail_immediate();
  } catch (...) {
    count(call, end_call(call));
  }
}

/// From inside a handler. Peers that have given up do not say why: a revoked communicator comes first.
void Communicator::rethrow_as_told() const {
  try {
    throw;
  } catch (const Error& error) {
    const bool is_by_peer = error.code() == ErrorCode::kGivenUp || error.code() == ErrorCode::kPeerFailed;
    if (is_by_peer && member_.bootstrap.is_revoked()) member_.bootstrap.check_health();
    throw;
  }
}

/// For a while, as long as the MPI library does not say what has become of the peer.
bool Communicator::awaits_word(const std::exception_ptr& failure,
                               std::chrono::steady_clock::time_point since) const noexcept {
  if (broken_ || !member_.bootstrap.may_hear_more() || std::chrono::steady_clock::now() - since > kPatience)
    return false;
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return error.code() == ErrorCode::kGivenUp || error.code() == ErrorCode::kPeerFailed;
  } catch (...) {
    return false;
  }
}

/// From inside a handler: every later call fails too.
void Communicator::fail_call() {
  leave();
  try {
    rethrow_as_told();
  } catch (const Error& error) {
    engine_.apart([&] { without_failing([&] { break_for(error); }); });
    throw;
  } catch (...) {
    engine_.apart([&] {
      without_failing(
          [&] { break_for(Error(ErrorCode::kInternal, "An earlier call on this communicator failed.")); });
    });
    throw;
  }
}

/// While nobody advances requests.
void Communicator::break_for(const Error& cause) {
  broken_.set(cause);
  has_due_ = true;
}

int Communicator::fail() noexcept {
  const bool first = !broken_;
  abandon();
  const auto show = [&](loom_message message, const char* cause) {
    if (!first) return;
    try {
      break_for(Error(ErrorCode::kInternal, "An earlier call on this communicator failed."));
      throw;
    } catch (const Error& error) {
      break_for(error);
    } catch (...) {
    }
    member_.process.runtime().show(message, where().c_str(), cause);
  };
  try {
    rethrow_as_told();
  } catch (...) {
    return result_of_exception(show);
  }
}

void Communicator::leave() noexcept {
  engine_.apart([&] {
    abandon();
    if (!broken_)
      without_failing(
          [&] { break_for(Error(ErrorCode::kInternal, "An earlier call on this communicator failed.")); });
  });
}

/// While nobody advances requests.
void Communicator::abandon(std::exception_ptr cause) noexcept {
  if (abandoned_) return;
  abandoned_for_ = std::move(cause);
  abandoned_ = true;
  has_due_ = true;
  for (auto* const limits : {fast_below_.small, fast_below_.middle})
    for (std::size_t i = 0; i <= LOOM_BARRIER; ++i)
      std::atomic_ref(limits[i]).store(0, std::memory_order_relaxed);
  links_.abandon();
  for (Lane& lane : lanes_) lane.links.abandon();
  if (twin_) twin_->stop();
}

/// The communicator whose persistent calls this one carries is abandoned. Started ones find out when they are
/// next advanced, and links that are being made when they are done.
void Communicator::stop() noexcept {
  stopping_.store(true);
  if (requests_.empty() && !linking_) abandon();
}

}  // namespace loom
