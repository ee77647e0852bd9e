// communicator.hpp -- joins the folders for one MPI communicator: topo -> search -> connect -> links, then
// calls. Knows nothing of Open MPI: it is tested with threads as ranks.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "component/execute/adopted_broadcast.hpp"
#include "component/execute/requests.hpp"
#include "component/select/select.hpp"
#include "component/setup/agreement.hpp"
#include "component/setup/bootstrap.hpp"
#include "component/setup/group.hpp"
#include "component/setup/process.hpp"
#include "device/host/dbt_executor.hpp"
#include "device/host/grid.hpp"
#include "device/host/hier_executor.hpp"
#include "device/host/pairwise_executor.hpp"
#include "device/host/single_copy_executor.hpp"
#include "device/host/split_rail_executor.hpp"
#include "device/link/peer_memory.hpp"

namespace loom {

/// For a message: that memory is too short for it changes nothing of what the ranks have agreed on.
template <class Body>
void without_failing(Body&& body) noexcept {
  try {
    body();
  } catch (const std::exception&) {
  }
}

namespace test {
struct ForcedTuner;
}

/// Not for several threads at once: MPI allows one collective at a time on a communicator.
class Communicator {
 public:
  /// Collective; either every rank gets a communicator, or every rank gets nullptr after one message that
  /// says why. Links are made by the first call that needs them. `process` and the bootstrap's context must
  /// outlive it. Throws BootstrapFailed.
  static std::unique_ptr<Communicator> create(const Bootstrap& bootstrap, Process& process);
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

  /// See loom_small_below and loom_perform_small in core.h. Small: a immediate exchange, as ready_plan()
  /// would find after some more steps, with nothing to be told or done before it.
  const std::uint64_t* small_below() const noexcept { return small_below_.data(); }
  /// Throws as perform().
  void perform_small(const device::Call& call) {
    // requests_ first: they may have failed in another thread.
    if (!requests_.empty() || broken_) [[unlikely]]
      finish_requests_before_call();
    device::Waiter waiter(wait_policy_);
    try {
      links_.immediate->perform(call, waiter);
    } catch (...) {
      end_small_call(call);
    }
    CallCounters::Counts& counts = calls_[call.collective];
    calls_.add(counts.by[static_cast<std::size_t>(Algorithm::kImmediate)], 1);
    calls_.add(counts.bytes, call.bytes());
  }

  /// Whether making this call, which does not wait, has to wait until there are links. The same on all ranks.
  bool needs_links(const device::Call& call);
  /// Makes the links, through exchanges of another bootstrap. pause: what to do in place of letting the MPI
  /// library progress; may be null. Throws as perform().
  void connect(const Bootstrap& bootstrap, std::function<void()> pause);
  /// From now on.
  void exchange_through(const Bootstrap& bootstrap) {
    bootstrap_ = bootstrap;
    bootstrap_.rename(name_.c_str());
  }
  /// Any collective on buffers that may lie on GPUs. false, on all ranks: they are to be staged. Throws as
  /// perform().
  bool perform_on_device(const device::Call& call);

  /// A call that does not wait; nullptr: declined. may_wait: but its making may, for the links. Throws as
  /// perform().
  std::unique_ptr<Request> make_request(const device::Call& call, bool may_wait, loom_request_done done,
                                        void* context);
  /// What carries the persistent calls of this communicator: the same ranks with links and a queue of their
  /// own. A program may promise to start persistent calls in one order on all ranks, but even then their
  /// place among its other calls may differ from rank to rank (MPI 4.1, section 7.4.4). Made by the first
  /// such call, which is collective. nullptr on all ranks: that failed, as one message has said. Throws as
  /// perform().
  Communicator* for_persistent_calls();
  /// The call is performed when all that were started before it are.
  void start(Request& call) noexcept;
  /// Peers are told, and all calls fail from now on.
  void give_up() noexcept;
  /// The same, with a message that the user has seen already.
  void leave() noexcept;

  /// "rank 3 of 8 of MPI_COMM_WORLD on host node1", for messages.
  const std::string& where() const noexcept { return where_; }

 private:
  friend class RequestQueue;
  friend struct test::ForcedTuner;  // in place of what the ranks would find out
  struct PeerInfo;
  Communicator(const Bootstrap& bootstrap, Process& process);

  void learn(Agreement& agreement);
  bool find_group(Agreement& agreement, const Groups::Members& members);
  bool uses_devices_here() const;
  void learn_group(Agreement& agreement, std::chrono::steady_clock::time_point& began);
  void set_wait_policy();
  bool link();
  void learn_what_is_small() noexcept;
  void make_links(Agreement& agreement);
  bool take_over_links(Agreement& agreement);
  std::vector<std::byte> learn_node(const std::vector<PeerInfo>& peers);
  void take_place(const connect::Job& call, const std::vector<PeerInfo>& peers);
  std::vector<std::byte> make_ends();
  void join_ends(const GatheredBytes& handles);
  std::vector<std::int64_t> readable_peers(const GatheredBytes& handles) const;
  void try_network(std::span<const LinkSet> sets, std::optional<int> to);
  std::string describe_links() const;

  // links/make_gpu_links.cpp
  bool goes_on_device(const device::Call& call) const;
  std::optional<Algorithm> device_algorithm(const device::Call& call) const;
  bool may_carry_on_device(Algorithm algorithm, const device::Call& call) const;
  std::optional<device::cuda::Owner> gpu_of(const device::Call& call);
  bool holds_everywhere(bool here);
  bool make_gpu_links(const device::cuda::Owner& owner);
  std::optional<device::cuda::GpuLinks::Kind> kind_of_gpu_links(
      std::span<const device::cuda::GpuFacts> facts) const;
  bool connect_gpus(const std::shared_ptr<device::cuda::Gpu>& gpu, const device::cuda::GpuLinks::Form& form,
                    device::cuda::Gpu::Memory memory, const char* otherwise);
  void say(const char* what, const char* why) const;
  template <class T>
  void gather_on_host(const T& mine, std::vector<T>& all);
  template <class Body>
  bool try_everywhere(const char* otherwise, Body&& body);

  // links/make_pairwise.cpp
  bool has_pairwise();
  void make_pairwise(Agreement& agreement);
  std::vector<std::byte> make_pairwise_ends();
  device::PairwiseLinks pairwise();

  bool is_small(const device::Call& call) const noexcept {
    if (call.collective > device::Collective::kBarrier || call.in_packer != nullptr ||
        call.out_packer != nullptr)
      return false;
    if (!device::has_kernel(call)) return false;
    const std::size_t bytes = call.bytes();
    if (bytes == 0 && call.collective != device::Collective::kBarrier) return false;
    // Another thread may fail a request of this communicator meanwhile: perform_small() looks after that.
    const std::uint64_t below = std::atomic_ref(small_below_[static_cast<std::size_t>(call.collective)])
                                    .load(std::memory_order_relaxed);
    return bytes < below &&  // a product of it may be beyond 64 bits
           device::offered_bytes(call.collective, bytes, bootstrap_.size()) < below;
  }
  void end_small_call(const device::Call& call);
  std::optional<Algorithm> end_call(const device::Call& call);
  bool adopts(const device::Call& call, const device::DifferentCall& other,
              device::CallProgress progress) const;
  void tell_adopted(const AdoptedBroadcast& adopted, int root) const;
  [[noreturn]] void fail_for(const device::DifferentCall& other);
  void announce(const device::Call& call, device::CallFamily family);
  device::CallNote note_between_hosts(const device::Call& call) const;
  [[noreturn]] void fail_call();
  [[noreturn]] void fail_immediate() const;
  std::optional<Algorithm> try_perform(const device::Call& call);
  Choice choose(const device::Call& call, bool may_wait);
  Choice choose_when_ready(const device::Call& call);
  bool is_linked();
  void count(const device::Call& call, std::optional<Algorithm> carried) noexcept;

  // select/tuned_calls.cpp
  std::size_t whole_message_of(const device::Call& call) const;
  Window& window_of(const device::Call& call, Algorithm usual);
  Algorithm perform_probing(const device::Call& call, Algorithm usual, Algorithm candidate);
  std::uint64_t largest_on_host(std::uint64_t mine);
  void explain_probe(const device::Call& call, const Window& window, Algorithm usual,
                     Algorithm candidate) const;

  // execute/
  void finish_requests() noexcept;
  void finish_requests_before_call();
  void make_executor(Executor& executor, Algorithm algorithm, const device::Call& call, device::Begun begun);
  State advance(Operation& operation);
  State advance(Request& request);
  void check_waiting(const Operation& operation, double waited_s) const;
  int awaited_rank(const Operation& operation) const;
  int fail() noexcept;
  int result_of(const Truncated& truncated, bool may_tell) const noexcept;
  void exchange_immediately(const device::Call& call);
  void pack_and_exchange(const device::Call& call, device::Waiter& waiter, std::size_t call_bytes);

  void copy_alone(const device::Call& call) const;
  void tell_cut(device::Collective collective, const std::optional<device::CutBlock>& cut) const;
  void perform_by(Algorithm algorithm, const device::Call& call);
  device::Grid grid() const;
  void drive(Operation& operation);
  device::HostAndLocal place_in_grid(int rank) const;
  device::RootedExecutor rooted(const device::Call& call) const;
  device::DbtExecutor over_trees(const device::Call& call) const;
  Conditions conditions() const {
    return {.shape = group_->wiring.shape,
            .single_copy = !links_.pids.empty(),
            .hier = goes_by_hier(),
            .oversubscribed = group_->oversubscribed};
  }
  /// Links are not made for a few small calls. All ranks count the same ones.
  bool goes_by_hier() const {
    const std::uint64_t from = group_->hier_from;
    if (twin_of_ != nullptr && twin_of_->goes_by_hier()) return true;
    return from > 0 && (link_state_ == LinkState::kReady || small_calls_ >= from);
  }
  void count_small_call(const device::Call& call);
  device::HierLinks levels();
  int rank_at(const device::HostAndLocal& place) const {
    return group_->placement.ranks_of(place.host)[static_cast<std::size_t>(place.local)];
  }
  std::string awaited_text(int peer) const;
  void explain(Algorithm algorithm, const device::Call& call, bool may_wait = true);
  void check_peers() const;
  [[noreturn]] void fail_for(const device::ProcessEnded& ended) const;
  void abandon() noexcept;
  void stop() noexcept;

  /// A part of the set-up: what each rank sent, and how long it took.
  struct SetUpPart {
    const char* name;
    std::size_t bytes;
    double milliseconds;
  };
  void note_part(const char* name, Agreement& agreement,
                 std::chrono::steady_clock::time_point& began) noexcept;

  ucx_transport::Transport& network() {
    return process_.transport(group_->host_places, group_->self_on_host);
  }

  Process& process_;
  std::string name_;
  Bootstrap bootstrap_;
  CallCounters calls_;
  int rank_;
  std::string where_;
  std::shared_ptr<Group> group_ = std::make_shared<Group>();
  bool group_is_known_ = false;  ///< from an earlier communicator, on all ranks
  device::WaitPolicy wait_policy_;

  LinkState link_state_ = LinkState::kNotMade;  ///< where they have failed, all calls are declined
  std::atomic<bool> linking_ = false;           ///< calls from inside the bootstrap are its own
  Links links_;
  std::function<void()> pause_;    ///< while links are made for a caller that may not wait
  std::uint64_t small_calls_ = 0;  ///< between hosts, before the links were made
  mutable std::array<std::uint64_t, LOOM_BARRIER + 1> small_below_{};  ///< by collective; read by C
  Selector selector_;
  std::vector<std::pair<device::Collective, Algorithm>> explained_;
  std::array<SetUpPart, 6> parts_;
  std::size_t part_count_ = 0;
  bool abandoned_ = false;  ///< the peers have been told
  std::optional<Error> broken_;
  RequestQueue requests_{*this};

  // for_persistent_calls()
  enum class Twin { kNotMade, kReady, kDeclined };
  Twin twin_state_ = Twin::kNotMade;
  std::unique_ptr<Communicator> twin_;
  Communicator* twin_of_ = nullptr;     ///< the communicator whose persistent calls this one carries
  std::atomic<bool> stopping_ = false;  ///< that one is abandoned
};

}  // namespace loom
