#include "device/cuda/link_check.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/format.hpp"
#include "device/schedule/divide_up.hpp"

namespace loom::device::cuda {
namespace {

struct Pattern {
  steps::Algorithm algorithm;
  steps::Protocol protocol;
  const char* name;
  bool fills_slots = false;  ///< between hosts, in one channel: UCX moves long messages by other means
};
constexpr Pattern kPatterns[] = {
    {steps::Algorithm::kAllreduceRing, steps::Protocol::kSimple, "rings by Simple"},
    {steps::Algorithm::kAllreduceRing, steps::Protocol::kSimple, "long messages in a ring", true},
    {steps::Algorithm::kAllreduceHier, steps::Protocol::kSimple, "grids by Simple"},
    {steps::Algorithm::kAllToAll, steps::Protocol::kSimple, "an exchange by Simple"},
    {steps::Algorithm::kOneShot, steps::Protocol::kLL, "links of every two ranks by LL"},
    {steps::Algorithm::kAllreduceRing, steps::Protocol::kLL, "rings by LL"},
    {steps::Algorithm::kAllreduceTree, steps::Protocol::kSimple, "trees by Simple"},
    {steps::Algorithm::kAllreduceTree, steps::Protocol::kLL, "trees by LL"},
    {steps::Algorithm::kAllreduceRing, steps::Protocol::kLL128, "rings by LL128"},
    {steps::Algorithm::kTwoShot, steps::Protocol::kLL128, "links of every two ranks by LL128"},
    {steps::Algorithm::kAllreduceTree, steps::Protocol::kLL128, "trees by LL128"}};

const steps::FifoForm& form_of(const Pattern& pattern, const steps::ChannelForm& forms) {
  return steps::forms_of(pattern.algorithm, forms)[static_cast<int>(pattern.protocol)];
}

/// There are such links.
bool is_there(const Pattern& pattern, const KernelChannels& channels, int ranks) {
  if (form_of(pattern, channels.form()).slot_count == 0) return false;
  if (pattern.fills_slots && !channels.between_hosts()) return false;
  if (steps::is_pairwise(pattern.algorithm)) return ranks <= steps::kMostPairwise;
  return channels.count(steps::links_of(pattern.algorithm)) > 0;
}

int channels_for(const Pattern& pattern, const KernelChannels& channels) {
  return pattern.fills_slots ? 1 : channels.count(steps::links_of(pattern.algorithm));
}

/// So many lines of 128 bytes that each channel has one of each block, the slowest one, too, and both of its
/// trees; or a slot of each block.
std::size_t lines_for(const Pattern& pattern, const KernelChannels& channels, int ranks) {
  const steps::LinkKind kind = steps::links_of(pattern.algorithm);
  const bool by_tree = kind == steps::LinkKind::kTree;
  unsigned total = 0, least = ~0U;
  for (const steps::ChannelShape& shape :
       std::span(channels.shapes).first(static_cast<std::size_t>(channels_for(pattern, channels)))) {
    const unsigned weight = shape.weight_of(kind);
    total += weight;
    least = std::min(least, std::max(weight, 1U));
  }
  std::size_t blocks = 1;
  if (by_tree) blocks = steps::kTrees;
  if (pattern.algorithm == steps::Algorithm::kAllreduceRing ||
      pattern.algorithm == steps::Algorithm::kAllreduceHier ||
      pattern.algorithm == steps::Algorithm::kTwoShot || pattern.algorithm == steps::Algorithm::kAllToAll)
    blocks = static_cast<std::size_t>(ranks);
  const std::size_t lines = pattern.fills_slots ? form_of(pattern, channels.form()).slot_bytes / 128 : 1;
  return divide_up(total, least) * blocks * lines;
}

/// No two elements are alike, nor what two ranks have.
std::uint64_t value(int rank, std::size_t elem) {
  return (elem + 1) * 0x9e3779b97f4a7c15 * static_cast<std::uint64_t>(rank + 1);
}

/// What a rank must find: the sum of all operands, or its block of each.
std::vector<std::uint64_t> right_of(const Pattern& pattern, std::size_t count, int rank, int ranks) {
  std::vector<std::uint64_t> right(count, 0);
  const bool exchanges = pattern.algorithm == steps::Algorithm::kAllToAll;
  const std::size_t block = count / static_cast<std::size_t>(ranks);
  for (std::size_t i = 0; i < count; ++i) {
    for (int r = 0; r < ranks && !exchanges; ++r) right[i] += value(r, i);
    if (exchanges)
      right[i] = value(static_cast<int>(i / block), i % block + static_cast<std::size_t>(rank) * block);
  }
  return right;
}

/// The kernel that has been started ends; false: not in time.
bool ends_in_time(KernelLinks& links, std::chrono::milliseconds limit,
                  const std::function<void()>& check_peers) {
  const auto began = std::chrono::steady_clock::now();
  try {
    while (!links.has_ended()) {
      if (std::chrono::steady_clock::now() - began > limit) {
        links.abandon();
        links.finish();
        return false;
      }
      check_peers();
      std::this_thread::yield();
    }
    return !links.was_abandoned();
  } catch (...) {
    links.abandon();
    links.finish();
    throw;
  }
}

}  // namespace

void check_links(KernelLinks& links, GpuStream& stream, int rank, const KernelChannels& channels, int ranks,
                 std::chrono::milliseconds limit, const std::function<void()>& check_peers) {
  constexpr std::size_t kLine = 128 / sizeof(std::uint64_t);
  std::size_t most = 0;
  for (const Pattern& pattern : kPatterns)
    if (is_there(pattern, channels, ranks))
      most = std::max(most, lines_for(pattern, channels, ranks) * kLine);
  Gpu& gpu = stream.gpu();
  // Later: to free memory now might wait for kernels of the program.
  const auto release = [&](std::byte* memory) { gpu.release_later(memory, {}); };
  const std::size_t bytes = std::max<std::size_t>(most, 1) * sizeof(std::uint64_t);
  const std::unique_ptr<std::byte, decltype(release)> buffer(gpu.allocate(2 * bytes), release);
  const auto try_out = [&](const Pattern& pattern) {
    const std::size_t count = lines_for(pattern, channels, ranks) * kLine;
    std::vector<std::uint64_t> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = value(rank, i);
    gpu.copy(buffer.get(), values.data(), count * sizeof(std::uint64_t));
    const int used = channels_for(pattern, channels);
    const KernelWay way{pattern.algorithm, pattern.protocol, used};
    std::vector<Part> blocks;
    if (pattern.algorithm == steps::Algorithm::kAllToAll) {
      const auto size = static_cast<std::size_t>(ranks);
      for (std::size_t b = 0; b < 2 * size; ++b) blocks.push_back({b % size * (count / size), count / size});
    }
    steps::Task task =
        blocks.empty() ? divide(way, count, sizeof(std::uint64_t), ranks) : divide(way, blocks);
    task.in = task.out = buffer.get();
    if (!blocks.empty()) task.out = buffer.get() + bytes;
    links.start(task, kCheckOp, kCheckType, used, blocks);
    if (!ends_in_time(links, limit, check_peers))
      throw Error(ErrorCode::kDevice, loom::format("They have not ended within {} ms.", limit.count()));
    gpu.copy(values.data(), task.out, count * sizeof(std::uint64_t));
    if (values != right_of(pattern, count, rank, ranks))
      throw Error(ErrorCode::kDevice, "A result is wrong.");
  };
  for (const Pattern& pattern : kPatterns) {
    if (!is_there(pattern, channels, ranks)) continue;
    try {
      try_out(pattern);
    } catch (const Error& error) {
      throw Error(error.code(), loom::format("Kernels try {}: {}", pattern.name, error.what()));
    }
  }
}

}  // namespace loom::device::cuda
