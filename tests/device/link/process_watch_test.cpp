#include "device/link/process_watch.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace loom::device {
namespace {

TEST(ProcessWatch, SeesThisProcessAlive) {
  const ProcessId self = this_process();
  EXPECT_EQ(self.pid, ::getpid());
  EXPECT_NE(self.start_time, 0U);
  EXPECT_TRUE(is_alive(self));
}

// With a start time of 0 none is ever declared dead.
TEST(ProcessWatch, KnowsProcessesAsTheyAreSeenHere) {
  ProcessId other_clock = this_process();
  const std::uint64_t start_time = other_clock.start_time;
  other_clock.start_time += 1000;
  EXPECT_EQ(as_seen_here(other_clock).start_time, start_time);
  constexpr std::int64_t kNobody = std::int64_t{1} << 40;
  EXPECT_EQ(as_seen_here({kNobody, 1}).start_time, 0U);
  EXPECT_TRUE(is_alive(as_seen_here({kNobody, 1})));
  EXPECT_EQ(as_seen_here({::getpid(), 0}).start_time, 0U);
}

TEST(ProcessWatch, TakesAReusedIdForAnotherProcess) {
  ProcessId earlier = this_process();
  earlier.start_time -= 1;
  EXPECT_FALSE(is_alive(earlier));
}

TEST(ProcessWatch, SeesAStoppedProcessAndAKilledOneBeforeAndAfterItsParentCollectsIt) {
  int channel[2];
  ASSERT_EQ(::pipe(channel), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const ProcessId self = this_process();
    if (::write(channel[1], &self, sizeof(self)) != sizeof(self)) ::_exit(1);
    while (true) ::pause();
  }
  ProcessId process;
  ASSERT_EQ(::read(channel[0], &process, sizeof(process)), static_cast<ssize_t>(sizeof(process)));
  EXPECT_TRUE(is_alive(process));
  EXPECT_FALSE(is_stopped(process));
  siginfo_t ignored;
  ::kill(child, SIGSTOP);
  ::waitid(P_PID, static_cast<id_t>(child), &ignored, WSTOPPED);
  EXPECT_TRUE(is_alive(process));
  EXPECT_TRUE(is_stopped(process));
  ::kill(child, SIGKILL);
  ::waitid(P_PID, static_cast<id_t>(child), &ignored, WEXITED | WNOWAIT);  // dead, not yet collected
  EXPECT_FALSE(is_alive(process));
  EXPECT_FALSE(is_stopped(process));
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(is_alive(process));
  ::close(channel[0]);
  ::close(channel[1]);
}

}  // namespace
}  // namespace loom::device
