#include "component/setup/learn_gpus.hpp"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "device/cuda/kernel_way.hpp"
#include "topo/hwloc_xml.hpp"
#include "topo/nccl_xml.hpp"

namespace loom {
namespace {

constexpr char kFailed = '!';  // before what went wrong; a description begins with bus ids or a line's end

/// body() on all ranks. Throws Error on all where it has thrown on any.
template <class Body>
void everywhere(const HostExchange& exchange, Body&& body) {
  std::exception_ptr failure;
  try {
    body();
  } catch (...) {
    failure = std::current_exception();
  }
  if (exchange.holds_everywhere(failure == nullptr)) return;
  if (failure) try {
      std::rethrow_exception(failure);
    } catch (const std::bad_alloc&) {
      throw Error(ErrorCode::kOutOfMemory, "There is no memory to plan the channels of this host's GPUs.");
    }
  throw Error(ErrorCode::kGivenUp, "Another rank could not plan the channels of this host's GPUs.");
}

/// Every rank's text; make() is this rank's.
template <class Make>
std::vector<std::string> gather_texts(const HostExchange& exchange, Make&& make) {
  const auto size = static_cast<std::size_t>(exchange.size);
  std::string mine, all;
  std::vector<std::uint64_t> lengths;
  std::vector<std::string> texts;
  everywhere(exchange, [&] {
    lengths.resize(size);
    mine = make();
  });
  const std::uint64_t length = mine.size();
  exchange.all_gather(&length, lengths.data(), sizeof(length));
  const std::size_t longest = *std::ranges::max_element(lengths);
  everywhere(exchange, [&] {
    mine.resize(longest);
    all.resize(size * longest);
    texts.resize(size);
  });
  if (longest > 0) exchange.all_gather(mine.data(), all.data(), longest);
  everywhere(exchange, [&] {
    for (std::size_t rank = 0; rank < size; ++rank)
      texts[rank] = all.substr(rank * longest, static_cast<std::size_t>(lengths[rank]));
  });
  return texts;
}

/// The GPUs that its process does not see, in a line, and the machine.
std::string describe(const Discover& discover, const std::vector<topo::BusId>& gpus,
                     std::vector<std::string>& notes) {
  try {
    const topo::Discovered found = discover(gpus);
    notes = found.notes;
    std::string text;
    for (const topo::BusId& bus_id : found.unseen) text += bus_id.to_string() + " ";
    return text + "\n" + topo::to_nccl_xml(found.system);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    return kFailed + std::string(error.what());
  }
}

struct Description {
  std::vector<topo::BusId> unseen;
  topo::System system;
};

/// Throws Error.
Description parse(const std::string& text) {
  if (text.starts_with(kFailed)) throw Error(ErrorCode::kSystem, text.substr(1));
  Description description;
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string_view line(text.data(), end);
  for (std::size_t space = 0; (space = line.find(' ')) != std::string_view::npos;
       line.remove_prefix(space + 1))
    if (const auto bus_id = topo::BusId::parse(line.substr(0, space))) description.unseen.push_back(*bus_id);
  description.system = topo::parse_system(text.substr(end), "this host").system;
  return description;
}

/// The ranks that look at what rank 0 does not see: for each such GPU the lowest that has it.
std::vector<std::size_t> lookers(const Description& seen, std::span<const topo::RankGpu> gpus) {
  std::vector<std::size_t> ranks;
  for (const topo::BusId& bus_id : seen.unseen) {
    const auto owner = std::ranges::find(gpus, bus_id, &topo::RankGpu::bus_id);
    if (owner != gpus.end()) ranks.push_back(static_cast<std::size_t>(owner - gpus.begin()));
  }
  return ranks;
}

std::vector<topo::BusId> bus_ids_of(std::span<const topo::RankGpu> gpus) {
  std::vector<topo::BusId> ids;
  for (const topo::RankGpu& gpu : gpus) ids.push_back(gpu.bus_id);
  std::ranges::sort(ids);
  ids.erase(std::ranges::unique(ids).begin(), ids.end());
  return ids;
}

/// The machine as all ranks together see it. `told`: what rank 0 has to say of it. Nothing, on all ranks:
/// `why` says what is wrong.
std::optional<topo::System> discover_together(const HostExchange& exchange,
                                              std::span<const topo::RankGpu> gpus, const Discover& discover,
                                              std::vector<std::string>& told, std::string& why) {
  const std::vector<std::string> first = gather_texts(exchange, [&] {
    return exchange.rank == 0 ? describe(discover, bus_ids_of(gpus), told) : std::string();
  });
  Description seen;
  std::vector<std::size_t> ranks;
  everywhere(exchange, [&] {
    try {
      seen = parse(first.front());
      ranks = lookers(seen, gpus);
    } catch (const Error& error) {  // on all ranks alike
      why = loom::format("This machine cannot be seen: {}", error.what());
    }
  });
  if (!why.empty()) return {};
  if (ranks.empty()) return std::move(seen.system);
  const auto self = static_cast<std::size_t>(exchange.rank);
  const std::vector<std::string> views = gather_texts(exchange, [&] {
    std::vector<std::string> unused;
    return std::ranges::count(ranks, self) > 0 ? describe(discover, {gpus[self].bus_id}, unused)
                                               : std::string();
  });
  everywhere(exchange, [&] {
    for (const std::size_t rank : ranks) try {
        seen.system = topo::with_gpu_of(seen.system, parse(views[rank]).system, gpus[rank].bus_id);
      } catch (const Error& error) {
        told.push_back(loom::format("What rank {} sees of its GPU is not known: {}", rank, error.what()));
      }
  });
  return std::move(seen.system);
}

/// Of a graph file as many channels as there can be: whoever has no room for all leaves the last out. Where
/// it does not fit, which all ranks see, search finds others.
connect::GpuChannels plan(Process& process, const HostExchange& exchange, const topo::MachineOfRanks& machine,
                          const connect::GpuChannelRequest& request) {
  if (const std::string* const text = process.graph()) try {
      const connect::GraphFile graph{*text, process.runtime().parameters.graph_file};
      return connect::gpu_channels(
          machine, {.max_channels = device::cuda::kMostChannels, .most_gbps = request.most_gbps}, &graph);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kBadInput) throw;
      if (exchange.rank == 0) process.show_graph_unfit(exchange.where, error.what());
    }
  return connect::gpu_channels(machine, request);
}

}  // namespace

connect::GpuChannels learn_gpu_channels(Process& process, const HostExchange& exchange,
                                        std::span<const topo::RankGpu> gpus,
                                        const connect::GpuChannelRequest& request, const Discover& discover) {
  std::vector<std::string> told;
  std::string unknown;
  std::optional<topo::System> found;
  const topo::System* machine = nullptr;
  everywhere(exchange, [&] { machine = process.described_machine(); });
  if (machine == nullptr) {
    found = discover_together(exchange, gpus, discover, told, unknown);
    if (found) machine = &*found;
  }
  connect::GpuChannels channels;
  everywhere(exchange, [&] {
    if (machine == nullptr) {
      channels =
          connect::gpu_channels_in_order(exchange.size, static_cast<int>(bus_ids_of(gpus).size()), unknown);
    } else {
      const topo::MachineOfRanks ranked = topo::with_rank_gpus(*machine, gpus);
      channels = plan(process, exchange, ranked, request);
      if (exchange.rank == 0) {
        process.dump(ranked.system, Process::Described::kGpus);
        if (process.wants_graph_dump())
          process.dump_graph([&] { return connect::to_graph_xml(ranked, channels); });
      }
    }
    if (exchange.rank != 0) return;
    process.tell(told);
    process.tell(channels.notes);
    process.tell({exchange.where.empty()
                      ? channels.summary
                      : loom::format("{}: kernels: {}", exchange.where, channels.summary)});
  });
  return channels;
}

connect::GpuChannels learn_gpu_channels(Process& process, const HostExchange& exchange,
                                        std::span<const topo::RankGpu> gpus,
                                        const connect::GpuChannelRequest& request) {
  return learn_gpu_channels(process, exchange, gpus, request,
                            [&](const std::vector<topo::BusId>& ids) { return process.machine_with(ids); });
}

}  // namespace loom
