#include "component/setup/process.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "topo/cpu_mask.hpp"
#include "topo/discover.hpp"
#include "topo/hwloc_xml.hpp"
#include "topo/xml_file.hpp"
#include "ucx_transport/ports.hpp"
#include "ucx_transport/resources.hpp"

namespace loom {
namespace {

/// What goes wrong in `body` names the MCA variable that asked for it.
template <class Body>
auto naming(const char* variable, Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    throw Error(error.code(), loom::format("{}: {}", variable, error.what()));
  }
}

}  // namespace

Process::~Process() {
  free_retired_links();  // which may have links of the transport
  if (transport_ && progress_callback_ != nullptr && runtime_.unregister_progress != nullptr)
    runtime_.unregister_progress(progress_callback_);
}

std::string Process::host_name() {
  const MutexLock lock(mutex_);
  if (host_name_.empty()) host_name_ = topo::host_name();
  return host_name_;
}

device::ProcessId Process::id() {
  const MutexLock lock(mutex_);
  if (id_.pid == 0) id_ = device::this_process();
  return id_;
}

std::uint64_t Process::number() {
  const MutexLock lock(mutex_);
  while (number_ == 0) {
    std::random_device source;
    number_ = (std::uint64_t{source()} << 32) ^ source();
  }
  return number_;
}

loom_counters Process::counters() {
  const MutexLock lock(mutex_);
  loom_counters sum{};
  sum.communicators = communicators_;
  sum.declined = declined_;
  sum.staged_bytes = staging_ ? staging_->bytes_copied() : 0;
  sum.net_bytes_sent = transport_ ? transport_->bytes_sent() : 0;
  const auto add = [&](const CallCounters& calls) {
    for (std::size_t c = 0; c < calls.of.size(); ++c) {
      loom_collective_counters& to = sum.of[c];
      const CallCounters::Counts& from = calls.of[c];
      for (std::size_t a = 0; a < kAlgorithmCount; ++a)
        to.by[a] += from.by[a].load(std::memory_order_relaxed);
      to.bytes += from.bytes.load(std::memory_order_relaxed);
      for (std::size_t r = 0; r < kFallbackCount; ++r)
        to.fallbacks_by[r] += from.fallbacks[r].load(std::memory_order_relaxed);
    }
  };
  add(retired_calls_);
  add(early_fallbacks_);
  for (const CallCounters* calls : live_calls_) add(*calls);
  return sum;
}

void Process::open_driver(bool if_loaded) {
  if (runtime_.parameters.only_host_memory) return;
  auto driver = device::cuda::Driver::open("libcuda.so.1", if_loaded);
  if (!driver) return;
  staging_ = std::make_unique<device::cuda::Staging>(std::move(driver), runtime_.parameters.staging_bytes);
  found_staging_.store(staging_.get(), std::memory_order_release);
}

device::cuda::Driver::Clock Process::clock() const noexcept {
  const device::cuda::Staging* const found = found_staging_.load(std::memory_order_acquire);
  if (const auto of_driver = found != nullptr ? found->driver().own_clock() : nullptr) return of_driver;
  return [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
}

device::cuda::Staging* Process::look_for_devices() {
  const MutexLock lock(mutex_);
  if (!staging_) open_driver(true);
  return staging_.get();
}

std::shared_ptr<device::cuda::Gpu> Process::gpu(const device::cuda::Owner& owner) {
  std::vector<std::shared_ptr<device::cuda::Gpu>> seen;  // outlive the lock: the last one waits for its GPU
  const MutexLock lock(mutex_);
  std::erase_if(gpus_, [](const auto& known) { return known.expired(); });
  for (const auto& known : gpus_)
    if (const auto& gpu = seen.emplace_back(known.lock()); gpu && gpu->is_of(owner) && gpu->is_alive())
      return gpu;
  auto gpu =
      std::make_shared<device::cuda::Gpu>(staging_->driver(), owner, runtime_.parameters.staging_bytes);
  gpus_.push_back(gpu);
  return gpu;
}

void Process::retire(std::unique_ptr<device::cuda::GpuLinks> links) noexcept {
  try {
    const MutexLock lock(mutex_);
    used_gpu_links_.push_back(std::move(links));
  } catch (const std::bad_alloc&) {  // freed now if that is safe, else not before the process ends
  }
  if (may_wait_for_gpus) free_retired_links();
}

void Process::keep_gpus() noexcept {
  const MutexLock lock(mutex_);
  try {
    for (const auto& known : gpus_)
      if (auto gpu = known.lock(); gpu && std::ranges::count(kept_gpus_, gpu) == 0)
        kept_gpus_.push_back(std::move(gpu));
  } catch (const std::bad_alloc&) {  // then this thread waits
  }
}

void Process::release_unused_memory() noexcept {
  std::vector<std::shared_ptr<device::cuda::Gpu>> gpus;
  try {
    const MutexLock lock(mutex_);
    for (const auto& known : gpus_) gpus.push_back(known.lock());
  } catch (const std::bad_alloc&) {  // next time
  }
  for (const auto& gpu : gpus)
    if (gpu) gpu->release_unused();
}

void Process::free_retired_links() noexcept {
  // They outlive the lock: to free memory of a GPU, CUDA waits for the program's kernels.
  std::vector<std::shared_ptr<device::cuda::Gpu>> gpus;
  RetiredLinks leaving, left;
  {
    const MutexLock lock(mutex_);
    leaving.swap(used_gpu_links_);
    gpus.swap(kept_gpus_);
  }
  for (const auto& links : leaving) links->leave();
  release_unused_memory();
  const MutexLock lock(mutex_);
  retired_gpu_links_.splice(retired_gpu_links_.end(), leaving);
  for (auto links = retired_gpu_links_.begin(); links != retired_gpu_links_.end();) {
    const auto next = std::next(links);
    if ((*links)->all_have_left()) left.splice(left.end(), retired_gpu_links_, links);
    links = next;
  }
}

void Process::include(const CallCounters& calls) {
  const MutexLock lock(mutex_);
  live_calls_.push_back(&calls);
}

void Process::retire(const CallCounters& calls) {
  const MutexLock lock(mutex_);
  for (std::size_t c = 0; c < calls.of.size(); ++c) {
    CallCounters::Counts& to = retired_calls_.of[c];
    const CallCounters::Counts& from = calls.of[c];
    for (std::size_t a = 0; a < kAlgorithmCount; ++a) CallCounters::add(to.by[a], from.by[a]);
    CallCounters::add(to.bytes, from.bytes);
    for (std::size_t r = 0; r < kFallbackCount; ++r) CallCounters::add(to.fallbacks[r], from.fallbacks[r]);
  }
  std::erase(live_calls_, &calls);
}

topo::Place Process::place() {
  const topo::HostId host = topo::host_id(host_name());
  const MutexLock lock(mutex_);
  return machine().place_of_this_thread(host);
}

std::optional<int> Process::numa_node() {
  const MutexLock lock(mutex_);
  return machine().numa_node_of_this_thread();
}

const topo::Machine& Process::machine() {
  if (!machine_) machine_ = std::make_unique<topo::Machine>();
  return *machine_;
}

bool Process::names_files() const noexcept {
  const loom_parameters& names = runtime_.parameters;
  return is_set(names.topo_file) || is_set(names.topo_dump_file) || is_set(names.graph_file) ||
         is_set(names.graph_dump_file);
}

const topo::System* Process::described_machine() {
  const char* path = runtime_.parameters.topo_file;
  if (!is_set(path)) return nullptr;
  const MutexLock lock(mutex_);
  if (!described_) {
    std::string text;
    topo::SystemWithNotes machine = naming("coll_loom_topo_file", [&] {
      text = topo::read_text_file(path);
      topo::SystemWithNotes read = topo::parse_system(text, path);
      if (const std::size_t hosts = read.system.hosts().size(); hosts > 1)
        throw Error(ErrorCode::kBadInput,
                    loom::format("{}: it has {} hosts. A file of one is needed, which stands for every host.",
                                 path, hosts));
      return read;
    });
    described_ = std::make_unique<topo::System>(std::move(machine.system));
    description_notes_ = std::move(machine.notes);
    description_mark_ = topo::fingerprint(text);
  }
  return described_.get();
}

std::uint64_t Process::description_mark() {
  described_machine();
  const MutexLock lock(mutex_);
  return description_mark_;
}

topo::System Process::discovered_machine() {
  topo::SystemWithNotes live = topo::discover({.ucx_ports = ucx_transport::ports()});
  tell(live.notes);
  return std::move(live.system);
}

topo::Discovered Process::machine_with(const std::vector<topo::BusId>& gpus, bool with_ports) {
  const MutexLock lock(mutex_);
  const std::pair asked(gpus, with_ports);
  if (!machine_with_gpus_ || asked != asked_of_machine_) {
    // NVML tells what CUDA's driver does, of all GPUs, without having to be initialised; of GPUDirect each
    // rank tells by itself (GpuFacts).
    topo::LiveSources sources;
    sources.cuda.clear();
    sources.gpus = gpus;
    if (with_ports) sources.ucx_ports = ucx_transport::ports();
    machine_with_gpus_ = std::make_unique<topo::Discovered>(topo::discover(sources));
    asked_of_machine_ = asked;
  }
  return *machine_with_gpus_;
}

void Process::tell_of_description(const std::vector<std::string>& placed) {
  const MutexLock lock(mutex_);
  if (!described_ || std::exchange(description_told_, true)) return;
  tell(description_notes_);
  std::vector<std::string> fit = placed;
  std::set<int> cpus;
  for (const topo::NodeId id : described_->of_kind(topo::NodeKind::kCpu))
    for (const int cpu : topo::cpus_of(described_->node(id).cpu().affinity)) cpus.insert(cpu);
  const long here = ::sysconf(_SC_NPROCESSORS_CONF);
  if (!cpus.empty() && here > 0 && cpus.size() != static_cast<std::size_t>(here))
    fit.push_back(loom::format("It has {} CPUs, this host {}.", cpus.size(), here));
  for (std::string& line : fit)
    line = loom::format("coll_loom_topo_file: {}: {}", runtime_.parameters.topo_file, line);
  tell(fit);
}

void Process::tell(const std::vector<std::string>& notes) const {
  if (runtime_.parameters.verbose < 1 || runtime_.log == nullptr) return;
  for (const std::string& note : notes) runtime_.log(note.c_str());
}

const Tune& Process::tune() {
  const MutexLock lock(mutex_);
  if (tune_) return *tune_;
  const char *const text = runtime_.parameters.tune, *const path = runtime_.parameters.tune_file;
  Tune tune;
  if (is_set(path))
    tune = naming("coll_loom_tune_file", [&] { return Tune::parse(topo::read_text_file(path), path); });
  if (is_set(text)) tune.append(Tune::parse(text, "coll_loom_tune"));
  return tune_.emplace(std::move(tune));
}

bool Process::wants_devices() noexcept {
  try {
    return tune().may_use_on_devices(Algorithm::kZeroCopy) || tune().may_use_kernels();
  } catch (const std::exception&) {
    return false;
  }
}

const std::string* Process::graph() {
  const char* path = runtime_.parameters.graph_file;
  if (!is_set(path)) return nullptr;
  const MutexLock lock(mutex_);
  if (!graph_) {
    graph_ = naming("coll_loom_graph_file",
                    [&] { return std::make_unique<std::string>(topo::read_text_file(path)); });
    graph_mark_ = topo::fingerprint(*graph_);
  }
  return graph_.get();
}

std::uint64_t Process::graph_mark() {
  graph();
  const MutexLock lock(mutex_);
  return graph_mark_;
}

void Process::write_once(std::atomic<bool>& written, const char* variable, const char* path,
                         const std::function<std::string()>& text) noexcept {
  if (!is_set(path) || written.exchange(true)) return;
  try {
    topo::write_text_file(path, text());
  } catch (const std::exception& error) {
    if (runtime_.log != nullptr) runtime_.log((std::string(variable) + ": " + error.what()).c_str());
  }
}

void Process::dump(const topo::System& system, Described with) noexcept {
  write_once(dumped_[static_cast<std::size_t>(with)], "coll_loom_topo_dump_file",
             runtime_.parameters.topo_dump_file, [&] { return topo::to_hwloc_xml(system); });
}

void Process::tell_graphs_unused(const std::string& why) {
  const auto tell_of = [&](const char* variable, const char* path) {
    if (is_set(path))
      tell({loom::format("{} has no effect: it is for the channels of kernels on GPUs, and {}.", variable,
                         why)});
  };
  if (graphs_told_.exchange(true)) return;
  tell_of("coll_loom_graph_file", runtime_.parameters.graph_file);
  tell_of("coll_loom_graph_dump_file", runtime_.parameters.graph_dump_file);
}

void Process::show_graph_unfit(const std::string& where, const char* cause) {
  if (graph_unfit_shown_.exchange(true)) return;
  runtime_.show(LOOM_MESSAGE_UNFIT_GRAPH, where.c_str(), cause);
}

void Process::dump_graph(const std::function<std::string()>& text) noexcept {
  write_once(graph_dumped_, "coll_loom_graph_dump_file", runtime_.parameters.graph_dump_file, text);
}

/// As the user says; else, of several ports that UCX knows well, and may use, the nearest; else what UCX
/// finds best.
std::string Process::net_devices(std::span<const topo::Place> places, std::size_t self) {
  chose_ports_ = false;
  if (is_set(runtime_.parameters.net_devices)) return runtime_.parameters.net_devices;
  if (leaves_ports_to_ucx_) return {};
  if (find_ports_) {
    chose_ports_ = true;
    return find_ports_();
  }
  if (!ucx_transport::setting("NET_DEVICES").empty() ||
      !ucx_transport::lets_use_verbs(ucx_transport::setting("TLS")))
    return {};
  std::string nearest = nearest_ports(ucx_transport::ports(), places, self);
  chose_ports_ = !nearest.empty();
  return nearest;
}

const PortChoice& Process::ports() {
  const MutexLock lock(mutex_);
  if (!ports_) {
    const char* const named = runtime_.parameters.net_devices;
    ports_.emplace(is_set(named) ? named : ucx_transport::setting("NET_DEVICES"), ucx_transport::ports());
  }
  return *ports_;
}

ucx_transport::Transport& Process::transport(std::span<const topo::Place> places, std::size_t self) {
  if (open_transport() != nullptr) return *open_transport();
  const MutexLock lock(mutex_);
  if (!transport_) {
    ucx_transport::require(ucx_transport::kNeedsOfWorker);  // also for a look at ports
    const std::string devices = net_devices(places, self);
    if (runtime_.parameters.verbose >= 2 && !devices.empty())
      runtime_.log(loom::format("network device {}", devices).c_str());
    transport_ = std::make_unique<ucx_transport::Transport>(ucx_transport::TransportOptions{
        .net_devices = devices,
        .can_sleep = runtime_.parameters.progress_thread,
        .rendezvous = static_cast<ucx_transport::Rendezvous>(runtime_.parameters.rendezvous)});
    open_transport_.store(transport_.get(), std::memory_order_release);
    if (progress_callback_ != nullptr && runtime_.register_progress != nullptr)
      runtime_.register_progress(progress_callback_, false);
  }
  return *transport_;
}

}  // namespace loom
