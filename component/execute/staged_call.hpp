// staged_call.hpp -- a call whose contiguous buffers lie on a GPU, and which goes through the host: staging
// buffers in place of them, and the copies. Nothing here waits for the device.
#pragma once

#include <memory>
#include <vector>

#include "device/call.h"
#include "device/cuda/polled_copies.hpp"
#include "device/cuda/program_mark.hpp"
#include "device/cuda/staging.hpp"
#include "device/significance.h"

namespace loom {

class StagedCall {
 public:
  /// A call with buffers as for_all_pieces() has them, of one GPU. Copies come after the mark. What is given
  /// must outlive this. Throws Error.
  StagedCall(device::cuda::Staging& staging, const device::cuda::ProgramMark& after, const device::Call& call,
             int rank, int ranks);

  /// The same call on staging buffers, which this owns.
  const device::Call& on_host() const noexcept { return on_host_; }
  /// Whether all operands are there; then, after the call, the same for its results. Called until true.
  /// Throws Error.
  bool load() { return copies_->load(); }
  bool store() { return copies_->store(); }

 private:
  struct Side {
    std::vector<device::cuda::StridedRegion> load, store;
    std::unique_ptr<device::cuda::StagingBuffer> buffer;

    const std::byte* first() const;
    template <class Byte>
    Byte* on_host(Byte* address) const {
      return address + buffer->distance();
    }
  };
  void add(loom_side side, const std::byte* data, std::size_t bytes);
  Side& side_of_in() { return in_place_ ? out_ : in_; }
  void replace_buffers(int rank, int ranks);

  device::Call on_host_;
  bool in_place_;  ///< the operand is in the side of the result
  Side in_, out_;
  std::vector<device::Block> in_blocks_, out_blocks_;  ///< of on_host_
  std::unique_ptr<device::cuda::PolledCopies> copies_;
};

}  // namespace loom
