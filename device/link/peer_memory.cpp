#include "device/link/peer_memory.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/format.hpp"
#include "device/link/process_watch.hpp"

namespace loom::device {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 30;  // the kernel copies less than 2 GiB in one call

}  // namespace

ProcessEnded::ProcessEnded(std::int64_t pid)
    : Error(ErrorCode::kPeerFailed, loom::format("Process {} has ended.", pid)), pid_(pid) {}

void read_peer_memory(std::int64_t pid, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (pid == ::getpid()) {  // ranks as threads: ThreadSanitizer sees the accesses
    std::memcpy(to, from, bytes);
    return;
  }
  std::int64_t thread = pid;
  while (bytes > 0) {
    const std::size_t piece = std::min(bytes, kMostBytes);
    const iovec local{to, piece}, remote{const_cast<std::byte*>(from), piece};
    const ssize_t copied = ::process_vm_readv(static_cast<pid_t>(thread), &local, 1, &remote, 1, 0);
    if (copied < 0 && errno == ESRCH) {
      // Of a thread that is about to end the memory goes before its state tells.
      const auto other = living_thread_of(pid, thread);
      if (!other) throw ProcessEnded(pid);
      thread = *other;
      continue;
    }
    if (copied <= 0)
      throw system_error(
          loom::format("Reading memory of process {} failed (coll_loom_single_copy 0 avoids it)", pid),
          copied < 0 ? errno : EFAULT);
    to += copied;
    from += copied;
    bytes -= static_cast<std::size_t>(copied);
  }
}

bool can_read_peer_memory(std::int64_t pid, const std::byte* from, std::uint64_t expected) noexcept {
  std::uint64_t word = ~expected;
  const iovec local{&word, sizeof(word)}, remote{const_cast<std::byte*>(from), sizeof(word)};
  return ::process_vm_readv(static_cast<pid_t>(pid), &local, 1, &remote, 1, 0) == ssize_t{sizeof(word)} &&
         word == expected;
}

}  // namespace loom::device
