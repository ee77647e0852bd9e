// communicator_comparison.cpp -- do bytes cross between the ranks of this host faster through the boards or
// by single copy?
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>

#include "component/communicator.hpp"

namespace loom {

/// The first call that is not small and may go either way, and then one in so many bytes: the system may have
/// moved the ranks, or their virtual CPUs. The same on all ranks.
bool Communicator::asks_for_comparison(const device::HostJob& job) {
  constexpr std::uint64_t kBytesBetween = 256 * 1024 * 1024;  // takes a hundred times as long
  const int ranks = bootstrap_.size();
  const std::size_t offered = device::offered_bytes(job.collective, job.bytes(), ranks);
  if (links_.pids.empty() || group_->oversubscribed || group_->preference != Preference::kBest ||
      !device::SingleCopyExecutor::takes(job.collective) ||
      (job.collective == device::Collective::kReduce && ranks > 2) ||
      offered <= device::DirectArea::kMostOffered)
    return false;
  if (links_.bytes_until_comparison > offered) {
    links_.bytes_until_comparison -= offered;
    return false;
  }
  links_.bytes_until_comparison = kBytesBetween;
  return true;
}

/// Has the ranks do the same work both ways, some hundred microseconds for two ranks, and compares. Lines
/// that a peer has just written come from its cache slowly where the two have no cache in common, and no
/// topology says that of virtual CPUs.
void Communicator::compare_ways() {
  constexpr std::size_t kWholeBytes = 256 * 1024, kLeastBlockBytes = 16 * 1024;
  constexpr int kTrials = 3;  // of which the first makes ready
  constexpr double kMuchFaster = 1.5;
  using Clock = std::chrono::steady_clock;
  const auto ranks = static_cast<std::size_t>(bootstrap_.size());
  const std::size_t block = std::max(kWholeBytes / ranks, kLeastBlockBytes) / sizeof(float);
  // Pages of its own: a heap would keep them, that of each thread.
  const std::size_t bytes = (ranks + 1) * block * sizeof(float);
  const auto unmap = [bytes](float* pages) { ::munmap(pages, bytes); };
  void* const pages =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  const std::unique_ptr<float, decltype(unmap)> memory(
      pages == MAP_FAILED ? nullptr : static_cast<float*>(pages), unmap);
  const auto largest = [&](std::array<std::uint64_t, 2> words) {
    auto* const there = reinterpret_cast<std::byte*>(words.data());
    perform_by(Algorithm::kDirect, {.collective = device::Collective::kAllreduce,
                                    .in = there,
                                    .out = there,
                                    .count = words.size(),
                                    .elem_bytes = sizeof(words[0]),
                                    .reduce = device::find_reduce(device::Op::kMax, device::Type::kUint64)});
    return words;
  };
  if (largest({memory == nullptr ? 1U : 0U, 0})[0] != 0) return;

  const device::HostJob job{.collective = device::Collective::kReduceScatter,
                            .in = reinterpret_cast<const std::byte*>(memory.get()),
                            .out = reinterpret_cast<std::byte*>(memory.get() + ranks * block),
                            .count = block,
                            .elem_bytes = sizeof(float),
                            .reduce = device::find_reduce(device::Op::kSum, device::Type::kFloat)};
  const auto shortest_ns = [&](Algorithm way) {
    auto shortest = Clock::duration::max();
    for (int trial = 0; trial < kTrials; ++trial) {
      largest({});  // all begin together
      const auto began = Clock::now();
      perform_by(way, job);
      if (trial > 0) shortest = std::min(shortest, Clock::now() - began);
    }
    return static_cast<std::uint64_t>(std::chrono::nanoseconds(shortest).count());
  };
  const std::uint64_t boards_ns = shortest_ns(Algorithm::kBoards);
  const auto [boards, single_copy] = largest({boards_ns, shortest_ns(Algorithm::kSingleCopy)});
  const bool lose = static_cast<double>(boards) > kMuchFaster * static_cast<double>(single_copy);
  if (links_.boards_lose != lose && rank_ == 0 && process_.runtime().parameters.verbose >= 1)
    without_failing([&] {
      process_.runtime().log(
          fmt::format(
              "{}: a reduce_scatter_block of {} KiB takes {:.0f} us through the boards, {:.0f} by single "
              "copy: calls above 8 KiB go {}",
              name_, ranks * block * sizeof(float) / 1024, static_cast<double>(boards) / 1e3,
              static_cast<double>(single_copy) / 1e3,
              lose ? "by single copy"
                   : "as their size says (single copy is not one and a half times as fast)")
              .c_str());
    });
  links_.boards_lose = lose;
  learn_what_is_small();
}

}  // namespace loom
