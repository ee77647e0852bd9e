#include "device/cuda/link_check.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace loom::device::cuda {
namespace {

struct Pattern {
  steps::Algorithm algorithm;
  steps::Protocol protocol;
  const char* name;
};
constexpr Pattern kPatterns[] = {
    {steps::Algorithm::kAllreduceRing, steps::Protocol::kSimple, "rings by Simple"},
    {steps::Algorithm::kOneShot, steps::Protocol::kLL, "links of every two ranks by LL"},
    {steps::Algorithm::kAllreduceRing, steps::Protocol::kLL128, "rings by LL128"},
    {steps::Algorithm::kTwoShot, steps::Protocol::kLL128, "links of every two ranks by LL128"}};

/// No two elements are alike, nor what two ranks have.
std::uint64_t value(int rank, std::size_t elem) {
  return (elem + 1) * 0x9e3779b97f4a7c15 * static_cast<std::uint64_t>(rank + 1);
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
  } catch (const Error&) {
    links.abandon();
    links.finish();
    throw;
  }
}

}  // namespace

void check_links(KernelLinks& links, GpuStream& stream, int rank, int ranks, int channels, bool may_ll128,
                 std::chrono::milliseconds limit, const std::function<void()>& check_peers) {
  constexpr std::size_t kLine = 128 / sizeof(std::uint64_t);  // of each rank's chunk for each channel
  const std::size_t count = static_cast<std::size_t>(ranks) * static_cast<std::size_t>(channels) * kLine;
  std::vector<std::uint64_t> values(count), right(count, 0);
  for (std::size_t i = 0; i < count; ++i)
    for (int r = 0; r < ranks; ++r) right[i] += value(r, i);
  const std::size_t bytes = count * sizeof(std::uint64_t);
  Gpu& gpu = stream.gpu();
  const auto release = [&](std::byte* memory) { gpu.release(memory); };
  const std::unique_ptr<std::byte, decltype(release)> buffer(gpu.allocate(bytes), release);
  links.prepare(kCheckOp, kCheckType);
  const auto try_out = [&](const Pattern& pattern) {
    for (std::size_t i = 0; i < count; ++i) values[i] = value(rank, i);
    gpu.copy(buffer.get(), values.data(), bytes);
    steps::Task task =
        divide({pattern.algorithm, pattern.protocol, channels}, count, sizeof(std::uint64_t), ranks);
    task.in = task.out = buffer.get();
    links.start(task, kCheckOp, kCheckType, channels);
    if (!ends_in_time(links, limit, check_peers))
      throw Error(ErrorCode::kDevice, fmt::format("They have not ended within {} ms.", limit.count()));
    gpu.copy(values.data(), buffer.get(), bytes);
    if (values != right) throw Error(ErrorCode::kDevice, "A result is wrong.");
  };
  for (const Pattern& pattern : kPatterns) {
    if (pattern.protocol == steps::Protocol::kLL128 && !may_ll128) continue;
    try {
      try_out(pattern);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("Kernels try {}: {}", pattern.name, error.what()));
    }
  }
}

}  // namespace loom::device::cuda
