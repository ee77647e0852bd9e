// mpi_channels_test -- what an all-reduce on GPUs sends over each link of a machine, beside the channels that
// search and connect find for it. A rank for each GPU of VIRTUAL_GPU_MACHINE (scripts/own-gpu), whose links
// tests/virtual_gpu counts by figures and ways of its own.
//
//   mpi_channels_test [BYTES [NAME [trees]]]    of the message, 16 MiB unless given
//
// By kernels over the channels, or by zero copy where loom predicts that to be faster: that sends as much
// from each GPU as rings. trees: coll_loom_tune makes kernels go by trees. Rank 0 prints a row of a table,
// which --heading prints the head of. Exit code 1: a channel carries another share than its own by more than
// 2 %, or a link is busy for longer than the search allows. VIRTUAL_GPU_STATE has to be set.
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "connect/gpu_channels.hpp"
#include "mpi_examples/support/loom_pvars.hpp"
#include "tests/mpi/device_ints.hpp"
#include "tests/virtual_gpu/machine/traffic.hpp"
#include "topo/hwloc_xml.hpp"

namespace {

using namespace loom::mpi_test;
using loom::connect::GpuChannels;
namespace machine = virtual_gpu::machine;

constexpr double kMostDeviation = 0.02, kMostOverBound = 1.1;
constexpr char kHeading[] =
    "| machine | GPUs | carried by | channels | GB/s | bound | off its share, % | slowest link | MB | us | "
    "at "
    "the bound, us "
    "| "
    "ratio |\n| --- | ---: | --- | ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: |\n";

using BusIdText = std::array<char, 16>;

/// By rank.
std::vector<machine::BusId> bus_ids() {
  BusIdText mine{};
  require(
      Driver::get().function<int(char*, int, int)>("cuDeviceGetPCIBusId")(mine.data(), mine.size(), 0) == 0,
      "the driver does not say where its GPU is");
  std::vector<BusIdText> all(static_cast<std::size_t>(ranks));
  MPI_Allgather(mine.data(), mine.size(), MPI_CHAR, all.data(), mine.size(), MPI_CHAR, MPI_COMM_WORLD);
  std::vector<machine::BusId> result;
  for (const BusIdText& text : all) result.push_back(machine::BusId::parse(text.data()).value());
  return result;
}

GpuChannels planned(const std::vector<machine::BusId>& ids) {
  std::vector<loom::topo::RankGpu> gpus;
  for (const machine::BusId& id : ids)
    gpus.push_back(
        {.rank = static_cast<int>(gpus.size()), .bus_id = loom::topo::BusId::parse(id.to_string()).value()});
  const loom::topo::System system = loom::topo::read_system(machine::variable("VIRTUAL_GPU_MACHINE")).system;
  return loom::connect::gpu_channels(loom::topo::with_rank_gpus(system, gpus));
}

/// Bytes and the time that they take at least, of each link that an all-reduce uses, by the link's number.
struct Load {
  double bytes = 0, us = 0;
};
using Loads = std::map<std::size_t, Load>;

class Counters {
 public:
  Counters() : state_(machine_, machine::variable("VIRTUAL_GPU_STATE")), traffic_(machine_, state_) {}
  const machine::Machine& machine() const { return machine_; }
  /// While no rank has anything on the way: a call may end before its kernel's last block.
  Loads read() const {
    require(Driver::get().function<int()>("cuCtxSynchronize")() == 0, "a kernel has failed");
    MPI_Barrier(MPI_COMM_WORLD);
    Loads loads;
    for (const auto& row : traffic_.report().rows) loads[row.link] = {static_cast<double>(row.bytes), row.us};
    MPI_Barrier(MPI_COMM_WORLD);
    return loads;
  }

 private:
  machine::Machine machine_ = machine::Machine::from_environment();
  machine::SharedState state_;
  machine::Traffic traffic_;
};

/// What the all-reduce itself sends.
Loads allreduce(const Counters& counters, int count) {
  Ints in(count, rank, MemoryKind::kDevice), out(count, -1, MemoryKind::kDevice);
  const Loads before = counters.read();
  MPI_Allreduce(in.at(), out.at(), count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  Loads sent = counters.read();
  for (const auto& [link, load] : before) sent[link].bytes -= load.bytes, sent[link].us -= load.us;
  out.is([](int) { return ranks * (ranks - 1) / 2; }, "an allreduce is wrong");
  return sent;
}

/// By from and to: what an all-reduce of so many bytes is to send there.
using Hops = std::map<std::pair<int, int>, double>;

Hops by_rings(const GpuChannels& channels, double bytes) {
  Hops hops;
  for (const auto& ring : channels.rings)
    for (std::size_t i = 0; i < ring.order.size(); ++i)
      hops[{ring.order[i], ring.order[(i + 1) % ring.order.size()]}] +=
          static_cast<double>(ring.gbps) / channels.ring.gbps * 2.0 * (ranks - 1) / ranks * bytes;
  return hops;
}

/// Up each link of a tree the sums of what is below, and down the result: the tree's part of the message.
Hops by_trees(const GpuChannels& channels, double bytes) {
  Hops hops;
  for (const auto& channel : channels.trees)
    for (const auto& tree : channel.trees)
      for (int of = 0; of < ranks; ++of) {
        const int parent = tree[static_cast<std::size_t>(of)].parent;
        if (parent == loom::connect::kNobody) continue;
        const double part = static_cast<double>(channel.gbps) / channels.tree.gbps / 2 * bytes;
        hops[{of, parent}] += part;
        hops[{parent, of}] += part;
      }
  return hops;
}

/// By how much of its share a link between two GPUs is off; where there are none, what leaves a GPU.
double deviation(const machine::Machine& machine, const std::vector<machine::BusId>& ids, const Hops& hops,
                 const Loads& sent) {
  const auto name = [&](int rank_of) {
    const auto at =
        std::ranges::find(machine.gpus(), ids[static_cast<std::size_t>(rank_of)], &machine::Gpu::bus_id);
    return machine.name_of(machine::gpu(static_cast<std::size_t>(at - machine.gpus().begin())));
  };
  double most = 0;
  bool by_pairs = false;
  for (const auto& [hop, right] : hops) {
    for (const auto& [link, load] : sent) {
      const machine::Link& of = machine.links()[link];
      if (of.kind != machine::Link::Kind::kNvlink || of.from != name(hop.first) || of.to != name(hop.second))
        continue;
      most = std::max(most, std::abs(load.bytes / right - 1));
      by_pairs = true;
    }
  }
  if (by_pairs) return most;
  for (int of = 0; of < ranks; ++of) {
    double leaves = 0, right = 0;
    for (const auto& [hop, part] : hops)
      if (hop.first == of) right += part;
    for (const auto& [link, load] : sent) {
      const machine::Link& by = machine.links()[link];
      if (by.from == name(of) && by.kind != machine::Link::Kind::kMemory) leaves += load.bytes;
    }
    most = std::max(most, std::abs(leaves / right - 1));
  }
  return most;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--heading") == 0) return std::fputs(kHeading, stdout) < 0;
  begin(argc, argv);
  const double bytes = argc > 1 ? std::atof(argv[1]) : 16 << 20;
  bool right = true;
  {
    const Counters counters;
    const std::vector<machine::BusId> ids = bus_ids();
    const int count = static_cast<int>(bytes / sizeof(int));
    loom::mpi::ToolInterface tools;
    const auto calls_by = [&](const char* algorithm) {
      return tools.counter("coll_loom_calls", "allreduce", algorithm).value_or(0);
    };
    allreduce(counters, 1);  // sets up
    const bool trees = argc > 3 && std::strcmp(argv[3], "trees") == 0;
    const char* const kernel = trees ? "kernel_tree" : "kernel";
    const std::uint64_t by_kernel = calls_by(kernel), by_zero_copy = calls_by("zero_copy");
    const Loads sent = allreduce(counters, count);
    const bool is_zero_copy = calls_by("zero_copy") == by_zero_copy + 1;
    require((is_zero_copy && !trees) || calls_by(kernel) == by_kernel + 1, "no kernel carries the allreduce");
    if (rank == 0) {
      const GpuChannels channels = planned(ids);
      const auto slowest = std::ranges::max_element(sent, {}, [&](const auto& one) { return one.second.us; });
      const machine::Link& link = counters.machine().links()[slowest->first];
      const loom::connect::ChannelTotal& total = trees ? channels.tree : channels.ring;
      const double at_bound = 2.0 * (trees ? 1 : (ranks - 1.0) / ranks) * bytes / total.bound_gbps / 1000,
                   off = deviation(counters.machine(), ids,
                                   trees ? by_trees(channels, bytes) : by_rings(channels, bytes), sent),
                   ratio = slowest->second.us / at_bound;
      loom::print(
          "| {} | {} | {} | {} | {:.1f} | {:.1f} | {:.2f} | {} to {} | {:.2f} | {:.1f} | {:.1f} | {:.2f} |\n",
          argc > 2 ? argv[2] : "", ranks, is_zero_copy ? "zero_copy" : kernel,
          trees ? channels.trees.size() : channels.rings.size(), total.gbps, total.bound_gbps, 100 * off,
          link.from, link.to, slowest->second.bytes / 1e6, slowest->second.us, at_bound, ratio);
      right = off <= kMostDeviation && ratio <= kMostOverBound;
      if (!right)
        loom::print(stderr, "more than {} off, or over the bound by {}\n", kMostDeviation, kMostOverBound);
    }
  }
  MPI_Finalize();
  return right ? 0 : 1;
}
