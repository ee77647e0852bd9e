// algorithms.hpp -- the algorithms: one table, a row each. Which algorithm runs a call is a pure function of
// facts that all ranks share (select.hpp). It never depends on where a buffer lies, how it is aligned, or
// whether it is in place.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "connect/job.hpp"
#include "device/call.h"
#include "device/link/call_note.hpp"

namespace loom {

enum class Algorithm {
  kCopy,        ///< one rank: the result is the operand
  kImmediate,   ///< one host, small: every rank reads what it needs of what the others offer
  kTiered,      ///< one host with many ranks, small: the same in groups, up and down
  kCico,        ///< one host: copy in, copy out, through a buffer of each rank, tile by tile
  kTieredCico,  ///< one host with many ranks: the same in groups, and between them
  kSingleCopy,  ///< one host: every rank reads the others' buffers
  kHier,        ///< several hosts: inside each, between the node leaders, and back
  kRing,      ///< several hosts: rings inside and split rails across; unequal hosts: one ring over all ranks
  kDbt,       ///< equal hosts: the double binary tree across them
  kPairwise,  ///< several hosts: straight to every rank of the others
  kZeroCopy,  ///< one host, all buffers on GPUs: kernels read and write those of all ranks
  kKernel,    ///< one host, all buffers on GPUs: kernels that exchange data through links
  kKernelRing,  ///< the same over rings, whatever is predicted to be faster
  kKernelTree,  ///< the same over trees
  kKernelHier,  ///< the same, several hosts: inside each, between them, and back
  kFallback,    ///< not one of loom's: the fallback component
  kStaged,      ///< buffers on GPUs are copied to the host, and its algorithms carry the call
};
/// Of loom's own.
inline constexpr std::size_t kAlgorithmCount = static_cast<std::size_t>(Algorithm::kFallback);

/// Performed by kernels that wait for each other.
constexpr bool is_by_kernel(Algorithm algorithm) {
  return algorithm >= Algorithm::kKernel && algorithm <= Algorithm::kKernelHier;
}

/// Why a call goes to the fallback component.
enum class FallbackReason {
  kNoKernel,      ///< loom has no such operation on such a type
  kNotConnected,  ///< the ranks are not connected: that failed, or a call that may not wait came first
  kNotBetter,     ///< no algorithm of loom's is better, or the user has chosen the fallback component
  kNotOrdered,    ///< it may be one of Open MPI's own calls for communicator ids, which come in any order
  kAnyStartOrder  ///< it is persistent, and the ranks may start such requests in different orders
};
inline constexpr std::size_t kFallbackCount = 5;

std::string_view name_of(FallbackReason reason);
std::string_view name_of(device::Collective collective);
/// Empty if there is no such collective.
std::optional<device::Collective> collective_named(std::string_view name);

/// The facts that decide between algorithms; the same on all ranks of a communicator.
struct Conditions {
  connect::Shape shape = {};
  bool single_copy = false;     ///< all ranks of the one host may read each other's memory
  bool hier = false;            ///< the node leaders are linked, each with each, or will be
  bool oversubscribed = false;  ///< on some host ranks outnumber the CPUs that they may use
  int tiers = 1;                ///< of one host: device::Tiers::tiers()
  int in_cache = 1;             ///< of one host: the most ranks that share a last-level cache
  bool groups = false;          ///< of one host: there are device::CicoGroups
  friend bool operator==(const Conditions&, const Conditions&) = default;
};

/// A row of the table. Sizes are device::shared_bytes(): of the message, or of a block.
struct AlgorithmRow {
  Algorithm algorithm;
  std::string_view name;     ///< in messages, performance variables and coll_loom_tune
  std::string_view summary;  ///< for users
  bool on_devices = false;   ///< for buffers that lie on GPUs on all ranks; the others are for host memory
  bool may_wait = false;     ///< only for calls that may wait for other ranks
  bool in_groups = false;    ///< sums have other bits than in the order of ranks
  bool varies = false;       ///< its speed differs between machines by up to four times: worth a probe
  /// What a rank of one host announces before it runs a call by this algorithm; empty where it need not.
  std::optional<device::CallFamily> family = {};

  bool (*carries)(device::Collective);
  /// Of these: its executors report the operand that they need and the result that they have.
  bool (*streams)(device::Collective) = [](device::Collective) { return false; };
  /// nullptr, or a sentence that says why it cannot run such calls on such a communicator.
  const char* (*why_not)(const Conditions&, device::Collective);
  /// takes: it can run a call of this size. suits: it should, as measured.
  bool (*takes)(const Conditions&, device::Collective, std::size_t bytes);
  bool (*suits)(const Conditions&, device::Collective, std::size_t bytes);
  /// Predicted, in microseconds; 0 for algorithms on GPUs.
  double (*cost)(const Conditions&, device::Collective, std::size_t bytes);

  /// Whether it can run the call, even if another algorithm is better.
  bool can(const Conditions& conditions, device::Collective collective, std::size_t bytes) const {
    return carries(collective) && why_not(conditions, collective) == nullptr &&
           takes(conditions, collective, bytes);
  }
};

/// In the order of Algorithm, without kFallback and kStaged.
std::span<const AlgorithmRow> algorithms();
/// Whether the table has it.
constexpr bool has_row(Algorithm algorithm) {
  return algorithm < Algorithm::kFallback;
}
const AlgorithmRow& row_of(Algorithm algorithm);
/// Also "fallback" and "staged". Empty if there is no such algorithm.
std::optional<Algorithm> algorithm_named(std::string_view name);
std::string_view name_of(Algorithm algorithm);

/// On host memory, some algorithm carries such calls, or even streams them, for ranks of one host or of
/// several. Which one it is depends on more.
bool may_carry(device::Collective collective, bool one_host);
bool may_carry(device::Collective collective, const Conditions& conditions);
bool may_stream(device::Collective collective, bool one_host);
/// On buffers that lie on GPUs on all ranks.
bool may_carry_on_devices(device::Collective collective, bool one_host = true);

/// Bytes of all blocks together. bytes: device::shared_bytes(), where all ranks know it.
std::size_t whole_message(device::Collective collective, int ranks, std::size_t bytes);

/// The hosts are few enough to link each leader with each other one.
bool may_use_hier(const connect::Shape& shape);
/// Ranks of one host get memory for groups; named: the user's rules name the algorithm that needs it.
bool may_have_groups(int ranks, bool named);
/// The ranks are few enough to link each with all ranks of other hosts.
bool may_link_pairwise(const connect::Shape& shape);
/// And some host has several. Where each host has one, the fallback component's pairwise exchange fills the
/// network as well, with one copy less (6 virtual hosts, 2.5 Gbit/s).
bool may_use_pairwise(const connect::Shape& shape);
/// No algorithm carries calls of the collective on host memory as such; but kernels may, and then pairwise
/// does for ranks whose buffers are elsewhere.
bool is_carried_beside_devices(const Conditions& conditions, device::Collective collective);
/// Whether dbt over such hosts should run calls of any size.
bool suits_dbt(const connect::Shape& shape);
/// The longest offer (device::offered_bytes()) that may go by an immediate or tiered exchange. has_rules: of
/// the user's, which may name one.
std::size_t most_exchanged(const Conditions& conditions, device::Collective collective, bool has_rules);
/// The longest one that is not probed: it takes less time than a system call.
inline constexpr std::size_t kMostUnprobed = 8 * 1024;

}  // namespace loom
