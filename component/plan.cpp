#include "component/plan.hpp"

#include "device/host/direct_exchange.hpp"

namespace loom {
namespace {

// Each of n ranks reads what n offer, so the crossing point with the boards falls with n.
constexpr std::size_t kDirectBytesRead = 32 * 1024;
// Below this the latency of 2(N-1) network steps costs more than the component below takes (three virtual hosts of one
// and two ranks, 1 Gbit/s, loom_bench allreduce --compare).
constexpr std::size_t kNetMinBytes = 512 * 1024;

}  // namespace

std::string_view name_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kCopy: return "copy";
    case Algorithm::kDirect: return "direct";
    case Algorithm::kBoards: return "boards";
    case Algorithm::kRails: return "rails";
    case Algorithm::kFlatRing: return "flat ring";
    case Algorithm::kBelow: return "the component below";
  }
  return "?";
}

std::string_view name_of(device::Collective collective) {
  switch (collective) {
    case device::Collective::kAllreduce: return "allreduce";
    case device::Collective::kReduce: return "reduce";
    case device::Collective::kReduceScatter: return "reduce_scatter_block";
    case device::Collective::kBroadcast: return "bcast";
    case device::Collective::kAllGather: return "allgather";
    case device::Collective::kAllToAll: return "alltoall";
    case device::Collective::kBarrier: return "barrier";
  }
  return "?";
}

Algorithm plan(device::Collective collective, const connect::Shape& shape, std::size_t bytes) {
  if (shape.ranks == 1) return Algorithm::kCopy;
  if (shape.hosts == 1) {
    const std::size_t offered = device::offered_bytes(collective, bytes, shape.ranks);
    const bool direct = offered <= device::DirectSlot::kPayloadBytes &&
                        offered * static_cast<std::size_t>(shape.ranks) <= kDirectBytesRead;
    return direct ? Algorithm::kDirect : Algorithm::kBoards;
  }
  if (collective != device::Collective::kAllreduce || bytes < kNetMinBytes) return Algorithm::kBelow;
  return shape.ranks_per_host > 0 ? Algorithm::kRails : Algorithm::kFlatRing;
}

}  // namespace loom
