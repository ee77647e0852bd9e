#include "component/plan.hpp"

#include "device/host/direct_exchange.hpp"

namespace loom {
namespace {

// Each of n ranks reads n operands, so the crossing point with the ring falls with n.
constexpr std::size_t kDirectBytesRead = 32 * 1024;
// Below this the latency of 2(N-1) network steps costs more than the component below takes (three virtual hosts of one
// and two ranks, 1 Gbit/s, loom_bench allreduce --compare).
constexpr std::size_t kNetMinBytes = 512 * 1024;

}  // namespace

std::string_view name_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kCopy: return "copy";
    case Algorithm::kDirect: return "direct";
    case Algorithm::kRing: return "ring";
    case Algorithm::kRails: return "rails";
    case Algorithm::kFlatRing: return "flat ring";
    case Algorithm::kBelow: return "the component below";
  }
  return "?";
}

Algorithm plan_allreduce(const connect::Shape& shape, std::size_t bytes) {
  if (shape.ranks == 1) return Algorithm::kCopy;
  if (shape.hosts == 1) {
    const bool direct = bytes <= device::DirectSlot::kPayloadBytes &&
                        bytes * static_cast<std::size_t>(shape.ranks) <= kDirectBytesRead;
    return direct ? Algorithm::kDirect : Algorithm::kRing;
  }
  if (bytes < kNetMinBytes) return Algorithm::kBelow;
  return shape.ranks_per_host > 0 ? Algorithm::kRails : Algorithm::kFlatRing;
}

}  // namespace loom
