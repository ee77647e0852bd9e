// device_requests.cpp -- the calls of DeviceCalls that do not wait.
#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/format.hpp"
#include "component/execute/device_calls.hpp"
#include "component/execute/device_pieces.hpp"
#include "component/select/gpu_calls.hpp"

namespace loom {

using device::Collective;
using device::cuda::KernelExecutor;
using device::cuda::Owner;
using device::cuda::ProgramMark;
using device::cuda::ZeroCopyExecutor;
using Phase = DeviceOperation::Phase;

bool DeviceCalls::may_ask(const device::Call& call) const {
  return may_carry_on_devices(call.collective, member_.group->wiring.shape.hosts == 1) && is_possible(call);
}

ProgramMark::Behind DeviceCalls::behind(const device::Call& call) const {
  return has_bytes(call) ? ProgramMark::Behind::kProgram : ProgramMark::Behind::kNothing;
}

std::unique_ptr<DeviceOperation> DeviceCalls::begin(const device::Call& given, Algorithm on_host,
                                                    bool on_device) {
  std::optional<Owner> owner;
  auto operation =
      std::make_unique<DeviceOperation>(DeviceOperation{.call = given, .on_host = on_host, .epoch = epoch_});
  const device::Call& call = operation->call;
  if (on_device) {
    operation->packed = packed(given, false);
    if (operation->packed) operation->call = operation->packed->call();
    owner = gpu_of(call);
    // Memory for a result that goes elsewhere first is made by calls that may wait.
    if (!owner || device::cuda::bytes_elsewhere(call, member_.rank, member_.bootstrap.size()) > 0) return {};
  }
  if (owner) {
    try {
      operation->after =
          std::make_unique<ProgramMark>(member_.process.staging()->driver(), *owner, behind(call));
    } catch (const Error&) {
      if (has_bytes(call)) throw;
      return {};  // the GPU is none of the call's
    }
    operation->owner = owner;
    operation->note = note_of(call, member_.group->wiring.shape.ranks);
  }
  return operation;
}

void DeviceCalls::explain_start(const DeviceOperation& operation) {
  if (!member_.tells(2)) return;
  const device::Call& call = operation.call;
  const Algorithm algorithm =
      algorithm_for(call, [&](Algorithm each) { return may_carry_by(each, call, operation.epoch); });
  if (algorithm == Algorithm::kStaged)
    return selector_.explain(operation.on_host, call, CallForm::kNonblocking);
  if (links_.gpu_state != LinkState::kReady || !kernel_for(algorithm, call).is_ready_for(operation.epoch))
    return selector_.explain_staged(call,
                                    "until a blocking call with the buffers of all ranks on GPUs, or the "
                                    "making of such a persistent one, "
                                    "has made links and kernels");
  const Window* const window = window_of(call, algorithm);
  explain(window != nullptr && window->candidate_leads() ? Algorithm::kStaged : algorithm, call,
          window != nullptr, CallForm::kNonblocking);
}

State DeviceCalls::advance(DeviceOperation& operation, Operation& now) {
  switch (operation.phase) {
    case Phase::kHasToAsk: {
      if (!may_carry(operation.call, operation.epoch) || !may_stay(operation.call, operation.epoch))
        return go_through_host(operation, now);
      now.reset();
      now.algorithm = execution_.combines_by();
      now.call = question(operation);
      operation.phase = Phase::kAsks;
      return State::kMoved;
    }
    case Phase::kAsks: {
      if (const State state = ask(operation, now); state != State::kDone) return state;
      const int ranks = member_.group->wiring.shape.ranks;
      const bool everywhere = is_everywhere(operation);
      questions_.of(operation.call.collective, device::shared_bytes(operation.call, ranks))
          .answered(everywhere);
      operation.on_gpus = everywhere ? algorithm_at_once(operation) : std::nullopt;
      if (!operation.on_gpus) return go_through_host(operation, now);
      operation.phase = Phase::kFollows;
      return State::kMoved;
    }
    // A kernel that is enqueued behind work which waits for the host could not be called off if a peer dies.
    case Phase::kFollows:
      if (operation.not_marked) std::rethrow_exception(operation.not_marked);
      if (!operation.after->has_passed()) return wait_for_program(operation);
      if (operation.packed) operation.packed->pack(operation.after.get());
      operation.phase = Phase::kPacks;
      return State::kMoved;
    case Phase::kPacks:
      if (operation.packed && !operation.packed->is_done()) return State::kBlocked;
      if (!operation.staged) launch(operation, now);
      operation.phase = operation.staged ? Phase::kLoads : Phase::kRuns;
      return State::kMoved;
    case Phase::kLoads:
      if (!operation.staged->load())
        return operation.after->has_passed() ? State::kBlocked : wait_for_program(operation);
      operation.phase = Phase::kRuns;
      return State::kMoved;
    case Phase::kRuns:
      if (const State state = execution_.advance(now);
          state != State::kDone || (!operation.staged && !operation.packed))
        return state;
      operation.phase = Phase::kStores;
      return State::kMoved;
    case Phase::kStores:
      try {
        if (operation.staged && !operation.staged->store()) return State::kBlocked;
        if (!operation.packed) return State::kDone;
        operation.packed->unpack();
        operation.phase = Phase::kUnpacks;
        return State::kMoved;
      } catch (const Error& error) {
        throw NotCopied(error);
      }
    case Phase::kUnpacks:
      try {
        return operation.packed->is_done() ? State::kDone : State::kBlocked;
      } catch (const Error& error) {
        throw NotCopied(error);
      }
  }
  throw Error(ErrorCode::kInternal, "A call on GPUs has come nowhere.");
}

/// As who_lacks() asks.
device::Call DeviceCalls::question(DeviceOperation& operation) {
  if (needs_pairs(operation.call)) {
    operation.words = {operation.note, operation.owner ? 0U : 1U,
                       pairs_of(operation.call, member_.rank, member_.group->wiring.shape.ranks)};
    return combination(device::Op::kSum, operation.words);
  }
  operation.words = {operation.note, ~operation.note};
  return combination(device::Op::kMax, std::span(operation.words).first(2));
}
bool DeviceCalls::is_everywhere(const DeviceOperation& operation) const {
  const std::uint64_t note = operation.note;
  const std::array<std::uint64_t, 3>& words = operation.words;
  if (note == 0) return false;
  if (needs_pairs(operation.call))
    return words[0] == static_cast<std::uint64_t>(member_.group->wiring.shape.ranks) * note &&
           words[1] == 0 && words[2] == 0;
  return words[0] == note && words[1] == ~note;
}

/// Ranks in calls that differ find out here.
State DeviceCalls::ask(const DeviceOperation& operation, Operation& now) try {
  return execution_.advance(now);
} catch (const Error& error) {
  if (error.code() != ErrorCode::kMismatch && error.code() != ErrorCode::kTruncated) throw;
  throw Error(error.code(),
              loom::format("{} (That call of this rank asks where the buffers of its {} of {} bytes are.)",
                           error.what(), name_of(operation.call.collective),
                           device::shared_bytes(operation.call, member_.group->wiring.shape.ranks)));
}

void DeviceCalls::launch(const DeviceOperation& operation, Operation& now) {
  now.reset();
  now.call = operation.call;
  now.algorithm = *operation.on_gpus;
  if (is_by_kernel(now.algorithm))
    now.executor.emplace<KernelExecutor>(*links_.gpus, now.call, member_.rank,
                                         member_.group->wiring.shape.ranks, linkage_of(now.algorithm),
                                         operation.after.get());
  else
    now.executor.emplace<ZeroCopyExecutor>(*links_.gpus, now.call, false, operation.after.get());
}

bool DeviceCalls::may_stay(const device::Call& call, std::uint32_t epoch) {
  return algorithm_for(call, [&](Algorithm each) { return may_carry_by(each, call, epoch); }) !=
         Algorithm::kStaged;
}

/// From its first step, or after the ranks have asked each other.
State DeviceCalls::go_through_host(DeviceOperation& operation, Operation& now) {
  now.reset();
  now.call = operation.call;
  now.algorithm = operation.on_host;
  operation.phase = Phase::kRuns;
  if (!operation.owner) return State::kMoved;
  operation.staged =
      std::make_unique<StagedCall>(*member_.process.staging(), *operation.after, operation.call, member_.rank,
                                   member_.group->wiring.shape.ranks);
  now.call = operation.staged->on_host();
  operation.phase = operation.packed ? Phase::kFollows : Phase::kLoads;
  return State::kMoved;
}

/// Of a call that all ranks have on their GPUs; nothing, on all ranks: it goes through the host. What it
/// lacks is noted for set_up().
std::optional<Algorithm> DeviceCalls::algorithm_at_once(const DeviceOperation& operation) {
  const device::Call& call = operation.call;
  const Algorithm algorithm =
      algorithm_for(call, [&](Algorithm each) { return may_carry_by(each, call, operation.epoch); });
  if (algorithm == Algorithm::kStaged) return {};
  Kernel& kernel = kernel_for(algorithm, call);
  if (links_.gpu_state != LinkState::kReady || !kernel.is_ready_for(operation.epoch)) {
    kernel.want();
    // Which of them is the faster one shows once there are links.
    for (const Algorithm other : {Algorithm::kKernel, Algorithm::kZeroCopy})
      if (links_.gpu_state == LinkState::kNotMade && may_carry_by(other, call, operation.epoch))
        kernel_for(other, call).want();
    if (calls_until_wanted_ > 0) {
      --calls_until_wanted_;
      return {};
    }
    wanted_ = {*operation.owner, nullptr};
    for_all_pieces(call, member_.rank, member_.bootstrap.size(), [&](const Piece& piece) {
      if (piece.bytes > 0) wanted_->buffer = piece.data;
      return piece.bytes == 0;
    });
    return {};
  }
  const Window* const window = window_of(call, algorithm);
  if (window != nullptr && window->candidate_leads()) return {};
  return algorithm;
}

std::optional<Owner> DeviceCalls::owner_for_persistent(const device::Call& call, const DeviceCalls& by) {
  const auto may = [&](Algorithm each) {
    return is_for_persistent(each) && may_carry_by(each, call, epoch_);
  };
  if (algorithm_for(call, may) == Algorithm::kStaged) return {};
  std::optional<Owner> owner = by.gpu_of(call);
  // Memory for a result that a kernel puts elsewhere first is that of calls that wait.
  const int ranks = member_.bootstrap.size();
  if (member_.group->wiring.shape.hosts > 1 && device::cuda::bytes_elsewhere(call, member_.rank, ranks) > 0)
    owner.reset();
  const bool all = who_lacks(call, owner.has_value(), true).alike;
  if (!all || (by.links_.gpu_state == LinkState::kNotMade && !any_has_bytes(has_bytes(call)))) return {};
  return owner;
}

bool DeviceCalls::is_ready_for_persistent(const device::Call& call) {
  return links_.gpu_state == LinkState::kFailed ||
         (links_.gpu_state == LinkState::kReady &&
          kernel_for(member_.group->wiring.shape.hosts == 1 ? Algorithm::kZeroCopy : Algorithm::kKernel, call)
              .is_settled());
}

/// One rank that gives up is enough: calls of others may wait for its program, too.
bool DeviceCalls::comes_to_rest(const Owner& owner, const std::function<bool()>& has_ended,
                                bool are_started) {
  enum Rest : std::uint64_t { kRests, kNotYet, kGivesUp };
  const auto until = std::chrono::steady_clock::now() + kPatienceOfMakers;
  std::unique_ptr<ProgramMark> mark;
  const auto look = [&] {
    try {
      if (!mark) mark = std::make_unique<ProgramMark>(member_.process.staging()->driver(), owner);
      const bool has_passed = mark->has_passed();
      if (has_passed && has_ended()) return kRests;
      if ((has_passed && are_started) || std::chrono::steady_clock::now() < until) return kNotYet;
      maker_.say(kStagedCalls, has_passed
                                   ? "Some ranks have started requests that others have not, while one "
                                     "is made that needs more links or another kernel."
                                   : "The program has work on its GPU that goes on while a request is "
                                     "made.");
    } catch (const std::exception& error) {
      maker_.say(kStagedCalls, error.what());
    }
    return kGivesUp;
  };
  for (;;) {
    const std::uint64_t all = execution_.largest(look());
    if (all != kNotYet) return all == kRests;
    std::this_thread::yield();
  }
}

std::optional<Algorithm> DeviceCalls::make_ready_for_persistent(const device::Call& call,
                                                                const Owner& owner) {
  if (links_.gpu_state == LinkState::kNotMade)
    links_.gpu_state = maker_.make(owner, tuner_) ? LinkState::kReady : LinkState::kFailed;
  if (links_.gpu_state == LinkState::kFailed) return {};
  // Calls that do not wait may be under way, on some ranks further than on others: those that came before
  // this one do without what it makes.
  ++epoch_;
  const Algorithm algorithm =
      algorithm_for(call, [&](Algorithm each) { return is_for_persistent(each) && can_carry(each, call); });
  if (algorithm == Algorithm::kStaged) return {};
  const Window* const window = window_of(call, algorithm);
  return window != nullptr && window->candidate_leads() ? std::nullopt : std::optional(algorithm);
}

bool DeviceCalls::staging_leads(const device::Call& call) {
  if (links_.gpu_state != LinkState::kReady) return false;
  const Algorithm algorithm = algorithm_for(
      call, [&](Algorithm each) { return is_for_persistent(each) && may_carry_by(each, call, epoch_); });
  const Window* const window = algorithm == Algorithm::kStaged ? nullptr : window_of(call, algorithm);
  return window != nullptr && window->candidate_leads();
}

void DeviceCalls::mark_program(DeviceOperation& operation) const noexcept {
  operation.not_marked = nullptr;
  operation.phase = Phase::kFollows;
  try {
    operation.after = std::make_unique<ProgramMark>(member_.process.staging()->driver(), *operation.owner,
                                                    behind(operation.call));
  } catch (...) {
    operation.not_marked = std::current_exception();
  }
}

/// Whether there is no work of the program in its default stream, and none is being captured.
bool DeviceCalls::is_idle(const Owner& owner) const {
  constexpr std::chrono::milliseconds kPatience{3};
  const device::cuda::Driver& driver = member_.process.staging()->driver();
  if (driver.is_legacy_stream_forbidden(owner)) return false;
  const ProgramMark mark(driver, owner);
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (!mark.has_passed()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::yield();
  }
  return true;
}

/// Whether the context of the buffer is still there, and idle.
bool DeviceCalls::can_set_up_here(const Wanted& wanted) const {
  const device::cuda::Driver& driver = member_.process.staging()->driver();
  if (links_.gpus && !links_.gpus->is_alive()) return false;
  const std::optional<Owner> owner = driver.owner_of(wanted.buffer, wanted.owner.context);
  const bool is_alive =
      (owner && *owner == wanted.owner) || (links_.gpus && links_.gpus->gpu().is_of(wanted.owner));
  return (is_alive || driver.is_primary(wanted.owner)) && is_idle(wanted.owner);
}

/// Each rank packs for itself. It is put off as set_up() is.
void DeviceCalls::make_packing_ready() {
  const bool looks = calls_until_packing_ == 0;
  bool later = !looks;
  packed_calls_.make_ready([&](const PackedCall& call) {
    if (later) return false;
    try {
      later = !can_set_up_here({call.owner(), call.buffer()});
    } catch (const Error&) {  // who uses the GPU next finds out, and says so
      later = true;
    }
    return !later;
  });
  if (looks)
    calls_until_packing_ = packing_pause_ = later ? std::min(2 * packing_pause_ + 1, kLongestPause) : 0;
  else
    --calls_until_packing_;
}

/// A call on host memory waits for no GPU. So this is put off while the program has work on one, and tried
/// ever more seldom, since it takes time to see that.
void DeviceCalls::set_up() {
  const Wanted wanted = *std::exchange(wanted_, {});
  if (!maker_.try_everywhere("links between GPUs are made later", [&] { return can_set_up_here(wanted); })) {
    calls_until_wanted_ = pause_ = std::min(2 * pause_ + 1, kLongestPause);
    return;
  }
  if (links_.gpu_state == LinkState::kNotMade && !any_has_bytes(wanted.buffer != nullptr)) return;
  if (links_.gpu_state == LinkState::kNotMade)
    links_.gpu_state = maker_.make(wanted.owner, tuner_) ? LinkState::kReady : LinkState::kFailed;
  if (links_.gpu_state == LinkState::kFailed) return;
  const device::cuda::GpuLinks::Form& links = links_.gpus->form();
  for (const bool by_kernel : {false, true}) {
    if (!(by_kernel ? links.has_kernels() : links.zero_copy())) continue;
    for (std::size_t op = 0; op < kernels_[by_kernel].size(); ++op)
      for (std::size_t type = 0; type < kernels_[by_kernel][op].size(); ++type)
        if (Kernel& kernel = kernels_[by_kernel][op][type]; kernel.is_wanted())
          kernel.settle(
              load_everywhere(
                  by_kernel,
                  op == device::cuda::kMove ? std::nullopt : std::optional(static_cast<device::Op>(op)),
                  static_cast<device::Type>(type)),
              epoch_);
  }
}

}  // namespace loom
