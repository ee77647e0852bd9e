#include "device/link/process_watch.hpp"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>
#include <thread>

#include "device/link/peer_memory.hpp"

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

/// For as long as it lives: a child whose first thread has ended, and whose other one sleeps. It tells of
/// itself.
class ChildWithoutItsFirstThread {
 public:
  ChildWithoutItsFirstThread() {
    int channel[2];
    if (::pipe(channel) != 0) throw std::runtime_error("no pipe");
    child_ = ::fork();
    if (child_ == 0) {
      std::thread([end = channel[1]] {
        const ProcessId self = this_process();
        if (::write(end, &self, sizeof(self)) != sizeof(self)) ::_exit(1);
        while (true) ::pause();
      }).detach();
      ::syscall(SYS_exit, 0);  // of this thread; pthread_exit() would unwind through gtest
    }
    if (::read(channel[0], &process, sizeof(process)) != static_cast<ssize_t>(sizeof(process)))
      throw std::runtime_error("no word from the child");
    while (living_thread_of(child_, 0) == child_) ::sched_yield();
    ::close(channel[0]);
    ::close(channel[1]);
  }
  ~ChildWithoutItsFirstThread() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }

  ProcessId process;

 private:
  pid_t child_ = -1;
};

TEST(ProcessWatch, SeesAProcessAliveWhoseFirstThreadHasEnded) {
  const ChildWithoutItsFirstThread child;
  EXPECT_TRUE(is_alive(child.process));
  const auto thread = living_thread_of(child.process.pid, 0);
  ASSERT_TRUE(thread.has_value());
  EXPECT_NE(*thread, child.process.pid);
  EXPECT_EQ(living_thread_of(child.process.pid, *thread), std::nullopt);
  EXPECT_EQ(living_thread_of(std::int64_t{1} << 40, 0), std::nullopt);
}

TEST(PeerMemory, IsReadOfAProcessWhoseFirstThreadHasEnded) {
  const std::uint64_t word = 0x1122334455667788U;  // the child has it at the same address
  const auto* const from = reinterpret_cast<const std::byte*>(&word);
  const ChildWithoutItsFirstThread child;
  std::uint64_t copy = 0;
  try {
    read_peer_memory(child.process.pid, reinterpret_cast<std::byte*>(&copy), from, sizeof(copy));
  } catch (const ProcessEnded& ended) {
    FAIL() << ended.what();
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  EXPECT_EQ(copy, word);
}

}  // namespace
}  // namespace loom::device
