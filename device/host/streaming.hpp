// streaming.hpp -- operands that come to the host and results that leave it while a call is performed.
#pragma once

#include <cstddef>

namespace loom::device {

/// Told by an executor what it is about to read of the call's operand, and what of the result is in its
/// place. Bytes are given by their address; those that are in no buffer of the call's, or in one that lies on
/// the host, are passed over, so that an executor need not know which is which.
class Streaming {
 public:
  virtual ~Streaming() = default;
  /// Returns once these bytes of the operand are there, which waits for no other rank. Each byte before it is
  /// first read or overwritten. Throws Error.
  virtual void need(const std::byte* first, std::size_t bytes) = 0;
  /// For whoever reads the operand in ways of his own.
  virtual void need_all() = 0;
  /// These bytes of the result stay as they are. Each byte once at the most: what nobody tells of is fetched
  /// at the end.
  virtual void have(const std::byte* first, std::size_t bytes) noexcept = 0;
};

}  // namespace loom::device
