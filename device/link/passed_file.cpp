#include "device/link/passed_file.hpp"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/blocked_signals.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/quiet_thread.hpp"

// Of Linux 5.3 and 5.6; headers and libraries may be older than the kernel.
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

namespace loom::device {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int fd() const noexcept { return fd_; }

 private:
  int fd_;
};

constexpr int kSocket = SOCK_SEQPACKET | SOCK_CLOEXEC;  // a message is read whole or not at all

/// Abstract: it lies in no file system, and is gone with its socket. The kernel's names have five digits.
struct Name {
  sockaddr_un address{};
  socklen_t bytes = sizeof(sa_family_t);  ///< no name: the kernel chooses one

  Name() { address.sun_family = AF_UNIX; }
  explicit Name(std::uint32_t number) : Name() {
    const int digits = std::snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "%05x",
                                     static_cast<unsigned>(number));
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path)) + 1 + static_cast<socklen_t>(digits);
  }
  const sockaddr* as_any() const { return reinterpret_cast<const sockaddr*>(&address); }
  sockaddr* as_any() { return reinterpret_cast<sockaddr*>(&address); }
};

/// Whoever is at the other end must not keep this one for ever.
void limit_waiting(int socket) {
  const timeval limit{.tv_sec = 5, .tv_usec = 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

/// A message of one number, and a descriptor with it.
struct Message {
  std::uint64_t number = 0;
  iovec part{&number, sizeof(number)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
  msghdr header{};

  Message() {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
  }
};

bool send(int socket, std::uint64_t number, int fd) {
  Message message;
  message.number = number;
  cmsghdr* const rights = CMSG_FIRSTHDR(&message.header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &fd, sizeof(int));
  return ::sendmsg(socket, &message.header, MSG_NOSIGNAL) == sizeof(message.number);
}

/// -1: there is none, or not from whom it should be.
int receive(int socket, std::uint64_t number) {
  Message message;
  const ssize_t bytes = ::recvmsg(socket, &message.header, MSG_CMSG_CLOEXEC);
  const cmsghdr* const rights = bytes > 0 ? CMSG_FIRSTHDR(&message.header) : nullptr;
  if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS) return -1;
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(rights), sizeof(int));
  if (bytes == sizeof(message.number) && message.number == number) return fd;
  ::close(fd);
  return -1;
}

/// -1: errno says why not.
int take_by_pidfd(std::int64_t pid, int fd) {
  const Descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0U)));
  return process.fd() < 0 ? -1 : static_cast<int>(::syscall(SYS_pidfd_getfd, process.fd(), fd, 0U));
}

/// -1: it cannot be had.
int take_by_socket(const PassedFile& file) {
  const Descriptor socket(file.socket == 0 ? -1 : ::socket(AF_UNIX, kSocket, 0));
  const Name name(file.socket);
  if (socket.fd() < 0) return -1;
  const BlockedSignals blocked;  // where waiting is limited, a signal ends it, whatever SA_RESTART says
  limit_waiting(socket.fd());
  if (::connect(socket.fd(), name.as_any(), name.bytes) != 0) return -1;
  if (::send(socket.fd(), &file.secret, sizeof(file.secret), MSG_NOSIGNAL) != sizeof(file.secret)) return -1;
  return receive(socket.fd(), ~file.secret);
}

}  // namespace

class FileGiver::Server {
 public:
  explicit Server(PassedFile& file) : file_(file), socket_(::socket(AF_UNIX, kSocket, 0)) {
    Name name;
    unsigned number = 0;
    const bool there =
        socket_.fd() >= 0 && ::getrandom(&file.secret, sizeof(file.secret), 0) == sizeof(file.secret) &&
        ::bind(socket_.fd(), name.as_any(), name.bytes) == 0 && ::listen(socket_.fd(), SOMAXCONN) == 0 &&
        ::getsockname(socket_.fd(), name.as_any(), &(name.bytes = sizeof(name.address))) == 0 &&
        std::sscanf(name.address.sun_path + 1, "%5x", &number) == 1;
    if (!there) return;
    try {
      thread_ = quiet_thread([this] { serve(); });
      file.socket = number;
    } catch (const std::system_error&) {
    }
  }
  ~Server() {
    ::shutdown(socket_.fd(), SHUT_RDWR);  // accept() fails then
    if (thread_.joinable()) thread_.join();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

 private:
  void serve() const {
    for (;;) {
      const Descriptor client(::accept4(socket_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
      if (client.fd() < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
      if (client.fd() < 0) return;
      limit_waiting(client.fd());
      std::uint64_t secret = 0;
      const bool knows =
          ::recv(client.fd(), &secret, sizeof(secret), 0) == sizeof(secret) && secret == file_.secret;
      if (knows) send(client.fd(), ~secret, file_.fd);
    }
  }

  const PassedFile& file_;
  const Descriptor socket_;
  std::thread thread_;
};

FileGiver::FileGiver(int fd) noexcept : file_{.fd = fd} {
  try {
    server_ = std::make_unique<Server>(file_);
  } catch (const std::exception&) {
  }
}
FileGiver::~FileGiver() = default;

int take_file(std::int64_t pid, const PassedFile& file) {
  if (const int fd = take_by_pidfd(pid, file.fd); fd >= 0) return fd;
  const std::string why = std::generic_category().message(errno);
  if (const int fd = take_by_socket(file); fd >= 0) return fd;
  throw Error(
      ErrorCode::kUnreachable,
      loom::format("File descriptor {} of process {} cannot be used: pidfd_getfd: {}; nor is it handed "
                   "out by a socket, which works within one network namespace.",
                   file.fd, pid, why));
}

}  // namespace loom::device
