// late_copies.hpp -- operands that are copied to the host when a call that may be declined turns out to need
// them.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "device/cuda/staging.hpp"
#include "device/streaming.hpp"

namespace loom::device::cuda {

/// A staging buffer, and what of it is copied to the host; not empty.
struct LateSide {
  StagingBuffer* staging_buffer;
  std::span<const StridedRegion> load;
};

/// All at once, at the first need. Results are not its concern.
class LateCopies final : public Streaming {
 public:
  explicit LateCopies(std::vector<LateSide> sides) : sides_(std::move(sides)) {}
  void need(const std::byte* /*first*/, std::size_t /*bytes*/) override { need_all(); }
  void need_all() override {
    for (const LateSide& side : std::exchange(sides_, {}))
      side.staging_buffer->copy(side.load, Direction::kToHost);
  }
  void have(const std::byte* /*first*/, std::size_t /*bytes*/) noexcept override {}

 private:
  std::vector<LateSide> sides_;  ///< those that have not been copied
};

}  // namespace loom::device::cuda
