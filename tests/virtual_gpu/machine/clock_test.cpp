#include "tests/virtual_gpu/machine/clock.hpp"

#include <gmock/gmock.h>
#include <sys/wait.h>

#include "tests/virtual_gpu/machine/machine_cases.hpp"

namespace virtual_gpu::machine {
namespace {

/// Eight H100: 450 GB/s to the switch, and 450 ns to a peer.
class Clock : public ::testing::Test {
 protected:
  /// 450,000 bytes take 1,000 ns alone.
  VirtualClock::Ticket copy(std::size_t from, std::size_t to, Ns earliest = 0,
                            VirtualClock::Ticket after = {}) {
    return clock_.enqueue({{{gpu(from), gpu(to), 450'000}}}, earliest, after);
  }
  Machine machine_ = carried("dgxh100.xml");
  SharedState state_{machine_, ""};
  VirtualClock clock_{machine_, state_};
};

TEST_F(Clock, GivesATransferAloneAllOfItsRoute) {
  EXPECT_DOUBLE_EQ(clock_.end_of(copy(0, 1, 100)), 100 + 1000 + 450);
}
TEST_F(Clock, LetsTransfersAloneThatShareNoLink) {
  const auto a = copy(0, 1), b = copy(1, 0), c = copy(2, 3);
  for (const auto& ticket : {a, b, c}) EXPECT_DOUBLE_EQ(clock_.end_of(ticket), 1450);
}
TEST_F(Clock, DividesALinkAmongThoseThatPassIt) {
  const auto a = copy(0, 1), b = copy(0, 2), c = copy(3, 2);
  // a and b share the way out of GPU 0; b and c the way into GPU 2.
  for (const auto& ticket : {a, b, c}) EXPECT_DOUBLE_EQ(clock_.end_of(ticket), 2450);
}
TEST_F(Clock, DividesItAnewAsTransfersBeginAndEnd) {
  const auto first = copy(0, 1), second = copy(0, 2, 500);
  // The first: 500 ns alone, and the other half at half the rate.
  EXPECT_DOUBLE_EQ(clock_.end_of(first), 500 + 1000 + 450);
  EXPECT_DOUBLE_EQ(clock_.end_of(second), 1500 + 500 + 450);
}
TEST_F(Clock, NeverGivesOutMoreThanALinkHas) {
  std::vector<VirtualClock::Ticket> tickets;
  for (std::size_t to = 1; to < 8; ++to) tickets.push_back(copy(0, to, 100. * static_cast<Ns>(to)));
  Ns last = 0;
  for (const auto& ticket : tickets) last = std::max(last, clock_.end_of(ticket));
  EXPECT_NEAR(last, 100 + 7 * 1000 + 450, 1e-6);  // the link is busy from the first on
}
TEST_F(Clock, BeginsNothingBeforeThatWhichItComesAfter) {
  const auto first = copy(0, 1), second = copy(1, 2, 0, first), elsewhere = copy(4, 5, 2000);
  EXPECT_DOUBLE_EQ(clock_.end_of(second), 2 * 1450);
  const auto third = clock_.enqueue({{{gpu(2), gpu(3), 450'000}}}, 0, second, elsewhere);
  EXPECT_DOUBLE_EQ(clock_.end_of(third), 2000 + 2 * 1450);
  EXPECT_THROW(clock_.enqueue({}, 0, {third.first, third.count + 1}), std::invalid_argument);
}
TEST_F(Clock, CopiesWithinMemoryAtHalfItsBandwidth) {
  const auto copied = clock_.enqueue({{{gpu_memory(0), gpu_memory(0), 3'350'000}}}, 0);
  EXPECT_DOUBLE_EQ(clock_.end_of(copied), 2000 + 2 * 270);
}
TEST_F(Clock, EndsAnOperationWithItsLastMoveOrItsWork) {
  const std::vector<Move> moves{{gpu(0), gpu(1), 450'000}, {gpu(0), gpu_memory(0), 3'350'000}};
  EXPECT_DOUBLE_EQ(clock_.end_of(clock_.enqueue({moves, 0}, 0)), 1450);
  EXPECT_DOUBLE_EQ(clock_.end_of(clock_.enqueue({moves, 5000}, 10'000)), 15'000);
  EXPECT_DOUBLE_EQ(clock_.end_of(clock_.enqueue({{}, 70}, 100'000)), 100'070);
}
TEST_F(Clock, CountsInstructionsOfAllMultiprocessors) {
  EXPECT_DOUBLE_EQ(instructions_ns(machine_.gpus()[0], 1'045'440), 1000);  // 132 * 4 * 1.98 in each ns
}
TEST_F(Clock, TellsWhenTheLastTransferArrivesInAMemory) {
  EXPECT_DOUBLE_EQ(clock_.arrived(gpu_memory(1)), 0);
  clock_.enqueue({{{gpu(0), gpu_memory(1), 450'000}}}, 0);
  clock_.enqueue({{{gpu(0), gpu_memory(2), 450'000}}}, 7000);
  EXPECT_DOUBLE_EQ(clock_.arrived(gpu_memory(1)), 1000 + 450 + 270);
}
TEST_F(Clock, OfTheHostOnlyGoesForward) {
  clock_.spend(100);
  clock_.wait_until(50);
  EXPECT_DOUBLE_EQ(clock_.now(), 100);
  clock_.wait_until(250);
  clock_.spend(-10);
  EXPECT_DOUBLE_EQ(clock_.now(), 250);
}
TEST_F(Clock, KeepsTimeWhenItForgetsOldTransfers) {
  VirtualClock::Ticket last;
  constexpr int kCount = SharedState::kTransfers * 3 / 2;
  const auto first = copy(0, 1);
  last = first;
  for (int i = 1; i < kCount; ++i) last = copy(0, 1, 0, last);
  EXPECT_NEAR(clock_.end_of(last), 1450. * kCount, 1e-3);
  EXPECT_GE(clock_.end_of(first), 1450);  // no longer known exactly
  EXPECT_THROW(clock_.enqueue({std::vector<Move>(SharedState::kTransfers, {gpu(0), gpu(1), 1})}, 0),
               std::length_error);
}
TEST_F(Clock, EndsWithHugeTimesAndOddBytes) {
  VirtualClock::Ticket last;
  for (int i = 0; i < 7; ++i)
    last =
        clock_.enqueue({{{gpu_memory(0), gpu_memory(i % 3), 1'000'003u + static_cast<unsigned>(i)}}}, 1e13);
  EXPECT_GT(clock_.end_of(last), 1e13);
}

TEST(SharedClock, SharesLinksWithWhatOtherProcessesEnqueue) {
  const Machine machine = carried("dgxh100.xml");
  const Folder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    const SharedState state(machine, folder.path());
    VirtualClock(machine, state).enqueue({{{gpu(0), gpu(1), 450'000}}}, 0);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  const SharedState state(machine, folder.path());
  VirtualClock clock(machine, state);
  EXPECT_DOUBLE_EQ(clock.end_of(clock.enqueue({{{gpu(0), gpu(2), 450'000}}}, 0)), 2450);
  EXPECT_DOUBLE_EQ(clock.now(), 0);  // each process has its own
}

}  // namespace
}  // namespace virtual_gpu::machine
