// communicator.hpp -- all of loom for one MPI communicator: the parts of its set-up, its links, and its
// calls. Knows nothing of Open MPI: it is tested with threads as ranks.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "component/communicator/broken_by.hpp"
#include "component/communicator/requests.hpp"
#include "component/execute/call_selector.hpp"
#include "component/execute/device_calls.hpp"
#include "component/execute/execution.hpp"
#include "component/execute/local_calls.hpp"
#include "component/links/link_maker.hpp"
#include "component/links/links.hpp"
#include "component/setup/bootstrap.hpp"
#include "component/setup/member.hpp"
#include "component/setup/process.hpp"
#include "device/call.h"

namespace loom {

namespace test {
struct ForcedTuner;
}

/// Not for several threads at once: MPI allows one collective at a time on a communicator.
class Communicator {
 public:
  /// Collective; either every rank gets a communicator, or every rank gets nullptr after one message that
  /// says why. Links are made by the first call that needs them. The process, its engine and the bootstrap's
  /// context must outlive it. Throws BootstrapFailed and
  /// ExchangeGivenUp.
  static std::unique_ptr<Communicator> create(const Bootstrap& bootstrap, Process& process,
                                              ProgressEngine& engine);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// See loom_perform in core.h. false: declined; so is a reduction without a kernel. Throws Error; after
  /// that the communicator is abandoned and every further call throws at once. Truncated is none of these:
  /// the call has ended.
  bool perform(const device::Call& call) {
    if (call.streaming == nullptr && is_small(call)) {
      perform_small(call);
      return true;
    }
    const std::optional<Algorithm> carried = try_perform(call);
    count(call, carried);
    return carried.has_value();
  }

  /// See core.h. Small: an immediate exchange, as choose_when_linked() would find after some more steps, with
  /// nothing to be told or done before it. The functions throw as perform().
  const loom_fast_below& fast_below() const noexcept { return fast_below_; }
  void perform_small(const device::Call& call) { exchange(call, *links_.immediate, Algorithm::kImmediate); }
  /// false: there is something to be done before it, or another algorithm carries it. Ranks of one call may
  /// differ in whether they ask here.
  bool perform_middle(const device::Call& call);
  /// Any collective on buffers that may lie on GPUs. false, on all ranks: they are to be staged. Throws as
  /// perform().
  bool perform_on_device(const device::Call& call);
  bool is_alone() const { return member_.bootstrap.size() == 1; }
  /// perform_on_device() of a communicator of one rank.
  bool copy_on_device(const device::Call& call, LocalCalls& by);
  void staged_call_ended() noexcept { device_calls_.call_ended(); }

  /// Whether making this call, which does not wait, has to wait until there are links. The same on all ranks.
  bool needs_links(const device::Call& call);
  bool is_on_one_host() const noexcept { return member_.group->wiring.shape.hosts == 1; }
  /// The ranks have made their first links, or failed to. The same on all ranks.
  bool has_tried_links() const noexcept { return links_.state != LinkState::kNotMade; }
  /// Makes the links, through exchanges of another bootstrap. pause: what to do in place of letting the MPI
  /// library progress; may be null. Throws as perform().
  void connect(const Bootstrap& bootstrap, std::function<void()> pause);
  /// From now on.
  void exchange_through(const Bootstrap& bootstrap) noexcept { member_.exchange_through(bootstrap); }

  /// A call that does not wait; nullptr: declined. The making of a persistent one may wait, for the links.
  /// Throws as perform().
  std::unique_ptr<Request> make_request(const device::Call& call, loom_request_kind kind,
                                        loom_request_done done, void* context);
  /// See core.h.
  bool carries_beside_devices(device::Collective collective) {
    return carries_beside_devices(device::Call{.collective = collective});
  }
  /// A persistent call, which all ranks make in one order and may start in any. Collective. nullptr on all
  /// ranks: there is no lane for it. Throws as perform().
  std::unique_ptr<Request> make_request_with_lane(const device::Call& call, loom_request_done done,
                                                  void* context);
  /// The same where the buffers of all ranks lie on GPUs, and the call stays there; before staging buffers
  /// take their place. Between hosts: in the order that the program has promised.
  std::unique_ptr<Request> make_request_on_gpus(const device::Call& call, loom_request_done done,
                                                void* context);
  /// No algorithm of loom's carries such calls here. The same on all ranks.
  bool declines(const device::Call& call);
  /// Where MPI_Start is called: a call on GPUs comes after what the program has enqueued by now.
  void mark_start(Request& request) noexcept;
  /// Of a request without a lane: the call is performed when all that were started before it are.
  void start(Request& request) noexcept;
  /// What carries the persistent calls of this communicator that have no lanes: the same ranks with links and
  /// a queue of their own. A program may promise to start persistent calls in one order on all ranks, but
  /// even then their place among its other calls may differ from rank to rank (MPI 4.1, section 7.4.4). Made
  /// by the first such call, which is collective. nullptr on all ranks: that failed, as one message has said.
  /// Throws as perform().
  Communicator* for_persistent_calls();

  /// Peers are told, and all calls fail from now on. The user has been told.
  void leave() noexcept;
  /// While set-ups of more links exchange something.
  void look_after_links() {
    member_.watch.look_by([this] {
      for (const Communicator* each = this; each != nullptr; each = each->twin_of_)
        if (each->links_.state == LinkState::kReady) each->links_.check_peers();
    });
  }
  /// "rank 3 of 8 of MPI_COMM_WORLD on host node1", for messages.
  const std::string& where() const noexcept { return member_.where; }

  // ---- For the RequestQueue, while nobody else advances requests.
  /// As much as goes without waiting. Throws as Execution::advance(), and Error once the communicator is
  /// abandoned.
  State advance(Request& request);
  /// Of a call that has ended so. may_tell: as RequestQueue::advance().
  int result_of(const Truncated& truncated, bool may_tell) const noexcept;
  int result_of(const NotCopied& not_copied) const noexcept;
  /// From inside a handler: the communicator ends, and its first cause is shown. Returns the result for the C
  /// side.
  int fail() noexcept;
  /// The peers are told. cause: of a request's failure, which is told later.
  void abandon(std::exception_ptr cause = nullptr) noexcept;
  /// The failure of a request at that time is not to be told yet.
  bool awaits_word(const std::exception_ptr& failure,
                   std::chrono::steady_clock::time_point since) const noexcept;

 private:
  friend struct test::ForcedTuner;  // in place of what the ranks would find out
  Communicator(const Bootstrap& bootstrap, Process& process, ProgressEngine& engine);

  /// Throws as perform(). false: it became another call on the way.
  template <class Exchange>
  [[gnu::always_inline]] bool exchange(const device::Call& call, Exchange& exchange, Algorithm by) {
    // requests_ first: they may have failed in another thread.
    if (!requests_.empty() || has_due_) [[unlikely]]
      finish_requests_before_call();
    device::Waiter waiter(execution_.wait_policy());
    try {
      exchange.perform(call, waiter);
    } catch (...) {
      end_exchange(call);
      return false;
    }
    CallCounters::Counts& counts = calls_[call.collective];
    calls_.add(counts.by[static_cast<std::size_t>(by)], 1);
    calls_.add(counts.bytes, call.bytes());
    return true;
  }
  bool is_small(const device::Call& call) const noexcept {
    if (call.collective > device::Collective::kBarrier || call.in_packer != nullptr ||
        call.out_packer != nullptr)
      return false;
    if (!device::has_kernel(call)) return false;
    const std::size_t bytes = call.bytes();
    if (bytes == 0 && call.collective != device::Collective::kBarrier) return false;
    // Another thread may fail a request of this communicator meanwhile: perform_small() looks after that.
    const std::uint64_t below = std::atomic_ref(fast_below_.small[static_cast<std::size_t>(call.collective)])
                                    .load(std::memory_order_relaxed);
    return bytes < below &&  // a product of it may be beyond 64 bits
           device::offered_bytes(call.collective, bytes, member_.bootstrap.size()) < below;
  }
  void learn_what_is_small() noexcept;
  bool is_linked();
  bool has_pairwise();
  void make_links_for_nonblocking(const device::Call& call);
  void make_pairwise();
  Choice choose_when_linked(const device::Call& call);
  std::optional<Algorithm> try_perform(const device::Call& call);
  std::optional<Algorithm> end_call(const device::Call& call);
  void end_exchange(const device::Call& call);
  [[noreturn]] void rethrow_as_told() const;
  [[noreturn]] void fail_call();
  void break_for(const Error& cause);
  void count(const device::Call& call, std::optional<Algorithm> carried) noexcept;
  static void count(CallCounters& calls, const device::Call& call, Algorithm carried) noexcept;
  bool carries_beside_devices(const device::Call& call);
  bool comes_to_rest();
  std::unique_ptr<Request> make_request_of_twin_on_gpus(const device::Call& call, loom_request_done done,
                                                        void* context);
  std::unique_ptr<Request> make_request_in_queue_on_gpus(const device::Call& call,
                                                         const device::cuda::Owner& owner,
                                                         PackedCalls::Lease packed, loom_request_done done,
                                                         void* context);
  LaneLease take_lane(const LaneForm& form);
  void take_lanes_back() noexcept;
  void find_room_for_lanes(std::size_t bytes);
  void start_thread() noexcept;
  [[noreturn]] void throw_abandoned() const;
  void finish_requests() noexcept;
  void finish_requests_before_call();
  void stop() noexcept;

  /// While the bootstrap exchanges: calls from inside it are its own.
  class Linking {
   public:
    explicit Linking(Communicator& communicator) : linking_(communicator.linking_) { linking_ = true; }
    ~Linking() { linking_ = false; }
    Linking(const Linking&) = delete;
    Linking& operator=(const Linking&) = delete;

   private:
    std::atomic<bool>& linking_;
  };

  Member member_;
  ProgressEngine& engine_;
  Links links_;
  Execution execution_{member_, links_};
  LinkMaker link_maker_{member_, links_, execution_.wait_policy()};
  CallSelector selector_{member_, links_, execution_};
  DeviceCalls device_calls_{member_, links_, execution_, selector_};

  CallCounters calls_, queued_calls_;  ///< the latter by whoever advances requests
  mutable loom_fast_below fast_below_{};
  std::atomic<bool> linking_ = false;
  std::exception_ptr abandoned_for_;
  std::atomic<bool> abandoned_ = false;  ///< the peers have been told; for the reason above
  BrokenBy broken_;
  /// Something comes before the next call: it is broken, or wants a set-up. Set by any thread.
  std::atomic<bool> has_due_ = false;
  bool wants_pairwise_ = false;  ///< a call that does not wait has lacked these links on all ranks
  RequestQueue requests_{*this, execution_};
  std::list<Lane> lanes_;  ///< changes while nobody advances requests
  std::atomic<bool> lanes_released_ = false;

  // for_persistent_calls()
  enum class Twin { kNotMade, kReady, kDeclined };
  Twin twin_state_ = Twin::kNotMade;
  std::unique_ptr<Communicator> twin_;
  Communicator* twin_of_ = nullptr;     ///< the communicator whose persistent calls this one carries
  std::atomic<bool> stopping_ = false;  ///< that one is abandoned
};

}  // namespace loom
