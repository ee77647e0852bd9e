#include "ucx_transport/resources.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"

namespace loom::ucx_transport {
namespace {

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

void require_address_space(std::size_t bytes) {
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED)
    throw Error(ErrorCode::kOutOfMemory,
                loom::format("There is no memory left: UCX may need {} MiB (see ulimit -v).", bytes >> 20));
  ::munmap(mapped, bytes);
}

}  // namespace

void require(const Needs& needs) {
  require_descriptors(needs.descriptors);
  require_address_space(needs.bytes);
}

}  // namespace loom::ucx_transport
