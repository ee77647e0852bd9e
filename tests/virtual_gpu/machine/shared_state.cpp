#include "tests/virtual_gpu/machine/shared_state.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

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

SharedState::SharedState(const Machine& machine, const std::string& folder)
    : bytes_(kMovedOffset + machine.place_count() * machine.place_count() * sizeof(std::uint64_t)) {
  if (folder.empty()) {
    map(MAP_PRIVATE | MAP_ANONYMOUS, "memory");
    set_up(machine.fingerprint());
    return;
  }
  const std::string path = fmt::format("{}/virtual-gpu-host-{}", folder, machine.host());
  const auto fail = [&](const std::string& why) {
    throw Error(
        fmt::format("{}: {}; name a folder in VIRTUAL_GPU_STATE that is this run's alone.", path, why));
  };
  file_.number = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file_.number < 0) fail(std::strerror(errno));
  const FileLock lock(file_.number);
  struct stat now {};
  if (::fstat(file_.number, &now) != 0) fail(std::strerror(errno));
  if (now.st_size != 0 && static_cast<std::size_t>(now.st_size) != bytes_) fail("it is of another machine");
  if (::ftruncate(file_.number, static_cast<off_t>(bytes_)) != 0) fail(std::strerror(errno));
  ::flock(file_.number, LOCK_SH);  // says that this process is there
  map(MAP_SHARED, path);
  if (header_->fingerprint == 0) set_up(machine.fingerprint());
  if (header_->fingerprint != machine.fingerprint()) {
    ::munmap(header_, bytes_);
    fail("it is of another machine");
  }
  header_->told = 0;
}

void SharedState::map(int flags, const std::string& what) {
  void* const memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, file_.number, 0);
  if (memory == MAP_FAILED) throw Error(fmt::format("{}: {}.", what, std::strerror(errno)));
  header_ = static_cast<Header*>(memory);  // zeros are the values of its atomics
  moved_ = reinterpret_cast<std::atomic<std::uint64_t>*>(static_cast<std::byte*>(memory) + kMovedOffset);
}

void SharedState::set_up(std::uint64_t fingerprint) {
  make_mutex(header_->mutex);
  header_->fingerprint = fingerprint;
}

SharedState::~SharedState() {
  ::munmap(header_, bytes_);
}
SharedState::File::~File() {
  if (number >= 0) ::close(number);
}

/// The lock that says this process is there becomes an exclusive one only when nobody else has it.
bool SharedState::leave() {
  if (file_.number >= 0 && ::flock(file_.number, LOCK_EX | LOCK_NB) != 0) return false;
  return header_->told.exchange(1) == 0;
}

SharedState::Lock::Lock(const SharedState& state) : mutex_(state.header().mutex) {
  if (::pthread_mutex_lock(&mutex_) == EOWNERDEAD) ::pthread_mutex_consistent(&mutex_);
}
SharedState::Lock::~Lock() {
  ::pthread_mutex_unlock(&mutex_);
}

}  // namespace virtual_gpu::machine
