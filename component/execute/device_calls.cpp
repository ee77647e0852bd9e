#include "component/execute/device_calls.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "component/select/gpu_calls.hpp"
#include "component/select/kernel_channels.hpp"
#include "component/setup/learn_gpus.hpp"
#include "component/significance.h"
#include "device/cuda/images.hpp"
#include "topo/nvlink_peers.hpp"

namespace loom {

using device::Collective;
using device::cuda::Gpu;
using device::cuda::GpuFacts;
using device::cuda::GpuLinks;
using device::cuda::Owner;

namespace {

constexpr const char *kStaged = "device buffers go through the host",
                     *kNoIpc = "memory of GPUs is shared by file descriptors next";
/// A kernel that tries links takes microseconds, or never ends.
constexpr std::chrono::seconds kLinkCheckLimit{10};
/// A kernel leaves the CPUs to the program, so staging has to be faster by as much.
constexpr double kMargin = 1.1;

/// A buffer, or a block of one, that matters on this rank.
struct Piece {
  const std::byte* data;
  std::size_t bytes;
};

/// Calls visit(piece) for all of them until it is false. False: it was, or some are not contiguous.
template <class Visit>
bool for_all_pieces(const device::Call& call, int rank, int ranks, Visit&& visit) {
  const loom_significance* const row = loom_significance_of(static_cast<int>(call.collective));
  const loom_role role = loom_role_of(rank, call.root);
  const bool reads = loom_is_significant(row, LOOM_IN, role),
             writes = loom_is_significant(row, LOOM_OUT, role);
  if ((reads && call.in_packer != nullptr) || (writes && call.out_packer != nullptr)) return false;
  if (device::lists_blocks(call.collective)) {  // an all-gather of blocks
    const auto visit_block = [&](const device::Block& block) {
      return visit(Piece{block.data, block.bytes});
    };
    const std::span<const device::Block> out(call.out_blocks, static_cast<std::size_t>(ranks));
    return call.in_blocks[0].bytes == out[static_cast<std::size_t>(rank)].bytes &&
           visit_block(call.in_blocks[0]) && std::ranges::all_of(out, visit_block);
  }
  const bool in_parts = call.collective == Collective::kReduceScatterV;
  const std::size_t written = in_parts ? call.bounds[rank + 1] - call.bounds[rank] : call.count;
  return (!reads || visit(Piece{call.in, call.count})) && (!writes || visit(Piece{call.out, written}));
}

/// Another one for calls that differ, but for a hash's chance. Not 0.
std::uint64_t note_of(const device::Call& call, int ranks) {
  const bool reduces = device::is_reduction(call.collective),
             has_root = call.collective == Collective::kBroadcast || call.collective == Collective::kReduce;
  const std::array<std::uint64_t, 4> parts{
      static_cast<std::uint64_t>(call.collective), device::shared_bytes(call, ranks),
      has_root ? static_cast<std::uint64_t>(call.root) : 0,
      reduces ? static_cast<std::uint64_t>(call.op) << 8 | static_cast<std::uint64_t>(call.type) : 0};
  std::uint64_t note = 14695981039346656037U;  // FNV-1a, by words
  for (const std::uint64_t part : parts) {
    note = (note ^ part) * 1099511628211U;
    note ^= note >> 29;  // high bits count, too
  }
  return note | 1;
}

}  // namespace

/// Of the kernel that performs the call, or reduces for it; nullptr: it needs none. The same place on all
/// ranks.
DeviceCalls::Prepared* DeviceCalls::prepared_for(Algorithm algorithm, const device::Call& call) {
  const bool reduces = device::is_reduction(call.collective);
  if (algorithm == Algorithm::kHostDriven && !reduces) return nullptr;
  const int op = reduces ? static_cast<int>(call.op) : device::cuda::kMove;
  const device::Type type = reduces ? call.type : device::Type::kUint8;
  return &prepared_[is_by_kernel(algorithm)][static_cast<std::size_t>(op)]
                   [static_cast<std::size_t>(device::cuda::kernel_type(op, type))];
}

/// As far as links are known.
bool DeviceCalls::may_carry_by(Algorithm algorithm, const device::Call& call) {
  const auto kind = links_.gpus ? std::optional(links_.gpus->form().kind) : std::nullopt;
  if (!can_on_gpus(algorithm, selector_.conditions(), call.collective,
                   device::shared_bytes(call, member_.group->wiring.shape.ranks), member_.group->reproducible,
                   kind))
    return false;
  const Prepared* const prepared = prepared_for(algorithm, call);
  return prepared == nullptr || *prepared != Prepared::kRefused;
}

/// By the links that there are. Collective where the call's kernel has yet to be loaded.
bool DeviceCalls::can_carry(Algorithm algorithm, const device::Call& call) {
  return may_carry_by(algorithm, call) && prepare(algorithm, call);
}

/// What the user wants, of what carries(algorithm) is true for.
template <class Carries>
Algorithm DeviceCalls::algorithm_for(const device::Call& call, Carries&& carries) {
  const int ranks = member_.group->wiring.shape.ranks;
  const std::size_t all = whole_message(call.collective, ranks, device::shared_bytes(call, ranks));
  return member_.group->tune.on_devices(call.collective, all, carries);
}

bool DeviceCalls::may_carry(const device::Call& call) {
  if (!member_.group->uses_devices || links_.gpu_state == LinkState::kFailed) return false;
  if (device::is_reduction(call.collective) && !Gpu::supports(call.op, call.type)) return false;
  const auto may = [&](Algorithm algorithm) { return may_carry_by(algorithm, call); };
  if (algorithm_for(call, may) == Algorithm::kStaged) return false;
  const int ranks = member_.group->wiring.shape.ranks;
  const std::size_t bytes = device::shared_bytes(call, ranks);
  return member_.group->tune.has_rule_on_devices(call.collective,
                                                 whole_message(call.collective, ranks, bytes)) ||
         questions_.of(call.collective, bytes).asks();
}

/// Of a call that staging may carry as fast; else nullptr.
Window* DeviceCalls::window_of(const device::Call& call, Algorithm algorithm) {
  if (!is_by_kernel(algorithm)) return nullptr;
  const std::size_t bytes = device::shared_bytes(call, member_.group->wiring.shape.ranks),
                    all = selector_.whole_message_of(call);
  const double us = links_.gpus->kernels().choose(call.collective, all, linkage_of(algorithm)).us;
  return probes_staging(algorithm, selector_.conditions(), call.collective, bytes, us, member_.group->tune)
             ? &tuner_->of(call.collective, all)
             : nullptr;
}

/// Whether the kernel that the call needs is there on all ranks: it is loaded and launched once, with nothing
/// to do, before any rank begins a call with it.
bool DeviceCalls::prepare(Algorithm algorithm, const device::Call& call) {
  Prepared* const prepared = prepared_for(algorithm, call);
  if (prepared == nullptr) return true;
  if (*prepared == Prepared::kNotYet)
    *prepared =
        try_everywhere("calls with this operation and type do without the kernel",
                       [&] {
                         const bool reduces = device::is_reduction(call.collective);
                         if (algorithm == Algorithm::kHostDriven)
                           links_.gpus->stream().prepare_reduce(call.op, call.type);
                         else
                           links_.gpus->kernels().prepare(reduces ? std::optional(call.op) : std::nullopt,
                                                          reduces ? call.type : device::Type::kUint8);
                         return true;
                       })
            ? Prepared::kReady
            : Prepared::kRefused;
  return *prepared == Prepared::kReady;
}

/// The leader of a window, for probes are no news.
void DeviceCalls::explain(Algorithm leader, const device::Call& call, bool probes) {
  if (!member_.tells(2)) return;
  std::optional<device::cuda::KernelWay> way;
  if (is_by_kernel(leader))
    way = links_.gpus->kernels()
              .choose(call.collective, selector_.whole_message_of(call), linkage_of(leader))
              .way;
  selector_.explain_on_gpus(leader, call, way, probes);
}

std::optional<Algorithm> DeviceCalls::try_perform(const device::Call& call) {
  call_ended();  // the one before, if it has failed on this rank alone
  const std::optional<Owner> owner = gpu_of(call);
  const std::size_t elsewhere = device::cuda::bytes_elsewhere(call, member_.rank, member_.bootstrap.size());
  const bool fits = owner && (elsewhere == 0 || make_room_elsewhere(elsewhere, *owner));
  // Kernels carry no note of their call. So calls that differ go through the host, which finds out how.
  const bool everywhere = execution_.all_have(fits ? note_of(call, member_.group->wiring.shape.ranks) : 0);
  questions_.of(call.collective, device::shared_bytes(call, member_.group->wiring.shape.ranks))
      .answered(everywhere);
  if (!everywhere) return {};
  if (links_.gpu_state == LinkState::kNotMade)
    links_.gpu_state = make_links(*owner) ? LinkState::kReady : LinkState::kFailed;
  if (links_.gpu_state == LinkState::kFailed) return {};
  const Algorithm algorithm = algorithm_for(call, [&](Algorithm each) { return can_carry(each, call); });
  if (algorithm == Algorithm::kStaged) return {};
  Window* const window = window_of(call, algorithm);
  const bool settles = window != nullptr && window->agrees();
  const bool news = settles && window->settle(execution_.largest(window->own_time()), kMargin);
  const bool stages = window != nullptr && window->by_candidate();
  explain(window != nullptr && window->candidate_leads() ? Algorithm::kStaged : algorithm, call,
          window != nullptr);
  if (news) selector_.explain_leader(call, *window, algorithm, Algorithm::kStaged);
  if (window != nullptr) timed_.emplace(member_.process, *window, selector_.whole_message_of(call));
  if (stages) return {};
  Operation operation{call, algorithm};
  if (elsewhere > 0) operation.call.out = elsewhere_.memory();
  execution_.drive(operation);
  if (elsewhere > 0) elsewhere_.copy_to(call.out, elsewhere);
  call_ended();
  return algorithm;
}

void DeviceCalls::call_ended() noexcept {
  if (timed_) timed_->finish();
  timed_.reset();
}

bool DeviceCalls::make_room_elsewhere(std::size_t bytes, const Owner& owner) {
  try {
    elsewhere_.make_room(member_.process.gpu(owner), bytes);
    return true;
  } catch (const std::exception& error) {
    say(kStaged, error.what());
    return false;
  }
}

/// Whose the buffers are that matter on this rank, if they are contiguous, of one GPU, and of the one that
/// the links are on.
std::optional<Owner> DeviceCalls::gpu_of(const device::Call& call) const {
  std::optional<Owner> owner;
  const auto is_there = [&](const Piece& piece) {
    if (piece.bytes == 0) return true;
    const std::optional<Owner> found = member_.process.staging()->driver().owner_of(piece.data);
    if (!found || (owner && (found->device != owner->device || found->context != owner->context)))
      return false;
    owner = found;
    return true;
  };
  try {
    if (!for_all_pieces(call, member_.rank, member_.bootstrap.size(), is_there)) return {};
    if (owner && links_.gpus && !(links_.gpus->gpu().is_of(*owner) && links_.gpus->is_alive())) return {};
  } catch (const Error&) {  // who stages the buffer finds out again, and says so
    return {};
  }
  return owner;
}

/// At coll_loom_verbose 1, for it is no error.
void DeviceCalls::say(const char* what, const char* why) const {
  if (member_.process.runtime().parameters.verbose < 1) return;
  without_failing(
      [&] { member_.process.runtime().log(fmt::format("{}: {}: {}", member_.where, what, why).c_str()); });
}

/// Whether body() is true on all ranks; what it throws is told, with what is done otherwise, and is a no.
template <class Body>
bool DeviceCalls::try_everywhere(const char* otherwise, Body&& body) {
  bool here = false;
  try {
    here = body();
  } catch (const std::exception& error) {
    say(otherwise, error.what());
  }
  return execution_.holds_everywhere(here);
}

/// all: of as many as there are ranks.
template <class T>
void DeviceCalls::gather_on_host(const T& mine, std::vector<T>& all) {
  gather_on_host(&mine, all.data(), sizeof(mine));
}
void DeviceCalls::gather_on_host(const void* mine, void* all, std::size_t bytes) {
  const device::Call call{.collective = Collective::kAllGather,
                          .in = static_cast<const std::byte*>(mine),
                          .out = static_cast<std::byte*>(all),
                          .count = bytes};
  // Not what the user's rules name: those are for the program's calls, and may leave them to others.
  execution_.perform(Algorithm::kCico, call);
}

/// Whether NVLink, or nothing, lies between the GPUs of any two ranks; the same on all.
bool DeviceCalls::may_ll128(std::span<const GpuFacts> facts) {
  const auto self = static_cast<std::size_t>(member_.rank);
  const bool may = try_everywhere("kernels do without LL128", [&] {
    const auto peers = nvlink_peers_for_ll128(facts, self);
    return peers && (peers->empty() || topo::reaches_all_by_nvlink(facts[self].bus_id.data(), *peers));
  });
  if (member_.tells(1))
    say("kernels", may ? "They may use LL128: NVLink joins the GPUs, or all ranks share one."
                       : "They do without LL128: NVML does not say that NVLink joins the GPUs of all ranks.");
  return may;
}

/// The rings and trees that search and connect find for the ranks' GPUs on this machine; each carries a share
/// by its speed. True on every rank or on none.
bool DeviceCalls::take_channels(std::span<const GpuFacts> facts, GpuLinks::Form& form) {
  bool exchanges = false;  // what an exchange throws is no verdict of all ranks
  const HostExchange exchange{.rank = member_.rank,
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
                                    gather_on_host(mine, all, bytes);
                                    exchanges = false;
                                  },
                              .where = member_.where};
  try {
    std::vector<topo::RankGpu> gpus;
    for (const GpuFacts& of : facts)
      gpus.push_back({.rank = static_cast<int>(gpus.size()),
                      .bus_id = topo::BusId::parse(of.bus_id.data()).value_or(topo::BusId{}),
                      .uuid = of.uuid,
                      .compute_capability = of.capability});
    const connect::GpuChannels channels =
        learn_gpu_channels(member_.process, exchange, gpus, {.max_channels = form.channels});
    run_channels(form, channels);
    return true;
  } catch (const Error& error) {  // on all ranks
    if (exchanges) throw;
    say(kStaged, error.what());
    return false;
  }
}

/// Memory of the GPUs that all reach; true on every rank or on none.
bool DeviceCalls::make_links(const Owner& owner) {
  std::shared_ptr<Gpu> gpu;
  GpuFacts mine;
  std::vector<GpuFacts> facts;
  member_.process.free_retired_links();
  const auto look = [&] {
    facts.resize(static_cast<std::size_t>(member_.bootstrap.size()));
    gpu = member_.process.gpu(owner);
    mine = gpu->facts();
    return true;
  };
  if (!try_everywhere(kStaged, look)) return false;
  if (member_.tells(1)) say("kernels", device::cuda::all_kernels().c_str());
  gather_on_host(mine, facts);
  const std::optional<GpuLinks::Kind> kind =
      kind_of_links(member_.group->tune, member_.group->reproducible, facts);
  if (!kind) {
    say(kStaged, "Ranks share a GPU, where kernels would wait for each other's turn for ever.");
    return false;
  }
  GpuLinks::Form wanted = *kind;
  if (*kind != GpuLinks::Kind::kHostDriven) wanted.kernels.may_ll128 = may_ll128(facts);
  const std::uint64_t room = std::ranges::min(facts, {}, &GpuFacts::room).room;
  auto form = form_in(wanted, member_.bootstrap.size(), room);
  if (form && form->kind != GpuLinks::Kind::kHostDriven) {
    if (!take_channels(facts, *form)) return false;
    // Trees may take more than chains, of which nothing was known, and a file may have more channels.
    const int found = form->channels;
    form = form_in(*form, member_.bootstrap.size(), room);
    if (form && form->channels < found && member_.tells(1))
      say("kernels", fmt::format("Memory for {} of {} channels.", form->channels, found).c_str());
  }
  if (!form) {
    say(kStaged, "The GPU of a rank has no room left under coll_loom_memory_limit.");
    return false;
  }
  const bool ipc = std::ranges::all_of(facts, &GpuFacts::ipc),
             files = std::ranges::all_of(facts, &GpuFacts::virtual_memory);
  if (ipc && connect(gpu, *form, Gpu::Memory::kPlain, files ? kNoIpc : kStaged)) return true;
  member_.process.free_retired_links();  // those of the attempt
  if (files) return connect(gpu, *form, Gpu::Memory::kVirtual, kStaged);
  if (!ipc) say(kStaged, "The GPU of a rank shares no memory with other processes.");
  return false;
}

/// By memory of one kind; what that has made is let go of where it does not work on all ranks.
bool DeviceCalls::connect(const std::shared_ptr<Gpu>& gpu, const GpuLinks::Form& form, Gpu::Memory memory,
                          const char* otherwise) {
  std::vector<GpuLinks::Handle> handles;
  GpuLinks::Handle mine;
  const auto make = [&] {
    handles.resize(static_cast<std::size_t>(member_.bootstrap.size()));
    tuner_ = std::make_unique<Tuner>();
    links_.gpus = std::make_unique<GpuLinks>(gpu, form, member_.bootstrap.size(), memory);
    return true;
  };
  const auto gather = [&] {
    mine = links_.gpus->handle();
    gather_on_host(mine, handles);
    return true;
  };
  const auto join = [&] {
    links_.gpus->connect(handles, member_.rank);
    return true;
  };
  const auto deliver = [&] {
    if (!links_.gpus->delivers())
      throw Error(ErrorCode::kDevice, "what other ranks write to their GPUs cannot be read from this one.");
    return true;
  };
  const auto check = [&] {
    links_.gpus->check_kernels(kLinkCheckLimit);
    return true;
  };
  if (try_everywhere(otherwise, make) && gather() && try_everywhere(otherwise, join) &&
      try_everywhere(otherwise, deliver) && try_everywhere(otherwise, check))
    return true;
  if (links_.gpus) member_.process.retire(std::move(links_.gpus));
  return false;
}

}  // namespace loom
