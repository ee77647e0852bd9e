// decisions_test.cpp -- holds the algorithm for each call, over a grid of machines, collectives and sizes,
// against decisions.txt. A difference has to be a decision with a measurement. LOOM_WRITE_DECISIONS=FILE
// writes the present decisions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "base/format.hpp"
#include "component/links/shared_layout.hpp"
#include "component/select/select.hpp"
#include "device/cuda/kernel_way.hpp"

namespace loom {
namespace {

using device::Collective;

constexpr std::size_t kMostBytes = std::size_t{1} << 31;

std::vector<Conditions> machines() {
  std::vector<Conditions> all;
  for (const int ranks : {1, 2, 3, 4, 5, 8, 16, 33, 128, 256})
    for (const bool single_copy : {false, true})
      for (const bool oversubscribed : {false, true})
        all.push_back(
            {.shape = {ranks, 1, ranks}, .single_copy = single_copy, .oversubscribed = oversubscribed});
  for (const int ranks : {8, 33, 128, 256})
    for (const bool oversubscribed : {false, true})
      all.push_back({.shape = {ranks, 1, ranks},
                     .single_copy = true,
                     .oversubscribed = oversubscribed,
                     .tiers = ranks > 64 ? 3 : 2,
                     .groups = true});
  all.push_back({.shape = {112, 1, 112}, .single_copy = true, .tiers = 3, .in_cache = 56, .groups = true});
  for (const int hosts : {2, 3, 4, 5, 6, 8, 9, 16, 17, 33, 64, 128})
    for (const int per_host : {1, 2, 3, 8})
      for (const bool hier : {false, true})
        all.push_back({.shape = {hosts * per_host, hosts, per_host}, .hier = hier});
  for (const int hosts : {2, 3, 5, 16, 17, 40})
    for (const bool hier : {false, true}) all.push_back({.shape = {hosts * 2 + 1, hosts, 0}, .hier = hier});
  return all;
}

/// "0 a, 100 b": from so many bytes on. Looks at powers of two and their neighbours, and where two differ for
/// where exactly.
std::string by_size(const std::function<std::string(std::size_t)>& decide) {
  std::vector<std::size_t> sizes{0};
  for (std::size_t power = 1; power <= kMostBytes; power *= 2)
    for (const std::size_t size : {power, power + 1, power + power / 2}) sizes.push_back(size);
  std::string before = decide(0), text = "0 " + before;
  std::size_t last = 0;
  for (const std::size_t size : sizes) {
    while (decide(size) != before) {
      std::size_t low = last, high = size;  // low is as before, high is not
      while (high - low > 1) {
        const std::size_t middle = low + (high - low) / 2;
        (decide(middle) == before ? low : high) = middle;
      }
      before = decide(high);
      text += loom::format(", {} {}", high, before);
      last = high;
    }
    last = size;
  }
  return text;
}

/// The blocking choice, "/" that of a call that may not wait where it is another, "|" the candidate.
std::string decision(const Conditions& machine, Collective collective, std::size_t bytes) {
  const auto text = [&](bool may_wait) {
    const Choice choice = choose(machine, collective, bytes, may_wait);
    return loom::format("{}{}", name_of(choice.algorithm),
                        choice.candidate ? loom::format("|{}", name_of(*choice.candidate)) : "");
  };
  const std::string blocking = text(true), resumable = text(false);
  return blocking == resumable ? blocking : blocking + " / " + resumable;
}

std::string decisions() {
  std::string text;
  for (const Conditions& machine : machines()) {
    const connect::Shape& shape = machine.shape;
    const std::size_t small =
        shape.hosts == 1 && shape.ranks > 1
            ? std::max<std::size_t>(immediate_below(machine, Collective::kAllreduce, {}), 1) - 1
            : 0;
    text += loom::format("ranks {} hosts {} per host {}{}{}{}{}{}: small {}, pairwise {}, dbt {}, hier {}\n",
                         shape.ranks, shape.hosts, shape.ranks_per_host,
                         machine.single_copy ? " single_copy" : "",
                         machine.oversubscribed ? " oversubscribed" : "", machine.hier ? " hier" : "",
                         machine.tiers > 1 ? loom::format(" tiers {}", machine.tiers) : "",
                         machine.in_cache > 1 ? loom::format(" in cache {}", machine.in_cache) : "", small,
                         may_use_pairwise(shape), suits_dbt(shape), may_use_hier(shape));
    // Collectives that go alike share a line.
    std::vector<std::pair<std::string, std::string>> lines;
    for (std::size_t i = 0; i < device::kCollectiveCount; ++i) {
      const auto collective = static_cast<Collective>(i);
      const std::string ways =
          collective == Collective::kBarrier
              ? "0 " + decision(machine, collective, 0)
              : by_size([&](std::size_t bytes) { return decision(machine, collective, bytes); });
      const auto same = std::ranges::find(lines, ways, &std::pair<std::string, std::string>::second);
      if (same != lines.end())
        same->first += loom::format(" {}", name_of(collective));
      else
        lines.emplace_back(name_of(collective), ways);
    }
    for (const auto& [collectives, ways] : lines) text += loom::format("  {}: {}\n", collectives, ways);
  }
  text += "may carry\n";
  for (std::size_t i = 0; i < kAlgorithmCount; ++i) {
    const auto algorithm = static_cast<Algorithm>(i);
    text += loom::format("  {}:", name_of(algorithm));
    for (std::size_t c = 0; c < device::kCollectiveCount; ++c)
      if (row_of(algorithm).carries(static_cast<Collective>(c)))
        text += loom::format(" {}", name_of(static_cast<Collective>(c)));
    text += "\n";
  }
  // Bytes of all blocks together; 16 channels of speeds that nobody knows, with LL128.
  for (const int ranks : {4, 16})
    for (const Collective collective :
         {Collective::kAllreduce, Collective::kReduce, Collective::kReduceScatter, Collective::kBroadcast,
          Collective::kAllGather}) {
      const device::cuda::KernelWays ways(ranks, device::cuda::plain_kernel_channels(ranks, 16));
      text += loom::format("kernels of {} ranks {}: {}\n", ranks, name_of(collective),
                           by_size([&](std::size_t bytes) {
                             const auto way = ways.way(collective, bytes, device::cuda::KernelLinkage::kAny);
                             return loom::format("{}.{}.{}", static_cast<int>(way.algorithm),
                                                 static_cast<int>(way.protocol), way.channels);
                           }));
    }
  const auto fifo = [&](const char* name, const device::FifoShape& shape) {
    text +=
        loom::format("fifo {}: {} slots of {} bytes, credit after {} releases or {} bytes\n", name,
                     shape.slot_count, shape.slot_bytes, shape.releases_per_credit, shape.bytes_per_credit);
  };
  fifo("shared", kSharedFifo);
  fifo("net", kNetFifo);
  fifo("dbt", kTreeFifo);
  fifo("pairwise", kPairwiseFifo);
  for (const int hosts : {2, 3, 4, 5, 6, 9, 10, 16}) {
    fifo(loom::format("hosts {}", hosts).c_str(), leader_fifo(hosts));
    text += loom::format("untaken {} slots, {} bytes\n", most_untaken(leader_fifo(hosts)), kMostUntakenBytes);
  }
  text +=
      loom::format("segment {} bytes on one host, {} on one of several\n", kOneHostBytes, kOneOfHostsBytes);
  text += loom::format("banks {} of {} bytes\n", device::CicoBuffer::kBanks, device::CicoBuffer::kBankBytes);
  for (const int ranks : {2, 4, 8, 9, 16, 33, 128})
    text += loom::format("banks of hosts with {} ranks: {}\n", ranks, banks_of_hosts(ranks));
  return text;
}

TEST(Decisions, AreThoseThatWereMeasured) {
  const std::string now = decisions();
  if (const char* path = std::getenv("LOOM_WRITE_DECISIONS")) std::ofstream(path) << now;
  std::ifstream file(LOOM_DECISIONS_FILE);
  ASSERT_TRUE(file) << LOOM_DECISIONS_FILE;
  std::istringstream lines(now);
  std::string expected, found, machine;
  for (int number = 1;; ++number) {
    const bool more_expected = static_cast<bool>(std::getline(file, expected));
    const bool more_found = static_cast<bool>(std::getline(lines, found));
    ASSERT_EQ(more_expected, more_found) << "line " << number;
    if (!more_found) break;
    if (found[0] != ' ') machine = found;
    EXPECT_EQ(expected, found) << "line " << number << ", " << machine;
  }
}

}  // namespace
}  // namespace loom
