// process.hpp -- what the communicators of one process share: its identity, its network, its counters.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "component/core.h"
#include "component/select/select.hpp"
#include "component/setup/group.hpp"
#include "component/setup/ports.hpp"
#include "device/call.h"
#include "device/cuda/gpu_links.hpp"
#include "device/cuda/staging.hpp"
#include "device/link/process_watch.hpp"
#include "topo/discover.hpp"
#include "ucx_transport/transport.hpp"

namespace loom {

/// What happened to the calls on one communicator. One thread counts at a time, any may read: the counts are
/// plain additions, for a locked one would cost as much as the rest of a small call.
struct CallCounters {
  struct Counts {
    std::array<std::atomic<std::uint64_t>, kAlgorithmCount> by{};  ///< calls that loom carried, by algorithm
    std::atomic<std::uint64_t> bytes{0};  ///< of these calls, as Call::bytes() has it
    std::array<std::atomic<std::uint64_t>, kFallbackCount> fallbacks{};  ///< calls that it did not, by reason
  };
  std::array<Counts, device::kCollectiveCount> of{};
  Counts& operator[](device::Collective collective) { return of[static_cast<std::size_t>(collective)]; }

  static void add(std::atomic<std::uint64_t>& counter, std::uint64_t by) noexcept {
    counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }
};

class Process {
 public:
  /// `host_name` empty: this host's. Tests give ranks of one process different ones.
  /// `progress_callback`: what the MPI library's progress loop is to call once the transport is open; may be
  /// null.
  explicit Process(const loom_runtime& runtime, std::string host_name = {},
                   int (*progress_callback)(void) = nullptr)
      : runtime_(runtime), host_name_(std::move(host_name)), progress_callback_(progress_callback) {
    open_driver(false);
    if (runtime_.now == nullptr) runtime_.now = clock();
  }
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  const loom_runtime& runtime() const noexcept { return runtime_; }
  /// In seconds; only differences mean something.
  double now() const noexcept { return runtime_.now(); }
  std::string host_name();
  device::ProcessId id();
  /// Random, not 0: names this process among all that it may share a communicator with. Throws Error.
  std::uint64_t number();
  /// Where the calling thread is bound now. The machine is read at the first call. Throws Error.
  topo::Place place();
  /// Where memory should lie that the calling thread reads; nothing where that makes no difference. Throws
  /// Error.
  std::optional<int> numa_node();
  /// Whether any file is to be read or written.
  bool names_files() const noexcept;
  /// What coll_loom_topo_file, a file of one host, says of every host; nullptr where it is not set. Read at
  /// the first call. Throws Error.
  const topo::System* described_machine();
  /// This host as live discovery sees it, now. Throws Error.
  topo::System discovered_machine();
  /// This host with these GPUs, ascending, as hwloc, sysfs and NVML show it, and UCX where its ports matter;
  /// the last one is kept. Throws Error.
  topo::Discovered machine_with(const std::vector<topo::BusId>& gpus, bool with_ports);
  /// Logs, at coll_loom_verbose >= 1, what had to be assumed for the description, and how it fits this host
  /// (`placed`: what topo::placement_notes says): once. For rank 0.
  void tell_of_description(const std::vector<std::string>& placed);
  /// Logs lines at coll_loom_verbose >= 1.
  void tell(const std::vector<std::string>& notes) const;
  /// Tells descriptions apart; 0 where there is none. Throws Error.
  std::uint64_t description_mark();
  /// What coll_loom_tune and the file of coll_loom_tune_file say. Read at the first call. Throws Error.
  const Tune& tune();
  /// It leaves some calls to algorithms on GPUs; false also where tune() throws.
  bool wants_devices() noexcept;
  /// The text of coll_loom_graph_file; nullptr where it is not set. Read at the first call. Throws Error.
  const std::string* graph();
  /// Tells such files apart; 0 where there is none. Throws Error.
  std::uint64_t graph_mark();
  bool wants_graph_dump() const noexcept {
    return !graph_dumped_ && is_set(runtime_.parameters.graph_dump_file);
  }
  /// At coll_loom_verbose >= 1, once: the variables for graph files that have no effect because of `why`, the
  /// rest of a sentence.
  void tell_graphs_unused(const std::string& why);
  /// Shows, once, that a communicator's GPUs cannot run the channels of coll_loom_graph_file.
  void show_graph_unfit(const std::string& where, const char* cause);
  /// Writes `text` to coll_loom_graph_dump_file, once per process and if that is set. A failure is only told.
  void dump_graph(const std::function<std::string()>& text) noexcept;
  /// What a host is described with.
  enum class Described { kRanks, kGpus };
  bool wants_dump(Described with) const noexcept {
    return !dumped_[static_cast<std::size_t>(with)] && is_set(runtime_.parameters.topo_dump_file);
  }
  /// Writes `system` to coll_loom_topo_dump_file, if that is set: once with the ranks, and once more with the
  /// GPUs that run channels. A failure is only told.
  void dump(const topo::System& system, Described with) noexcept;
  /// The network ports that loom may go over. UCX is asked at the first call. Throws Error.
  const PortChoice& ports();
  /// Links through planned ports have failed where those of UCX's choice work; later communicators do not
  /// try.
  void give_up_planned_ports() noexcept { planned_ports_work_ = false; }
  bool may_try_planned_ports() const noexcept { return planned_ports_work_; }
  /// The same of ports that read and write GPUs' memory by themselves.
  void give_up_gpu_direct() noexcept { gpu_direct_works_ = false; }
  bool may_try_gpu_direct() const noexcept { return gpu_direct_works_; }
  /// Opened at the first call, over the ports nearest to places[self] (nearest_ports()); from then on the MPI
  /// library's progress loop drives it. Throws Error.
  ucx_transport::Transport& transport(std::span<const topo::Place> places, std::size_t self);
  /// Of it, for links of calls on host memory; for those by which UCX is to find its way itself. Throw Error.
  ucx_transport::RailId rail_of_host_links() {
    return leaves_ports_to_ucx_ ? rail_of_ucx() : ucx_transport::kAllRails;
  }
  ucx_transport::RailId rail_of_ucx() {
    return chose_ports_ ? open_transport()->rail_over("") : ucx_transport::kAllRails;
  }
  /// Whether the transport goes over the ports nearest to this process, or should have: those of other hosts
  /// may be of another network.
  bool chose_ports() const noexcept { return chose_ports_; }
  bool leaves_ports_to_ucx() const noexcept { return leaves_ports_to_ucx_; }
  /// From now on links go as UCX finds best, as far as the user has not said how.
  void leave_ports_to_ucx(bool leave) noexcept { leaves_ports_to_ucx_ = leave; }
  /// For tests, in place of nearest_ports(). Before the transport is opened.
  void find_ports_by(std::function<std::string()> find) { find_ports_ = std::move(find); }

  loom_counters counters();
  void count_communicator(bool connected) noexcept { ++(connected ? communicators_ : declined_); }
  /// A call that was declined before it came to any communicator.
  void count_fallback(device::Collective collective, FallbackReason reason) noexcept {
    ++early_fallbacks_[collective].fallbacks[static_cast<std::size_t>(reason)];
  }
  /// From now on counters() includes these; until retire(), which keeps their values.
  void include(const CallCounters& calls);
  void retire(const CallCounters& calls);

  Groups& groups() noexcept { return groups_; }

  /// For buffers on devices; nullptr where there can be none. Looks for CUDA's driver among the libraries
  /// that the process has loaded, unless it has been found.
  device::cuda::Staging* look_for_devices();
  /// What that found.
  device::cuda::Staging* staging() noexcept { return found_staging_.load(std::memory_order_acquire); }

  /// The GPU that an owner's memory is on. The same one for all communicators that use it at a time. Throws
  /// Error.
  std::shared_ptr<device::cuda::Gpu> gpu(const device::cuda::Owner& owner);
  /// Of a communicator that ends: freed when all its ranks have left them, here or later.
  void retire(std::unique_ptr<device::cuda::GpuLinks> links) noexcept;
  void release_unused_memory() noexcept;
  /// The GPUs that there are stay until links are freed next: the last one to have a GPU waits for it.
  void keep_gpus() noexcept;
  /// Of this thread: see loom_set_may_wait_for_gpus().
  static inline thread_local bool may_wait_for_gpus = true;
  /// Frees those retired links that all have left.
  void free_retired_links() noexcept;

  /// The transport if it is open.
  ucx_transport::Transport* open_transport() noexcept {
    return open_transport_.load(std::memory_order_acquire);
  }

 private:
  std::string net_devices(std::span<const topo::Place> places, std::size_t self);
  const topo::Machine& machine() LOOM_REQUIRES(mutex_);
  static bool is_set(const char* path) noexcept { return path != nullptr && *path != '\0'; }
  void open_driver(bool if_loaded) LOOM_REQUIRES(mutex_);
  device::cuda::Driver::Clock clock() const noexcept;
  void write_once(std::atomic<bool>& written, const char* variable, const char* path,
                  const std::function<std::string()>& text) noexcept;

  loom_runtime runtime_;
  Mutex mutex_;
  std::string host_name_ LOOM_GUARDED_BY(mutex_);
  int (*progress_callback_)(void);
  device::ProcessId id_ LOOM_GUARDED_BY(mutex_);
  std::uint64_t number_ LOOM_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<topo::Machine> machine_ LOOM_GUARDED_BY(mutex_);
  std::unique_ptr<topo::System> described_ LOOM_GUARDED_BY(mutex_);
  std::vector<std::string> description_notes_ LOOM_GUARDED_BY(mutex_);
  bool description_told_ LOOM_GUARDED_BY(mutex_) = false;
  std::uint64_t description_mark_ LOOM_GUARDED_BY(mutex_) = 0;
  std::optional<Tune> tune_ LOOM_GUARDED_BY(mutex_);
  std::unique_ptr<std::string> graph_ LOOM_GUARDED_BY(mutex_);
  std::uint64_t graph_mark_ LOOM_GUARDED_BY(mutex_) = 0;
  /// Threads may set communicators up at the same time.
  std::array<std::atomic<bool>, 2> dumped_{};  ///< by Described
  std::atomic<bool> graph_dumped_ = false, graphs_told_ = false, graph_unfit_shown_ = false;
  std::pair<std::vector<topo::BusId>, bool> asked_of_machine_ LOOM_GUARDED_BY(mutex_);
  std::unique_ptr<topo::Discovered> machine_with_gpus_ LOOM_GUARDED_BY(mutex_);
  std::optional<PortChoice> ports_ LOOM_GUARDED_BY(mutex_);
  std::atomic<bool> planned_ports_work_ = true, gpu_direct_works_ = true;
  std::atomic<bool> chose_ports_ = false, leaves_ports_to_ucx_ = false;
  std::function<std::string()> find_ports_;
  std::unique_ptr<device::cuda::Staging> staging_ LOOM_GUARDED_BY(mutex_);
  std::atomic<device::cuda::Staging*> found_staging_{nullptr};
  std::vector<std::weak_ptr<device::cuda::Gpu>> gpus_ LOOM_GUARDED_BY(mutex_);
  using RetiredLinks = std::list<std::unique_ptr<device::cuda::GpuLinks>>;
  std::vector<std::shared_ptr<device::cuda::Gpu>> kept_gpus_ LOOM_GUARDED_BY(mutex_);
  RetiredLinks retired_gpu_links_ LOOM_GUARDED_BY(mutex_), used_gpu_links_
      LOOM_GUARDED_BY(mutex_);  ///< the latter have yet to leave
  std::unique_ptr<ucx_transport::Transport> transport_ LOOM_GUARDED_BY(mutex_);
  std::atomic<ucx_transport::Transport*> open_transport_{nullptr};
  std::atomic<std::uint64_t> communicators_{0}, declined_{0};
  CallCounters early_fallbacks_;  ///< by any thread: added to atomically
  std::vector<const CallCounters*> live_calls_ LOOM_GUARDED_BY(mutex_);
  CallCounters retired_calls_ LOOM_GUARDED_BY(mutex_);
  Groups groups_;  ///< their links end before the transport
};

}  // namespace loom
