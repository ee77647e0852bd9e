// passed_file.hpp -- a file descriptor of one process in another one of the same host, for files that have no
// path. Two ways lead there:
//
//   pidfd_getfd    nothing to prepare, but the kernel's ptrace rules must permit it: ptrace_scope 1 of Yama,
//                  Ubuntu's default, lets only parents, and default seccomp rules of containers nobody
//   SCM_RIGHTS     over a socket: needs a thread of the owner that hands it out, and one network namespace,
//                  but neither a right to trace nor a common user namespace
//
// So the one is tried, then the other.
#pragma once

#include <cstdint>
#include <memory>

namespace loom::device {

/// Where to take it. Plain data: it travels as bytes.
struct PassedFile {
  std::int32_t fd = -1;      ///< of the process that has it
  std::uint32_t socket = 0;  ///< by which it is handed out: the name that the kernel chose; 0: none
  std::uint64_t secret = 0;  ///< that whoever asks there has to know
};

/// Hands a descriptor out while it lives. Does not own it.
class FileGiver {
 public:
  /// Where no socket can be had, the file is left to pidfd_getfd.
  explicit FileGiver(int fd) noexcept;
  ~FileGiver();
  FileGiver(const FileGiver&) = delete;
  FileGiver& operator=(const FileGiver&) = delete;

  const PassedFile& file() const noexcept { return file_; }

 private:
  class Server;
  PassedFile file_;
  std::unique_ptr<Server> server_;
};

/// A descriptor of this process for the same file, closed on exec. Throws Error (kUnreachable).
int take_file(std::int64_t pid, const PassedFile& file);

}  // namespace loom::device
