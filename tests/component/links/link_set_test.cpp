// A LinkSet of two ranks, which are two transports of one process.
#include "component/links/link_set.hpp"

#include <gmock/gmock.h>

#include <array>
#include <chrono>
#include <thread>

#include "component/links/shared_layout.hpp"
#include "component/setup/group.hpp"

namespace loom {
namespace {

using ucx_transport::Rendezvous;
using ucx_transport::Transport;

const RankNames kNames{{0, "the first rank"}, {1, "the second rank"}};

device::FifoShape fifo(int) {
  return {.slot_bytes = 1024, .slot_count = 8, .releases_per_credit = 4};
}
LinkPlan to_the_other(const Group&, int rank) {
  return {.places = 2, .peers = {{.rank = 1 - rank, .place = 1, .place_there = 1}}};
}
/// Each is the other's next and previous rank.
LinkPlan round(const Group&, int rank) {
  return {.places = 1, .peers = {{1 - rank, LinkPeer::Ways::kReceive}, {1 - rank, LinkPeer::Ways::kSend}}};
}
constexpr LinkSpec kAll{.plan = to_the_other, .fifo = fifo}, kRing{.plan = round, .fifo = fifo},
    kShort{.plan = to_the_other, .fifo = fifo, .few_untaken_suffice = true},
    kLong{.plan = to_the_other, .fifo = [](int) { return leader_fifo(2); }, .few_untaken_suffice = true};

class TwoRanks : public ::testing::Test {
 protected:
  explicit TwoRanks(Rendezvous rendezvous = Rendezvous::kWhereDirect)
      : transports_{Transport({.rendezvous = rendezvous}), Transport({.rendezvous = rendezvous})} {}
  /// Makes and joins them, as a set-up does.
  void link(const std::vector<LinkSpec>& specs) {
    std::array<std::vector<std::byte>, 2> handles;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      for (const LinkSpec& spec : specs) sets_[rank].emplace_back(spec, group_, static_cast<int>(rank));
      ByteWriter writer;
      make_all(sets_[rank], transports_[rank], ucx_transport::kAllRails, kNames, writer);
      handles[rank] = writer.take();
    }
    for (const auto& sets : sets_)
      join_all(sets,
               [&](int rank) { return ByteReader(handles[static_cast<std::size_t>(rank)], kHandleOfLinks); });
  }
  /// On both ranks; returns what that says on each, nothing if it succeeds.
  std::array<std::string, 2> try_both(double timeout_s = 20) {
    std::array<std::string, 2> causes;
    std::vector<std::thread> ranks;
    for (std::size_t rank = 0; rank < 2; ++rank)
      ranks.emplace_back([&, rank] { causes[rank] = try_one(rank, timeout_s); });
    for (std::thread& rank : ranks) rank.join();
    return causes;
  }
  std::string try_one(std::size_t rank, double timeout_s) {
    int awaited = -1;
    device::WaitPolicy policy;
    policy.timeout_s = timeout_s;
    try {
      try_all(sets_[rank], static_cast<int>(rank), kNames, policy, awaited);
      return "";
    } catch (const std::exception& error) {
      return error.what() + std::string(" Waiting for ") + kNames.at(awaited);
    }
  }
  std::optional<int> not_quiet(std::size_t rank) {
    std::uint64_t released = 0;
    return not_quiet_in(sets_[rank], released);
  }
  /// Polls until then; these transports progress, or both.
  template <class Condition>
  bool comes_true(Condition&& condition, std::vector<Transport*> progressing = {}) {
    if (progressing.empty()) progressing = {&transports_[0], &transports_[1]};
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > until) return false;
      for (Transport* const transport : progressing) transport->progress();
    }
    return true;
  }
  device::PeerLinks links(std::size_t rank, std::size_t place) const { return sets_[rank][0].view()[place]; }
  void send(std::size_t rank, std::size_t place, std::size_t bytes = 8) {
    device::SendLink& link = *links(rank, place).send;
    ASSERT_TRUE(comes_true([&] { return link.try_acquire() != nullptr; }));
    link.publish(bytes);
  }
  void take(std::size_t rank, std::size_t place) {
    device::RecvLink& link = *links(rank, place).receive;
    ASSERT_TRUE(comes_true([&] { return link.try_receive() != nullptr; }));
    link.release();
  }

  Group group_ = {};
  std::array<Transport, 2> transports_;
  std::array<std::vector<LinkSet>, 2> sets_;
};

TEST_F(TwoRanks, TryEveryLinkOfSeveralSets) {
  link({kRing, kShort, kAll});
  for (const std::string& cause : try_both()) EXPECT_EQ(cause, "");
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for_each_net_end(sets_[rank],
                     [](const ucx_transport::NetEnd& end) { EXPECT_EQ(end.steps(), end.rails()); });
    EXPECT_EQ(sets_[rank][0].ends().size(), 2);
    EXPECT_EQ(sets_[rank][0].view().size(), 1) << "both ways of a ring are at one place";
    EXPECT_EQ(sets_[rank][2].view()[0].send, nullptr) << "there is no link at this place";
  }
}

TEST_F(TwoRanks, SayWhoseWordHasNotCome) {
  link({kAll});
  EXPECT_EQ(try_one(0, 0.2), "No step forward for 0.2 s. Waiting for the second rank");
}

TEST_F(TwoRanks, RefuseAWordThatIsNotThePeers) {
  link({kAll});
  send(1, 1);
  ASSERT_TRUE(comes_true([&] { return links(0, 1).receive->try_receive() != nullptr; }));
  EXPECT_THAT(try_one(0, 20), ::testing::HasSubstr("UCX delivered wrong data from the second rank."));
}

/// Otherwise a wait for a slow link would count as one for a peer that does not go on.
TEST_F(TwoRanks, LearnWhatIsTakenWhileTooMuchIsNot) {
  link({kLong});
  const std::size_t bytes = leader_fifo(2).slot_bytes;
  for (int slots = 0; slots < 4; ++slots) send(0, 1, bytes);
  const auto released = [&] {
    std::uint64_t slots = 0;
    EXPECT_EQ(not_quiet_in(sets_[0], slots), 1);
    return slots;
  };
  EXPECT_EQ(released(), 0);
  take(1, 1);
  EXPECT_TRUE(comes_true([&] { return released() == 1; }));
  take(1, 1);
  take(1, 1);
  EXPECT_TRUE(comes_true([&] { return !not_quiet(0); }));
}

TEST_F(TwoRanks, AreNotQuietUntilAllIsTaken) {
  for (const LinkSpec& spec : {kAll, kRing}) {
    for (auto& sets : sets_) sets.clear();
    link({spec});
    const std::size_t place = sets_[0][0].view().size() - 1;
    EXPECT_EQ(not_quiet(0), std::nullopt);
    for (int slots = 0; slots < 3; ++slots) send(0, place);
    for (int slots = 0; slots < 3; ++slots) {
      EXPECT_EQ(not_quiet(0), 1);
      take(1, place);
    }
    // Fewer than a credit is for: told once the receiver asks whether it is quiet.
    EXPECT_TRUE(comes_true([&] { return !not_quiet(1) && !not_quiet(0); }));
  }
}

TEST_F(TwoRanks, AreQuietWithFewUntakenWhereThatIsEnough) {
  link({kShort});
  for (int slots = 0; slots < 6; ++slots) send(0, 1);
  EXPECT_TRUE(comes_true([&] { return !not_quiet(0); })) << "three quarters of the slots";
  send(0, 1);
  EXPECT_EQ(not_quiet(0), 1);
  for (int slots = 0; slots < 4; ++slots) take(1, 1);
  EXPECT_TRUE(comes_true([&] { return !not_quiet(0); }));
}

struct TwoRanksThatFetch : TwoRanks {
  TwoRanksThatFetch() : TwoRanks(Rendezvous::kAlways) {}
};

TEST_F(TwoRanksThatFetch, DoNotFetchWhereFewUntakenAreEnough) {
  link({kLong});
  send(0, 1);
  take(1, 1);
  send(0, 1, leader_fifo(2).slot_bytes);
  EXPECT_TRUE(comes_true([&] { return !not_quiet(0); }, {&transports_[0]}))
      << "while the receiver does nothing";
}

TEST_F(TwoRanks, HearThatTheOtherHasAbandonedAllItsEnds) {
  link({kRing, kAll});
  EXPECT_EQ(try_both(), (std::array<std::string, 2>{}));
  abandon_all(sets_[0]);
  for_each_net_end(sets_[1], [&](const ucx_transport::NetEnd& end) {
    EXPECT_TRUE(comes_true([&] { return !end.is_connected(); }));
  });
}

}  // namespace
}  // namespace loom
