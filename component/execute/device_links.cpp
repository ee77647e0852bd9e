#include "component/execute/device_links.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/format.hpp"
#include "component/select/gpu_calls.hpp"
#include "component/select/kernel_channels.hpp"
#include "component/setup/learn_gpus.hpp"
#include "device/cuda/images.hpp"
#include "topo/nvlink_peers.hpp"

namespace loom {

using device::Collective;
using device::cuda::Gpu;
using device::cuda::GpuFacts;
using device::cuda::GpuLinks;
using device::cuda::Owner;

namespace {

constexpr const char* kNoIpc = "memory of GPUs is shared by file descriptors next";
/// A kernel that tries links takes microseconds, or never ends.
constexpr std::chrono::seconds kLinkCheckLimit{10};

double in_mib(std::uint64_t bytes) {
  return static_cast<double>(bytes) / (1024 * 1024);
}

}  // namespace

void DeviceLinks::say(const char* what, const char* why) const {
  if (member_.process.runtime().parameters.verbose < 1) return;
  without_failing(
      [&] { member_.process.runtime().log(loom::format("{}: {}: {}", member_.where, what, why).c_str()); });
}

std::vector<int> DeviceLinks::hosts() const {
  const connect::Placement& placement = member_.group->placement;
  std::vector<int> hosts;
  if (placement.nodes() > 1)
    for (int rank = 0; rank < placement.ranks(); ++rank) hosts.push_back(placement.node_of(rank));
  return hosts;
}

/// Whether NVLink lies between the GPUs of any two ranks; the same on all.
bool DeviceLinks::may_ll128(std::span<const GpuFacts> facts) {
  const auto self = static_cast<std::size_t>(member_.rank);
  const bool may = try_everywhere("kernels do without LL128", [&] {
    const auto peers = nvlink_peers_for_ll128(facts, self);
    return peers && (peers->empty() || topo::reaches_all_by_nvlink(facts[self].bus_id.data(), *peers));
  });
  if (member_.tells(1))
    say("kernels", may ? "They may use LL128: NVLink joins the GPUs."
                       : "LL128 is not used: NVML does not say that NVLink joins the GPUs of all ranks, or "
                         "ranks share one.");
  return may;
}

/// The rings and trees that search and connect find for the ranks' GPUs; each carries a share by its speed.
/// True on every rank or on none.
bool DeviceLinks::take_channels(std::span<const GpuFacts> facts, GpuLinks::Form& form) {
  bool exchanges = false;  // what an exchange throws is no verdict of all ranks
  const RankExchange exchange{.rank = member_.rank,
                              .size = static_cast<int>(facts.size()),
                              .holds_everywhere =
                                  [&](bool here) {
                                    exchanges = true;
                                    const bool all = execution_.holds_everywhere(here);
                                    exchanges = false;
                                    return all;
                                  },
                              .all_gather =
                                  [&](const void* mine, void* all, std::size_t bytes) {
                                    exchanges = true;
                                    execution_.gather(mine, all, bytes);
                                    exchanges = false;
                                  },
                              .where = member_.where};
  std::vector<topo::RankGpu> gpus;
  const auto list_gpus = [&] {
    // Without CUDA, discovery guesses it by what kind of card it is.
    const bool asks_drivers = member_.process.described_machine() == nullptr;
    for (const GpuFacts& of : facts)
      gpus.push_back({.rank = static_cast<int>(gpus.size()),
                      .bus_id = topo::BusId::parse(of.bus_id.data()).value_or(topo::BusId{}),
                      .uuid = of.uuid,
                      .compute_capability = of.capability,
                      .gpu_direct = asks_drivers && of.gpu_direct >= 0 ? std::optional(of.gpu_direct != 0)
                                                                       : std::nullopt});
    return true;
  };
  if (!try_everywhere(kStagedCalls, list_gpus)) return false;
  connect::GpuChannels channels;
  try {
    channels = learn_gpu_channels(member_.process, exchange, member_.group->placement, gpus,
                                  {.max_channels = form.channels});
  } catch (const std::exception& error) {  // on all ranks
    if (exchanges) throw;
    say(kStagedCalls, error.what());
    return false;
  }
  return try_everywhere(kStagedCalls, [&] {
    run_channels(form, channels);
    ports_ = connect::ports_of(channels, member_.rank);
    return true;
  });
}

bool DeviceLinks::make(const Owner& owner, std::unique_ptr<Tuner>& tuner) {
  const bool made = make_on(owner, tuner);
  const bool kernels = made && links_.gpus->form().has_kernels();
  if (!kernels && member_.rank == 0)
    without_failing([&] {
      member_.process.tell_graphs_unused(
          loom::format("{} of {}", made ? "no call goes over channels" : kStagedCalls, member_.name));
    });
  return made;
}

/// That there are so few channels for want of memory.
void DeviceLinks::tell_room(int channels, const GpuLinks::Form& wanted, std::uint64_t room) const {
  if (!member_.tells(1)) return;
  without_failing([&] {
    say("kernels",
        loom::format(
            "GPU memory for {} of up to {} channels: all would take {:.1f} MiB. A communicator "
            "takes half of what coll_loom_memory_limit leaves, {:.1f} MiB, while it can do with that.",
            channels, wanted.channels, in_mib(GpuLinks::room_for(wanted, member_.bootstrap.size())),
            in_mib(room))
            .c_str());
  });
}

/// Memory of the GPUs that all reach; true on every rank or on none.
bool DeviceLinks::make_on(const Owner& owner, std::unique_ptr<Tuner>& tuner) {
  std::shared_ptr<Gpu> gpu;
  GpuFacts mine;
  std::vector<GpuFacts> facts;
  member_.process.free_retired_links();
  const auto look = [&] {
    tuner = std::make_unique<Tuner>();
    facts.resize(static_cast<std::size_t>(member_.bootstrap.size()));
    gpu = member_.process.gpu(owner);
    mine = gpu->facts();
    const auto moves = member_.process.runtime().moves_device_memory;
    mine.is_shared_by_others = moves != nullptr && moves();
    return true;
  };
  if (!try_everywhere(kStagedCalls, look)) return false;
  if (member_.tells(1)) say("kernels", device::cuda::all_kernels().c_str());
  gather(mine, facts);
  std::optional<GpuLinks::Form> wanted =
      wanted_links(member_.group->tune, member_.group->reproducible, facts, hosts());
  const bool no_kernels = member_.group->tune.may_use_kernels() && !(wanted && wanted->has_kernels());
  if (no_kernels && member_.tells(1))
    say("no call goes by kernel",
        member_.group->reproducible
            ? "They would not keep the order that coll_loom_reproducible asks for."
            : "Ranks share a GPU without MPS, or MPS leaves them too few multiprocessors.");
  if (!wanted) {  // as all ranks see: one says so
    if (member_.tells(1))
      say(kStagedCalls, member_.group->wiring.shape.hosts > 1 ? "Between hosts there are kernels alone."
                        : facts.size() > device::cuda::ZeroCopyLinks::kMostRanks
                            ? "zero_copy is for 16 ranks at the most."
                            : "coll_loom_tune leaves calls to no other algorithm on GPUs.");
    return false;
  }
  if (wanted->has_kernels() && !wanted->kernels.between_hosts()) wanted->kernels.may_ll128 = may_ll128(facts);
  const int ranks = member_.bootstrap.size();
  const std::uint64_t room = std::ranges::min(facts, {}, &GpuFacts::room).room;
  auto form = form_in(*wanted, ranks, room);
  if (form && form->has_kernels()) {
    const int limit = form->channels;
    if (!take_channels(facts, *form)) return false;
    // Trees may take more than chains, of which nothing was known, and a file may have more channels. Or
    // there are fewer of them, and room for links of every two ranks.
    form->kernels.exchange = wanted->kernels.exchange;
    const GpuLinks::Form found = *form;
    form = form_in(*form, ranks, room);
    const int channels = form ? form->channels : 0;
    if (channels < found.channels)
      tell_room(channels, found, room);
    else if (channels == limit && limit < wanted->channels)
      tell_room(channels, *wanted, room);
    if (form && form->kernels.exchange != found.kernels.exchange && member_.tells(1))
      say("kernels",
          "No call of alltoall(v, w) goes by kernel: there is no GPU memory for links of every two ranks.");
  } else if (form && wanted->has_kernels()) {
    tell_room(0, *wanted, room);
  }
  if (!form) {
    if (member_.tells(1))
      without_failing([&] {
        say(kStagedCalls,
            loom::format(
                "The links need at least {:.1f} MiB of GPU memory{}. coll_loom_memory_limit leaves {:.1f} "
                "MiB on the GPU of a rank.",
                in_mib(GpuLinks::least_room(*wanted, ranks)),
                wanted->kernels.between_hosts() ? " and locked pages" : "", in_mib(room))
                .c_str());
      });
    return false;
  }
  const std::vector<Attempt> all = attempts(facts, *form, gpu);
  if (all.empty()) say(kStagedCalls, "The GPU of a rank shares no memory with other processes.");
  bool direct_failed = false, ports_failed = false;  // between hosts
  for (std::size_t i = 0; i < all.size(); ++i) {
    bool reached_hosts = false;
    if (connect(gpu, *form, all[i], otherwise(all, i), reached_hosts)) {
      if (direct_failed && !all[i].direct) member_.process.give_up_gpu_direct();
      if (ports_failed && !all[i].by_ports) member_.process.give_up_planned_ports();
      return true;
    }
    direct_failed |= reached_hosts && all[i].direct;
    ports_failed |= reached_hosts && all[i].by_ports && !all[i].direct;
    member_.process.free_retired_links();  // those of the attempt
    // The same would fail with other ways to other hosts; but slots on GPUs take memory of their own.
    const auto is_another_way = [&](const Attempt& next) {
      return next.memory == all[i].memory && next.zero_copy == all[i].zero_copy;
    };
    if (!reached_hosts && !all[i].direct)
      while (i + 1 < all.size() && is_another_way(all[i + 1])) ++i;
  }
  return false;
}

/// The same on all ranks.
std::vector<DeviceLinks::Attempt> DeviceLinks::attempts(std::span<const GpuFacts> facts,
                                                        const GpuLinks::Form& form,
                                                        const std::shared_ptr<Gpu>& gpu) {
  const bool by_ports = form.kernels.between_hosts() && has_ports();
  const bool direct = by_ports && may_go_direct(gpu);
  std::vector<Attempt> all;
  for (const auto& [memory, can] : {std::pair(Gpu::Memory::kPlain, &GpuFacts::ipc),
                                    std::pair(Gpu::Memory::kVirtual, &GpuFacts::virtual_memory)}) {
    if (!std::ranges::all_of(facts, can)) continue;
    if (direct) all.push_back({.memory = memory, .by_ports = true, .direct = true});
    if (by_ports) all.push_back({.memory = memory, .by_ports = true});
    all.push_back({.memory = memory});
    // A rank's kernels may reach fewer GPUs.
    if (form.zero_copy() && form.has_kernels() && facts.size() > device::steps::kMostPairwise)
      all.push_back({.memory = memory, .zero_copy = false});
  }
  return all;
}

DeviceLinks::Otherwise DeviceLinks::otherwise(std::span<const Attempt> all, std::size_t failed) const {
  const Attempt& attempt = all[failed];
  const bool has_next = failed + 1 < all.size();
  const bool same_memory = has_next && all[failed + 1].memory == attempt.memory;
  const bool other_memory = all.back().memory != attempt.memory;
  const bool fewer = same_memory && all[failed + 1].zero_copy != attempt.zero_copy;
  const char* const here = fewer ? kNoZeroCopy : other_memory ? kNoIpc : kStagedCalls;
  if (!same_memory || fewer) return {here, here};
  const char* const between_hosts = attempt.direct ? kNoDirect : kNoPorts;
  return {attempt.direct ? kNoDirect : here, between_hosts};
}

/// What an attempt has made is let go of where it does not work on all ranks.
bool DeviceLinks::connect(const std::shared_ptr<Gpu>& gpu, const GpuLinks::Form& wanted,
                          const Attempt& attempt, const Otherwise& otherwise, bool& reached_hosts) {
  const int ranks = member_.bootstrap.size();
  GpuLinks::Form form = wanted;
  if (!attempt.zero_copy) form.bounce_bytes = 0;
  Ways ways;
  std::vector<GpuLinks::Handle> handles;
  GpuLinks::Handle mine;
  const auto make = [&] {
    handles.resize(static_cast<std::size_t>(ranks));
    links_.gpus = std::make_unique<GpuLinks>(gpu, form, ranks, attempt.memory);
    return true;
  };
  const auto gather_handles = [&] {
    mine = links_.gpus->handle();
    gather(mine, handles);
    return true;
  };
  const auto join = [&] {
    std::vector<device::steps::FarEnd> far = form.far_ends(ranks, member_.rank);
    ways = choose_ways(attempt, gpu, far);
    links_.gpus->connect(handles, member_.rank, std::move(far));
    return true;
  };
  const auto deliver = [&] {
    if (!links_.gpus->delivers())
      throw Error(ErrorCode::kDevice, "what other ranks write to their GPUs cannot be read from this one.");
    return true;
  };
  const auto prepare = [&] {
    if (!links_.gpus->has_been_reached())
      throw Error(ErrorCode::kDevice, "what other ranks write to this rank's GPU does not arrive.");
    links_.gpus->prepare_check();
    return true;
  };
  const auto check = [&] {
    links_.gpus->check_kernels(kLinkCheckLimit);
    return true;
  };
  std::string way;
  const auto reach_hosts = [&] {
    reached_hosts = form.kernels.between_hosts();
    return !reached_hosts || join_hosts(ways, otherwise.between_hosts, way);
  };
  constexpr const char* kSelfTest = "the self-test";
  const auto tried = [&](auto& body) {
    return works(kSelfTest, reached_hosts ? otherwise.between_hosts : otherwise.here, body);
  };
  if (works("making memory for them", otherwise.here, make) && gather_handles() &&
      works("reaching the others' memory", otherwise.here, join) && tried(deliver) && reach_hosts() &&
      tried(prepare) && tried(check)) {
    if (member_.tells(1))
      without_failing([&] {
        say("links between GPUs",
            loom::format("self-test ok{}{}", ways.on_gpu > 0 ? ", GPUDirect included" : "",
                         way.empty() ? "" : "; between hosts over " + way)
                .c_str());
      });
    return true;
  }
  if (links_.gpus) member_.process.retire(std::move(links_.gpus));
  return false;
}

void DeviceLinks::tell_failure(const char* what, int rank, const char* otherwise) const {
  without_failing([&] {
    say("links between GPUs", loom::format("{} failed on rank {}: {}", what, rank, otherwise).c_str());
  });
}

}  // namespace loom
