// shared_buffers.hpp -- the program's buffers that the ranks of a communicator have shared with each other,
// and where this process reaches them. CUDA tells nobody when memory is freed: so a buffer goes by the
// driver's number for its memory, which never recurs, and its owner tells that number in each call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "device/cuda/gpu.hpp"
#include "device/cuda/opened_memory.hpp"

namespace loom::device::cuda {

/// A buffer as its owner tells of it. Plain data, in memory that all ranks share.
struct SharedBuffer {
  std::uint64_t id = 0;     ///< of the memory that it lies in; 0: nobody else reaches it
  std::uint64_t begin = 0;  ///< address and size of that memory in its owner's process
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  ///< of the buffer in it
  MemoryHandle handle = {};  ///< of that memory
};

/// All ranks call learn(), refuse() and postpone() alike, so that all know the same. What they throw is Error
/// (kDevice).
class SharedBuffers {
 public:
  /// gpu must outlive this.
  SharedBuffers(Gpu& gpu, int ranks, int self);
  ~SharedBuffers();
  SharedBuffers(const SharedBuffers&) = delete;
  SharedBuffers& operator=(const SharedBuffers&) = delete;

  /// This rank's. With an id of 0 where CUDA's IPC does not share such memory (of pools, virtual, managed,
  /// the host's), not all of it lies in one piece, or a rank has refused it.
  SharedBuffer tell_of(const std::byte* buffer, std::size_t bytes);
  /// A buffer of a rank in a call. False: it is new, and to be opened. Whatever lay there before is gone.
  bool learn(int rank, const SharedBuffer& buffer);
  /// Whether this process reaches it now.
  bool open(int rank, const SharedBuffer& buffer);
  /// Where it could not be opened: because of what lay there before, which is being closed.
  bool is_in_the_way(int rank, const SharedBuffer& buffer) const;
  /// See OpenedMemory. Once for each buffer: who has waited in vain does not do so in each call.
  void wait_for_room(int rank, const SharedBuffer& buffer, std::chrono::milliseconds moment);
  /// A rank could not open it: nobody uses it.
  void refuse(int rank, const SharedBuffer& buffer);
  /// Nobody does in this call; in the next one it is new again, also to ranks that have it open.
  void postpone(int rank, const SharedBuffer& buffer);
  /// Where this process reaches a buffer that all have opened.
  std::byte* at(int rank, const SharedBuffer& buffer) const;

 private:
  struct Known {
    std::uint64_t id = 0, begin = 0, bytes = 0;
    MemoryHandle handle = {};
    std::byte* mapped = nullptr;
    bool refused = false, postponed = false;
    bool waited_for = false;  ///< on this rank

    OpenedMemory::Place place() const { return {id, handle, bytes}; }
  };
  /// Of a rank: a buffer for each of so many layers of a network and to spare.
  static constexpr std::size_t kMostOfARank = 64;

  using List = std::list<Known>;
  List::const_iterator find(int rank, std::uint64_t id) const;
  Known& known(int rank, const SharedBuffer& buffer);
  void drop(Known& known) noexcept;

  Gpu& gpu_;
  int self_;
  std::vector<List> known_;  ///< by rank; what learn() was last asked about comes first
  std::vector<std::uint64_t>
      not_shared_;  ///< of this rank: ids of memory that IPC does not share, the last ones
};

}  // namespace loom::device::cuda
