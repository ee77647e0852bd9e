// device_links_to_hosts.cpp -- how the links of DeviceLinks reach other hosts: through which ports, and
// whether these read and write the GPUs' memory by themselves.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "component/execute/device_links.hpp"
#include "component/links/gpu_network.hpp"

namespace loom {

using device::cuda::Gpu;

/// What was planned for one of this rank's ends.
connect::ChannelPorts::Port DeviceLinks::planned_port(const device::steps::FarEnd& end) const {
  const auto channel = static_cast<std::size_t>(end.channel);
  if (channel >= ports_.size()) return {};
  const connect::ChannelPorts& ports = ports_[channel];
  switch (end.kind) {
    case device::steps::LinkKind::kRing:
      return end.sends ? ports.ring_out : ports.ring_in;
    case device::steps::LinkKind::kTree:
      return ports.tree;
    case device::steps::LinkKind::kGrid:
    case device::steps::LinkKind::kExchange:
      return ports.nearest;
    case device::steps::LinkKind::kPairwise:
      return {};
  }
  return {};
}

/// Whether any rank can use a port that a channel was planned for, and they have not failed before.
bool DeviceLinks::has_ports() {
  std::vector<std::string> planned, usable;
  const bool may_try = try_everywhere(kNoPorts, [&] {
    if (!member_.process.may_try_planned_ports()) return false;
    for (const connect::ChannelPorts& of : ports_)
      for (const std::string& port : {of.ring_in.name, of.ring_out.name, of.tree.name, of.nearest.name}) {
        if (port.empty() || std::ranges::count(planned, port) > 0) continue;
        planned.push_back(port);
        if (member_.process.ports().may_use(port)) usable.push_back(port);
      }
    return true;
  });
  const bool any = may_try && !execution_.holds_everywhere(usable.empty());
  if (member_.tells(1))
    without_failing([&] {
      say("links between hosts",
          (!may_try ? "UCX chooses the ports: those that channels were planned for have failed before."
           : !usable.empty() ? "Channels go through the ports that they were planned for; on this rank " +
                                   loom::join(usable, ", ") + "."
           : planned.empty()
               ? "UCX chooses the ports: none is known to lead to other hosts (see coll_loom_net_devices)."
               : "UCX chooses the ports: those that channels were planned for are not here (" +
                     loom::join(planned, ", ") + "; see coll_loom_net_devices).")
              .c_str());
    });
  return any;
}

/// kAllRails: the port is not for this process, or cannot be opened, which is told once.
ucx_transport::RailId DeviceLinks::rail_of(const std::string& port) {
  const auto [rail, is_new] = rails_.try_emplace(port, ucx_transport::kAllRails);
  if (is_new && !port.empty() && member_.process.ports().may_use(port)) try {
      rail->second = member_.network().rail_over(port);
    } catch (const Error& error) {
      say("links between hosts", error.what());
    }
  return rail->second;
}

/// Whether the slots of this rank's end may be on the GPU, as far as the machine, the port and UCX go.
bool DeviceLinks::goes_direct(const connect::ChannelPorts::Port& port, bool sends) {
  if (!(sends ? port.to_gpu.reads : port.to_gpu.writes) || !member_.process.ports().reaches_gpus(port.name))
    return false;
  const ucx_transport::RailId rail = rail_of(port.name);
  return rail != ucx_transport::kAllRails && member_.network().takes_gpu_memory(rail);
}

/// Whether any rank has a port that reads or writes its GPU's memory, and all may try that. A rank's peers
/// send to its GPU as it has them do, so one that is not to is enough.
bool DeviceLinks::may_go_direct(const std::shared_ptr<Gpu>& gpu) {
  bool planned = false, here = false;
  const bool is_never = member_.process.runtime().parameters.rendezvous == LOOM_RENDEZVOUS_NEVER;
  const bool may_try = try_everywhere(kNoDirect, [&] {
    for (const connect::ChannelPorts& of : ports_)
      for (const connect::ChannelPorts::Port& port : {of.ring_in, of.ring_out, of.tree, of.nearest})
        for (const bool sends : {false, true}) {
          planned |= port.to_gpu.reads || port.to_gpu.writes;
          here |= goes_direct(port, sends);
        }
    here = here && device::cuda::NetworkWrites::of(gpu) != nullptr;
    return member_.process.may_try_gpu_direct() && !is_never;
  });
  const bool any = may_try && !execution_.holds_everywhere(!here);
  if (member_.tells(1) && (any || planned))
    say("GPUDirect",
        any && here ? "The ports read and write the memory of this rank's GPU."
        : any       ? "Ports of other ranks read and write the memory of their GPUs."
        : !may_try  ? "It is planned and not used: coll_loom_rendezvous is never on a rank, or it has failed "
                      "before."
                    : "It is planned and not used: UCX takes no memory of GPUs for these ports (it needs its "
                      "module for CUDA, which UCX_TLS may leave out), or the GPU does not show its kernels "
                      "what they write.");
  return any;
}

/// Says of each end whether its slots are on the GPU.
DeviceLinks::Ways DeviceLinks::choose_ways(const Attempt& attempt, const std::shared_ptr<Gpu>& gpu,
                                           std::vector<device::steps::FarEnd>& ends) {
  Ways ways{std::vector<ucx_transport::RailId>(ends.size(), ucx_transport::kAllRails), nullptr};
  if (!attempt.by_ports) {
    if (!ends.empty()) {
      member_.network();
      std::ranges::fill(ways.rails, member_.process.rail_of_ucx());
    }
    return ways;
  }
  if (attempt.direct) ways.writes = device::cuda::NetworkWrites::of(gpu);
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const connect::ChannelPorts::Port port = planned_port(ends[i]);
    ways.rails[i] = rail_of(port.name);
    ends[i].on_gpu = ways.writes && goes_direct(port, ends[i].sends);
    ways.on_gpu += ends[i].on_gpu;
  }
  if (ways.on_gpu > 0) member_.network().work_in_context_of(gpu);
  if (attempt.direct && member_.tells(1))
    say("GPUDirect", loom::format("{} of {} ends of links between hosts have their slots on the GPU.",
                                  ways.on_gpu, ends.size())
                         .c_str());
  return ways;
}

/// The links between kernels that lead to other hosts: joins their ends. They are tried with the others.
bool DeviceLinks::join_hosts(const Ways& ways, const char* otherwise, std::string& way) {
  const auto ranks = static_cast<std::size_t>(member_.bootstrap.size());
  std::unique_ptr<GpuNetwork> network;
  std::vector<std::byte> mine, all;
  std::vector<std::uint64_t> lengths;
  std::size_t longest = 0;
  const auto make = [&] {
    lengths.resize(ranks);
    network = std::make_unique<GpuNetwork>(
        member_.network(), links_.gpus->kernels().far_ends(), links_.gpus->far_slots(), ways.rails,
        [writes = ways.writes] { writes->take_in(); }, *member_.group);
    ByteWriter writer;
    network->write_handle(writer);
    mine = writer.take();
    return true;
  };
  const auto make_room = [&] {
    longest = *std::ranges::max_element(lengths);
    mine.resize(longest);
    all.resize(ranks * longest);
    return true;
  };
  const auto join = [&] {
    network->connect([&](int rank) {
      return ByteReader(std::span(all).subspan(static_cast<std::size_t>(rank) * longest, longest),
                        kHandleOfLinks);
    });
    way = network->way();
    links_.gpus->carry_by(std::move(network));
    return true;
  };
  constexpr const char* kWhat = "reaching other hosts";
  if (!works(kWhat, otherwise, make)) return false;
  gather(static_cast<std::uint64_t>(mine.size()), lengths);
  if (!works(kWhat, otherwise, make_room)) return false;
  execution_.gather(mine.data(), all.data(), longest);
  return works(kWhat, otherwise, join);
}

}  // namespace loom
