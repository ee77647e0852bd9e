#include "component/select/costs.hpp"

#include <algorithm>

#include "component/select/sizes.hpp"
#include "device/host/cico_executor.hpp"
#include "device/host/hier_executor.hpp"
#include "device/host/tiered_cico_executor.hpp"

namespace loom::costs {
namespace {

using device::Collective;
using sizes::depth_of;
using sizes::kBytesPerStep;
using sizes::kMostSingleCopyBroadcast;
using sizes::kMostSingleCopyBytes;
using sizes::offered;
using sizes::received;
using sizes::ring_size;
using sizes::rooted_between_two;
using sizes::whole;

// In microseconds. Inside a host as measured on 2 cores with 2 MiB of L2 cache each. Between hosts for a
// network of 100 Gbit/s: only the ratio of a step to the bytes that could be sent meanwhile counts.

constexpr double kUsPerByteImmediate = 0.00004;  // read once, from a cache
// As the model of cache lines says for 32 to 192 ranks (docs/results/cores.md), like kUsPerRank below.
constexpr double kUsPerTier = 0.2, kUsPerByteTiered = 0.0003;
constexpr double kUsPerRankOfGroups = 0.085;  // of those at which a rank looks
constexpr std::size_t kLineBytes = 16;        // what a rank without bytes costs, in bytes
constexpr double kUsPerByteCico = 0.0001;     // written and read
constexpr double kUsPerByteSingleCopy = 0.00007, kUsPerByteSingleCopyUncached = 0.00012;  // by the kernel
constexpr double kUsPerRank = 0.1;                                                        // a flag of each
// A call of the kernel for each peer, as the model assumes; up to so many ranks it is in what was measured.
constexpr double kUsPerPeerRead = 0.5;
constexpr int kRanksMeasured = 8;
constexpr double kUsPerTurn = 20;  // until a rank that shares a CPU has its turn
constexpr double kUsPerNetByte = 0.00008;
// A copy between a GPU and the host over 16 lanes of PCIe 4.0, with its call: as published, not measured.
constexpr double kUsPerCopy = 10, kUsPerCopiedByte = 0.00005;
constexpr double kUsPerStep = kBytesPerStep * kUsPerNetByte;

double us(std::size_t bytes, double per_byte) {
  return static_cast<double>(bytes) * per_byte;
}

/// Where ranks share CPUs, each wait for the others takes a turn. The root of a broadcast waits once all
/// banks are in use; the ranks of other calls wait once for each tile.
double cico_turns(Collective collective, std::size_t each) {
  using device::CicoBuffer;
  const std::size_t banks = collective == Collective::kBroadcast ? CicoBuffer::kBanks - 1 : 1;
  const std::size_t ahead = banks * CicoBuffer::kBankBytes;
  return each <= ahead
             ? 1
             : 2 + static_cast<double>((each - ahead + CicoBuffer::kBankBytes - 1) / CicoBuffer::kBankBytes);
}

}  // namespace

double copy(const Conditions&, Collective, std::size_t bytes) {
  return us(bytes, kUsPerByteCico);
}

double immediate(const Conditions& conditions, Collective collective, std::size_t bytes) {
  const std::size_t each = offered(conditions, collective, bytes);
  const bool once = collective == Collective::kBroadcast || collective == Collective::kAllToAll ||
                    rooted_between_two(collective, conditions.shape.ranks);
  return 0.3 + kUsPerRank / 2 * conditions.shape.ranks +
         us(once ? each : each * static_cast<std::size_t>(conditions.shape.ranks), kUsPerByteImmediate);
}

double tiered(const Conditions& conditions, Collective collective, std::size_t bytes) {
  const int copies = collective == Collective::kBroadcast ? conditions.tiers : conditions.shape.ranks;
  return 0.2 + kUsPerTier * conditions.tiers +
         us(static_cast<std::size_t>(copies) * (kLineBytes + bytes), kUsPerByteTiered);
}

double cico(const Conditions& conditions, Collective collective, std::size_t bytes) {
  const double waits = conditions.oversubscribed
                           ? kUsPerTurn * cico_turns(collective, offered(conditions, collective, bytes))
                           : 0;
  return 0.9 + kUsPerRank * conditions.shape.ranks + waits +
         us(received(conditions, collective, bytes), kUsPerByteCico);
}

double tiered_cico(const Conditions& conditions, Collective collective, std::size_t bytes) {
  const int members = device::CicoGroups::members_of(conditions.shape.ranks);
  // Two instead of three, and no sums.
  const double stages = collective == Collective::kAllGather || collective == Collective::kBarrier ? 0.5 : 1;
  return stages * (0.9 + kUsPerRankOfGroups * (2 * members + conditions.shape.ranks / members)) +
         us(received(conditions, collective, bytes), kUsPerByteCico);
}

double single_copy(const Conditions& conditions, Collective collective, std::size_t bytes) {
  const std::size_t mine = received(conditions, collective, bytes);
  const bool reduces = device::is_reduction(collective);
  const bool cached =
      mine <= (collective == Collective::kBroadcast ? kMostSingleCopyBroadcast : kMostSingleCopyBytes);
  const int peers = sizes::rooted_between_two(collective, conditions.shape.ranks)
                        ? 0
                        : std::max(conditions.shape.ranks - kRanksMeasured, 0);
  return (reduces ? 1.2 : 0.8) + kUsPerRank * conditions.shape.ranks + kUsPerPeerRead * peers +
         (conditions.oversubscribed ? 2 * kUsPerTurn : 0) +
         us(mine, (cached && !reduces) || conditions.oversubscribed ? kUsPerByteSingleCopy
                                                                    : kUsPerByteSingleCopyUncached);
}

double hier(const Conditions& conditions, Collective collective, std::size_t bytes) {
  const std::size_t all = whole(conditions, collective, bytes);
  const auto hosts = static_cast<double>(conditions.shape.hosts);
  const bool two_shot = device::HierExecutor::all_reduce(collective) &&
                        device::HierExecutor::is_two_shot(conditions.shape.hosts, all);
  const double inside = conditions.shape.ranks > conditions.shape.hosts ? 2 + 2 * us(all, kUsPerByteCico) : 0;
  return inside + (two_shot ? 2 * (kUsPerStep + (hosts - 1) / hosts * us(all, kUsPerNetByte))
                            : kUsPerStep + (hosts - 1) * us(all, kUsPerNetByte));
}

double ring(const Conditions& conditions, Collective collective, std::size_t bytes) {
  const auto size = static_cast<double>(ring_size(conditions.shape));
  const auto all = static_cast<double>(whole(conditions, collective, bytes));
  if (collective == Collective::kBroadcast || collective == Collective::kReduce)
    return (size - 1) * kUsPerStep + all * kUsPerNetByte;
  if (collective == Collective::kAllreduce && size == 2) return kUsPerStep + all * kUsPerNetByte;  // exchange
  const double rounds = collective == Collective::kAllreduce ? 2 : 1;
  return rounds * (size - 1) * (kUsPerStep + all / size * kUsPerNetByte);
}

double dbt(const Conditions& conditions, Collective collective, std::size_t bytes) {
  const double rounds = collective == Collective::kAllreduce ? 2 : 1;
  return rounds * (static_cast<double>(depth_of(conditions.shape)) * kUsPerStep +
                   us(whole(conditions, collective, bytes), kUsPerNetByte));
}

double pairwise(const Conditions& conditions, Collective collective, std::size_t bytes) {
  const connect::Shape& shape = conditions.shape;
  const double outside = static_cast<double>(shape.hosts - 1) / shape.hosts;
  return 2 * kUsPerStep + outside * us(whole(conditions, collective, bytes), kUsPerNetByte);
}

double unmeasured(const Conditions&, Collective, std::size_t) {
  return 0;
}

double staged(const Conditions& conditions, Collective collective, std::size_t bytes, double on_host_us) {
  const std::size_t in = offered(conditions, collective, bytes),
                    out = received(conditions, collective, bytes);
  return 2 * kUsPerCopy + us(in + out, kUsPerCopiedByte) + on_host_us;
}

}  // namespace loom::costs
