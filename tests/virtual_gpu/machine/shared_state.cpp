#include "tests/virtual_gpu/machine/shared_state.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/format.hpp"

namespace virtual_gpu::machine {
namespace {

constexpr std::size_t kMovedOffset = (sizeof(SharedState::Header) + 63) / 64 * 64;

/// One process at a time; ends with the scope, or the process.
class FileLock {
 public:
  explicit FileLock(int file) : file_(file) { set(F_WRLCK); }
  ~FileLock() { set(F_UNLCK); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  void set(short type) {
    struct flock range {};
    range.l_type = type;
    range.l_whence = SEEK_SET;
    while (::fcntl(file_, F_OFD_SETLKW, &range) != 0 && errno == EINTR) {
    }
  }
  int file_;
};

void make_mutex(pthread_mutex_t& mutex) {
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutex_init(&mutex, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
}

}  // namespace

StateFile state_file_in(const std::string& folder, std::size_t host) {
  if (folder.empty()) return {};
  return {loom::format("{}/virtual-gpu-host-{}", folder, host)};
}

/// Names that differ have GPUs that differ.
StateFile state_file(const Machine& machine) {
  if (const std::string folder = variable("VIRTUAL_GPU_STATE"); !folder.empty())
    return state_file_in(folder, machine.host());
  const std::string name = variable("VIRTUAL_GPU_SHARED"), file = variable("VIRTUAL_GPU_MACHINE"),
                    of_job = variable("PMIX_SERVER_TMPDIR");
  if (name.empty() && file.empty()) return {};
  return {loom::format("{}/virtual-gpu-{}-{:016x}-host-{}", of_job.empty() ? "/dev/shm" : of_job, ::getuid(),
                       hash_of(name) ^ machine.fingerprint(), machine.host()),
          true};
}

SharedState::SharedState(const Machine& machine, const StateFile& file)
    : where_(file),
      residents_offset_(kMovedOffset +
                        (machine.place_count() * machine.place_count() * sizeof(std::uint64_t) + 63) / 64 *
                            64),
      calendars_offset_(residents_offset_ + machine.gpus().size() * sizeof(Residents)),
      bytes_(calendars_offset_ + machine.links().size() * sizeof(Calendar)) {
  if (!file.path.empty()) {
    open_file(machine);
    return;
  }
  map(MAP_PRIVATE | MAP_ANONYMOUS, "memory");
  set_up(machine);
}

void SharedState::open_file(const Machine& machine) {
  const std::string& path = where_.path;
  const auto fail = [&](const std::string& why) {
    throw Error(
        loom::format("{}: {}; name a folder in VIRTUAL_GPU_STATE that is this run's alone.", path, why));
  };
  struct stat now {};
  do {  // again where the last of other processes has just removed it
    if (file_.number >= 0) ::close(file_.number);
    file_.number = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file_.number < 0) fail(std::strerror(errno));
    ::flock(file_.number, LOCK_SH);  // says that this process is there
    if (::fstat(file_.number, &now) != 0) fail(std::strerror(errno));
  } while (now.st_nlink == 0);
  const FileLock lock(file_.number);
  if (::fstat(file_.number, &now) != 0) fail(std::strerror(errno));
  if (now.st_size != 0 && static_cast<std::size_t>(now.st_size) != bytes_) fail("it is of another machine");
  if (::ftruncate(file_.number, static_cast<off_t>(bytes_)) != 0) fail(std::strerror(errno));
  map(MAP_SHARED, path);
  if (header_->fingerprint == 0) set_up(machine);
  if (header_->fingerprint != machine.fingerprint()) {
    ::munmap(header_, bytes_);
    fail("it is of another machine");
  }
  header_->told = 0;
}

void SharedState::map(int flags, const std::string& what) {
  void* const memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, file_.number, 0);
  if (memory == MAP_FAILED) throw Error(loom::format("{}: {}.", what, std::strerror(errno)));
  header_ = static_cast<Header*>(memory);  // zeros are the values of its atomics
  moved_ = reinterpret_cast<std::atomic<std::uint64_t>*>(static_cast<std::byte*>(memory) + kMovedOffset);
  residents_ = reinterpret_cast<Residents*>(static_cast<std::byte*>(memory) + residents_offset_);
  calendars_ = reinterpret_cast<Calendar*>(static_cast<std::byte*>(memory) + calendars_offset_);
}

void SharedState::set_up(const Machine& machine) {
  make_mutex(header_->mutex);
  for (std::size_t gpu = 0; gpu < machine.gpus().size(); ++gpu) make_mutex(residents_[gpu].mutex);
  header_->fingerprint = machine.fingerprint();
}

SharedState::~SharedState() {
  ::munmap(header_, bytes_);
}
SharedState::File::~File() {
  if (number >= 0) ::close(number);
}

/// The lock that says this process is there becomes an exclusive one only when nobody else has it. Whoever
/// opens the file meanwhile waits for that lock, and then finds that it is gone.
bool SharedState::leave() {
  if (file_.number >= 0 && ::flock(file_.number, LOCK_EX | LOCK_NB) != 0) return false;
  if (header_->told.exchange(1) != 0) return false;
  if (where_.removed) ::unlink(where_.path.c_str());
  return true;
}

MutexLock::MutexLock(pthread_mutex_t& mutex) : mutex_(mutex) {
  if (::pthread_mutex_lock(&mutex_) == EOWNERDEAD) ::pthread_mutex_consistent(&mutex_);
}
MutexLock::~MutexLock() {
  ::pthread_mutex_unlock(&mutex_);
}

}  // namespace virtual_gpu::machine
