#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <thread>

#include "base/format.hpp"
#include "device/link/peer_memory.hpp"
#include "tools/doctor/machine.hpp"

namespace loom::tools {
namespace {

int allowed_cpus() {
  cpu_set_t cpus;
  return ::sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
}

/// Of the container, in CPUs; 0: there is none. (cgroup v2's cpu.max: "quota period" or "max period".)
double cpu_limit(const std::string& cgroup) {
  std::ifstream file(cgroup + "/cpu.max");
  double quota = 0, period = 0;
  return file >> quota >> period && period > 0 ? quota / period : 0;
}

void look_at_cpus(Findings& findings, bool is_bound, const std::string& cgroup) {
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  const int cpus = is_bound ? static_cast<int>(online) : allowed_cpus();
  const double limit = cpu_limit(cgroup);
  if (limit > 0 && limit < cpus) {
    findings.warn(
        "CPUs", loom::format("{}, but the container's limit is {:.1f}", cpus, limit),
        loom::format("at most {} ranks here, or a higher limit: ranks that wait are stopped meanwhile",
                     std::max(1, static_cast<int>(limit))));
  } else if (cpus < online) {
    findings.warn(
        "CPUs", loom::format("{} of {} may be used", cpus, online),
        "a batch system or taskset has bound this process; ranks inherit that unless mpirun binds them");
  } else {
    findings.fine("CPUs", loom::format("{0}: one each for up to {0} ranks", cpus));
  }
}

/// What the exit code of a forked process says.
template <class Body>
bool in_child(Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body() ? 0 : 1);
  int status = 1;
  return child > 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// Of a process with the same parent, as a rank reads another rank's memory.
bool may_read_sibling(bool is_permitted_by_it) {
  static std::uint64_t word;
  word = 0x1005e1f;
  int ready[2], done[2];
  if (::pipe(ready) != 0) return false;
  if (::pipe(done) != 0) {
    ::close(ready[0]);
    ::close(ready[1]);
    return false;
  }
  const pid_t sibling = ::fork();
  if (sibling == 0) {
    if (is_permitted_by_it) ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    char byte = 0;
    ::close(done[1]);
    if (::write(ready[1], &byte, 1) == 1) (void)!::read(done[0], &byte, 1);  // until the other end is closed
    ::_exit(0);
  }
  char byte;
  ::close(ready[1]);
  const bool is_there = sibling > 0 && ::read(ready[0], &byte, 1) == 1;
  const bool may =
      is_there && in_child([&] {
        return device::can_read_peer_memory(sibling, reinterpret_cast<const std::byte*>(&word), word);
      });
  for (const int end : {ready[0], done[0], done[1]}) ::close(end);
  if (sibling > 0) ::waitpid(sibling, nullptr, 0);
  return may;
}

void look_at_single_copies(Findings& findings) {
  if (may_read_sibling(false)) return findings.fine("single copy", "ranks may read each other's memory");
  int scope = -1;
  std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> scope;
  if (may_read_sibling(true))
    return findings.fine("single copy",
                         loom::format("ranks may read each other's memory where Open MPI permits it "
                                      "(ptrace_scope is {})",
                                      scope));
  const std::string cure = scope >= 1 ? loom::format("sysctl kernel.yama.ptrace_scope={}", scope > 1 ? 1 : 0)
                                      : "in a container: --cap-add SYS_PTRACE";
  findings.warn("single copy",
                scope >= 1 ? loom::format("ranks may not read each other's memory: ptrace_scope is {}", scope)
                           : "ranks may not read each other's memory: the container forbids it",
                cure + "; without it large messages are copied twice");
}

void look_at_descriptors(Findings& findings) {
  constexpr rlim_t kEnough = 1024;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  if (limit.rlim_cur >= kEnough)
    findings.fine("open files",
                  limit.rlim_cur == RLIM_INFINITY ? "no limit" : loom::format("up to {}", limit.rlim_cur));
  else
    findings.warn(
        "open files",
        loom::format("no more than {} in a process; UCX takes up to 8 for each rank of another host",
                     limit.rlim_cur),
        limit.rlim_max >= kEnough
            ? loom::format("ulimit -n {}", kEnough)
            : loom::format("the hard limit is {}: have it raised (nofile in /etc/security/limits.conf)",
                           limit.rlim_max));
}

/// loom's own segments are not there.
void look_at_shared_memory(Findings& findings, const std::string& folder) {
  constexpr std::uint64_t kOfOneRank = std::uint64_t{64} << 20;  // the segment of Open MPI's vader and sm
  struct statvfs system {};
  if (::statvfs(folder.c_str(), &system) != 0)
    return findings.warn(kSharedMemoryTopic, loom::format("there is no {}", folder),
                         "Open MPI needs it between ranks of a host, loom does not");
  const std::uint64_t free = std::uint64_t{system.f_bavail} * system.f_frsize;
  const std::uint64_t wanted =
      kOfOneRank / 16 * static_cast<std::uint64_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  const std::string text = loom::format("{} has {} MiB left", folder, free >> 20);
  if (free >= wanted)
    findings.fine(kSharedMemoryTopic, text);
  else
    findings.warn(kSharedMemoryTopic, text,
                  "docker run --shm-size 1g, or remount it: Open MPI needs some MiB a rank there, loom none");
}

}  // namespace

void look_at_host(Findings& findings, bool is_bound, const std::string& cgroup,
                  const std::string& shared_memory) {
  look_at_cpus(findings, is_bound, cgroup);
  look_at_single_copies(findings);
  look_at_shared_memory(findings, shared_memory);
  look_at_descriptors(findings);
}

}  // namespace loom::tools
