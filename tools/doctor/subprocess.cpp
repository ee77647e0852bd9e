#include "tools/doctor/subprocess.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <thread>

namespace loom::tools {
namespace {

/// The reading end of what a child writes.
class Output {
 public:
  Output() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) ends_ = {-1, -1};
  }
  ~Output() {
    close_end(0);
    close_end(1);
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  int to_read() const { return ends_[0]; }
  int to_write() const { return ends_[1]; }
  void is_the_childs() { close_end(1); }
  /// Takes what is there; at its end there is nothing more to read.
  void take(std::string& text) {
    std::array<char, 4096> room;
    const ssize_t bytes = ::read(to_read(), room.data(), room.size());
    if (bytes > 0)
      text.append(room.data(), static_cast<std::size_t>(bytes));
    else if (bytes == 0 || errno != EINTR)
      close_end(0);
  }

 private:
  void close_end(std::size_t end) {
    if (ends_[end] >= 0) ::close(ends_[end]);
    ends_[end] = -1;
  }
  std::array<int, 2> ends_;
};

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

/// As environ, with these in place of variables of the same name.
std::vector<std::string> environment_with(const std::vector<std::string>& more) {
  std::vector<std::string> all = more;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const std::string name = text.substr(0, text.find('=') + 1);
    bool is_replaced = false;
    for (const std::string& other : more) is_replaced |= other.starts_with(name);
    if (!is_replaced) all.push_back(text);
  }
  return all;
}

/// Its process id, or -1.
pid_t start(const std::vector<std::string>& command, const std::vector<std::string>& environment,
            const Output& out, const Output& err) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.to_write(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.to_write(), STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  const std::vector<std::string> variables = environment_with(environment);
  pid_t pid;
  const int error = ::posix_spawnp(&pid, command.front().c_str(), &actions, &attributes,
                                   pointers_to(command).data(), pointers_to(variables).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? pid : -1;
}

/// A launcher that is asked to end takes with it what it has started, elsewhere too.
void end(pid_t pid, int& status) {
  constexpr int kLooks = 300;  // 3 s
  ::kill(-pid, SIGTERM);
  for (int look = 0; look < kLooks; ++look) {
    if (::waitpid(pid, &status, WNOHANG) != 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ::kill(-pid, SIGKILL);
  ::waitpid(pid, &status, 0);
}

}  // namespace

Ended run(const std::vector<std::string>& command, std::chrono::seconds limit,
          const std::vector<std::string>& environment) {
  Ended ended;
  Output out, err;
  if (out.to_read() < 0 || err.to_read() < 0) return ended;
  const pid_t pid = start(command, environment, out, err);
  if (pid < 0) return ended;
  out.is_the_childs();
  err.is_the_childs();
  const auto until = std::chrono::steady_clock::now() + limit;
  bool is_late = false;
  while (!is_late && (out.to_read() >= 0 || err.to_read() >= 0)) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    std::array<pollfd, 2> ends{pollfd{out.to_read(), POLLIN, 0}, pollfd{err.to_read(), POLLIN, 0}};
    is_late = left.count() <= 0 || ::poll(ends.data(), ends.size(), static_cast<int>(left.count())) == 0;
    if (is_late) break;
    if (ends[0].revents != 0) out.take(ended.out);
    if (ends[1].revents != 0) err.take(ended.err);
  }
  int status = 0;
  while (!is_late && ::waitpid(pid, &status, WNOHANG) == 0) {  // it may live on after its outputs
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    is_late = std::chrono::steady_clock::now() > until;
  }
  if (is_late) end(pid, status);
  ended.exit_code = is_late               ? Ended::kTookTooLong
                    : WIFEXITED(status)   ? WEXITSTATUS(status)
                    : WIFSIGNALED(status) ? 128 + WTERMSIG(status)
                                          : Ended::kNotStarted;
  return ended;
}

}  // namespace loom::tools
