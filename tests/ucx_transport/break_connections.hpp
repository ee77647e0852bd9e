// break_connections.hpp -- a network that fails for a moment.
#pragma once

#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>

namespace loom::ucx_transport {

/// Ends all TCP connections of this process.
inline void break_connections() {
  DIR* const files = ::opendir("/proc/self/fd");
  if (files == nullptr) return;
  while (const dirent* const file = ::readdir(files)) {
    sockaddr_in peer{};
    socklen_t length = sizeof(peer);
    const int fd = std::atoi(file->d_name);
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0 && peer.sin_family == AF_INET)
      ::shutdown(fd, SHUT_RDWR);
  }
  ::closedir(files);
}

}  // namespace loom::ucx_transport
