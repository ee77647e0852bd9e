// plan.hpp -- which algorithm carries a call? A pure function of facts that all ranks share: the form of the
// communicator, the collective and the size of the message. Never of where a buffer lives, how it is aligned,
// or whether it is in place.
#pragma once

#include <cstddef>
#include <string_view>

#include "connect/job.hpp"
#include "device/host/immediate_exchange.hpp"

namespace loom {

enum class Algorithm {
  kCopy,        ///< one rank: the result is the operand
  kImmediate,   ///< one host, small: every rank reads what it needs of every other's offer
  kCico,        ///< one host: the same in tiles, through a CICO buffer for each rank
  kSingleCopy,  ///< one host: every rank reads the others' buffers
  kBlocks,      ///< one host: through the CICO buffers, blocks whose sizes only those concerned know
  kScan,  ///< one host: through the CICO buffers, every rank reduces what the ranks before it have laid out
  kHier,  ///< several hosts: through the CICO buffers inside, between the node leaders, and back
  kHierStar,    ///< the same, in which the node leaders meet at that of the first host
  kSplitRail,   ///< equal hosts: rings inside and rails across (see device::SplitRailExecutor and
                ///< RootedExecutor)
  kDbt,         ///< equal hosts: the double binary tree across them (see device::DbtExecutor)
  kFlatRing,    ///< unequal hosts: the same with one ring over all ranks
  kPairwise,    ///< several hosts: straight to every rank of the others, through the CICO buffers inside
  kHostDriven,  ///< one host, all buffers on GPUs: through CICO buffers there, driven by the host
  kKernel,      ///< one host, all buffers on GPUs, one for each rank: kernels that meet each other
  kFallback,    ///< the fallback component is better at this
};

inline constexpr std::size_t kAlgorithmCount =
    static_cast<std::size_t>(Algorithm::kFallback);  ///< of loom's own

/// Why a call falls back to the fallback component.
enum class FallbackReason {
  kNoKernel,      ///< loom has no such operation on such a type
  kNotConnected,  ///< the ranks are not connected: that failed, or a call that may not wait came first
  kNotBetter,     ///< plan() says kFallback
  kNotOrdered,    ///< of the form of Open MPI's own calls for communicator ids, which come in any order
  kAnyStartOrder  ///< persistent, and its ranks may start such requests in different orders
};
inline constexpr std::size_t kFallbackCount = 5;

std::string_view name_of(Algorithm algorithm);
std::string_view name_of(FallbackReason reason);

std::string_view name_of(device::Collective collective);

/// Who carries what several algorithms could: for tests and comparisons.
enum class Preference {
  kBest,        ///< whoever is fastest at the size, or has been where there are two
  kCico,        ///< one host: the CICO buffers
  kSingleCopy,  ///< one host: single copy, where it is possible
  kRings,       ///< several hosts: rings and the pairwise links, whatever the size
  kTrees,       ///< several hosts: trees, where they are possible, whatever the size
  kStar,        ///< several hosts: hier with a star, where they carry a call
  kBySize,      ///< as plan() says, whoever has been faster
};

/// What links allow and the user wants, the same on all ranks.
struct Abilities {
  bool single_copy = false;     ///< all ranks of the one host may read each other's memory
  bool hier = false;            ///< the node leaders are joined, each with each
  bool oversubscribed = false;  ///< one host: ranks outnumber the CPUs that they may use
  Preference preference = Preference::kBest;
};

/// Bytes of all blocks together, of a call of which all ranks know device::shared_bytes().
std::size_t whole_message(device::Collective collective, int ranks, std::size_t bytes);

/// The longest offer (device::offered_bytes()) that goes by kImmediate on one host whatever the collective,
/// and has no rival; plan() lets some go further.
std::size_t most_small_bytes(int ranks);

/// So few hosts that their node leaders can be joined, each with each.
bool may_use_hier(const connect::Shape& shape);

/// So few ranks that each can have links to all those of other hosts; and several on some host, for where
/// each has one the fallback component's pairwise exchange fills the links as well, with a copy less (6
/// virtual hosts, 2.5 Gbit/s).
bool may_use_pairwise(const connect::Shape& shape);

/// Whether there are sizes at which trees over such hosts carry calls.
bool has_tree_sizes(const connect::Shape& shape, Preference preference);

/// bytes: see device::shared_bytes.
Algorithm plan(device::Collective collective, const connect::Shape& shape, std::size_t bytes,
               const Abilities& abilities = {});

/// The same, for a call that must not wait: an algorithm whose executor is resumable.
Algorithm plan_resumable(device::Collective collective, const connect::Shape& shape, std::size_t bytes,
                         const Abilities& abilities = {});

/// What may carry a call instead of `usual`, which plan() or plan_resumable() has answered: machines and
/// networks differ in which of the two is faster, by up to four times (race.hpp). Nothing: there is no other,
/// or the user has chosen.
std::optional<Algorithm> rival_of(Algorithm usual, device::Collective collective, const connect::Shape& shape,
                                  std::size_t bytes, const Abilities& abilities);

/// Its executors say what they need of the operand and have of the result (Call::streaming).
constexpr bool streams(Algorithm algorithm) {
  return algorithm == Algorithm::kCico || algorithm == Algorithm::kSplitRail ||
         algorithm == Algorithm::kFlatRing || algorithm == Algorithm::kDbt;
}

/// Of one host: what a rank announces before it performs a call by it; nothing where it need not.
constexpr std::optional<device::CallFamily> family_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kCico:
      return device::CallFamily::kCico;
    case Algorithm::kSingleCopy:
      return device::CallFamily::kSingleCopy;
    case Algorithm::kBlocks:
    case Algorithm::kScan:
      return device::CallFamily::kBlocks;
    default:
      return {};
  }
}

/// Whether such calls may ever go by it.
bool may_carry(Algorithm algorithm, device::Collective collective);

}  // namespace loom
