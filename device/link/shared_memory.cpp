#include "device/link/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "base/blocked_signals.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/mutex.hpp"
#include "base/random_word.hpp"
#include "device/link/passed_file.hpp"
#include "device/link/step_flag.hpp"

namespace loom::device {
namespace {

constexpr std::size_t kHeaderBytes = kCacheLine;

std::byte* map(int fd, std::size_t bytes) {
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return address == MAP_FAILED ? nullptr : static_cast<std::byte*>(address);
}

/// Gives the file its size and all its memory. Returns 0 or an errno.
int allocate(int fd, std::size_t bytes) {
  // What interrupts a large allocation has it begin anew: signals, under a profiler's timer, for ever.
  const BlockedSignals blocked;
  int error;
  do error = ::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  while (error == EINTR);  // by a stop, or a debugger
  // Beyond a limit on file size (RLIMIT_FSIZE) the kernel sends SIGXFSZ, which ends a process that does not
  // handle it.
  if (error == EFBIG && !blocked.was_blocked(SIGXFSZ)) {
    sigset_t file_too_large;
    sigemptyset(&file_too_large);
    sigaddset(&file_too_large, SIGXFSZ);
    const timespec no_wait{};
    sigtimedwait(&file_too_large, nullptr, &no_wait);
  }
  return error;
}

std::uint64_t token_at(const std::byte* base) {
  std::uint64_t token;
  std::memcpy(&token, base, sizeof(token));
  return token;
}

/// As containers are that users start: then processes of other user namespaces, of the same user, may not
/// look into this one's /proc.
bool has_user_namespace() {
  static const bool has = [] {
    constexpr ino_t kInitial = 0xEFFFFFFD;  // PROC_USER_INIT_INO of Linux
    struct stat status {};
    return ::stat("/proc/self/ns/user", &status) == 0 && status.st_ino != kInitial;
  }();
  return has;
}

/// Another process's descriptor. -1, with errno: it cannot be had.
int open_file_of(const SegmentHandle& handle, const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd >= 0 || handle.socket == 0) return fd;
  const int error = errno;
  try {
    return take_file(handle.pid, {handle.fd, handle.socket, handle.secret});
  } catch (const Error&) {
    errno = error;
    return -1;
  }
}

}  // namespace

class Segment::Mapping {
 public:
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    giver.reset();
    if (fd >= 0) ::close(fd);
    if (base != nullptr) ::munmap(base, bytes);
  }

  std::byte* base = nullptr;
  std::size_t bytes = 0;
  int fd = -1;
  std::optional<FileGiver> giver;  ///< of `fd`

  /// The segments created in this process, for ranks that are its threads.
  class Registry {
   public:
    void add(std::uint64_t token, const std::shared_ptr<Mapping>& mapping) {
      const MutexLock lock(mutex_);
      std::erase_if(created_, [](const auto& entry) { return entry.second.expired(); });
      created_[token] = mapping;
    }
    std::shared_ptr<Mapping> find(std::uint64_t token) {
      const MutexLock lock(mutex_);
      const auto entry = created_.find(token);
      return entry == created_.end() ? nullptr : entry->second.lock();
    }

   private:
    Mutex mutex_;
    std::map<std::uint64_t, std::weak_ptr<Mapping>> created_ LOOM_GUARDED_BY(mutex_);
  };
  static Registry& registry() {
    static Registry& registry = *new Registry;  // never destroyed: programs make calls while they exit
    return registry;
  }
};

Segment Segment::create(std::size_t bytes) {
  auto mapping = std::make_shared<Mapping>();
  mapping->bytes = kHeaderBytes + bytes;
  mapping->fd = ::memfd_create("loom", MFD_CLOEXEC);
  if (mapping->fd < 0) throw system_error("memfd_create failed", errno);
  if (const int error = allocate(mapping->fd, mapping->bytes); error != 0)
    throw system_error(loom::format("Allocating {} bytes of shared memory failed", mapping->bytes), error);
  mapping->base = map(mapping->fd, mapping->bytes);
  if (mapping->base == nullptr) throw system_error("Mapping shared memory failed", errno);
  const std::uint64_t token = random_word();
  std::memcpy(mapping->base, &token, sizeof(token));
  if (has_user_namespace()) mapping->giver.emplace(mapping->fd);
  Mapping::registry().add(token, mapping);
  Segment segment;
  segment.mapping_ = std::move(mapping);
  return segment;
}

Segment Segment::attach(const SegmentHandle& handle) {
  Segment segment;
  if (handle.pid == ::getpid() && (segment.mapping_ = Mapping::registry().find(handle.token))) return segment;

  const std::string path = loom::format("/proc/{}/fd/{}", handle.pid, handle.fd);
  const auto unreachable = [&](const std::string& why) {
    return Error(
        ErrorCode::kUnreachable,
        loom::format("The shared memory of process {} cannot be used: {}: {}.", handle.pid, path, why));
  };
  auto mapping = std::make_shared<Mapping>();
  mapping->fd = open_file_of(handle, path);
  if (mapping->fd < 0) {
    const int error = errno;
    throw unreachable(std::generic_category().message(error) +
                      (error == EACCES ? " (it runs as another user, has changed its user, its program's "
                                         "file is not readable, or it is in another user namespace)"
                                       : ""));
  }
  struct stat status {};
  if (::fstat(mapping->fd, &status) != 0 || static_cast<std::uint64_t>(status.st_size) != handle.bytes)
    throw unreachable("it is not the segment that the process announced");
  mapping->base = map(mapping->fd, handle.bytes);
  if (mapping->base == nullptr) throw unreachable(std::generic_category().message(errno));
  mapping->bytes = handle.bytes;
  if (token_at(mapping->base) != handle.token)
    throw unreachable("it is another segment than the process announced");
  segment.mapping_ = std::move(mapping);
  segment.close_handle();
  return segment;
}

SegmentHandle Segment::handle() const noexcept {
  const PassedFile file = mapping_->giver ? mapping_->giver->file() : PassedFile{};
  return {.pid = ::getpid(),
          .fd = mapping_->fd,
          .socket = file.socket,
          .secret = file.secret,
          .bytes = mapping_->bytes,
          .token = token_at(mapping_->base),
          .address = reinterpret_cast<std::uint64_t>(mapping_->base)};
}

void Segment::close_handle() noexcept {
  if (mapping_) mapping_->giver.reset();
  if (mapping_ && mapping_->fd >= 0) ::close(std::exchange(mapping_->fd, -1));
}

std::byte* Segment::data() const noexcept {
  return mapping_->base + kHeaderBytes;
}

}  // namespace loom::device
