// error.hpp -- the one exception type of loom. Setting up throws it, and so does a data path that cannot go
// on; "not ready yet" is never an error. It crosses the C boundary once, in component/communicator/core.cpp.
#pragma once

#include <stdexcept>
#include <string>

namespace loom {

enum class ErrorCode {
  kOutOfMemory,
  kSystem,       ///< an operating system call failed
  kUnreachable,  ///< no way to reach a peer
  kPeerFailed,   ///< a peer process died or its connection broke
  kGivenUp,      ///< another rank cannot go on; it says why itself
  kRevoked,      ///< the program has revoked the communicator
  kTimeout,      ///< the user's limit on waiting passed
  kTruncated,    ///< a peer sends more than this rank has room for: the program's error
  kMismatch,     ///< the ranks do not make the same call: the program's error
  kDevice,       ///< a device or its driver fails
  kBadInput,     ///< a file or a setting that the user gave is wrong
  kInternal,     ///< a broken invariant of loom
};

/// what() is one or more whole sentences: what happened, where, with the value that was wrong.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& what) : std::runtime_error(what), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

/// The call has ended and its communicator goes on; this rank's result lacks what its buffers had no room
/// for. Code kTruncated. Any other Error inside a call ends its communicator.
class Truncated : public Error {
 public:
  explicit Truncated(const std::string& what) : Error(ErrorCode::kTruncated, what) {}
};

/// "<what>: <strerror(errnum)>" with code kSystem (kOutOfMemory for ENOMEM and ENOSPC).
Error system_error(const std::string& what, int errnum);

}  // namespace loom
