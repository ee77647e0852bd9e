#include "topo/xml_file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "topo/utf8.hpp"

namespace loom::topo {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class WriteTextFile : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const char* name) const { return (folder_ / name).string(); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }
  static mode_t mode(const std::string& path) {
    struct stat status {};
    EXPECT_EQ(::stat(path.c_str(), &status), 0);
    return status.st_mode & 07777;
  }
  static std::string complaint(const std::string& path, const std::string& text) {
    try {
      write_text_file(path, text);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }

 private:
  const fs::path folder_ =
      fs::path(::testing::TempDir()) / ("loom-write-text-file-" + std::to_string(getpid()));
};

TEST_F(WriteTextFile, ReplacesAFileAndKeepsItsRights) {
  write_text_file(path("a"), "one");
  EXPECT_EQ(read_text_file(path("a")), "one");
  ASSERT_EQ(::chmod(path("a").c_str(), 0600), 0);
  write_text_file(path("a"), "two");
  EXPECT_EQ(read_text_file(path("a")), "two");
  EXPECT_EQ(mode(path("a")), 0600U);
  EXPECT_EQ(files(), 1);
}

TEST_F(WriteTextFile, GivesANewFileTheRightsThatTheUserWants) {
  const mode_t before = ::umask(027);
  write_text_file(path("a"), "one");
  ::umask(before);
  EXPECT_EQ(mode(path("a")), 0640U);
}

TEST_F(WriteTextFile, FollowsLinks) {
  write_text_file(path("a"), "one");
  fs::create_symlink(path("a"), path("link"));
  fs::create_symlink(path("b"), path("to-nothing"));
  write_text_file(path("link"), "two");
  write_text_file(path("to-nothing"), "three");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(read_text_file(path("a")), "two");
  EXPECT_EQ(read_text_file(path("b")), "three");
}

TEST_F(WriteTextFile, WritesIntoPipesAndDevices) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const int reader = ::open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  write_text_file(path("pipe"), "through");
  char text[16] = {};
  EXPECT_EQ(::read(reader, text, sizeof text), 7);
  EXPECT_STREQ(text, "through");
  ::close(reader);
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
  EXPECT_THAT(complaint("/dev/full", "text"), HasSubstr("cannot write /dev/full: No space"));
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

TEST_F(WriteTextFile, AddsToTheFileThatItsOwnOutputGoesTo) {
  std::fflush(stderr);
  const int before = ::dup(STDERR_FILENO), log = ::open(path("log").c_str(), O_WRONLY | O_CREAT, 0600);
  ::dup2(log, STDERR_FILENO);
  ASSERT_EQ(::write(STDERR_FILENO, "first ", 6), 6);
  write_text_file("/dev/stderr", "second");
  ::dup2(before, STDERR_FILENO);
  ::close(before), ::close(log);
  EXPECT_EQ(read_text_file(path("log")), "first second");
}

TEST_F(WriteTextFile, LeavesNothingBehindWhereItFails) {
  write_text_file(path("a"), "one");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{1000, before.rlim_max};
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string told = complaint(path("a"), std::string(2000, 'x'));
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_THAT(told, HasSubstr("cannot write " + path("a") + ":"));
  EXPECT_EQ(read_text_file(path("a")), "one");
  EXPECT_EQ(files(), 1);
  EXPECT_THAT(complaint(path("no/such/folder"), "text"),
              HasSubstr("cannot write " + path("no/such/folder") + ": No such"));
  EXPECT_THAT(complaint(path("").substr(0, path("").size() - 1), "text"), HasSubstr("Is a directory"));
}

TEST_F(WriteTextFile, BlamesTheFolderThatTakesNoNewFile) {
  // A file that may be written, in a folder where not even root may make one.
  EXPECT_THAT(complaint("/proc/self/comm", "text"),
              HasSubstr("cannot write /proc/self/comm: its folder takes no new file"));
}

TEST(Utf8, IsToldFromOtherBytes) {
  for (const char* good : {"", "plain", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"})
    EXPECT_EQ(valid_utf8(good), good);
  for (const char* bad :
       {"\xff", "\x80", "\xc0\xaf", "\xc3", "\xe2\x82", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe0\x80\x80"})
    EXPECT_EQ(valid_utf8("ok" + std::string(bad)), "ok");
  EXPECT_EQ(first_characters("a\xc3\xa9z", 2), "a\xc3\xa9");
  EXPECT_EQ(first_characters("a\xc3\xa9z", 9), "a\xc3\xa9z");
  EXPECT_EQ(character_count("a\xc3\xa9z"), 3);
}

}  // namespace
}  // namespace loom::topo
