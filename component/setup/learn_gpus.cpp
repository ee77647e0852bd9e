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
#include "connect/exchange.hpp"
#include "device/cuda/kernel_way.hpp"
#include "topo/hwloc_xml.hpp"
#include "topo/nccl_xml.hpp"

namespace loom {
namespace {

constexpr char kFailed = '!';  // before what went wrong; what a rank sees is XML

/// body() on all ranks. Throws Error on all where it has thrown on any.
template <class Body>
void everywhere(const RankExchange& exchange, Body&& body) {
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
      throw Error(ErrorCode::kOutOfMemory, "There is no memory to plan the channels of the GPUs.");
    }
  throw Error(ErrorCode::kGivenUp, "Another rank could not plan the channels of the GPUs.");
}

/// Every rank's text; make() is this rank's.
template <class Make>
std::vector<std::string> gather_texts(const RankExchange& exchange, Make&& make) {
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

/// The ranks of this rank's host, ascending: the first leads.
struct OwnHost {
  int node = 0;
  bool leads = false;
  std::vector<topo::RankGpu> gpus;
};

OwnHost own_host(int rank, const connect::Placement& placement, std::span<const topo::RankGpu> gpus) {
  OwnHost own{.node = placement.node_of(rank), .gpus = {}};
  const auto mates = placement.ranks_of(own.node);
  own.leads = mates.front() == rank;
  for (const std::int32_t mate : mates) own.gpus.push_back(gpus[static_cast<std::size_t>(mate)]);
  return own;
}

std::vector<topo::BusId> bus_ids_of(std::span<const topo::RankGpu> gpus) {
  std::vector<topo::BusId> ids;
  for (const topo::RankGpu& gpu : gpus) ids.push_back(gpu.bus_id);
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

/// Of GPUs that the leader does not see.
std::string to_line(const std::vector<topo::BusId>& bus_ids) {
  std::string line;
  for (const topo::BusId& bus_id : bus_ids) line += bus_id.to_string() + " ";
  return line;
}

/// For each of these GPUs the lowest rank that has it.
std::vector<topo::RankGpu> lookers(std::string_view line, const OwnHost& own) {
  std::vector<topo::RankGpu> found;
  for (std::size_t space = 0; (space = line.find(' ')) != std::string_view::npos;
       line.remove_prefix(space + 1)) {
    const auto bus_id = topo::BusId::parse(line.substr(0, space));
    if (!bus_id) continue;
    const auto owner = std::ranges::find(own.gpus, *bus_id, &topo::RankGpu::bus_id);
    if (owner != own.gpus.end()) found.push_back(*owner);
  }
  return found;
}

/// body(), unless what it throws says why not; memory that has run out goes on.
template <class Body>
std::string why_not(Body&& body) {
  try {
    body();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

/// What a rank sees of its own GPU.
std::string view_of(const Discover& discover, const topo::RankGpu& gpu) {
  std::string view;
  const std::string failed = why_not([&] { view = topo::to_nccl_xml(discover({gpu.bus_id}).system); });
  return failed.empty() ? view : kFailed + failed;
}

/// Throws Error.
topo::System parse_view(const std::string& view) {
  if (view.starts_with(kFailed)) throw Error(ErrorCode::kSystem, view.substr(1));
  return topo::parse_system(view, "this host").system;
}

/// For the leader of each host: the host as its ranks together see it. `told`: what there is to say of it.
/// Nothing: `why` says what is wrong.
std::optional<topo::System> discover_together(const RankExchange& exchange, const OwnHost& own, int leader,
                                              const Discover& discover, std::vector<std::string>& told,
                                              std::string& why) {
  std::optional<topo::System> seen;
  const std::vector<std::string> unseen = gather_texts(exchange, [&] {
    std::string line;
    if (!own.leads) return line;
    const std::string failed = why_not([&] {
      topo::Discovered found = discover(bus_ids_of(own.gpus));
      line = to_line(found.unseen);
      told = std::move(found.notes);
      seen = std::move(found.system);
    });
    if (!failed.empty()) why = loom::format("This machine cannot be seen: {}", failed);
    return line;
  });
  if (std::ranges::all_of(unseen, &std::string::empty)) return seen;
  std::vector<topo::RankGpu> looking;
  const std::vector<std::string> views = gather_texts(exchange, [&] {
    looking = lookers(unseen[static_cast<std::size_t>(leader)], own);
    const auto mine = std::ranges::find(looking, exchange.rank, &topo::RankGpu::rank);
    return mine != looking.end() ? view_of(discover, *mine) : std::string();
  });
  everywhere(exchange, [&] {
    if (!seen) return;
    for (const topo::RankGpu& gpu : looking) try {
        const topo::System view = parse_view(views[static_cast<std::size_t>(gpu.rank)]);
        seen = topo::with_gpu_of(*seen, view, gpu.bus_id);
      } catch (const Error& error) {
        told.push_back(loom::format("What rank {} sees of its GPU is not known: {}", gpu.rank, error.what()));
      }
  });
  return seen;
}

/// Of a graph file as many channels as there can be: whoever has no room for all leaves the last out. Where
/// it does not fit, search finds others.
connect::GpuHostPlan plan(Process& process, const RankExchange& exchange, const topo::MachineOfRanks& machine,
                          const connect::GpuChannelRequest& request, bool between_hosts) {
  if (const std::string* const text = process.graph()) try {
      const connect::GraphFile graph{*text, process.runtime().parameters.graph_file};
      return connect::plan_gpu_host(
          machine, {.max_channels = device::cuda::kMostChannels, .most_gbps = request.most_gbps},
          between_hosts, &graph);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kBadInput) throw;
      process.show_graph_unfit(exchange.where, error.what());
    }
  return connect::plan_gpu_host(machine, request, between_hosts);
}

/// What the leader of each host tells of it, by node; equal hosts tell it once together. make() is this
/// host's, in its leader.
template <class Make>
std::vector<connect::GpuHost> gather_hosts(const RankExchange& exchange, const connect::Placement& placement,
                                           const OwnHost& own, Make&& make) {
  const auto leader_of = [&](int node) { return static_cast<std::size_t>(placement.ranks_of(node).front()); };
  std::vector<std::byte> mine, slice, slices;
  std::vector<std::uint64_t> words;
  std::uint64_t word = 0;
  everywhere(exchange, [&] {
    words.resize(static_cast<std::size_t>(exchange.size));
    if (!own.leads) return;
    mine = make();
    word = connect::word_of(own.node, own.node, mine);
  });
  exchange.all_gather(&word, words.data(), sizeof(word));
  std::optional<connect::Announced> announced;  // of leaders, which count as the ranks of a job of their own
  everywhere(exchange, [&] {
    std::vector<std::uint64_t> of_leaders;
    for (int node = 0; node < placement.nodes(); ++node) of_leaders.push_back(words[leader_of(node)]);
    announced.emplace(of_leaders);
    slice.resize(announced->slice_bytes());
    if (own.leads) slice = announced->slice(own.node, mine);
    slices.resize(slice.size() * words.size());
  });
  exchange.all_gather(slice.data(), slices.data(), slice.size());
  std::vector<connect::GpuHost> hosts;
  everywhere(exchange, [&] {
    std::vector<std::byte> of_leaders;
    for (int node = 0; node < placement.nodes(); ++node) {
      const auto its = std::span(slices).subspan(leader_of(node) * slice.size(), slice.size());
      of_leaders.insert(of_leaders.end(), its.begin(), its.end());
    }
    const auto kinds = announced->summaries(of_leaders);
    if (own.leads && kinds[static_cast<std::size_t>(announced->kind_of(own.node))] != mine)
      throw Error(ErrorCode::kInternal, "What a host's GPUs are came back as another host's.");
    for (int node = 0; node < placement.nodes(); ++node)
      hosts.push_back(connect::decode_gpu_host(kinds[static_cast<std::size_t>(announced->kind_of(node))]));
  });
  return hosts;
}

}  // namespace

connect::GpuChannels learn_gpu_channels(Process& process, const RankExchange& exchange,
                                        const connect::Placement& placement,
                                        std::span<const topo::RankGpu> gpus,
                                        const connect::GpuChannelRequest& request, const Discover& discover) {
  OwnHost own;
  const topo::System* machine = nullptr;
  everywhere(exchange, [&] {
    own = own_host(exchange.rank, placement, gpus);
    machine = process.described_machine();
  });
  std::vector<std::string> told;
  std::string unknown;
  std::optional<topo::System> found;
  if (machine == nullptr) {
    found = discover_together(exchange, own, placement.ranks_of(own.node).front(), discover, told, unknown);
    if (found) machine = &*found;
  }
  connect::GpuHostPlan planned;
  const std::vector<connect::GpuHost> hosts = gather_hosts(exchange, placement, own, [&] {
    if (machine != nullptr) {
      const std::string failed = why_not([&] {
        const bool between_hosts = placement.nodes() > 1;
        const topo::MachineOfRanks whole = topo::with_rank_gpus(*machine, own.gpus);
        topo::MachineOfRanks ranked = whole;
        if (between_hosts) ranked.system = process.ports().planned(whole.system, !found.has_value());
        planned = plan(process, exchange, ranked, request, between_hosts);
        if (exchange.rank != 0) return;
        process.dump(whole.system, Process::Described::kGpus);
        if (process.wants_graph_dump())
          process.dump_graph([&] { return connect::to_graph_xml(ranked, planned.plans); });
      });
      if (!failed.empty()) unknown = loom::format("No channels are planned for this host: {}", failed);
    }
    if (!unknown.empty())
      planned.host = connect::unknown_gpu_host(static_cast<int>(own.gpus.size()),
                                               static_cast<int>(bus_ids_of(own.gpus).size()), unknown);
    return connect::encode(planned.host);
  });
  connect::GpuChannels channels;
  everywhere(exchange, [&] {
    const int most = process.graph() != nullptr ? device::cuda::kMostChannels : request.max_channels;
    channels = connect::gpu_channels(placement, hosts, most);
    process.tell(told);
    process.tell(planned.notes);
    if (exchange.rank != 0) return;
    process.tell(channels.notes);
    process.tell({exchange.where.empty()
                      ? channels.summary
                      : loom::format("{}: kernels: {}", exchange.where, channels.summary)});
  });
  return channels;
}

connect::GpuChannels learn_gpu_channels(Process& process, const RankExchange& exchange,
                                        const connect::Placement& placement,
                                        std::span<const topo::RankGpu> gpus,
                                        const connect::GpuChannelRequest& request) {
  return learn_gpu_channels(
      process, exchange, placement, gpus, request,
      [&](const std::vector<topo::BusId>& ids) { return process.machine_with(ids, placement.nodes() > 1); });
}

}  // namespace loom
