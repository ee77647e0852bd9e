// streaming.hpp -- operands that come to the host and results that leave it while a call is performed.
#pragma once

#include <cstddef>

namespace loom::device {

/// An executor tells this what it is about to read of the call's operand, and which bytes of the result are
/// final. Bytes are given by their address; addresses in no buffer of the call, or in one that lies on the
/// host, are ignored, so that an executor need not tell them apart.
class Streaming {
 public:
  virtual ~Streaming() = default;
  /// Returns once these bytes of the operand are there; waits for no other rank. To be called for each byte
  /// before it is first read or overwritten. Throws Error.
  virtual void need(const std::byte* first, std::size_t bytes) = 0;
  /// For code that reads the operand in its own way.
  virtual void need_all() = 0;
  /// These bytes of the result are final. To be called at most once for each byte; bytes that were not told
  /// are copied at the end.
  virtual void have(const std::byte* first, std::size_t bytes) noexcept = 0;
};

}  // namespace loom::device
