// zero_copy_links.hpp -- what the ranks of one communicator need for calls whose kernels read and write the
// buffers of all of them: a board in host memory on which they tell of their buffers and of how far they are,
// and for buffers that others cannot reach, bounce buffers that they can. Never run on a GPU so far.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "device/cuda/gpu_stream.hpp"
#include "device/cuda/launch_words.hpp"
#include "device/cuda/shared_buffers.hpp"
#include "device/cuda/zero_copy_plan.hpp"
#include "device/link/step_flag.hpp"

namespace loom::device::cuda {

/// What a rank tells of its part in a call. Plain data.
struct ZeroCopyOffer {
  /// Of one side. Where it bounces, others reach the rank's bounce buffer in its place.
  struct Buffer {
    SharedBuffer shared;
    bool bounces = false;
  };
  /// In bytes from where the side begins.
  struct Block {
    std::uint64_t first = 0, bytes = 0;
  };
  std::array<Buffer, kSides> sides;
  std::uint64_t longest = 0;                     ///< elements of its longest block
  std::uint64_t single = 0;                      ///< bytes of its only block, where the call lists blocks
  std::array<Block, CombineArgs::kMost> blocks;  ///< those that it lists, by rank

  const Buffer& side(Side side) const { return sides[static_cast<std::size_t>(side)]; }
  Buffer& side(Side side) { return sides[static_cast<std::size_t>(side)]; }
};

/// A rank's, zeroed before any rank constructs. Steps are counted alike on all ranks; a rank writes what goes
/// with a step before it publishes that.
///
/// A rank changes its offer, and what it has refused, when all have published `done` of the step that they
/// were for.
struct ZeroCopyBoard {
  alignas(kCacheLine) StepFlag ready;  ///< its operands may be read, and its results written
  StepFlag opened;                     ///< it has tried to open what is new
  std::uint64_t refused = 0;           ///< then: what it could not, a bit for each rank and side
  std::uint64_t in_the_way = 0;        ///< of these, because of what lay there before
  alignas(kCacheLine) StepFlag done;   ///< it reads and writes no buffer of others any more
  alignas(kCacheLine) ZeroCopyOffer offer;
};

class ZeroCopyLinks {
 public:
  static constexpr int kMostRanks = CombineArgs::kMost;
  /// Of each side. Large enough to hide the host's part in a round, some 20 us (an estimate; not measured).
  static constexpr std::size_t kBounceBytes = std::size_t{4} << 20;
  static constexpr std::size_t bytes(std::size_t bounce_bytes) { return kSides * bounce_bytes; }

  /// bounce[r]: where this process reaches bytes() of rank r; of a lane there are none, and bounce_bytes is
  /// 0. boards: by rank. They, `stream` and `words` must outlive this.
  ZeroCopyLinks(GpuStream& stream, LaunchWordsPool& words, std::span<std::byte* const> bounce,
                std::size_t bounce_bytes, std::vector<ZeroCopyBoard*> boards, int self);
  ~ZeroCopyLinks();
  ZeroCopyLinks(const ZeroCopyLinks&) = delete;
  ZeroCopyLinks& operator=(const ZeroCopyLinks&) = delete;

  int size() const noexcept { return static_cast<int>(boards_.size()); }
  int self() const noexcept { return self_; }
  GpuStream& stream() const noexcept { return stream_; }
  SharedBuffers& buffers() noexcept { return buffers_; }
  std::size_t bounce_bytes() const noexcept { return bounce_bytes_; }
  std::byte* bounce(int rank, Side side) const {
    return bounce_[static_cast<std::size_t>(rank)] + static_cast<std::size_t>(side) * bounce_bytes_;
  }
  ZeroCopyBoard& board(int rank) const { return *boards_[static_cast<std::size_t>(rank)]; }
  ZeroCopyBoard& own() const { return board(self_); }
  /// Of the call that is under way, and of those before it.
  std::uint64_t step() const noexcept { return step_; }
  std::uint64_t next_step() noexcept { return ++step_; }
  /// The lowest rank whose flag is below the step; nothing: none is.
  std::optional<int> behind(StepFlag ZeroCopyBoard::*flag) const;

  /// Loads the kernel, launches it with nothing to do, and waits for it.
  void prepare(std::optional<Op> op, Type type) { stream_.prepare_combine(op, type); }
  /// Enqueues the kernel, one at a time.
  void start(std::optional<Op> op, Type type, CombineArgs args);
  /// Whether it has ended: its results are there, for everybody. Mostly one look at host memory.
  bool has_ended();

 private:
  GpuStream& stream_;
  std::vector<std::byte*> bounce_;
  std::size_t bounce_bytes_;
  std::vector<ZeroCopyBoard*> boards_;
  int self_;
  SharedBuffers buffers_;
  std::uint64_t step_ = 0;
  LaunchWordsPool& pool_;
  LaunchWordsPool::Words words_;
  Word launches_ = 0;
  unsigned looks_ = 0;
};

}  // namespace loom::device::cuda
