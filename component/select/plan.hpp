// plan.hpp -- which algorithm carries a call? A pure function of facts that all ranks share: the form of the
// communicator, the collective and the size of the message. Never of where a buffer lives, how it is aligned,
// or whether it is in place.
#pragma once

#include <cstddef>
#include <string_view>

#include "connect/job.hpp"
#include "device/host/direct_exchange.hpp"

namespace loom {

enum class Algorithm {
  kCopy,          ///< one rank: the result is the operand
  kDirect,        ///< one host, small: every rank reads what it needs of every other's offer
  kBoards,        ///< one host: the same in tiles, through a board for each rank
  kSingleCopy,    ///< one host: every rank reads the others' buffers
  kBlocks,        ///< one host: through the boards, blocks whose sizes only those concerned know
  kScan,          ///< one host: through the boards, every rank reduces what the ranks before it have laid out
  kTwoLevels,     ///< several hosts: through the boards inside, between the first ranks of hosts, and back
  kTwoLevelStar,  ///< the same, in which the first ranks meet at that of the first host
  kRails,       ///< equal hosts: rings inside and rails across (see device::RailsExecutor and RootedExecutor)
  kTrees,       ///< equal hosts: the double binary tree across them (see device::RailTreesExecutor)
  kFlatRing,    ///< unequal hosts: the same with one ring over all ranks
  kMesh,        ///< several hosts: straight to every rank of the others, through the boards inside
  kHandedOver,  ///< one host, all buffers on GPUs: through boards there, driven by the host
  kPersistent,  ///< one host, all buffers on GPUs, one for each rank: kernels that meet each other
  kBelow,       ///< the component below is better at this
};

inline constexpr std::size_t kAlgorithmCount =
    static_cast<std::size_t>(Algorithm::kBelow);  ///< of loom's own

/// Why a call goes to the component below.
enum class Fallback {
  kNoKernel,      ///< loom has no such operation on such a type
  kNotConnected,  ///< the ranks are not connected: that failed, or a call that may not wait came first
  kNotBetter,     ///< plan() says kBelow
  kNotOrdered,    ///< of the form of Open MPI's own calls for communicator ids, which come in any order
  kAnyStartOrder  ///< persistent, and its ranks may start such requests in different orders
};
inline constexpr std::size_t kFallbackCount = 5;

std::string_view name_of(Algorithm algorithm);
std::string_view name_of(Fallback reason);

std::string_view name_of(device::Collective collective);

/// Who carries what several algorithms could: for tests and comparisons.
enum class Preference {
  kBest,        ///< whoever is fastest at the size, or has been where there are two
  kBoards,      ///< one host: the boards
  kSingleCopy,  ///< one host: single copy, where it is possible
  kRings,       ///< several hosts: rings and the mesh, whatever the size
  kTrees,       ///< several hosts: trees, where they are possible, whatever the size
  kStar,        ///< several hosts: two levels with a star, where they carry a call
  kBySize,      ///< as plan() says, whoever has been faster
};

/// What links allow and the user wants, the same on all ranks.
struct Abilities {
  bool single_copy = false;     ///< all ranks of the one host may read each other's memory
  bool two_levels = false;      ///< the first ranks of the hosts are joined, each with each
  bool oversubscribed = false;  ///< one host: ranks outnumber the CPUs that they may use
  device::OfferProtocol protocol = device::OfferProtocol::kInline;  ///< of what goes by kDirect
  Preference preference = Preference::kBest;
};

/// Bytes of all blocks together, of a call of which all ranks know device::shared_bytes().
std::size_t whole_message(device::Collective collective, int ranks, std::size_t bytes);

/// The longest offer (device::offered_bytes()) that goes by kDirect on one host whatever the collective, and
/// has no rival; plan() lets some go further.
std::size_t most_small_bytes(int ranks, device::OfferProtocol protocol);

/// So few hosts that their first ranks can be joined, each with each.
bool may_use_two_levels(const connect::Shape& shape);

/// So few ranks that each can have links to all those of other hosts; and several on some host, for where
/// each has one the component below's pairwise exchange fills the links as well, with a copy less (6 virtual
/// hosts, 2.5 Gbit/s).
bool may_mesh(const connect::Shape& shape);

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

/// Whether such calls may ever go by it.
bool may_carry(Algorithm algorithm, device::Collective collective);

}  // namespace loom
