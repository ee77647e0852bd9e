#include <algorithm>

#include "tests/virtual_gpu/machine/clock.hpp"

#include <gmock/gmock.h>
#include <sys/wait.h>

#include "tests/virtual_gpu/machine/machine_cases.hpp"

namespace virtual_gpu::machine {
namespace {

/// Eight H100: 450 GB/s to the switch and from it.
class Clock : public ::testing::Test {
 protected:
  /// 450,000 bytes take 1,000 ns alone.
  Ns copy(std::size_t from, std::size_t to, Ns earliest = 0) {
    return carry(gpu(from), gpu(to), 450'000, earliest);
  }
  Ns carry(Place from, Place to, std::uint64_t bytes, Ns earliest = 0) {
    return clock_.carry(machine_.index_of(from), machine_.index_of(to), bytes, earliest);
  }
  Machine machine_ = carried("dgxh100.xml");
  SharedState state_{machine_, ""};
  VirtualClock clock_{machine_, state_};
};

TEST_F(Clock, GivesATransferAloneAllOfItsRoute) {
  EXPECT_DOUBLE_EQ(copy(0, 1, 100), 100 + 1000);
  EXPECT_DOUBLE_EQ(clock_.latency(machine_.index_of(gpu(0)), machine_.index_of(gpu(1))), 450);
}
TEST_F(Clock, LetsTransfersAloneThatShareNoLink) {
  for (const auto& [from, to] : {std::pair{0, 1}, {1, 0}, {2, 3}})
    EXPECT_DOUBLE_EQ(copy(static_cast<std::size_t>(from), static_cast<std::size_t>(to)), 1000);
}
TEST_F(Clock, TakesTwiceAsLongForTwoThatShareALink) {
  copy(0, 1);
  EXPECT_DOUBLE_EQ(copy(0, 2), 2000);  // the way out of GPU 0
  EXPECT_DOUBLE_EQ(copy(3, 1), 2000);  // the way into GPU 1
  EXPECT_DOUBLE_EQ(copy(1, 3), 1000);
}
TEST_F(Clock, UsesWhatIsFreeBeforeLaterTransfers) {
  EXPECT_DOUBLE_EQ(copy(0, 1, 5000), 6000);
  EXPECT_DOUBLE_EQ(copy(0, 2, 1000), 2000);
  EXPECT_DOUBLE_EQ(copy(0, 3, 4500), 6500);  // half of it before the first, half behind it
  EXPECT_DOUBLE_EQ(copy(0, 4, 1500), 3000);
}
TEST_F(Clock, NeverGivesOutMoreThanALinkHas) {
  Ns last = 0;
  for (std::size_t to = 7; to > 0; --to) last = std::max(last, copy(0, to, 100. * static_cast<Ns>(to)));
  EXPECT_NEAR(last, 100 + 7 * 1000, 1e-6);  // the link is busy from the first on
}
TEST_F(Clock, CopiesWithinMemoryAtHalfItsBandwidth) {
  EXPECT_DOUBLE_EQ(carry(gpu_memory(0), gpu_memory(0), 3'350'000), 2000);
}
TEST_F(Clock, IsSetByTheSlowestLinkOfARoute) {
  const double pcie = machine_.route(gpu_memory(0), host_memory(0)).gbps;
  EXPECT_LT(pcie, 64);
  EXPECT_DOUBLE_EQ(carry(gpu_memory(0), host_memory(0), 1'000'000), 1'000'000 / pcie);
}
TEST_F(Clock, KeepsWithinItsLinksHoweverManyGapsThereAre) {
  Ns last = 0;
  for (int i = 0; i < 200; ++i) last = copy(0, 1, 2000. * i);
  EXPECT_DOUBLE_EQ(last, 2000. * 199 + 1000);
  EXPECT_DOUBLE_EQ(copy(0, 1, 2000. * 198 + 1000), 2000. * 198 + 2000);  // gaps of late are still there
  EXPECT_GE(copy(0, 1), 1000);                                           // those of long ago count as taken
}
TEST_F(Clock, OfTheHostOnlyGoesForward) {
  clock_.spend(100);
  clock_.wait_until(50);
  EXPECT_DOUBLE_EQ(clock_.now(), 100);
  clock_.wait_until(250);
  clock_.spend(-10);
  EXPECT_DOUBLE_EQ(clock_.now(), 250);
}

TEST(SharedClock, SharesLinksWithWhatOtherProcessesMove) {
  const Machine machine = carried("dgxh100.xml");
  const auto at = [&](std::size_t index) { return machine.index_of(gpu(index)); };
  const Folder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    const SharedState state(machine, folder.path());
    VirtualClock(machine, state).carry(at(0), at(1), 450'000, 0);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  const SharedState state(machine, folder.path());
  VirtualClock clock(machine, state);
  EXPECT_DOUBLE_EQ(clock.carry(at(0), at(2), 450'000, 0), 2000);
  EXPECT_DOUBLE_EQ(clock.now(), 0);  // each process has its own
}

}  // namespace
}  // namespace virtual_gpu::machine
