// mpi_faulted -- a fault strikes the last rank (the victim), or its host, in a situation of the program. Each
// rank checks every result, and then does what a careful program does: where a call fails, it goes on without
// the victim, on a communicator that never had it. scripts/faults runs it, judges what the ranks wrote down,
// and strikes itself where the fault lies outside the process.
//
//   mpi_faulted FAULT SITUATION DIRECTORY [MICROSECONDS]
//
// FAULT: killed, stopped, exits, aborts, memory, allocation-N, descriptors, ptrace, ptrace_later, clock,
// none; and by scripts/faults itself: shm, down, loss, host. SITUATION: idle, set-up (a first blocking call),
// deferred (first calls that are nonblocking), blocking, nonblocking, persistent, thread (as nonblocking),
// finalize, comm_free. DIRECTORY: where each rank writes what happens to it, rank.R, and the victim the time
// of the fault. MICROSECONDS, for killed and stopped: the fault strikes so long after the victim has entered
// the call. Else the victim never enters a blocking call, and has started its part of others.
#include <mpi.h>
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION < 5
#include <mpi-ext.h>
#define INIT(Name) MPIX_##Name##_init
#else
#define INIT(Name) MPI_##Name##_init
#endif

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
#include <memory>
#include <string>
#include <thread>
#include <vector>

// What the program puts in place of the C library's functions, for itself and for all libraries.

namespace {

/// Added to the seconds of CLOCK_REALTIME.
std::atomic<std::time_t> clock_jump{0};

/// Allocations are counted where loom makes them, and libstdc++ for it; nothing else here is C++ but this
/// program, which allocates nothing meanwhile. The one whose number this is fails.
struct Allocations {
  int record_fd = -1;
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

namespace {

constexpr int kExitCode = 7, kAbortCode = 9;
constexpr int kCallsBefore = 10, kCallsAfter = 25;
constexpr int kInts = 1 << 18;  // 1 MiB: loom carries that on one host and between hosts

std::string fault, situation, directory;
int rank, ranks, record_fd = -1;
bool victim;
long within_us = -1;

/// One line in this rank's file, with the seconds since the epoch. Allocates nothing.
__attribute__((format(printf, 1, 2))) void record(const char* format, ...) {
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
  return is_one_of(fault, {"killed", "stopped", "exits", "aborts", "host"});
}
bool is_outside() {
  return is_one_of(fault, {"down", "loss", "host"});
}
/// Faults that the victim lives with from before the call until it has ended.
bool is_of_resources() {
  return is_one_of(fault, {"memory", "descriptors"}) || fault.starts_with("allocation-");
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
  std::snprintf(name, sizeof(name), "%s/.%s", directory.c_str(), file);
  const int fd = open(name, O_WRONLY | O_CREAT, 0644);
  if (fd < 0 || write(fd, line, static_cast<std::size_t>(length)) != length) record("cannot: %s", name);
  close(fd);
  const std::string path = directory + "/" + file;
  if (std::rename(name, path.c_str()) != 0) record("cannot: %s", name);
}

/// The victim's part of the fault. Returns where the process lives on.
void strike() {
  record("fault");
  mark("fault");
  if (fault == "killed") std::raise(SIGKILL);
  if (fault == "stopped") kill(getpid(), SIGSTOP);
  if (fault == "exits") std::exit(0);
  if (fault == "aborts") MPI_Abort(MPI_COMM_WORLD, kAbortCode);
  if (fault == "ptrace_later") forbid_ptrace();
  if (fault == "clock") clock_jump = 86400;
  if (fault == "memory") limit(RLIMIT_AS, mapped_bytes());
  if (fault == "descriptors") {
    const int lowest = open("/dev/null", O_RDONLY);  // all below it are in use
    close(lowest);
    limit(RLIMIT_NOFILE, static_cast<rlim_t>(lowest));
  }
  if (fault.starts_with("allocation-")) allocations.counted = true;
  // scripts/faults strikes now, and says so.
  while (is_outside() && access((directory + "/struck").c_str(), F_OK) != 0) usleep(10'000);
}

/// The fault is over, where it is one of resources.
void relieve() {
  if (fault == "memory") limit(RLIMIT_AS, RLIM_INFINITY);
  if (fault == "descriptors") limit(RLIMIT_NOFILE, RLIM_INFINITY);
  if (allocations.counted) {
    allocations.counted = false;
    record("allocations %ld", allocations.made.load());
  }
}

enum class Kind { kAllreduce, kBcast, kStridedBcast, kAllgather, kAlltoall };
enum class Form { kBlocking, kNonblocking, kPersistent };

/// A collective call with its buffers, whose result every rank can tell.
class Call {
 public:
  /// Of so many numbers in all, and one more in each block where that leaves none.
  Call(Kind kind, int count, MPI_Comm comm) : kind_(kind), comm_(comm) {
    MPI_Comm_rank(comm, &rank_);
    MPI_Comm_size(comm, &ranks_);
    block_ = is_blocks() ? count / ranks_ + 1 : count;
    const std::size_t all = static_cast<std::size_t>(block_) * static_cast<std::size_t>(ranks_);
    operand_.resize(kind == Kind::kAlltoall ? all : static_cast<std::size_t>(block_));
    result_.resize(is_blocks() ? all : static_cast<std::size_t>(block_));
    MPI_Type_vector((block_ + 1) / 2, 1, 2, MPI_INT, &every_other_);
    MPI_Type_commit(&every_other_);
  }

  void fill(int round) {
    round_ = round;
    for (std::size_t i = 0; i < operand_.size(); ++i) operand_[i] = given(rank_, static_cast<int>(i));
    for (std::size_t i = 0; i < result_.size(); ++i) result_[i] = -1 - static_cast<int>(i);
    if (is_bcast() && rank_ == root()) result_ = operand_;
  }

  int perform() {
    switch (kind_) {
      case Kind::kAllreduce:
        return MPI_Allreduce(operand_.data(), result_.data(), block_, MPI_INT, MPI_SUM, comm_);
      case Kind::kBcast:
        return MPI_Bcast(result_.data(), block_, MPI_INT, root(), comm_);
      case Kind::kStridedBcast:
        return MPI_Bcast(result_.data(), 1, every_other_, root(), comm_);
      case Kind::kAllgather:
        return MPI_Allgather(operand_.data(), block_, MPI_INT, result_.data(), block_, MPI_INT, comm_);
      case Kind::kAlltoall:
        return MPI_Alltoall(operand_.data(), block_, MPI_INT, result_.data(), block_, MPI_INT, comm_);
    }
    return MPI_ERR_OTHER;
  }

  int start(MPI_Request* request) {
    switch (kind_) {
      case Kind::kAllreduce:
        return MPI_Iallreduce(operand_.data(), result_.data(), block_, MPI_INT, MPI_SUM, comm_, request);
      case Kind::kBcast:
        return MPI_Ibcast(result_.data(), block_, MPI_INT, root(), comm_, request);
      case Kind::kStridedBcast:
        return MPI_Ibcast(result_.data(), 1, every_other_, root(), comm_, request);
      case Kind::kAllgather:
        return MPI_Iallgather(operand_.data(), block_, MPI_INT, result_.data(), block_, MPI_INT, comm_,
                              request);
      case Kind::kAlltoall:
        return MPI_Ialltoall(operand_.data(), block_, MPI_INT, result_.data(), block_, MPI_INT, comm_,
                             request);
    }
    return MPI_ERR_OTHER;
  }

  /// The root of a persistent broadcast stays as it is: 0.
  int make(MPI_Request* request) {
    root_stays_ = true;
    switch (kind_) {
      case Kind::kAllreduce:
        return INIT(Allreduce)(operand_.data(), result_.data(), block_, MPI_INT, MPI_SUM, comm_,
                               MPI_INFO_NULL, request);
      case Kind::kBcast:
        return INIT(Bcast)(result_.data(), block_, MPI_INT, root(), comm_, MPI_INFO_NULL, request);
      case Kind::kStridedBcast:
        return INIT(Bcast)(result_.data(), 1, every_other_, root(), comm_, MPI_INFO_NULL, request);
      case Kind::kAllgather:
        return INIT(Allgather)(operand_.data(), block_, MPI_INT, result_.data(), block_, MPI_INT, comm_,
                               MPI_INFO_NULL, request);
      case Kind::kAlltoall:
        return INIT(Alltoall)(operand_.data(), block_, MPI_INT, result_.data(), block_, MPI_INT, comm_,
                              MPI_INFO_NULL, request);
    }
    return MPI_ERR_OTHER;
  }

  /// Writes down the first wrong number.
  bool is_right() const {
    for (std::size_t i = 0; i < result_.size(); ++i) {
      if (result_[i] == expected(static_cast<int>(i))) continue;
      record("wrong kind %d round %d element %zu: %d instead of %d", static_cast<int>(kind_), round_, i,
             result_[i], expected(static_cast<int>(i)));
      return false;
    }
    return true;
  }

 private:
  bool is_blocks() const { return kind_ == Kind::kAllgather || kind_ == Kind::kAlltoall; }
  bool is_bcast() const { return kind_ == Kind::kBcast || kind_ == Kind::kStridedBcast; }
  int root() const { return root_stays_ ? 0 : round_ % ranks_; }
  int given(int by, int i) const { return (by + 1) * (round_ % 7 + 1) + i % 31; }
  int expected(int i) const {
    switch (kind_) {
      case Kind::kAllreduce:
        return ranks_ * (ranks_ + 1) / 2 * (round_ % 7 + 1) + ranks_ * (i % 31);
      case Kind::kBcast:
        return given(root(), i);
      case Kind::kStridedBcast:
        return rank_ == root() || i % 2 == 0 ? given(root(), i) : -1 - i;
      case Kind::kAllgather:
        return given(i / block_, i % block_);
      case Kind::kAlltoall:
        return given(i / block_, rank_ * block_ + i % block_);
    }
    return 0;
  }

  Kind kind_;
  MPI_Comm comm_;
  int rank_ = 0, ranks_ = 1, block_ = 0, round_ = 0;
  bool root_stays_ = false;
  std::vector<int> operand_, result_;
  MPI_Datatype every_other_ = MPI_DATATYPE_NULL;
};

int class_of(int error) {
  int error_class = MPI_ERR_OTHER;
  MPI_Error_class(error, &error_class);
  return error_class;
}

/// The calls of one communicator, in rounds that are alike on all ranks.
class Rounds {
 public:
  static constexpr int kWrong = -1;

  Rounds(MPI_Comm comm, Form form) : form_(form) {
    for (const auto& [kind, count] :
         {std::pair(Kind::kAllreduce, kInts), std::pair(Kind::kAllreduce, 2), std::pair(Kind::kBcast, kInts),
          std::pair(Kind::kAllgather, kInts), std::pair(Kind::kAlltoall, kInts)})
      usual_.push_back(std::make_unique<Call>(kind, count, comm));
    // These come with the fault for the first time: what they need is not there yet.
    for (const auto& [kind, count] :
         {std::pair(Kind::kStridedBcast, kInts), std::pair(Kind::kAllreduce, 4 * kInts)})
      new_.push_back(std::make_unique<Call>(kind, count, comm));
  }

  /// MPI_SUCCESS, the class of an error, or kWrong. With `strikes` the fault comes in this round.
  int perform(int round, bool strikes) {
    if (form_ == Form::kBlocking) {
      const bool is_new = round > kCallsBefore && round % 3 == 2;
      return one(
          is_new ? *new_[static_cast<std::size_t>(round / 3 % 2)] : usual(static_cast<std::size_t>(round)),
          round, strikes);
    }
    std::array<Call*, 5> calls{};
    std::size_t count = 0;
    for (; count < 3; ++count)
      calls[count] = &usual(form_ == Form::kPersistent ? count : static_cast<std::size_t>(round) + count);
    if (form_ == Form::kNonblocking && round >= kCallsBefore)
      for (const auto& call : new_) calls[count++] = call.get();
    return several(calls, count, round, strikes);
  }

  /// Before the communicator goes.
  void end() {
    for (MPI_Request& request : made_)
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  }

 private:
  Call& usual(std::size_t round) { return *usual_[round % usual_.size()]; }

  static void strike_within() {
    static std::jthread striker;
    striker = std::jthread([] {
      usleep(static_cast<useconds_t>(within_us));
      strike();
    });
  }

  static int one(Call& call, int round, bool strikes) {
    call.fill(round);
    if (strikes && within_us >= 0) {
      strike_within();
    } else if (strikes) {
      strike();
    }
    const int error = class_of(call.perform());
    if (error != MPI_SUCCESS) return error;
    return call.is_right() ? MPI_SUCCESS : kWrong;
  }

  int several(const std::array<Call*, 5>& calls, std::size_t count, int round, bool strikes) {
    int error = MPI_SUCCESS;
    std::array<int, 5> errors{};
    for (std::size_t i = 0; i < count; ++i) calls[i]->fill(round);
    if (strikes && is_of_resources()) strike();
    if (strikes && within_us >= 0) strike_within();
    std::array<MPI_Request, 5> requests;
    requests.fill(MPI_REQUEST_NULL);
    if (form_ == Form::kPersistent && made_[0] == MPI_REQUEST_NULL)
      for (std::size_t i = 0; i < count && error == MPI_SUCCESS; ++i)
        error = class_of(calls[i]->make(&made_[i]));
    if (error != MPI_SUCCESS) return error;
    for (std::size_t i = 0; i < count; ++i)
      errors[i] = form_ == Form::kPersistent ? MPI_Start(&made_[i]) : calls[i]->start(&requests[i]);
    if (strikes && !is_of_resources() && within_us < 0) strike();
    usleep(2000);  // the program computes
    for (std::size_t i = 0; i < count; ++i) {
      if (errors[i] == MPI_SUCCESS)
        errors[i] = MPI_Wait(form_ == Form::kPersistent ? &made_[i] : &requests[i], MPI_STATUS_IGNORE);
      const int error_class = class_of(errors[i]);
      if (error_class != MPI_SUCCESS && error == MPI_SUCCESS) error = error_class;
      if (error_class == MPI_SUCCESS && !calls[i]->is_right()) error = kWrong;
    }
    return error;
  }

  Form form_;
  std::vector<std::unique_ptr<Call>> usual_, new_;
  std::array<MPI_Request, 5> made_{MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL,
                                   MPI_REQUEST_NULL};
};

/// The ranks of the other hosts; on one host all but the victim.
MPI_Comm without_victim() {
  char name[MPI_MAX_PROCESSOR_NAME] = {}, its_name[MPI_MAX_PROCESSOR_NAME],
       first_name[MPI_MAX_PROCESSOR_NAME];
  int length;
  MPI_Get_processor_name(name, &length);
  std::memcpy(its_name, name, sizeof(name));
  std::memcpy(first_name, name, sizeof(name));
  MPI_Bcast(its_name, sizeof(its_name), MPI_CHAR, ranks - 1, MPI_COMM_WORLD);
  MPI_Bcast(first_name, sizeof(first_name), MPI_CHAR, 0, MPI_COMM_WORLD);
  const bool one_host = std::strcmp(its_name, first_name) == 0;
  const bool stays = one_host ? !victim : std::strcmp(name, its_name) != 0;
  MPI_Comm rest;
  MPI_Comm_split(MPI_COMM_WORLD, stays ? 1 : MPI_UNDEFINED, rank, &rest);
  return rest;
}

/// All ranks call it; where the victim is no more, so do all others.
void finish() {
  if (victim_goes()) {
    record("ends");
    // With recovery, mpirun of 4.1 lets MPI_Abort end its caller alone.
    std::signal(SIGALRM, [](int) {
      record("alarm");
      std::_Exit(kExitCode);
    });
    alarm(4);
    if (rank == 0) {
      sleep(1);  // for the others' lines
      record("abort");
      MPI_Abort(MPI_COMM_WORLD, kExitCode);
    }
    for (;;) pause();
  }
  record("finalize");
  MPI_Finalize();
  record("finished");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  fault = argv[1];
  situation = argv[2];
  directory = argv[3];
  if (argc > 4) within_us = std::atol(argv[4]);
  const char* const own_rank = std::getenv("OMPI_COMM_WORLD_RANK");
  const char* const size = std::getenv("OMPI_COMM_WORLD_SIZE");
  if (own_rank == nullptr || size == nullptr) return 2;
  rank = std::atoi(own_rank);
  ranks = std::atoi(size);
  victim = rank == ranks - 1;
  record_fd =
      open((directory + "/rank." + own_rank).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (record_fd < 0) return 2;
  record("pid %d", static_cast<int>(getpid()));
  if (victim && fault == "ptrace") forbid_ptrace();

  MPI_Init(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const MPI_Comm rest = without_victim();
  const bool stays = rest != MPI_COMM_NULL;
  if (stays) MPI_Comm_set_errhandler(rest, MPI_ERRORS_RETURN);
  MPI_Info info;
  MPI_Info_create(&info);
  MPI_Info_set(info, "coll_loom_ordered_starts", "true");  // loom carries persistent calls between hosts so
  MPI_Comm all;
  MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &all);
  MPI_Info_free(&info);
  MPI_Comm_set_errhandler(all, MPI_ERRORS_RETURN);
  void* frame;
  backtrace(&frame, 1);  // loads what it needs
  allocations.record_fd = record_fd;
  allocations.makers = {base_of("mca_coll_loom.so"), base_of("libstdc++.so")};
  if (fault.starts_with("allocation-"))
    allocations.failing = std::atol(fault.c_str() + std::strlen("allocation-"));

  std::unique_ptr<Rounds> of_rest;
  if (stays) {
    of_rest = std::make_unique<Rounds>(rest, Form::kBlocking);
    for (int round = 0; round < kCallsBefore; ++round)
      if (const int error = of_rest->perform(round, false); error != MPI_SUCCESS)
        record("rest before: class %d", error);
  }
  const Form form = is_one_of(situation, {"nonblocking", "thread", "deferred"}) ? Form::kNonblocking
                    : situation == "persistent"                                 ? Form::kPersistent
                                                                                : Form::kBlocking;
  Rounds of_all(all, form), blocking_of_all(all, Form::kBlocking);
  const int first = is_one_of(situation, {"set-up", "deferred"}) ? kCallsBefore : 0;
  for (int round = first; round < kCallsBefore; ++round)
    if (const int error = of_all.perform(round, false); error != MPI_SUCCESS)
      record("before: class %d", error);
  MPI_Barrier(MPI_COMM_WORLD);  // none is in a call from before the fault when it comes
  record("ready");

  int error = MPI_SUCCESS;
  if (situation == "finalize") {
    if (victim) {
      usleep(300'000);
      strike();
    }
    record("finalize");
    MPI_Finalize();
    record("finished");
    return 0;
  }
  if (situation == "comm_free") {
    if (victim) {
      usleep(300'000);
      strike();
    }
    of_all.end();
    error = class_of(MPI_Comm_free(&all));
    if (victim) relieve();
    record("free: class %d", error);
  } else {
    if (situation == "idle") {
      usleep(victim ? 300'000 : 1'500'000);
      if (victim) {
        strike();
        usleep(1'200'000);
      }
    }
    for (int round = kCallsBefore; round < kCallsBefore + kCallsAfter && error == MPI_SUCCESS; ++round) {
      error = of_all.perform(round, victim && round == kCallsBefore && situation != "idle");
      // Wants of resources last for some calls.
      if (victim && is_of_resources() && (round == kCallsBefore + 5 || error != MPI_SUCCESS)) relieve();
      if (error != MPI_SUCCESS) record("call: round %d class %d", round, error);
    }
    if (error == MPI_SUCCESS) record("calls done");
    if (error > MPI_SUCCESS)
      record("again: class %d", blocking_of_all.perform(kCallsBefore + kCallsAfter, false));
  }
  if (stays) {
    int of_others = MPI_SUCCESS;
    for (int round = 0; round < kCallsBefore && of_others == MPI_SUCCESS; ++round)
      of_others = of_rest->perform(round, false);
    record("rest: class %d", of_others);
  }
  if (situation != "comm_free") {
    of_all.end();
    error = class_of(MPI_Comm_free(&all));
    record("free: class %d", error);
  }
  finish();
  return 0;
}
