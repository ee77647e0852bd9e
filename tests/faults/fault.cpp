#include "tests/faults/fault.hpp"

#include <mpi.h>

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <vector>

// What the program puts in place of the C library's functions, for itself and for all libraries.

namespace {

int record_fd = -1;
/// Added to the seconds of CLOCK_REALTIME.
std::atomic<std::time_t> clock_jump{0};

/// Allocations are counted where loom makes them, and libstdc++ for it; nothing else here is C++ but this
/// program, which allocates nothing meanwhile. The one whose number this is fails.
struct Allocations {
  std::atomic<bool> counted{false};
  std::atomic<long> made{0}, failing{0};
  std::array<const void*, 2> makers{};  // where these libraries are loaded

  bool fails(const void* caller) {
    if (!counted.load(std::memory_order_relaxed)) return false;
    Dl_info library;
    if (dladdr(caller, &library) == 0) return false;
    if (library.dli_fbase != makers[0] && library.dli_fbase != makers[1]) return false;
    if (++made != failing) return false;
    void* frames[32];
    backtrace_symbols_fd(frames, backtrace(frames, 32), record_fd);
    return true;
  }
} allocations;

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))
#define FAILS allocations.fails(__builtin_return_address(0))

EXPORTED void* __libc_malloc(std::size_t);
EXPORTED void* __libc_calloc(std::size_t, std::size_t);
EXPORTED void* __libc_realloc(void*, std::size_t);
EXPORTED void* __libc_memalign(std::size_t, std::size_t);

EXPORTED void* malloc(std::size_t bytes) noexcept {
  if (!FAILS) return __libc_malloc(bytes);
  errno = ENOMEM;
  return nullptr;
}
EXPORTED void* calloc(std::size_t count, std::size_t bytes) noexcept {
  if (!FAILS) return __libc_calloc(count, bytes);
  errno = ENOMEM;
  return nullptr;
}
EXPORTED void* realloc(void* memory, std::size_t bytes) noexcept {
  if (!FAILS) return __libc_realloc(memory, bytes);
  errno = ENOMEM;
  return nullptr;
}
EXPORTED int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) noexcept {
  if (FAILS) return ENOMEM;
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
EXPORTED void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  if (!FAILS) return __libc_memalign(alignment, bytes);
  errno = ENOMEM;
  return nullptr;
}
// operator new of libstdc++ calls malloc, and loom calls operator new: either way the caller is one of the
// two.

EXPORTED int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const long rc = syscall(SYS_clock_gettime, clock, now);
  if (rc == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += clock_jump;
  return static_cast<int>(rc);
}
EXPORTED int gettimeofday(timeval* __restrict now, void* __restrict) noexcept {
  timespec precise;
  if (clock_gettime(CLOCK_REALTIME, &precise) != 0) return -1;
  *now = {precise.tv_sec, precise.tv_nsec / 1000};
  return 0;
}
EXPORTED std::time_t time(std::time_t* now) noexcept {
  timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  if (now != nullptr) *now = precise.tv_sec;
  return precise.tv_sec;
}

namespace faults {

Run run;

bool open_record() {
  record_fd = open((run.directory + "/rank." + std::to_string(run.rank)).c_str(),
                   O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  return record_fd >= 0;
}

void record(const char* format, ...) {
  char line[256];
  timespec now;
  syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
  int length =
      std::snprintf(line, sizeof(line), "%ld.%03ld ", static_cast<long>(now.tv_sec), now.tv_nsec / 1000000);
  va_list arguments;
  va_start(arguments, format);
  length +=
      std::vsnprintf(line + length, sizeof(line) - static_cast<std::size_t>(length) - 1, format, arguments);
  va_end(arguments);
  line[length++] = '\n';
  if (write(record_fd, line, static_cast<std::size_t>(length)) != length) std::_Exit(kExitCode);
}

bool is_one_of(const std::string& word, std::initializer_list<const char*> words) {
  for (const char* one : words)
    if (word == one) return true;
  return false;
}
bool victim_goes() {
  return is_one_of(run.fault, {"killed", "stopped", "exits", "aborts", "host"});
}
bool is_of_resources() {
  return is_one_of(run.fault, {"memory", "descriptors"}) || run.fault.starts_with("allocation-");
}

namespace {

bool is_outside() {
  return is_one_of(run.fault, {"down", "loss", "host"});
}
/// The kernel answers as where Yama or a container forbids tracing.
void forbid_ptrace() {
  std::vector<sock_filter> program = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  const std::array forbidden = {SYS_process_vm_readv, SYS_process_vm_writev, SYS_pidfd_getfd, SYS_ptrace};
  for (const long call : forbidden) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter = {static_cast<unsigned short>(program.size()), program.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    record("cannot: seccomp: %s", std::strerror(errno));
}

/// What is mapped now, in bytes.
std::size_t mapped_bytes() {
  char text[64] = {};
  const int file = open("/proc/self/statm", O_RDONLY);
  if (read(file, text, sizeof(text) - 1) <= 0) record("cannot: statm");
  close(file);
  return std::strtoul(text, nullptr, 10) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

void limit(int resource, rlim_t soft) {
  rlimit limits;
  getrlimit(resource, &limits);
  limits.rlim_cur = soft < limits.rlim_max ? soft : limits.rlim_max;
  if (setrlimit(resource, &limits) != 0) record("cannot: setrlimit: %s", std::strerror(errno));
}

const void* base_of(const char* library) {
  // RTLD_NOLOAD wants a path, and loom's is Open MPI's business.
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find(library) != std::string::npos)
      return reinterpret_cast<const void*>(std::stoul(line.substr(0, line.find('-')), nullptr, 16));
  return nullptr;
}

void mark(const char* file) {
  timespec now;
  syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
  char line[64], name[512];
  const int length =
      std::snprintf(line, sizeof(line), "%ld.%03ld\n", static_cast<long>(now.tv_sec), now.tv_nsec / 1000000);
  std::snprintf(name, sizeof(name), "%s/.%s", run.directory.c_str(), file);
  const int fd = open(name, O_WRONLY | O_CREAT, 0644);
  if (fd < 0 || write(fd, line, static_cast<std::size_t>(length)) != length) record("cannot: %s", name);
  close(fd);
  const std::string path = run.directory + "/" + file;
  if (std::rename(name, path.c_str()) != 0) record("cannot: %s", name);
}

}  // namespace

void strike_before_init() {
  if (run.fault == "ptrace") forbid_ptrace();
}

void prepare() {
  void* frame;
  backtrace(&frame, 1);  // loads what it needs
  allocations.makers = {base_of("mca_coll_loom.so"), base_of("libstdc++.so")};
  if (run.fault.starts_with("allocation-"))
    allocations.failing = std::atol(run.fault.c_str() + std::strlen("allocation-"));
}

void strike() {
  record("fault");
  mark("fault");
  if (run.fault == "killed") std::raise(SIGKILL);
  if (run.fault == "stopped") kill(getpid(), SIGSTOP);
  if (run.fault == "exits") std::exit(0);
  if (run.fault == "aborts") MPI_Abort(MPI_COMM_WORLD, kAbortCode);
  if (run.fault == "ptrace_later") forbid_ptrace();
  if (run.fault == "clock") clock_jump = 86400;
  if (run.fault == "memory") limit(RLIMIT_AS, mapped_bytes());
  if (run.fault == "descriptors") {
    const int lowest = open("/dev/null", O_RDONLY);  // all below it are in use
    close(lowest);
    limit(RLIMIT_NOFILE, static_cast<rlim_t>(lowest));
  }
  if (run.fault.starts_with("allocation-")) allocations.counted = true;
  // scripts/faults strikes now, and says so.
  while (is_outside() && access((run.directory + "/struck").c_str(), F_OK) != 0) usleep(10'000);
}

void relieve() {
  if (run.fault == "memory") limit(RLIMIT_AS, RLIM_INFINITY);
  if (run.fault == "descriptors") limit(RLIMIT_NOFILE, RLIM_INFINITY);
  if (allocations.counted) {
    allocations.counted = false;
    record("allocations %ld", allocations.made.load());
  }
}

}  // namespace faults
