#include "device/link/shared_memory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/error.hpp"

namespace loom::device {
namespace {

std::set<std::string> shared_memory_files() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) names.insert(entry.path());
  return names;
}

TEST(Segment, IsSharedWithAnotherProcessAndLeavesNothingBehindWhenKilled) {
  const auto before = shared_memory_files();
  int channel[2];
  ASSERT_EQ(::pipe(channel), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Segment segment = Segment::create(1 << 20);
    std::strcpy(reinterpret_cast<char*>(segment.data()), "from the child");
    const SegmentHandle handle = segment.handle();
    if (::write(channel[1], &handle, sizeof(handle)) != sizeof(handle)) ::_exit(1);
    while (true) ::pause();
  }
  SegmentHandle handle;
  ASSERT_EQ(::read(channel[0], &handle, sizeof(handle)), static_cast<ssize_t>(sizeof(handle)));
  const Segment attached = Segment::attach(handle);
  EXPECT_STREQ(reinterpret_cast<const char*>(attached.data()), "from the child");
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_STREQ(reinterpret_cast<const char*>(attached.data()), "from the child")
      << "a mapping outlives its owner";
  EXPECT_EQ(shared_memory_files(), before);
  ::close(channel[0]);
  ::close(channel[1]);
}

TEST(Segment, IsZeroedAndAligned) {
  const Segment segment = Segment::create(100);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(segment.data()) % 64, 0U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(segment.data()[i], std::byte{0});
}

TEST(Segment, IsOneMemoryWithinAProcess) {
  const Segment created = Segment::create(64);
  EXPECT_EQ(Segment::attach(created.handle()).data(), created.data());
}

TEST(Segment, RefusesAHandleThatNamesSomethingElse) {
  const Segment created = Segment::create(64);
  SegmentHandle wrong = created.handle();
  wrong.token ^= 1;
  EXPECT_THROW(Segment::attach(wrong), Error);
  wrong = created.handle();
  wrong.bytes += 1;
  wrong.token ^= 1;
  EXPECT_THROW(Segment::attach(wrong), Error);
  wrong = created.handle();
  wrong.pid = 1 << 30;
  try {
    Segment::attach(wrong);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnreachable);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("No such file or directory"));
  }
}

/// It has no name that another user could open, and /proc lets nobody in who may not trace the process.
TEST(Segment, IsOutOfReachOfOtherUsers) {
  if (::geteuid() != 0) GTEST_SKIP() << "skipped: only root can be another user";
  const Segment created = Segment::create(64);
  const SegmentHandle handle = created.handle();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    constexpr unsigned kNobody = 65534;
    if (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) ::_exit(2);
    try {
      Segment::attach(handle);
      ::_exit(1);
    } catch (const Error& error) {
      const bool says_why =
          std::strstr(error.what(), "Permission denied (it runs as another user") != nullptr;
      ::_exit(error.code() == ErrorCode::kUnreachable && says_why ? 0 : 3);
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(Segment, SaysHowMuchWasMissing) {
  // A limit on file size simulates full memory, which the test must not cause.
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{4096, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  try {
    Segment::create(1 << 20);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("Allocating 1048640 bytes of shared memory failed"));
  }
  setrlimit(RLIMIT_FSIZE, &before);
}

}  // namespace
}  // namespace loom::device
