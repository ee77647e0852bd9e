#include "ucx_transport/descriptors.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"

namespace loom::ucx_transport {

void require_descriptors(int needed) {
  // Opened and closed again: limits of the process and of the system are found alike.
  std::vector<int> open;
  int error = 0;
  while (error == 0 && static_cast<int>(open.size()) < needed) {
    const int fd = open.empty() ? ::eventfd(0, EFD_CLOEXEC) : ::fcntl(open.front(), F_DUPFD_CLOEXEC, 0);
    if (fd >= 0)
      open.push_back(fd);
    else
      error = errno;
  }
  for (const int fd : open) ::close(fd);
  if (error == EMFILE || error == ENFILE)
    throw Error(
        ErrorCode::kUnreachable,
        loom::format("{} may open {} more file descriptors, and UCX may need {}: raise the limit ({}).",
                     error == EMFILE ? "This process" : "The host", open.size(), needed,
                     error == EMFILE ? "ulimit -n" : "fs.file-max"));
}

}  // namespace loom::ucx_transport
