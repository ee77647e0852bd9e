// cores_table -- what small and medium calls need on machines with many cores, as the model says: a table for
// docs/results/cores.md. Prints a line for each call and each way to carry it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "base/format.hpp"
#include "tests/cores/loom_calls.hpp"
#include "tests/cores/peer_calls.hpp"

namespace {

using loom::cores::Counts;
using loom::cores::LoomRanks;
using loom::cores::Peer;
using loom::cores::PeerRanks;
using loom::cores::Way;
using loom::cores::World;
using loom::device::Collective;

struct Options {
  std::vector<std::string> machines;
  std::vector<int> ranks{16, 32, 64, 128, 192};
  std::vector<std::size_t> bytes{8, 1024, 65536, 1048576};
  std::vector<std::string> collectives{"barrier", "bcast", "reduce", "allreduce", "allgather"};
  bool spread = false;
  int most_in_group = 0;
  loom::cores::Costs costs;
};

struct NamedCollective {
  const char* name;
  Collective collective;
};
constexpr NamedCollective kCollectives[] = {{"barrier", Collective::kBarrier},
                                            {"bcast", Collective::kBroadcast},
                                            {"reduce", Collective::kReduce},
                                            {"allreduce", Collective::kAllreduce},
                                            {"allgather", Collective::kAllGather},
                                            {"scan", Collective::kScan}};

constexpr std::pair<const char*, Way> kWays[] = {{"immediate", Way::kImmediate},
                                                 {"tiered", Way::kTiered},
                                                 {"cico", Way::kCico},
                                                 {"tiered_cico", Way::kTieredCico},
                                                 {"single_copy", Way::kSingleCopy}};
constexpr std::pair<const char*, Peer> kPeers[] = {
    {"tuned", Peer::kTuned}, {"sm", Peer::kSm}, {"xhc", Peer::kXhc}};

// Calls before the one that counts: then caches hold what they hold in a loop of such calls.
constexpr int kCallsBefore = 2;

/// Whether loom can carry it so, and the model has the memory and the time for it.
bool can(Way way, Collective collective, std::size_t bytes, int ranks) {
  using loom::device::ImmediateArea;
  const std::size_t all =
      collective == Collective::kAllGather ? bytes * static_cast<std::size_t>(ranks) : bytes;
  if (collective == Collective::kScan) return way == Way::kCico && all <= 16 << 20;
  switch (way) {
    case Way::kImmediate:
      return collective == Collective::kBroadcast || collective == Collective::kReduce
                 ? bytes <= 64 * 1024
                 : bytes <= ImmediateArea::kMostOffered && all <= ImmediateArea::kMostPackedResult;
    case Way::kTiered:
      return loom::device::TieredExchange::takes(collective, bytes, ranks);
    case Way::kSingleCopy:
      if (collective == Collective::kBarrier || (collective == Collective::kReduce && ranks > 2))
        return false;
      return all <= 16 << 20;
    case Way::kTieredCico:
      return loom::device::TieredCicoExecutor::takes(collective) &&
             loom::device::CicoGroups::members_of(ranks) > 1;
    case Way::kCico:
      return all <= 16 << 20;
  }
  return false;
}

void print(const std::string& machine, int ranks, const char* collective, std::size_t bytes, const char* way,
           const Counts& counts) {
  loom::print(stdout, "| {} | {} | {} | {} | {} | {:.2f} | {} | {} | {} | {} | {} | {} | {} |\n", machine,
              ranks, collective, bytes, way, counts.ns / 1e3, counts.waits, counts.most_lines,
              counts.lines[0], counts.lines[1], counts.lines[2], counts.lines[3], counts.numa_bytes);
}

void run(const Options& options, const loom::cores::Machine& machine, int ranks, const NamedCollective& of,
         std::size_t bytes) {
  const auto measure = [&](const char* name, auto&& one_of, auto&& call) {
    World world(cores_of_ranks(machine, ranks, !options.spread), options.costs);
    auto all = one_of(world);
    Counts counts;
    for (int i = 0; i <= kCallsBefore; ++i) counts = call(all);
    print(machine.name, ranks, of.name, bytes, name, counts);
  };
  const int most =
      options.most_in_group > 0 ? options.most_in_group : loom::device::Tiers::most_in_group(ranks);
  for (const auto& [name, way] : kWays)
    if (can(way, of.collective, bytes, ranks))
      measure(
          name, [&](World& world) { return LoomRanks(world, tiers_of(world, most)); },
          [&, way = way](LoomRanks& all) { return all.call(way, of.collective, bytes); });
  for (const auto& [name, peer] : kPeers)
    if (PeerRanks::takes(peer, of.collective))
      measure(
          name, [](World& world) { return PeerRanks(world); },
          [&, peer = peer](PeerRanks& all) { return all.call(peer, of.collective, bytes); });
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app{"What calls need on machines with many cores, as a model of cache lines says.", "cores_table"};
  app.add_option("machines", options.machines, "hwloc XML files")->required();
  app.add_option("--ranks", options.ranks, "numbers of ranks")->delimiter(',');
  app.add_option("--bytes", options.bytes, "of a message or block")->delimiter(',');
  app.add_option("--collectives", options.collectives, "of barrier, bcast, reduce, allreduce, allgather")
      ->delimiter(',');
  app.add_flag("--spread", options.spread, "ranks over all cores, rather than on the first ones");
  app.add_option("--group", options.most_in_group, "members of a group of `tiered`; 0: as the product");
  app.add_option("--served", options.costs.served, "ns between two answers of a cache for one line");
  app.add_option("--misses", options.costs.misses, "lines in flight that are no stream");
  CLI11_PARSE(app, argc, argv);
  loom::print(
      stdout,
      "| machine | ranks | collective | bytes | way | us | waits | most lines of a rank | lines from the "
      "same cache | same node | same socket | other socket | bytes between nodes |\n"
      "| --- | ---: | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
  for (const std::string& path : options.machines) {
    const loom::cores::Machine machine = loom::cores::read_machine(path);
    for (const int ranks : options.ranks)
      for (const NamedCollective& of : kCollectives) {
        if (ranks > static_cast<int>(machine.cores.size()) ||
            std::ranges::find(options.collectives, of.name) == options.collectives.end())
          continue;
        if (of.collective == Collective::kBarrier) {
          run(options, machine, ranks, of, 0);
          continue;
        }
        for (const std::size_t bytes : options.bytes) run(options, machine, ranks, of, bytes);
      }
  }
  return 0;
} catch (const std::exception& error) {
  loom::print(stderr, "cores_table: {}\n", error.what());
  return 1;
}
