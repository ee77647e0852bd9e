// streamed_copies.hpp -- copies between device buffers and their staging buffers that go on while a call
// does: of the operand shortly before the call reads it, of the result as soon as it is there.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device/cuda/staging.hpp"
#include "device/streaming.hpp"

namespace loom::device::cuda {

struct StreamFunctions;

/// A staging buffer with the one piece of it that is copied to the host, and the one that is copied back;
/// both are contiguous.
struct StreamedSide {
  StagingBuffer* staging_buffer = nullptr;
  std::optional<StridedRegion> load, store;
};

/// Copies go in parts, in two streams for each side. The streams wait only for what the program had put into
/// the legacy default stream, and into streams that synchronise with it, when this was made. Operands are
/// read by ascending address, in one or several places at a time: the next part at each place is already on
/// its way.
class StreamedCopies final : public Streaming {
 public:
  static constexpr std::size_t kPartBytes = 256 * 1024;  ///< hides what a copy costs to start (an estimate)
  static constexpr std::size_t kPartsAhead = 1;

  /// Throws Error.
  explicit StreamedCopies(std::span<const StreamedSide> sides);
  /// Without finish() results are not whole. Waits for copies on their way.
  ~StreamedCopies() override;
  StreamedCopies(const StreamedCopies&) = delete;
  StreamedCopies& operator=(const StreamedCopies&) = delete;

  void need(const std::byte* first, std::size_t bytes) override;
  void need_all() override;
  void have(const std::byte* first, std::size_t bytes) noexcept override;
  /// Copies the rest of the results, also what have() could not; returns when all is in its place. Throws
  /// Error.
  void finish();

 private:
  class Side;
  std::unique_ptr<StreamFunctions> functions_;
  std::vector<std::unique_ptr<Side>> sides_;
};

}  // namespace loom::device::cuda
