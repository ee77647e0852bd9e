// What lanes, warps and blocks do together, and what is found when they do not.
#include <gmock/gmock.h>

#include <mutex>
#include <thread>

#include "tests/virtual_gpu/run/kernel.hpp"

namespace virtual_gpu::run {
namespace {

using ::testing::HasSubstr;

const Settings kSeparately{.meeting = Meeting::kVotesOnly};

std::optional<Fault> fault_of(const Kernel& kernel, TestSpace& space, const Dim& grid, const Dim& block,
                              const std::vector<std::uint64_t>& parameters, const Settings& settings = {}) {
  try {
    kernel.run(space, grid, block, parameters, settings);
  } catch (const Fault& fault) {
    return fault;
  }
  return std::nullopt;
}
Fault::Kind kind_of(const std::string& body, const Settings& settings = {}, unsigned threads = 32) {
  TestSpace space;
  const std::uint64_t memory = space.add(4096, {.tracks_written = true});
  const auto fault = fault_of(Kernel(body, 1), space, {1}, {threads}, {memory}, settings);
  if (!fault) throw std::runtime_error("no fault: " + body);
  return fault->kind();
}

/// %r1: the lane; %d1: where a word of its own lies.
const std::string kOwn = "mov.u32 %r1, %tid.x; mul.wide.u32 %d1, %r1, 4; add.u64 %d1, %p0, %d1;\n";

std::vector<std::uint32_t> words_of(const std::string& body, unsigned threads,
                                    const Settings& settings = {}) {
  TestSpace space;
  const std::uint64_t out = space.add(4096);
  Kernel(kOwn + body, 1).run(space, {1}, {threads}, {out}, settings);
  std::vector<std::uint32_t> result;
  for (unsigned i = 0; i < threads; ++i) result.push_back(space.get<std::uint32_t>(out + 4 * i));
  return result;
}

TEST(Lanes, TakeBothWaysOfABranchAndMeetBehind) {
  const std::string body =
      "setp.lt.u32 %q1, %r1, 10; @%q1 bra LOW;\nmov.u32 %r2, 200; bra.uni END;\nLOW: mov.u32 %r2, 100;\n"
      "END: activemask.b32 %r3; selp.u32 %r3, 1, 0, %q1; add.u32 %r2, %r2, %r3; st.global.u32 [%d1], %r2;";
  for (const Settings& settings : {Settings{}, kSeparately}) {
    const auto words = words_of(body, 32, settings);
    for (unsigned i = 0; i < 32; ++i) EXPECT_EQ(words[i], i < 10 ? 101U : 200U);
  }
}

TEST(Lanes, AreTogetherBehindABranchOrNot) {
  const std::string body =
      "setp.lt.u32 %q1, %r1, 10; @%q1 bra LOW;\nmov.u32 %r2, 1; bra.uni END;\nLOW: mov.u32 %r2, 2;\n"
      "END: activemask.b32 %r3; st.global.u32 [%d1], %r3;";
  EXPECT_THAT(words_of(body, 32), ::testing::Each(0xffffffffU));
  const auto apart = words_of(body, 32, kSeparately);
  EXPECT_EQ(apart[0], 0x3ffU);
  EXPECT_EQ(apart[31], 0xfffffc00U);
  const auto joined = words_of(
      "setp.lt.u32 %q1, %r1, 10; @%q1 bra LOW;\nmov.u32 %r2, 1; bra.uni END;\nLOW: mov.u32 %r2, 2;\n"
      "END: bar.warp.sync -1; activemask.b32 %r3; st.global.u32 [%d1], %r3;",
      32, kSeparately);
  EXPECT_THAT(joined, ::testing::Each(0xffffffffU));
}

TEST(Lanes, LoopEachAsOftenAsItMust) {
  // Lane i adds 1 to i.
  const std::string body =
      "mov.u32 %r2, 0; mov.u32 %r3, 0;\nLOOP: setp.gt.u32 %q1, %r2, %r1; @%q1 bra END; add.u32 %r3, %r3, "
      "%r2;\n"
      "add.u32 %r2, %r2, 1; bra.uni LOOP;\nEND: activemask.b32 %r4; setp.eq.u32 %q2, %r4, -1; selp.u32 %r4, "
      "1000, 0, %q2;\n"
      "add.u32 %r3, %r3, %r4; st.global.u32 [%d1], %r3;";
  const auto together = words_of(body, 32), apart = words_of(body, 32, kSeparately);
  for (unsigned i = 0; i < 32; ++i) {
    EXPECT_EQ(together[i], 1000 + i * (i + 1) / 2);
    EXPECT_EQ(apart[i], i * (i + 1) / 2);
  }
}

/// Lane 0 stores to shared memory behind a branch; all read it without bar.warp.sync. That works where lanes
/// meet at the end of the branch, and not everywhere else.
TEST(Lanes, ShowAMissingBarWarpSyncWhereTheyGoOnSeparately) {
  const auto body = [](const std::string& join) {
    return ".shared .u32 word; mov.u32 %r4, 0; st.shared.u32 [word], %r4; bar.sync 0; setp.ne.u32 %q1, %r1, "
           "0; @%q1 bra END;\n"
           "mov.u32 %r2, 7; st.shared.u32 [word], %r2;\nEND: " +
           join + "\nld.shared.u32 %r3, [word]; st.global.u32 [%d1], %r3;";
  };
  bool saw_old = false;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Settings settings{.seed = seed};
    EXPECT_THAT(words_of(body(""), 32, settings), ::testing::Each(7U));
    settings.meeting = Meeting::kVotesOnly;
    saw_old |= words_of(body(""), 32, settings)[31] == 0;
    EXPECT_THAT(words_of(body("bar.warp.sync -1;"), 32, settings), ::testing::Each(7U));
  }
  EXPECT_TRUE(saw_old);
}

TEST(Lanes, VoteInGroups) {
  // Groups of 8: even lanes say yes; in group 1 all do, in group 2 nobody.
  const std::string setup =
      "and.b32 %r2, %r1, 24; shl.b32 %r3, 0xff, %r2; shr.u32 %r4, %r1, 3; and.b32 %r5, %r1, 1; setp.eq.u32 "
      "%q1, %r5, 0;\n"
      "setp.eq.u32 %q2, %r4, 1; or.pred %q1, %q1, %q2; setp.ne.u32 %q2, %r4, 2; and.pred %q1, %q1, %q2;\n";
  const auto vote = [&](const std::string& code, const Settings& settings) {
    return words_of(setup + code + " st.global.u32 [%d1], %r6;", 32, settings);
  };
  for (const Settings& settings : {Settings{}, kSeparately}) {
    const auto ballot = vote("vote.sync.ballot.b32 %r6, %q1, %r3;", settings);
    EXPECT_EQ(ballot[0], 0x55U);
    EXPECT_EQ(ballot[15], 0xff00U);
    EXPECT_EQ(ballot[16], 0U);
    EXPECT_EQ(ballot[31], 0x55000000U);
    const auto all = vote("vote.sync.all.pred %q2, %q1, %r3; selp.u32 %r6, 1, 0, %q2;", settings);
    EXPECT_THAT((std::vector{all[0], all[8], all[16], all[24]}), ::testing::ElementsAre(0, 1, 0, 0));
    const auto any = vote("vote.sync.any.pred %q2, !%q1, %r3; selp.u32 %r6, 1, 0, %q2;", settings);
    EXPECT_THAT((std::vector{any[0], any[8], any[16], any[24]}), ::testing::ElementsAre(1, 0, 1, 1));
    const auto uni = vote("vote.sync.uni.pred %q2, %q1, %r3; selp.u32 %r6, 1, 0, %q2;", settings);
    EXPECT_THAT((std::vector{uni[0], uni[8], uni[16], uni[24]}), ::testing::ElementsAre(0, 1, 1, 0));
  }
}

TEST(Lanes, MayComeToAVoteFromDifferentPlaces) {
  // The instructions are two, the vote is one.
  const std::string body =
      "setp.lt.u32 %q1, %r1, 4; @%q1 bra LOW;\nvote.sync.ballot.b32 %r2, %q1, -1; bra.uni END;\n"
      "LOW: vote.sync.ballot.b32 %r2, %q1, -1;\nEND: st.global.u32 [%d1], %r2;";
  for (const Settings& settings : {Settings{}, kSeparately})
    EXPECT_THAT(words_of(body, 32, settings), ::testing::Each(0xfU));
  // Those who have reached the end of the branch are waited for further on.
  const std::string further =
      "setp.lt.u32 %q1, %r1, 4; @%q1 bra LOW;\nbra.uni END;\nLOW: bar.warp.sync -1;\nEND: setp.ge.u32 %q2, "
      "%r1, 4;"
      "@%q2 bar.warp.sync -1;\nst.global.u32 [%d1], %r1;";
  for (const Settings& settings : {Settings{}, kSeparately})
    EXPECT_EQ(words_of(further, 32, settings)[9], 9U);
}

TEST(Lanes, ReturnEachToWhereTheyCameFrom) {
  const std::string before =
      ".func (.param .b32 r) add(.param .b32 a) { .reg .b32 %r<4>; .reg .pred %q; ld.param.b32 %r1, [a]; "
      "add.u32 %r1, %r1, 1;"
      "setp.gt.u32 %q, %r1, 10; @%q bra BIG; bar.warp.sync -1; st.param.b32 [r], %r1; ret;\n"
      "BIG: bar.warp.sync -1; add.u32 %r1, %r1, 100; st.param.b32 [r], %r1; ret; }\n";
  const auto call = [](const char* by) {
    return std::string("{ .param .b32 x; .param .b32 y; add.u32 %r2, %r1, ") + by +
           "; st.param.b32 [x], %r2; call.uni (y), add, (x); ld.param.b32 %r3, [y]; }\n";
  };
  const std::string body = kOwn + "setp.lt.u32 %q1, %r1, 4; @%q1 bra LOW;\n" + call("0") +
                           "bra.uni END;\nLOW: " + call("20") + "END: st.global.u32 [%d1], %r3;";
  for (const Settings& settings : {Settings{}, kSeparately}) {
    TestSpace space;
    const std::uint64_t out = space.add(128);
    Kernel(body, 1, before).run(space, {1}, {32}, {out}, settings);
    EXPECT_EQ(space.get<std::uint32_t>(out + 4 * 2), 123U);
    EXPECT_EQ(space.get<std::uint32_t>(out + 4 * 5), 6U);
    EXPECT_EQ(space.get<std::uint32_t>(out + 4 * 30), 131U);
  }
}

TEST(Blocks, MeetInBarriers) {
  // Each thread publishes its number in shared memory and reads its mirror image's.
  const std::string body =
      ".shared .b32 words[96]; mov.u32 %r2, words; mad.lo.u32 %r3, %r1, 4, %r2; st.shared.u32 [%r3], "
      "%r1;\nbar.sync 0;\n"
      "sub.u32 %r4, 95, %r1; mad.lo.u32 %r4, %r4, 4, %r2; ld.shared.u32 %r5, [%r4]; st.global.u32 [%d1], "
      "%r5;";
  for (const bool random : {false, true})
    for (const Meeting meeting : {Meeting::kPostDominators, Meeting::kVotesOnly}) {
      const auto words = words_of(body, 96, {.meeting = meeting, .random_order = random, .seed = 5});
      for (unsigned i = 0; i < 96; ++i) ASSERT_EQ(words[i], 95 - i);
    }
}

TEST(Blocks, ReduceInBarriers) {
  const auto words = words_of(
      "setp.lt.u32 %q1, %r1, 40; bar.red.popc.u32 %r2, 0, %q1; bar.red.or.pred %q2, 1, %q1; "
      "barrier.cta.red.and.aligned.pred %q3, 2, 96, !%q1;\n"
      "selp.u32 %r3, 100, 0, %q2; selp.u32 %r4, 1000, 0, %q3; add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r4; "
      "st.global.u32 [%d1], %r2;",
      96);
  EXPECT_THAT(words, ::testing::Each(140U));
}

TEST(Blocks, LetPartsOfThemMeet) {
  // Warps 1 and 2 meet, warp 0 has gone; then a barrier of all that are left.
  EXPECT_EQ(
      words_of("setp.lt.u32 %q1, %r1, 32; @%q1 exit; bar.sync 1, 64; bar.sync 0; st.global.u32 [%d1], %r1;",
               96)[95],
      95U);
}

TEST(Blocks, ReduceInBarriersOfTheirParts) {
  // Each warp has a barrier, whose number it computes; thread 5 alone says yes.
  const auto words = words_of(
      "shr.u32 %r2, %r1, 5; add.u32 %r2, %r2, 1; setp.eq.u32 %q1, %r1, 5;\n"
      "barrier.red.or.pred %q2, %r2, 32, %q1; selp.u32 %r3, 1, 0, %q2; st.global.u32 [%d1], %r3;",
      64);
  for (unsigned i = 0; i < 64; ++i) ASSERT_EQ(words[i], i < 32 ? 1U : 0U) << i;
}

TEST(Blocks, RunAllAndWaitForEachOther) {
  // Block 0 waits for a word from block 1, though one alone is resident at a time... of 2.
  TestSpace space;
  const std::uint64_t memory = space.add(64);
  const Kernel kernel(
      "mov.u32 %r1, %ctaid.x; setp.eq.u32 %q1, %r1, 1; @%q1 bra GIVE;\nWAIT: ld.acquire.gpu.global.u64 %d1, "
      "[%p0];"
      "setp.eq.u64 %q2, %d1, 0; @%q2 bra WAIT; st.global.u64 [%p0+8], %d1; ret;\n"
      "GIVE: st.release.gpu.global.u64 [%p0], 5;",
      1);
  kernel.run(space, {2}, {1}, {memory}, {.resident_blocks = 2});
  EXPECT_EQ(space.get<std::uint64_t>(memory + 8), 5U);
  std::atomic<bool> stop = false;
  std::jthread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    stop = true;
  });
  space.put<std::uint64_t>(memory, 0);
  try {
    kernel.run(space, {2}, {1}, {memory}, {.resident_blocks = 1}, 0, stop);
    ADD_FAILURE() << "it came to an end";
  } catch (const Fault& fault) {
    EXPECT_EQ(fault.kind(), Fault::Kind::kStopped);
    EXPECT_THAT(fault.what(), HasSubstr("warp 0, lanes 0x00000001: runs at line"));
  }
}

TEST(Blocks, SayWhereTheyWaitWhenThatTakesLong) {
  TestSpace space;
  const std::uint64_t memory = space.add(64);
  const Kernel kernel("WAIT: ld.acquire.gpu.global.u64 %d1, [%p0]; setp.eq.u64 %q2, %d1, 0; @%q2 bra WAIT;",
                      1);
  std::string text;
  Settings settings{.patience = std::chrono::milliseconds(0)};
  settings.on_patience_lost = [&](const std::string& why) {
    text = why;
    space.put<std::uint64_t>(memory, 1);
  };
  kernel.run(space, {1}, {40}, {memory}, settings);
  EXPECT_THAT(text, HasSubstr("has waited long"));
  EXPECT_THAT(text, HasSubstr("warp 1, lanes 0x000000ff: runs at line"));
}

/// Gives one place at a time, and the second only after `second` is set.
class TwoPlaces final : public Residency {
 public:
  std::size_t take(std::size_t, const std::function<bool()>& given_up) override {
    while (taken_ > 0 && !second && !given_up()) std::this_thread::yield();
    if (given_up()) return 0;
    ++taken_;
    return 1;
  }
  void give_back() override { ++given_back; }
  std::atomic<bool> second = false;
  std::atomic<int> given_back = 0;

 private:
  int taken_ = 0;
};

TEST(Blocks, BecomeResidentWhenThereIsRoom) {
  TestSpace space;
  const std::uint64_t memory = space.add(64);
  // Block 0 waits for a word from block 1, which has no place at first.
  const Kernel kernel(
      "mov.u32 %r1, %ctaid.x; setp.eq.u32 %q1, %r1, 1; @%q1 bra GIVE;\nWAIT: ld.acquire.gpu.global.u64 %d1, "
      "[%p0];"
      "setp.eq.u64 %q2, %d1, 0; @%q2 bra WAIT; ret;\n"
      "GIVE: st.release.gpu.global.u64 [%p0], 5;",
      1);
  TwoPlaces places;
  int seen = 0;
  std::vector<std::string> texts;
  std::mutex mutex;
  Settings settings{.residency = &places, .patience = std::chrono::milliseconds(0)};
  settings.on_patience_lost = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    texts.push_back(text);
    const bool waits = text.find("block (0, 0, 0)") != std::string::npos;
    seen += waits ? 1 : text.find("more than 1 of 2") != std::string::npos ? 2 : 0;
    places.second = seen == 3;  // both
  };
  kernel.run(space, {2}, {1}, {memory}, settings);
  EXPECT_EQ(space.get<std::uint64_t>(memory), 5U);
  EXPECT_EQ(places.given_back, 2);
  EXPECT_THAT(texts, ::testing::Contains(HasSubstr("long for room for more than 1 of 2 blocks")));
}

TEST(Faults, SayWhatAndWhere) {
  TestSpace space;
  const std::uint64_t memory = space.add(64);
  const auto fault =
      fault_of(Kernel("mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mad.lo.u32 %r1, %r2, 16, %r1; setp.ne.u32 "
                      "%q1, %r1, 37; @%q1 ret;\nadd.u64 %p0, %p0, 3;\nld.global.u32 %r2, [%p0];",
                      1),
               space, {1}, {16, 4}, {memory});
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->kind(), Fault::Kind::kMisaligned);
  EXPECT_EQ(fault->place().kernel, "k");
  EXPECT_EQ(fault->place().block, (Dim{0, 0, 0}));
  EXPECT_EQ(fault->place().thread, (Dim{5, 2, 0}));
  EXPECT_EQ(fault->place().line, 11);
  EXPECT_EQ(fault->place().text, "ld.global.u32 %r2, [%p0]");
}

TEST(Faults, AreFoundInEveryKindOfMemory) {
  using Kind = Fault::Kind;
  EXPECT_EQ(kind_of("ld.global.u32 %r1, [%p0];"), Kind::kNeverWritten);
  EXPECT_EQ(kind_of("ld.global.u32 %r1, [%p0+4096];"), Kind::kForeignAddress);
  EXPECT_EQ(kind_of("st.u64 [%p0+4092], %d1;"), Kind::kMisaligned);
  EXPECT_EQ(kind_of("mov.b64 %d1, 16; st.u64 [%d1], %d1;"), Kind::kForeignAddress);
  EXPECT_EQ(kind_of(".shared .b64 s[2]; ld.shared.u64 %d1, [s];"), Kind::kNeverWritten);
  EXPECT_EQ(kind_of(".shared .b64 s[2]; st.shared.u64 [s+16], 0;"), Kind::kForeignAddress);
  EXPECT_EQ(kind_of(".shared .b64 s[2]; st.shared.u64 [s+4], 0;"), Kind::kMisaligned);
  EXPECT_EQ(kind_of(".local .b64 s[2]; ld.local.u64 %d1, [s];"), Kind::kNeverWritten);
  EXPECT_EQ(kind_of(".local .b64 s[2]; st.local.u64 [s+1600], 0;"), Kind::kForeignAddress);
  EXPECT_EQ(kind_of("ld.param.u64 %d1, [p0+8];"), Kind::kForeignAddress);
  EXPECT_EQ(kind_of("mov.b64 %d1, p0; cvta.param.u64 %d1, %d1; st.u64 [%d1], 0;"), Kind::kReadOnly);
  EXPECT_EQ(kind_of("mov.u32 %r1, 0; div.u32 %r2, 5, %r1;"), Kind::kDivideByZero);
  EXPECT_EQ(kind_of("trap;"), Kind::kTrap);
}

TEST(Faults, AreFoundInVotesAndBarriers) {
  using Kind = Fault::Kind;
  const std::string odd = "mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 1; setp.ne.u32 %q1, %r2, 0;\n";
  for (const Settings& settings : {Settings{}, kSeparately}) {
    EXPECT_EQ(kind_of(odd + "@%q1 exit; bar.warp.sync -1;", settings), Kind::kVote);  // names the exited
    EXPECT_EQ(kind_of(odd + "@%q1 bra E; bar.warp.sync -1; ret; E: exit;", settings),
              Kind::kVote);                                              // who exit while it waits
    EXPECT_EQ(kind_of("bar.warp.sync 1;", settings), Kind::kVote);       // not in its own mask
    EXPECT_EQ(kind_of("bar.warp.sync -1;", settings, 20), Kind::kVote);  // never were
    EXPECT_EQ(kind_of(odd + "selp.b32 %r3, -1, 0x55555555, %q1; bar.warp.sync %r3;", settings), Kind::kVote);
    EXPECT_EQ(
        kind_of(odd + "@%q1 bra E; bar.warp.sync -1; ret; E: vote.sync.all.pred %q2, %q1, -1;", settings),
        Kind::kVote);
    EXPECT_EQ(kind_of("bar.sync 16;", settings), Kind::kBarrier);
    EXPECT_EQ(kind_of("bar.sync 0, 40;", settings), Kind::kBarrier);
    const std::string first_warp = "mov.u32 %r1, %tid.x; setp.lt.u32 %q1, %r1, 32;\n";
    EXPECT_EQ(
        kind_of(first_warp + "@%q1 bra E; bar.sync 0; ret; E: bar.red.or.pred %q2, 0, %q1;", settings, 64),
        Kind::kBarrier);
    EXPECT_EQ(kind_of(first_warp + "@%q1 bra E; bar.sync 0; ret; E: bar.sync 1;", settings, 64),
              Kind::kDeadlock);
    EXPECT_EQ(kind_of(first_warp + "@%q1 exit; bar.sync 0, 64;", settings, 64), Kind::kDeadlock);
  }
}

TEST(Faults, SayWhoWaitsWhereInADeadlock) {
  TestSpace space;
  const auto fault = fault_of(
      Kernel("mov.u32 %r1, %tid.x; setp.lt.u32 %q1, %r1, 32; @%q1 bra E;\nbar.sync 0; ret;\nE: bar.sync 1;"),
      space, {1}, {64}, {});
  ASSERT_TRUE(fault);
  EXPECT_THAT(fault->what(),
              HasSubstr("warp 0, lanes 0xffffffff: waits in a barrier at line 10: bar.sync 1"));
  EXPECT_THAT(fault->what(), HasSubstr("warp 1, lanes 0xffffffff: waits in a barrier at line 9: bar.sync 0"));
}

TEST(Launches, AreChecked) {
  TestSpace space;
  const Kernel kernel("", 1);
  EXPECT_THROW(kernel.run(space, {1}, {1}, {}), std::invalid_argument);
  EXPECT_THROW(kernel.run(space, {1}, {1025}, {0}), std::invalid_argument);
  EXPECT_THROW(kernel.run(space, {1}, {1, 0, 1}, {0}), std::invalid_argument);
  EXPECT_THROW(kernel.run(space, {0}, {1}, {0}), std::invalid_argument);
  kernel.run(space, {2, 2, 2}, {4, 4, 4}, {0});
}

}  // namespace
}  // namespace virtual_gpu::run
