// A file descriptor in another process, and without pidfd_getfd: as where the kernel does not permit it, a
// process that is not there is named.
#include "device/link/passed_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

#include "base/error.hpp"

namespace loom::device {
namespace {

constexpr std::int64_t kNobody = 0;

class PassedFileTest : public ::testing::Test {
 protected:
  ~PassedFileTest() override { ::close(fd_); }
  /// Whether it is the same file, and closed on exec.
  bool is_mine(int fd) const {
    struct stat mine {
    }, taken{};
    const bool same = ::fstat(fd_, &mine) == 0 && ::fstat(fd, &taken) == 0 && mine.st_ino == taken.st_ino &&
                      (::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0;
    ::close(fd);
    return same;
  }
  static void expect_unreachable(const PassedFile& file) {
    try {
      ::close(take_file(kNobody, file));
      FAIL() << "it can be taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnreachable);
    }
  }
  const int fd_ = ::memfd_create("passed_file_test", MFD_CLOEXEC);
};

TEST_F(PassedFileTest, IsTakenFromAProcessOrFromItsSocket) {
  const FileGiver giver(fd_);
  EXPECT_TRUE(is_mine(take_file(::getpid(), giver.file())));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(is_mine(take_file(kNobody, giver.file())));
}

TEST_F(PassedFileTest, IsTakenByAnotherProcess) {
  const FileGiver giver(fd_);
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      ::_exit(is_mine(take_file(kNobody, giver.file())) ? 0 : 1);
    } catch (const Error&) {
      ::_exit(2);
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_F(PassedFileTest, IsForThoseAloneWhoKnowItsSecret) {
  const FileGiver giver(fd_);
  PassedFile guessed = giver.file();
  ++guessed.secret;
  expect_unreachable(guessed);
  EXPECT_TRUE(is_mine(take_file(kNobody, giver.file())));
}

TEST_F(PassedFileTest, IsNotTakenOnceNobodyGivesIt) {
  auto giver = std::make_unique<FileGiver>(fd_);
  const PassedFile file = giver->file();
  giver.reset();
  expect_unreachable(file);
  expect_unreachable({.fd = fd_});
}

}  // namespace
}  // namespace loom::device
