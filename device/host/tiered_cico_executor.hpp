// tiered_cico_executor.hpp -- reductions, all-gathers and barriers of one host with many cores, for messages
// larger than a TieredExchange takes, and for calls that do not wait: in groups of neighbours, between the
// groups, and back. n ranks in g groups of m look at 2 m + g others, and not at 3 n as a CicoExecutor does.
// Resumable: it never waits.
//
//   collective   in each group    along the rails   in each group
//   all-reduce   reduce-scatter   all-reduce        all-gather
//   reduce       reduce-scatter   reduce            gather, in the root's group alone
//   all-gather                    all-gather        all-gather
//   barrier      barrier          barrier
//
// A rail joins the ranks at the same place of all groups, which reduce the same share of the message. In an
// all-gather they are those from which a rank fetches what comes from other groups: its neighbours read it
// from there, and no block crosses from one group to another more than once.
//
// The sum of a group goes to the sum of the groups: results have other bits than those of a CicoExecutor, and
// the same for every size.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "device/host/cico_blocks_executor.hpp"
#include "device/host/cico_executor.hpp"
#include "device/host/tiers.hpp"

namespace loom::device {

/// One rank's CICO buffers for its group and its rail. They are smaller than a CicoBuffer: the cost of small
/// and medium messages is in rounds, and many ranks share the host's memory.
struct GroupsBuffer {
  static constexpr std::size_t kGroupBankBytes = 32 * 1024, kRailBankBytes = 8 * 1024;

  alignas(kCacheLine) std::atomic<std::uint64_t> call;  ///< that the rank is in; see CicoGroups::enter()
  alignas(kCacheLine) RoundFlags group_flags;
  alignas(kCacheLine) RoundFlags rail_flags;
  alignas(kCacheLine) std::byte group_banks[Rounds::kFewestBanks * kGroupBankBytes];
  alignas(kCacheLine) std::byte rail_banks[Rounds::kFewestBanks * kRailBankBytes];
};

/// Where a rank's CICO buffers for its group and its rail lie.
struct GroupsPlace {
  CicoPlace group, rail;
};

/// Groups of equally many neighbours. The same on all ranks.
class CicoGroups {
 public:
  static constexpr int kMostMembers = 8;  ///< as many cores as share a cache on AMD's CPUs
  /// For each member: with more, shares are long, and pieces of a rail's banks short, and so many rounds.
  static constexpr int kMostGroupsPerMember = 8;
  static_assert(GroupsBuffer::kRailBankBytes >= 2 * kCacheLine * kMostMembers * kMostGroupsPerMember);
  /// Members of a group: a divisor of the number of ranks, with which each looks at the fewest others. 1: no
  /// groups, as of a prime number of ranks.
  static int members_of(int ranks);

  /// buffers[r] is rank r's, zeroed before any rank constructs; they must outlive this.
  /// members_of() > 1.
  CicoGroups(const std::vector<GroupsBuffer*>& buffers, const Tiers& tiers, int self, bool few_rounds);
  /// The same with banks of other lengths, multiples of a cache line, for ranks that all are in the same
  /// calls: there is no check_calls().
  CicoGroups(const std::vector<GroupsPlace>& places, const Tiers& tiers, int self, bool few_rounds,
             std::size_t group_bank_bytes, std::size_t rail_bank_bytes);

  CicoBuffers& group() noexcept { return group_; }
  CicoBuffers& rail() noexcept { return rail_; }
  /// Which group a rank is in, and its place there.
  int group_of(int rank) const { return tiers_.position_of(rank) / members_; }
  int place_of(int rank) const { return tiers_.position_of(rank) % members_; }
  int rank_at(int group, int place) const { return tiers_.rank_at(group * members_ + place); }
  int self() const noexcept { return self_; }
  /// Before each call of the communicator that these groups or its CICO buffers carry.
  void enter(const CallNote& note) noexcept;
  /// For a rank that has been waiting: throws DifferentCall when it is in a call by groups and another rank
  /// is in a different one, or the other way round. Neither looks at what the other writes in its call.
  void check_calls() const;
  /// See Rounds.
  void say_left(const CallNote& note) noexcept {
    group_.say_left(note);
    rail_.say_left(note);
  }
  void abandon() noexcept {
    group_.abandon();
    rail_.abandon();
  }

 private:
  enum class Side { kGroup, kRail };
  CicoBuffers make(const std::vector<GroupsPlace>& places, Side side, bool few_rounds,
                   std::size_t bank_bytes) const;

  Tiers tiers_;
  int members_, self_;
  CicoBuffers group_, rail_;
  std::vector<std::atomic<std::uint64_t>*> calls_;  ///< by rank
  std::uint64_t entered_ = 0;                       ///< calls
};

class TieredCicoExecutor {
 public:
  static constexpr bool takes(Collective collective) {
    return collective == Collective::kAllreduce || collective == Collective::kReduce ||
           collective == Collective::kAllGather || collective == Collective::kBarrier;
  }

  /// A call that takes() accepts, a reduction of contiguous buffers; but for a barrier, count >= 1.
  TieredCicoExecutor(CicoGroups& groups, const Call& call);
  TieredCicoExecutor(const TieredCicoExecutor&) = delete;
  TieredCicoExecutor& operator=(const TieredCicoExecutor&) = delete;

  using State = RingExecutor::State;
  /// Performs one round unless it must wait. Throws as the executors of CICO buffers.
  State advance();
  /// The rank that a blocked executor waits for.
  int awaited() const noexcept;

 private:
  bool is_rooted() const { return call_.collective == Collective::kReduce; }
  bool has_result() const { return !is_rooted() || groups_.self() == call_.root; }
  bool is_with_root() const { return groups_.group_of(groups_.self()) == groups_.group_of(call_.root); }
  bool gathers() const { return call_.collective == Collective::kAllGather; }
  bool is_barrier() const { return call_.collective == Collective::kBarrier; }
  void begin_inside();
  void begin_across();
  void begin_back();
  void gather_across();
  void gather_back();
  void meet(CicoBuffers& cico);
  void place(int neighbour, std::byte* packed, std::size_t bytes);
  void note(CicoBuffers& cico) { cico.enter({call_, CallFamily::kTieredCico}); }

  enum class Stage { kInside, kAcross, kBack, kDone };
  CicoGroups& groups_;
  Call call_;
  std::vector<std::uint64_t> bounds_;  ///< of the group's shares, in elements
  std::unique_ptr<std::byte[]> sum_;   ///< of my share, where it is no part of a result
  Block share_;                        ///< where that sum goes
  std::vector<Block> shares_;          ///< of a result
  // Of an all-gather: the blocks of my rail, and how many bytes of what each neighbour has gathered are in
  // place.
  std::unique_ptr<std::byte[]> of_rail_;
  std::vector<std::size_t> placed_;
  Packer placer_;
  Stage stage_ = Stage::kInside;
  std::optional<CicoExecutor> forth_;
  std::optional<CicoBlocksExecutor> back_;  ///< or a barrier
};

}  // namespace loom::device
