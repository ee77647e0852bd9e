// polled_copies.hpp -- copies between device buffers and their staging buffers for a call that does not wait:
// whoever lets the call progress asks how far they are.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "device/cuda/staging.hpp"

namespace loom::device::cuda {

class ProgramMark;
struct StreamFunctions;

/// A staging buffer with the regions that are copied to the host before the call, and back after it. What
/// they refer to must outlive the copies.
struct PolledSide {
  StagingBuffer* staging_buffer = nullptr;
  std::span<const StridedRegion> load, store;
};

/// Nothing here waits for the device: it may wait for the program. Copies come after a mark in the program's
/// work, and go in a stream of their own, so what the program enqueues later does not matter.
class PolledCopies {
 public:
  /// after: on the device of all sides, and outlives this. nullptr: marks are made now. Throws Error.
  explicit PolledCopies(std::span<const PolledSide> sides, const ProgramMark* after = nullptr);
  /// Staging buffers that copies may still reach are lost (StagingBuffer::lose).
  ~PolledCopies();
  PolledCopies(const PolledCopies&) = delete;
  PolledCopies& operator=(const PolledCopies&) = delete;

  /// The driver copies pageable memory while it is called. So each call here copies no more of it than this,
  /// and the next one goes on.
  static constexpr std::size_t kPageableBytes = StagingBuffer::kWindowBytes;

  /// Whether all operands are in host memory. The first call that can begins their copies. Throws Error.
  bool load();
  /// The same for the results, after load(): whether all are in the program's buffers. Throws Error.
  bool store();

 private:
  class Side;
  std::unique_ptr<StreamFunctions> functions_;
  std::vector<std::unique_ptr<Side>> sides_;
};

}  // namespace loom::device::cuda
