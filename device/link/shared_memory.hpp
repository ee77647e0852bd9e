// shared_memory.hpp -- memory that the ranks of one host share. It never has a name in a file system, so
// nothing can be left behind, whatever kills its owner.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace loom::device {

/// How a peer on the same host finds a segment. Plain data: it travels between ranks as bytes.
struct SegmentHandle {
  std::int64_t pid = 0;
  std::int32_t fd = -1;
  std::uint32_t socket =
      0;  ///< as of PassedFile: where a peer in another user namespace takes the descriptor
  std::uint64_t secret = 0;
  std::uint64_t bytes = 0;
  std::uint64_t token = 0;  ///< random, first word of the segment: proves that the peer opened the right one
  std::uint64_t address = 0;  ///< of that word in the owner's memory
};

/// A segment as this process sees it, its own or a peer's; unmapped when its last Segment goes. Movable.
class Segment {
 public:
  /// Creates and maps a zeroed segment, all of it backed by memory at once (a later shortage cannot turn into
  /// SIGBUS). Throws Error (kOutOfMemory, kSystem).
  static Segment create(std::size_t bytes);
  /// Maps a peer's segment through /proc/<pid>/fd/<fd>, or by a socket where the peer is in a user namespace
  /// of its own and /proc refuses; the peer must still have its handle open. Within one
  /// process (ranks as threads) all share one mapping, so that ThreadSanitizer sees one memory. Throws Error
  /// (kUnreachable) naming the pid when this is not permitted or the file is not what the handle says.
  static Segment attach(const SegmentHandle& handle);

  /// Only of a segment from create(), until close_handle().
  SegmentHandle handle() const noexcept;
  /// After this no other process can attach (nothing happens where there is no segment); the memory lives on
  /// while anyone has it mapped.
  void close_handle() noexcept;

  /// 64-byte aligned; as many bytes as create() was asked for.
  std::byte* data() const noexcept;

 private:
  class Mapping;
  std::shared_ptr<Mapping> mapping_;
};

}  // namespace loom::device
