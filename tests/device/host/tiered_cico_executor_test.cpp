// Reductions, all-gathers and barriers in groups of a host's ranks and between them: every result checked, in
// any order of the ranks' steps and by threads.
#include "device/host/tiered_cico_executor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <thread>

#include "base/error.hpp"

namespace loom::device {
namespace {

using ::testing::HasSubstr;
using State = TieredCicoExecutor::State;

/// Ranks in turn on so many caches: a group is no range of ranks.
Tiers tiers_of(int ranks, int caches) {
  std::vector<TierPlace> places;
  for (int rank = 0; rank < ranks; ++rank) places.push_back({rank % caches, 0});
  return {places, Tiers::most_in_group(ranks)};
}

/// All ranks of a communicator in one process.
class GroupedHost {
 public:
  GroupedHost(int ranks, int caches, bool few_rounds = false) : tiers(tiers_of(ranks, caches)) {
    std::vector<GroupsBuffer*> buffers;
    for (int rank = 0; rank < ranks; ++rank) {
      memory_.push_back(std::make_unique<GroupsBuffer>());
      buffers.push_back(memory_.back().get());
    }
    for (int rank = 0; rank < ranks; ++rank)
      groups.push_back(std::make_unique<CicoGroups>(buffers, tiers, rank, few_rounds));
  }
  int ranks() const { return tiers.ranks(); }

  Tiers tiers;
  std::vector<std::unique_ptr<CicoGroups>> groups;
  std::vector<std::atomic<int>> begun = std::vector<std::atomic<int>>(100);  ///< by call: how many ranks have

 private:
  std::vector<std::unique_ptr<GroupsBuffer>> memory_;
};

struct Made {
  Collective collective;
  std::size_t count;
  int root = 0;
  bool in_place = false;
  bool packed = false;  ///< of an all-gather: no buffer is contiguous
};

/// Large enough that the order of a sum shows in its last bits.
float value(std::size_t nth, int rank, std::size_t i) {
  return 1.0F + static_cast<float>((i * 7 + nth * 5 + static_cast<std::size_t>(rank) * 31) % 997) * 1e-4F;
}

/// The sums of the groups one after the other, each in the order of its members.
float sum(const Tiers& tiers, std::size_t nth, std::size_t i) {
  const int members = CicoGroups::members_of(tiers.ranks());
  float all = 0;
  for (int first = 0; first < tiers.ranks(); first += members) {
    float of_group = 0;
    for (int place = 0; place < members; ++place) {
      const float mine = value(nth, tiers.rank_at(first + place), i);
      of_group = place == 0 ? mine : of_group + mine;
    }
    all = first == 0 ? of_group : all + of_group;
  }
  return all;
}

/// One rank's calls, one after the other; each result is checked before the next call begins.
class CallsOfRank {
 public:
  CallsOfRank(GroupedHost& host, int self, const std::vector<Made>& made)
      : host_(host), self_(self), made_(made) {}
  bool done() const { return nth_ == made_.size(); }
  /// As far as it goes.
  State advance() {
    if (done()) return State::kDone;
    if (!executor_) begin();
    const State state = executor_->advance();
    if (state != State::kDone) return state;
    executor_.reset();
    check();
    ++nth_;
    return State::kMoved;
  }
  int awaited() const { return executor_->awaited(); }

 private:
  bool gathers() const { return made_[nth_].collective == Collective::kAllGather; }
  bool is_barrier() const { return made_[nth_].collective == Collective::kBarrier; }
  void begin() {
    const Made& made = made_[nth_];
    host_.begun.at(nth_).fetch_add(1, std::memory_order_relaxed);
    if (is_barrier()) {
      executor_ = std::make_unique<TieredCicoExecutor>(*host_.groups[static_cast<std::size_t>(self_)],
                                                       Call{.collective = made.collective});
      return;
    }
    if (gathers()) return begin_gather(made);
    const bool has_result = made.collective == Collective::kAllreduce || made.root == self_;
    in_.resize(made.count);
    out_.assign(has_result ? made.count : 0, -1);
    for (std::size_t i = 0; i < made.count; ++i) in_[i] = value(nth_, self_, i);
    const bool in_place = made.in_place && has_result;
    if (in_place) out_ = in_;
    executor_ = std::make_unique<TieredCicoExecutor>(
        *host_.groups[static_cast<std::size_t>(self_)],
        Call{.collective = made.collective,
             .in = reinterpret_cast<const std::byte*>(in_place ? out_.data() : in_.data()),
             .out = reinterpret_cast<std::byte*>(out_.data()),
             .count = made.count,
             .type = Type::kFloat,
             .op = Op::kSum,
             .root = made.root});
  }
  void begin_gather(const Made& made) {
    const auto ranks = static_cast<std::size_t>(host_.ranks());
    in_.resize(made.count);
    out_.assign(ranks * made.count, -1);
    moved_.assign(ranks, 0);
    sent_ = 0;
    for (std::size_t i = 0; i < made.count; ++i) in_[i] = value(nth_, self_, i);
    float* const own = out_.data() + static_cast<std::size_t>(self_) * made.count;
    if (made.in_place) std::ranges::copy(in_, own);
    in_packer_ = {.move =
                      [](void* context, int, std::byte* packed, std::size_t bytes) {
                        auto& self = *static_cast<CallsOfRank*>(context);
                        std::memcpy(packed, reinterpret_cast<const std::byte*>(self.in_.data()) + self.sent_,
                                    bytes);
                        self.sent_ += bytes;
                      },
                  .context = this};
    out_packer_ = {.move =
                       [](void* context, int block, std::byte* packed, std::size_t bytes) {
                         auto& self = *static_cast<CallsOfRank*>(context);
                         const auto at = static_cast<std::size_t>(block);
                         std::memcpy(reinterpret_cast<std::byte*>(self.out_.data() + at * self.in_.size()) +
                                         self.moved_[at],
                                     packed, bytes);
                         self.moved_[at] += bytes;
                       },
                   .context = this};
    executor_ = std::make_unique<TieredCicoExecutor>(
        *host_.groups[static_cast<std::size_t>(self_)],
        Call{.collective = made.collective,
             .in =
                 made.packed ? nullptr : reinterpret_cast<const std::byte*>(made.in_place ? own : in_.data()),
             .out = made.packed ? nullptr : reinterpret_cast<std::byte*>(out_.data()),
             .count = made.count,
             .type = Type::kFloat,
             .in_packer = made.packed ? &in_packer_ : nullptr,
             .out_packer = made.packed ? &out_packer_ : nullptr});
  }
  void check() {
    if (is_barrier()) {
      ASSERT_EQ(host_.begun[nth_].load(std::memory_order_relaxed), host_.ranks())
          << "rank " << self_ << " has left a barrier before all have come";
      return;
    }
    for (std::size_t i = 0; i < in_.size(); ++i)
      ASSERT_EQ(in_[i], value(nth_, self_, i)) << "an operand has changed";
    if (gathers()) {
      for (std::size_t i = 0; i < out_.size(); ++i)
        ASSERT_EQ(out_[i], value(nth_, static_cast<int>(i / in_.size()), i % in_.size()))
            << "call " << nth_ << ", rank " << self_ << ", element " << i << " of " << out_.size();
      return;
    }
    for (std::size_t i = 0; i < out_.size(); ++i)
      ASSERT_EQ(out_[i], sum(host_.tiers, nth_, i))
          << "call " << nth_ << ", rank " << self_ << ", element " << i << " of " << out_.size();
  }

  GroupedHost& host_;
  int self_;
  const std::vector<Made>& made_;
  std::size_t nth_ = 0;
  std::vector<float> in_, out_;
  Packer in_packer_, out_packer_;
  std::size_t sent_ = 0;
  std::vector<std::size_t> moved_;  ///< by block
  std::unique_ptr<TieredCicoExecutor> executor_;
};

std::vector<Made> calls(int ranks, std::size_t most) {
  std::vector<Made> made;
  int nth = 0;
  for (const std::size_t count : {1UL, 2UL, 17UL, 128UL, 129UL, 3000UL, 20001UL, 70001UL}) {
    if (count > most) break;
    for (const Collective collective : {Collective::kAllreduce, Collective::kReduce, Collective::kReduce}) {
      made.push_back({collective, count, nth * 5 % ranks, nth % 2 == 1});
      ++nth;
    }
    for (int i = 0; i < nth % 4; ++i) made.push_back({Collective::kBarrier, 0});
    // As long as the result of another, over all ranks.
    const std::size_t block = (count + static_cast<std::size_t>(ranks) - 1) / static_cast<std::size_t>(ranks);
    for (const auto& [in_place, packed] :
         {std::pair(false, false), std::pair(true, false), std::pair(false, true)})
      made.push_back(
          {Collective::kAllGather, count > (ranks > 32 ? 17 : 3000) ? block : count, 0, in_place, packed});
  }
  return made;
}

TEST(CicoGroups, LetEachRankLookAtFewOthers) {
  const auto members = [](int ranks) { return CicoGroups::members_of(ranks); };
  EXPECT_EQ(members(32), 4);
  EXPECT_EQ(members(64), 8);
  EXPECT_EQ(members(112), 8);
  EXPECT_EQ(members(128), 8);
  EXPECT_EQ(members(192), 8);
  EXPECT_EQ(members(33), 3);
  EXPECT_EQ(members(384), 8);
  EXPECT_EQ(members(512), 8);
  for (const int ranks : {62, 74, 262, 387, 1024})
    EXPECT_EQ(members(ranks), 1) << ranks << ": too many groups for their members";
  EXPECT_EQ(members(100), 5);
  for (const int prime : {2, 3, 5, 37, 127}) EXPECT_EQ(members(prime), 1) << prime;
}

TEST(TieredCicoExecutor, IsRightInAnyOrderOfSteps) {
  std::mt19937 random(7);
  for (const int ranks : {4, 6, 8, 9, 12, 32, 384})
    for (const int caches : {1, 2, 3})
      for (const bool few_rounds : {false, true}) {
        GroupedHost host(ranks, caches, few_rounds);
        const std::vector<Made> made = calls(ranks, ranks > 12 ? ranks > 32 ? 129 : 3000 : 70001);
        std::vector<CallsOfRank> all;
        for (int rank = 0; rank < ranks; ++rank) all.emplace_back(host, rank, made);
        std::vector<std::size_t> open(all.size());
        std::iota(open.begin(), open.end(), 0UL);
        for (int fruitless = 0; !open.empty() && !HasFatalFailure();) {
          // One rank after the other, or one that runs ahead as far as it can.
          const std::size_t which = random() % open.size();
          const int steps = random() % 4 == 0 ? 20 : 1;
          for (int i = 0; i < steps && !all[open[which]].done(); ++i)
            fruitless = all[open[which]].advance() == State::kBlocked ? fruitless + 1 : 0;
          if (all[open[which]].done()) open.erase(open.begin() + static_cast<std::ptrdiff_t>(which));
          ASSERT_LT(fruitless, 100000) << "nobody goes on";
        }
      }
}

TEST(TieredCicoExecutor, IsRightByThreads) {
  for (const int ranks : {4, 6, 9}) {
    GroupedHost host(ranks, 2);
    const std::vector<Made> made = calls(ranks, 70001);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        CallsOfRank mine(host, rank, made);
        while (!mine.done())
          if (mine.advance() == State::kBlocked) std::this_thread::yield();
      });
  }
}

/// Ranks other than `late` go as far as they can.
void advance_all_but(std::vector<CallsOfRank>& all, int late) {
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < static_cast<int>(all.size()); ++rank)
      if (rank != late)
        for (auto& ranks_calls = all[static_cast<std::size_t>(rank)];
             !ranks_calls.done() && ranks_calls.advance() == State::kMoved;)
          moved = true;
  }
}

TEST(TieredCicoExecutor, NamesWhomItWaitsFor) {
  constexpr int kLate = 4;
  GroupedHost host(6, 3);
  const std::vector<Made> made{{Collective::kAllreduce, 100}};
  std::vector<CallsOfRank> all;
  for (int rank = 0; rank < 6; ++rank) all.emplace_back(host, rank, made);
  advance_all_but(all, kLate);
  const CicoGroups& late = *host.groups[kLate];
  for (int rank = 0; rank < 6; ++rank) {
    if (rank == kLate) continue;
    const bool is_mate = late.group_of(rank) == late.group_of(kLate);
    // Whoever is in another group waits for the one of the late rank's group that has its share.
    EXPECT_EQ(all[static_cast<std::size_t>(rank)].awaited(),
              is_mate ? kLate : late.rank_at(late.group_of(kLate), late.place_of(rank)))
        << rank;
  }
}

TEST(TieredCicoExecutor, NamesARankThatHasGivenUpOrIsInAnotherCall) {
  const auto message = [](GroupedHost& host, int self, const Made& made) -> std::string {
    const std::vector<Made> one{made};
    CallsOfRank mine(host, self, one);
    try {
      for (int i = 0; i < 3; ++i) mine.advance();
    } catch (const DifferentCall& other) {
      return "in another call: " + std::to_string(other.peer());
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const Made made{Collective::kAllreduce, 100};
  {
    GroupedHost host(6, 3);
    host.groups[3]->abandon();
    for (const int rank : {0, 1, 2, 4, 5})
      if (host.groups[0]->group_of(rank) == host.groups[0]->group_of(3)) {
        EXPECT_THAT(message(host, rank, made), HasSubstr("Rank 3 gave up"));
      }
  }
  GroupedHost host(4, 2);
  const int mate = host.groups[0]->rank_at(host.groups[0]->group_of(0), 1 - host.groups[0]->place_of(0));
  EXPECT_EQ(message(host, 0, made), "");
  EXPECT_EQ(message(host, mate, {Collective::kAllreduce, 200}), "in another call: 0");
}

TEST(CicoGroups, TellRanksThatAreInCallsOfWhichOneAloneGoesByGroups) {
  constexpr int kRanks = 6;
  const auto note = [](std::size_t bytes, CallFamily family) {
    return CallNote(Collective::kAllreduce, family, bytes);
  };
  const CallNote grouped = note(100, CallFamily::kTieredCico), longer = note(1000, CallFamily::kCico);
  GroupedHost host(kRanks, 3);
  const auto finds = [&](int rank) -> int {
    try {
      host.groups[static_cast<std::size_t>(rank)]->check_calls();
    } catch (const DifferentCall& other) {
      EXPECT_EQ(other.mine(), rank == 4 ? longer : grouped);
      EXPECT_EQ(other.its(), rank == 4 ? grouped : longer);
      EXPECT_EQ(other.code(), rank == 4 ? ErrorCode::kMismatch : ErrorCode::kTruncated);
      return other.peer();
    }
    return -1;
  };
  for (int turn = 0; turn < 300; ++turn) {  // the number of a call has 8 bits
    for (int rank = 0; rank < kRanks; ++rank) {
      host.groups[static_cast<std::size_t>(rank)]->enter(turn % 2 == 0 ? grouped : longer);
      for (int other = 0; other < kRanks; ++other)
        ASSERT_EQ(finds(other), -1) << "rank " << other << " is one call behind, or ahead";
    }
  }
  for (int rank = 0; rank < kRanks; ++rank)
    host.groups[static_cast<std::size_t>(rank)]->enter(rank == 4 ? longer : grouped);
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(finds(rank), rank == 4 ? 0 : 4) << rank;
}

}  // namespace
}  // namespace loom::device
