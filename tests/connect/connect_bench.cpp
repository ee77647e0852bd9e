// connect_bench.cpp -- what it takes a rank to know its channels in a job of many nodes: time, memory, bytes.
// Each line is a process of its own, for memory is counted from its beginning to its highest.
//   connect_bench [RANKS[,KINDS]]...     16 rings and 16 double trees, 8 ranks on each node; KINDS different
//   nodes in turn
// Exit code 1: a job of equal nodes took more bytes or memory than kTargets allow. Times are only shown, they
// depend on the machine.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <optional>
#include <random>
#include <string>

#include "base/format.hpp"
#include "connect/exchange.hpp"
#include "connect/view.hpp"

using namespace loom::connect;

namespace {

constexpr int kRanksPerNode = 8, kChannels = 16;

/// What a job of equal nodes with up to so many ranks may take.
struct Target {
  int ranks;
  double exchanged_bytes, peak_mb;
};
constexpr Target kTargets[] = {{100'000, 2e6, 32}, {1'000'000, 20e6, 300}};

NodeSummary node_of_kind(int kind) {
  std::mt19937 random(static_cast<unsigned>(kind));
  NodeSummary node;
  node.ranks = kRanksPerNode;
  node.port_gbps.assign(kRanksPerNode, 50);
  for (const Family family : {Family::kRing, Family::kTree}) {
    FamilySummary& mine = node.families[static_cast<std::size_t>(family)];
    mine.pattern =
        family == Family::kRing ? loom::search::Pattern::kRing : loom::search::Pattern::kBalancedTree;
    for (int c = 0; c < kChannels; ++c) {
      ChannelSummary channel;
      channel.order.resize(kRanksPerNode);
      std::iota(channel.order.begin(), channel.order.end(), std::uint16_t{0});
      std::shuffle(channel.order.begin(), channel.order.end(), random);
      channel.port_in = channel.port_out = static_cast<std::int16_t>(c % kRanksPerNode);
      channel.intra_gbps = channel.inter_gbps = 24;
      mine.channels.push_back(std::move(channel));
    }
  }
  return node;
}

/// A field of /proc/self/status in KiB.
long status_kb(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(field + ":")) return std::stol(line.substr(field.size() + 1));
  return 0;
}

template <class Body>
double ms_of(Body&& body) {
  const auto began = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count();
}

/// What all ranks of the job send: what arrives at each of them. False: more than the target.
bool measure(int ranks, int kinds) {
  const int nodes = ranks / kRanksPerNode;
  std::vector<std::vector<std::byte>> summaries;
  for (int kind = 0; kind < kinds; ++kind) summaries.push_back(encode(node_of_kind(kind)));
  const auto summary_of = [&](int rank) -> const std::vector<std::byte>& {
    return summaries[static_cast<std::size_t>(rank / kRanksPerNode % kinds)];
  };
  const int me = ranks / 2 + 3;
  const long before_kb = status_kb("VmRSS");
  std::vector<std::uint64_t> words(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    words[static_cast<std::size_t>(rank)] =
        word_of(rank, rank / kRanksPerNode * kRanksPerNode, summary_of(rank));
  const std::vector<std::byte> slices = Announced(words).all_slices(summaries);
  Job job;
  View view;
  const double ms = ms_of([&] {
    const Announced announced(words);
    const std::vector<std::byte> mine = announced.slice(me, summary_of(me));
    job = announced.join(slices, me, summary_of(me));
    view = connect(job, me);
  });
  long sum = 0;
  const double order_ms = ms_of([&] {
    for (int position = 0; position < ranks; ++position) sum += rank_at(job, 0, position);
  });
  if (sum != static_cast<long>(ranks) * (ranks - 1) / 2 || view.rings.size() != kChannels) std::abort();
  const double exchanged = static_cast<double>(words.size() * 8 + slices.size());
  const double peak_mb = static_cast<double>(status_kb("VmHWM") - before_kb) / 1024;
  loom::print("{:>9} {:>7} {:>6} {:>9.2f} {:>9.1f} {:>12.0f} {:>10.2f} {:>12.2f}\n", ranks, nodes, kinds, ms,
              peak_mb, exchanged, exchanged / ranks, order_ms);
  if (kinds > 1) return true;
  for (const Target& target : kTargets) {
    if (ranks > target.ranks) continue;
    if (exchanged < target.exchanged_bytes && peak_mb < target.peak_mb) return true;
    loom::print(stderr, "{} ranks may take {} bytes and {} MB.\n", ranks, target.exchanged_bytes,
                target.peak_mb);
    return false;
  }
  return true;
}

/// RANKS or RANKS,KINDS.
std::optional<std::pair<int, int>> job_of_text(const std::string& text) {
  std::pair<int, int> job{0, 1};
  const char* const end = text.data() + text.size();
  auto read = std::from_chars(text.data(), end, job.first);
  if (read.ec == std::errc{} && read.ptr != end && *read.ptr == ',')
    read = std::from_chars(read.ptr + 1, end, job.second);
  if (read.ec != std::errc{} || read.ptr != end || job.first < kRanksPerNode || job.second < 1) return {};
  return job;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::pair<int, int>> jobs;
  for (int i = 1; i < argc; ++i) {
    const auto job = job_of_text(argv[i]);
    if (!job) {
      loom::print(stderr, "connect_bench: \"{}\" is not RANKS or RANKS,KINDS with {} ranks or more.\n",
                  argv[i], kRanksPerNode);
      return 2;
    }
    jobs.push_back(*job);
  }
  if (jobs.empty())
    jobs = {{8, 1},       {64, 1},        {1000, 1},    {10'000, 1},
            {100'000, 1}, {1'000'000, 1}, {100'000, 4}, {100'000, 12'500}};
  loom::print("{:>9} {:>7} {:>6} {:>9} {:>9} {:>12} {:>10} {:>12}\n", "ranks", "nodes", "kinds", "ms",
              "MB peak", "bytes", "bytes/rank", "ms one order");
  std::fflush(stdout);
  int failed = 0;
  for (const auto& [ranks, kinds] : jobs) {
    const pid_t child = fork();
    if (child == 0) {
      const bool kept = measure(ranks / kRanksPerNode * kRanksPerNode, kinds);
      std::fflush(stdout);
      _exit(kept ? 0 : 1);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) failed = 1;
  }
  return failed;
}
