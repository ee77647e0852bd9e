// device_calls.hpp -- calls whose buffers lie on GPUs on all ranks, and stay there. Whether they do is a fact
// of each rank: a round of flags makes it one that all share, and every verdict of the set-up likewise.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "component/execute/call_selector.hpp"
#include "component/execute/device_links.hpp"
#include "component/execute/device_operation.hpp"
#include "component/execute/execution.hpp"
#include "component/execute/gpu_buffer.hpp"
#include "component/execute/packed_calls.hpp"
#include "component/links/links.hpp"
#include "component/select/device_question.hpp"
#include "component/select/tuner.hpp"
#include "component/setup/member.hpp"
#include "device/call.h"
#include "device/cuda/gpu_links.hpp"

namespace loom {

/// How long the making of a persistent request waits for other calls and for work of the program, which may
/// wait for the host, before it does without a GPU.
constexpr std::chrono::seconds kPatienceOfMakers{1};
/// The same of a blocking call that makes links. Then they are made beside that work.
constexpr std::chrono::seconds kPatienceOfFirstCalls{10};

class DeviceCalls {
 public:
  /// All must outlive this.
  DeviceCalls(Member& member, Links& links, Execution& execution, CallSelector& selector)
      : member_(member), links_(links), execution_(execution), selector_(selector) {}

  /// Whether the call may stay on GPUs by what all ranks know; try_perform() asks them for the rest. The same
  /// on all ranks. To be called once before each call, for it counts them.
  bool may_carry(const device::Call& call) { return may_carry(call, epoch_); }
  /// Collective, once there are links and may_carry() was true. What has carried the call; nothing, on all
  /// ranks: it is to be staged, and call_ended() follows. Throws as Execution::perform().
  std::optional<Algorithm> try_perform(const device::Call& call);
  void call_ended() noexcept;
  /// After may_carry(): the same question through the bootstrap, for links between hosts are not made for a
  /// few calls on host memory. Collective. Throws Error.
  bool may_be_on_gpus(const device::Call& call);

  // ---- Calls that do not wait. Their place among all calls is the same on all ranks.
  /// Such calls have a DeviceOperation. The same on all ranks.
  bool may_ask(const device::Call& call) const;
  /// Some algorithm on GPUs may carry such calls, by the links that there are and by the user's rules. The
  /// same on all ranks.
  bool may_stay(const device::Call& call) { return is_possible(call) && may_stay(call, epoch_); }
  /// For messages: this rank's buffers are on its GPU.
  bool is_here(const device::Call& call) const {
    return member_.tells(2) && gpu_of(call) && !is_on_host(call);
  }
  /// Of a call for which may_ask() is true, and that `on_host` would carry on host memory. on_device: as long
  /// as its buffers may be on this rank's GPU; nullptr if they are not, and have to be staged. Throws Error.
  std::unique_ptr<DeviceOperation> begin(const device::Call& call, Algorithm on_host, bool on_device);
  /// Of a call that has begun with on_device, in the thread that starts it: says what carries it if all ranks
  /// have their buffers on GPUs, as far as that is known.
  void explain_start(const DeviceOperation& operation);
  /// When it is its turn. now: what there is to advance, from step to step another part of the call. Throws
  /// as Execution::advance(), and NotCopied.
  State advance(DeviceOperation& operation, Operation& now);
  // ---- Persistent calls: inside a host by zero copy over links of their own; between hosts by kernels over
  // those of the communicator's twin, in its queue. Collective, as their making is.
  /// Of a call whose buffers on this rank have gaps; else nullptr.
  PackedCalls::Lease packed_for_persistent(const device::Call& call) {
    return packed_calls_.lend_without_freeing(call, member_.rank, member_.bootstrap.size());
  }
  /// Whose this rank's buffers are, if all ranks have theirs on their GPUs, and the call may stay there; else
  /// nothing, on all ranks. by: what will perform it, these calls or the twin's. Throws as
  /// Execution::perform().
  std::optional<device::cuda::Owner> owner_for_persistent(const device::Call& call, const DeviceCalls& by);
  /// What a call that does not wait, and whose buffers are on this rank's GPU, comes after.
  device::cuda::ProgramMark::Behind behind(const device::Call& call) const;
  /// Nothing has to be made for it.
  bool is_ready_for_persistent(const device::Call& call);
  /// To be asked before links are made: whether no call is under way on any rank, which would not know of
  /// them, and no work in the program's default stream, for which making them may wait. False, on all ranks:
  /// that takes long; maybe such work waits for the host, which is here. has_ended: whether all calls of this
  /// rank have; moves them. are_started: by all ranks, so they end; else that may take long, too.
  bool comes_to_rest(const device::cuda::Owner& owner, const std::function<bool()>& has_ended,
                     bool are_started);
  /// Makes the links and the kernel, if there are none; what will perform the call. Nothing, on all ranks:
  /// there are none to be had, or staging has been faster.
  std::optional<Algorithm> make_ready_for_persistent(const device::Call& call,
                                                     const device::cuda::Owner& owner);
  /// Calls that do not wait have found that staging is faster. The same on all ranks.
  bool staging_leads(const device::Call& call);
  void explain_persistent(Algorithm algorithm, const device::Call& call) {
    explain(algorithm, call, false, CallForm::kPersistent);
  }
  /// At a start of one in a queue: the call comes after what the program has enqueued by now. advance()
  /// throws what fails here.
  void mark_program(DeviceOperation& operation) const noexcept;

  /// A call would have gone by a kernel, had there been links and the kernel. The same on all ranks between
  /// calls.
  bool wants_set_up() const noexcept { return wanted_.has_value(); }
  /// Collective; while no call is under way. Throws as Execution::perform().
  void set_up();
  /// A call on this rank lacked memory to pack its buffers, or a kernel. make_packing_ready(), in a call that
  /// may wait, makes them for later calls.
  bool wants_packing() const { return packed_calls_.lack(); }
  void make_packing_ready();

 private:
  /// Whether all ranks have a kernel. A call may make it while others, which came before and do not wait, are
  /// under way on some ranks in another thread, and done on others: for those it stays as it was.
  class Kernel {
   public:
    bool is_settled() const { return state_ == kReady || state_ == kRefused; }
    bool is_wanted() const { return state_ == kWanted; }
    bool is_refused_for(std::uint32_t epoch) const { return state_ == kRefused && since_ <= epoch; }
    bool is_ready_for(std::uint32_t epoch) const { return state_ == kReady && since_ <= epoch; }
    void want() {
      State before = kNotYet;
      state_.compare_exchange_strong(before, kWanted);
    }
    void settle(bool ready, std::uint32_t epoch) {
      since_ = epoch;
      state_ = ready ? kReady : kRefused;
    }

   private:
    enum State : std::uint8_t { kNotYet, kWanted, kReady, kRefused };
    std::atomic<State> state_ = kNotYet;
    std::atomic<std::uint32_t> since_ = 0;  ///< when it was settled; set before
  };

  /// Memory of a call that lacked links or a kernel.
  struct Wanted {
    device::cuda::Owner owner;
    const std::byte* buffer;
  };

  bool is_possible(const device::Call& call) const;
  bool is_idle(const device::cuda::Owner& owner) const;
  bool can_set_up_here(const Wanted& wanted) const;
  bool may_carry(const device::Call& call, std::uint32_t epoch);
  bool may_stay(const device::Call& call, std::uint32_t epoch);
  device::Call question(DeviceOperation& operation);
  bool is_everywhere(const DeviceOperation& operation) const;
  State ask(const DeviceOperation& operation, Operation& now);
  static State wait_for_program(DeviceOperation& operation) {
    return operation.program_wait.is_due() ? State::kMoved : State::kBlocked;
  }
  void launch(const DeviceOperation& operation, Operation& now);
  State go_through_host(DeviceOperation& operation, Operation& now);
  std::optional<Algorithm> algorithm_at_once(const DeviceOperation& operation);
  Kernel& kernel_for(Algorithm algorithm, const device::Call& call);
  bool may_carry_by(Algorithm algorithm, const device::Call& call, std::uint32_t epoch);
  bool is_for_persistent(Algorithm algorithm) const {
    return member_.group->wiring.shape.hosts == 1 ? algorithm == Algorithm::kZeroCopy
                                                  : is_by_kernel(algorithm);
  }
  /// What the user wants, of what carries(algorithm) is true for.
  template <class Carries>
  Algorithm algorithm_for(const device::Call& call, Carries&& carries) {
    return member_.group->tune.on_devices(call.collective, selector_.whole_message_of(call), carries,
                                          faster(call));
  }
  Algorithm faster(const device::Call& call);
  double us_of(const device::Call& call, Algorithm algorithm);
  bool can_carry(Algorithm algorithm, const device::Call& call);
  void explain(Algorithm leader, const device::Call& call, bool probes, CallForm form = CallForm::kBlocking);
  void explain_mixed(const device::Call& call, std::uint64_t without);
  PackedCalls::Lease packed(const device::Call& call, bool may_wait) {
    return packed_calls_.lend(call, member_.rank, member_.bootstrap.size(), may_wait);
  }
  template <class Condition>
  void wait_until(Condition&& condition);
  void wait_for_program(const device::cuda::Owner& owner);
  Window* window_of(const device::Call& call, Algorithm algorithm);
  bool prepare(Algorithm algorithm, const device::Call& call);
  bool load_everywhere(bool by_kernel, std::optional<device::Op> op, device::Type type);
  Execution::Lacking who_lacks(const device::Call& call, bool here, bool fits);
  bool needs_pairs(const device::Call& call) const;
  bool covers_operand(const device::Call& call) const;
  std::optional<device::cuda::Owner> gpu_of(const device::Call& call) const;
  bool has_bytes(const device::Call& call) const;
  bool is_on_host(const device::Call& call) const;
  /// Collective. Links are not made for calls in which no rank has any: buffers may be anywhere in others.
  bool any_has_bytes(bool here) { return execution_.largest(here ? 1 : 0) != 0; }
  std::optional<device::cuda::Owner> owner_by_copies(const device::Call& call) const;
  bool make_room_elsewhere(std::size_t bytes, const device::cuda::Owner& owner);

  Member& member_;
  Links& links_;
  Execution& execution_;
  CallSelector& selector_;
  DeviceQuestions questions_;
  GpuBuffer elsewhere_;  ///< for a result that must not be in its place before the call has ended
  PackedCalls packed_calls_{member_.process};
  DeviceLinks maker_{member_, links_, execution_};
  /// Between a kernel and staging. Made with the links.
  std::unique_ptr<Tuner> tuner_;
  bool told_mixed_ = false, told_in_place_ = false;
  std::optional<TimedCall> timed_;  ///< the call that is under way, if it is one of a window
  std::optional<Wanted> wanted_;    ///< what set_up() makes links for
  static constexpr int kLongestPause = 255;
  int pause_ = 0, calls_until_wanted_ = 0;           ///< after a set-up that was put off
  int packing_pause_ = 0, calls_until_packing_ = 0;  ///< the same of this rank's packing
  /// Grows with each call that may make kernels beside calls under way. The same on all ranks in the same
  /// call.
  std::uint32_t epoch_ = 0;
  /// By algorithm (zero_copy, kernel), operation and type.
  std::array<std::array<std::array<Kernel, device::kTypeCount>, device::cuda::kKernelOps>, 2> kernels_;
};

}  // namespace loom
