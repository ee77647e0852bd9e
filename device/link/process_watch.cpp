#include "device/link/process_watch.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>

#include "base/error.hpp"
#include "base/format.hpp"

namespace loom::device {
namespace {

struct ProcessStat {
  char state = '?';
  int threads = 0;
  std::uint64_t start_time = 0;

  bool has_ended() const { return state == 'Z' || state == 'X'; }
};

/// Of a process, or of one of its threads ("12/task/13"). nullopt: there is no such process, or none that
/// this one may see. Throws Error (kSystem) where that cannot be found out.
std::optional<ProcessStat> read_stat(const std::string& of) {
  const int fd = ::open(loom::format("/proc/{}/stat", of).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT || errno == ESRCH) return std::nullopt;
    throw system_error("Reading /proc failed", errno);
  }
  std::array<char, 1024> text;
  const ssize_t length = ::read(fd, text.data(), text.size());
  const int read_error = errno;
  ::close(fd);
  if (length < 0 && read_error == ESRCH) return std::nullopt;
  if (length <= 0) throw system_error("Reading /proc failed", read_error);
  // "pid (name) state ...": the name may hold spaces and parentheses, so parsing starts behind the last one.
  const std::string line(text.data(), static_cast<std::size_t>(length));
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  ProcessStat stat;
  fields >> stat.state;
  std::string skipped;
  for (int field = 4; field < 20; ++field) fields >> skipped;
  fields >> stat.threads >> skipped;
  if (!(fields >> stat.start_time)) throw Error(ErrorCode::kSystem, "/proc has an unknown format.");
  return stat;
}

std::optional<ProcessStat> read_stat(std::int64_t pid) {
  return read_stat(std::to_string(pid));
}

/// Also where /proc cannot be seen any longer, as after chroot() or a change of user (hidepid).
bool is_there(std::int64_t pid) {
  return ::kill(static_cast<pid_t>(pid), 0) == 0 || errno != ESRCH;
}

}  // namespace

ProcessId this_process() {
  try {
    const auto stat = read_stat(::getpid());
    return {::getpid(), stat ? stat->start_time : 0};
  } catch (const std::exception&) {
    return {::getpid(), 0};
  }
}

ProcessId as_seen_here(const ProcessId& process) {
  if (process.start_time == 0) return process;
  try {
    const auto stat = read_stat(process.pid);
    return {process.pid, stat ? stat->start_time : 0};
  } catch (const std::exception&) {
    return {process.pid, 0};
  }
}

bool is_alive(const ProcessId& process) {
  if (process.start_time == 0) return true;
  try {
    const auto stat = read_stat(process.pid);
    if (!stat) return is_there(process.pid);
    // The state is that of the first thread, which may end before the others.
    return stat->start_time == process.start_time && (!stat->has_ended() || stat->threads > 1);
  } catch (const std::exception&) {
    return true;  // for example no free descriptor: no reason to declare a process dead
  }
}

std::optional<std::int64_t> living_thread_of(std::int64_t pid, std::int64_t except) {
  try {
    for (const auto& task : std::filesystem::directory_iterator(loom::format("/proc/{}/task", pid))) {
      const std::string name = task.path().filename().string();
      const auto stat = read_stat(loom::format("{}/task/{}", pid, name));
      const std::int64_t thread = std::stoll(name);
      if (thread != except && stat && !stat->has_ended()) return thread;
    }
  } catch (const std::exception&) {
  }
  return std::nullopt;
}

bool is_stopped(const ProcessId& process) {
  try {
    const auto stat = read_stat(process.pid);
    return stat && stat->start_time == process.start_time && (stat->state == 'T' || stat->state == 't');
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace loom::device
