#include "component/execute/device_calls.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/format.hpp"
#include "component/execute/device_pieces.hpp"
#include "component/select/gpu_calls.hpp"
#include "component/setup/agreement.hpp"

namespace loom {

using device::cuda::Gpu;
using device::cuda::Owner;
using device::cuda::ProgramMark;

namespace {

/// A kernel leaves the CPUs to the program, so staging has to be faster by as much.
constexpr double kMargin = 1.1;

}  // namespace

/// Of the kernel that performs the call. The same on all ranks.
DeviceCalls::Kernel& DeviceCalls::kernel_for(Algorithm algorithm, const device::Call& call) {
  const bool reduces = device::is_reduction(call.collective);
  const int op = reduces ? static_cast<int>(call.op) : device::cuda::kMove;
  const device::Type type = reduces ? call.type : device::Type::kUint8;
  return kernels_[is_by_kernel(algorithm)][static_cast<std::size_t>(op)]
                 [static_cast<std::size_t>(device::cuda::kernel_type(op, type))];
}

/// As far as links are known.
bool DeviceCalls::may_carry_by(Algorithm algorithm, const device::Call& call, std::uint32_t epoch) {
  return can_on_gpus(algorithm, selector_.conditions(), call.collective,
                     device::shared_bytes(call, member_.group->wiring.shape.ranks),
                     member_.group->reproducible, links_.gpus ? &links_.gpus->form() : nullptr) &&
         !kernel_for(algorithm, call).is_refused_for(epoch);
}

/// Where no rule says so, as predicted. Before there are links it makes no difference.
Algorithm DeviceCalls::faster(const device::Call& call) {
  if (!links_.gpus) return Algorithm::kKernel;
  return faster_on_gpus(links_.gpus->form(), member_.group->wiring.shape.ranks, call.collective,
                        selector_.whole_message_of(call), [&] { return us_of(call, Algorithm::kKernel); });
}

/// As predicted.
double DeviceCalls::us_of(const device::Call& call, Algorithm algorithm) {
  const std::size_t all = selector_.whole_message_of(call);
  if (is_by_kernel(algorithm))
    return links_.gpus->kernels().choose(call.collective, all, linkage_of(algorithm)).us;
  return device::cuda::zero_copy_us(links_.gpus->form().kernels.speeds, call.collective, all,
                                    member_.group->wiring.shape.ranks);
}

/// By the links that there are. Collective where the call's kernel has yet to be loaded.
bool DeviceCalls::can_carry(Algorithm algorithm, const device::Call& call) {
  return may_carry_by(algorithm, call, epoch_) && prepare(algorithm, call);
}

bool DeviceCalls::is_possible(const device::Call& call) const {
  if (!member_.group->uses_devices() || links_.gpu_state == LinkState::kFailed) return false;
  return !device::is_reduction(call.collective) || Gpu::supports(call.op, call.type);
}

bool DeviceCalls::may_carry(const device::Call& call, std::uint32_t epoch) {
  if (!is_possible(call)) return false;
  const auto may = [&](Algorithm algorithm) { return may_carry_by(algorithm, call, epoch); };
  const Algorithm algorithm = algorithm_for(call, may);
  if (algorithm == Algorithm::kStaged) return false;
  const int ranks = member_.group->wiring.shape.ranks;
  const std::size_t bytes = device::shared_bytes(call, ranks);
  return member_.group->tune.has_rule_on_devices(call.collective,
                                                 whole_message(call.collective, ranks, bytes), algorithm) ||
         questions_.of(call.collective, bytes).asks();
}

/// Of a call that staging may carry as fast; else nullptr.
Window* DeviceCalls::window_of(const device::Call& call, Algorithm algorithm) {
  return probes_staging(algorithm, selector_.conditions(), call.collective,
                        device::shared_bytes(call, member_.group->wiring.shape.ranks), us_of(call, algorithm),
                        member_.group->tune)
             ? &tuner_->of(call.collective, selector_.whole_message_of(call))
             : nullptr;
}

/// Whether the kernel is there on all ranks: it is loaded and launched once, with nothing to do, before any
/// rank begins a call with it.
bool DeviceCalls::load_everywhere(bool by_kernel, std::optional<device::Op> op, device::Type type) {
  return maker_.try_everywhere("calls with this operation and type do without the kernel", [&] {
    if (by_kernel)
      links_.gpus->kernels().prepare(op, type);
    else
      links_.gpus->zero_copy().prepare(op, type);
    return true;
  });
}

/// Of the kernel that the call needs.
bool DeviceCalls::prepare(Algorithm algorithm, const device::Call& call) {
  Kernel& kernel = kernel_for(algorithm, call);
  if (!kernel.is_settled()) {
    const bool reduces = device::is_reduction(call.collective);
    kernel.settle(load_everywhere(is_by_kernel(algorithm), reduces ? std::optional(call.op) : std::nullopt,
                                  reduces ? call.type : device::Type::kUint8),
                  epoch_);
  }
  return kernel.is_ready_for(epoch_);
}

/// The leader of a window, for probes are no news.
void DeviceCalls::explain(Algorithm leader, const device::Call& call, bool probes, CallForm form) {
  if (!member_.tells(2)) return;
  std::optional<device::cuda::KernelWay> way;
  if (is_by_kernel(leader))
    way = links_.gpus->kernels()
              .choose(call.collective, selector_.whole_message_of(call), linkage_of(leader))
              .way;
  selector_.explain_on_gpus(leader, call, way, probes, form);
}

/// Whether kernels would store results where operands lie that are yet to be sent.
bool DeviceCalls::covers_operand(const device::Call& call) const {
  return member_.group->wiring.shape.hosts > 1 && device::cuda::exchanges(call.collective) &&
         (device::lists_blocks(call.collective) ? call.owns_its_block : call.in == call.out);
}

/// Once, why a call is staged although some ranks have their buffers on GPUs.
void DeviceCalls::explain_mixed(const device::Call& call, std::uint64_t without) {
  if (covers_operand(call) && member_.tells(1) && !told_in_place_ && !is_on_host(call)) {
    told_in_place_ = true;
    maker_.say(kStagedCalls, "Between hosts no kernel carries an all-to-all in place.");
  }
  if (without == 0 || !member_.tells(1) || told_mixed_) return;
  const int ranks = member_.bootstrap.size(), counted = std::min(ranks, 64);
  if (std::popcount(without) >= counted) return;  // a call on host memory
  told_mixed_ = true;
  without_failing([&] {
    maker_.say(
        kStagedCalls,
        loom::format("In this {}, a buffer of rank {}{} is on the host, on another GPU than the rank's "
                     "links, or in pieces that are not packed. Other ranks have theirs on GPUs, or none.",
                     name_of(call.collective), std::countr_zero(without),
                     std::popcount(without) > 1 ? " and of others" : "")
            .c_str());
  });
}

/// Whether all ranks are in this call, with their buffers on GPUs (`here`), and which do not have them so
/// that any executor takes them (`fits`). Kernels of an all-to-all need to know what they will receive: who
/// was sent another number of bytes could not tell it from the next call's.
Execution::Lacking DeviceCalls::who_lacks(const device::Call& call, bool here, bool fits) {
  const int ranks = member_.group->wiring.shape.ranks;
  const std::uint64_t note = here ? note_of(call, ranks) : 0;
  return needs_pairs(call) ? execution_.who_lacks(note, fits, pairs_of(call, member_.rank, ranks))
                           : execution_.who_lacks(note, fits);
}

/// Kernels would carry it, and the note does not tell how long its blocks are.
bool DeviceCalls::needs_pairs(const device::Call& call) const {
  return member_.group->wiring.shape.hosts > 1 && device::cuda::exchanges(call.collective) &&
         device::lists_blocks(call.collective);
}

std::optional<Algorithm> DeviceCalls::try_perform(const device::Call& given) {
  call_ended();  // the one before, if it has failed on this rank alone
  const PackedCalls::Lease packing = packed(given, true);
  const device::Call& call = packing ? packing->call() : given;
  std::optional<Owner> owner = gpu_of(call);
  const std::size_t elsewhere = device::cuda::bytes_elsewhere(call, member_.rank, member_.bootstrap.size());
  const bool fits = owner && (elsewhere == 0 || make_room_elsewhere(elsewhere, *owner));
  const int ranks = member_.group->wiring.shape.ranks;
  // Kernels carry no note of their call. So calls that differ go through the host, which finds out how.
  // Else CPUs would reduce. Data that only move are as fast through the host.
  if (!fits) owner = device::is_reduction(call.collective) ? owner_by_copies(call) : std::nullopt;
  const auto [alike, lacking] = who_lacks(call, owner.has_value(), fits);
  const bool everywhere = alike && lacking == 0;
  // Less is copied where the few have other memory than the many, and zero copy has it bounce.
  const bool on_most = everywhere || (alike && 2 * std::popcount(lacking) < ranks &&
                                      may_carry_by(Algorithm::kZeroCopy, call, epoch_));
  questions_.of(call.collective, device::shared_bytes(call, ranks)).answered(on_most);
  if (!on_most) {
    explain_mixed(call, lacking);
    return {};
  }
  if (links_.gpu_state == LinkState::kNotMade && !any_has_bytes(has_bytes(call))) return {};
  if (links_.gpu_state == LinkState::kNotMade) {
    wait_for_program(*owner);
    links_.gpu_state = maker_.make(*owner, tuner_) ? LinkState::kReady : LinkState::kFailed;
  }
  if (links_.gpu_state == LinkState::kFailed) return {};
  // Zero copy has buffers that others cannot reach bounce, whatever memory they are in.
  const Algorithm algorithm = algorithm_for(call, [&](Algorithm each) {
    return (everywhere || each == Algorithm::kZeroCopy) && can_carry(each, call);
  });
  if (algorithm == Algorithm::kStaged) return {};
  Window* const window = everywhere ? window_of(call, algorithm) : nullptr;
  const bool settles = window != nullptr && window->agrees();
  const bool news = settles && window->settle(execution_.largest(window->own_time()), kMargin);
  const bool stages = window != nullptr && window->by_candidate();
  explain(window != nullptr && window->candidate_leads() ? Algorithm::kStaged : algorithm, call,
          window != nullptr);
  if (news) selector_.explain_leader(call, *window, algorithm, Algorithm::kStaged);
  if (window != nullptr) timed_.emplace(member_.process, *window, selector_.whole_message_of(call));
  if (stages) return {};
  std::optional<ProgramMark> nothing;
  if (is_on_host(call))
    nothing.emplace(links_.gpus->gpu().driver(), links_.gpus->gpu().owner(), ProgramMark::Behind::kNothing);
  Operation operation{call, algorithm, nothing ? &*nothing : nullptr};
  if (!fits)
    operation.executor.emplace<device::cuda::ZeroCopyExecutor>(*links_.gpus, call, true, operation.after)
        .bounce_all();
  if (packing) {
    packing->pack(nullptr);
    wait_until([&] { return packing->is_done(); });
  }
  const bool goes_elsewhere = elsewhere > 0 && is_by_kernel(algorithm);
  if (goes_elsewhere) operation.call.out = elsewhere_.memory();
  execution_.drive(operation);
  if (goes_elsewhere) elsewhere_.copy_to(call.out, elsewhere);
  if (packing) {
    packing->unpack();
    wait_until([&] { return packing->is_done(); });
  }
  call_ended();
  return algorithm;
}

bool DeviceCalls::may_be_on_gpus(const device::Call& given) {
  const PackedCalls::Lease packing = packed(given, true);
  const device::Call& call = packing ? packing->call() : given;
  const std::vector<std::uint8_t> here =
      Agreement(member_.bootstrap, member_.process).all_gather<std::uint8_t>(gpu_of(call).has_value());
  std::uint64_t lacking = 0;
  for (std::size_t rank = 0; rank < here.size(); ++rank)
    if (here[rank] == 0) lacking |= std::uint64_t{1} << std::min<std::size_t>(rank, 63);
  if (lacking == 0) return true;
  questions_.of(call.collective, device::shared_bytes(call, member_.group->wiring.shape.ranks))
      .answered(false);
  explain_mixed(call, lacking);
  return false;
}

/// What waits for work of the program waits without limit.
template <class Condition>
void DeviceCalls::wait_until(Condition&& condition) {
  device::Waiter waiter(execution_.wait_policy());
  device::cuda::ProgramWait program_wait;
  while (!condition()) {
    waiter.pause();
    if (program_wait.is_due()) waiter.moved();
  }
}

/// Until all has ended that the program has put into its default stream: it may fill the GPU for longer than
/// the kernels may take that try links. Not without limit: it may wait for another rank, whom this call does
/// not hold up.
void DeviceCalls::wait_for_program(const Owner& owner) {
  try {
    const ProgramMark mark(member_.process.staging()->driver(), owner);
    const auto until = std::chrono::steady_clock::now() + kPatienceOfFirstCalls;
    wait_until([&] { return mark.has_passed() || std::chrono::steady_clock::now() > until; });
  } catch (const Error&) {  // who makes the links finds out again, and says so
  }
}

void DeviceCalls::call_ended() noexcept {
  if (timed_) timed_->finish();
  timed_.reset();
}

/// The GPU that copies the call's buffers for zero copy: that of the links, or the one that this thread uses.
/// Nothing: there is none, a buffer is not contiguous, or it is on another GPU.
std::optional<Owner> DeviceCalls::owner_by_copies(const device::Call& call) const {
  const device::cuda::Driver& driver = member_.process.staging()->driver();
  if (links_.gpus && (!links_.gpus->form().zero_copy() || !links_.gpus->is_alive())) return {};
  const std::optional<Owner> by = links_.gpus ? links_.gpus->gpu().owner() : driver.current_owner();
  if (!by) return {};
  const auto is_reached = [&](const Piece& piece) {
    if (piece.bytes == 0) return true;
    const std::optional<Owner> found = driver.owner_of(piece.data);
    if (!found) return true;
    return links_.gpus
               ? links_.gpus->gpu().is_of(*found)
               : found->device == by->device && (found->context == nullptr || found->context == by->context);
  };
  try {
    return for_all_pieces(call, member_.rank, member_.bootstrap.size(), is_reached) ? by : std::nullopt;
  } catch (const Error&) {  // who stages the buffer finds out again, and says so
    return {};
  }
}

/// Whether no byte of this rank's part is in memory of a GPU: then its program's work there is none of the
/// call's business.
bool DeviceCalls::is_on_host(const device::Call& call) const {
  return for_all_pieces(call, member_.rank, member_.bootstrap.size(), [&](const Piece& piece) {
    return piece.bytes == 0 || !member_.process.staging()->driver().owner_of(piece.data);
  });
}

bool DeviceCalls::has_bytes(const device::Call& call) const {
  return !for_all_pieces(call, member_.rank, member_.bootstrap.size(),
                         [](const Piece& piece) { return piece.bytes == 0; });
}

bool DeviceCalls::make_room_elsewhere(std::size_t bytes, const Owner& owner) {
  try {
    elsewhere_.make_room(member_.process.gpu(owner), bytes);
    return true;
  } catch (const std::exception& error) {
    maker_.say(kStagedCalls, error.what());
    return false;
  }
}

/// Whose the buffers are that matter on this rank, if they are contiguous, of one GPU, and of the one that
/// the links are on. A rank without any has that of the links, or, before there are any, that of its thread.
std::optional<Owner> DeviceCalls::gpu_of(const device::Call& call) const {
  if (covers_operand(call)) return {};
  std::optional<Owner> owner;
  const auto is_there = [&](const Piece& piece) {
    if (piece.bytes == 0) return true;
    if (device::is_reduction(call.collective) && !device::is_aligned(call.type, piece.data)) return false;
    const std::optional<Owner> found = member_.process.staging()->driver().owner_of(piece.data);
    return found && take_owner(owner, *found);
  };
  try {
    if (!for_all_pieces(call, member_.rank, member_.bootstrap.size(), is_there)) return {};
    if (links_.gpus && !links_.gpus->is_alive()) return {};
    if (!owner)
      return links_.gpus ? links_.gpus->gpu().owner() : member_.process.staging()->driver().current_owner();
    if (links_.gpus && !links_.gpus->gpu().is_of(*owner)) return {};
  } catch (const Error&) {  // who stages the buffer finds out again, and says so
    return {};
  }
  return owner;
}

}  // namespace loom
