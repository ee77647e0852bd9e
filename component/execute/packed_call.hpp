// packed_call.hpp -- a call whose buffers lie on a GPU and have gaps: kernels pack its operands into other
// memory of the GPU, where the call is performed, and unpack its results from there. Whether a rank does so
// is its own business; the others need not know.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "component/execute/gpu_buffer.hpp"
#include "component/setup/process.hpp"
#include "device/call.h"
#include "device/cuda/gpu_stream.hpp"

namespace loom {

class PackedCall {
 public:
  /// process must outlive this.
  explicit PackedCall(Process& process) : process_(process) {}
  PackedCall(const PackedCall&) = delete;
  PackedCall& operator=(const PackedCall&) = delete;

  /// The same call on packed buffers, which stays until the next one, or nullptr: none of the call's buffers
  /// has gaps, or they have to be staged. These have to: buffers on the host or on several GPUs, in very many
  /// pieces, with a block that is in place already, or with blocks whose lengths do not match.
  const device::Call* prepare(const device::Call& call, int rank, int ranks);
  /// Before and after the call that prepare() has returned last: begin, after what the program has put into
  /// the legacy default stream; done when is_done() says so. Of a block that came short, which is an error of
  /// the program, the rest is what lay there before. All throw Error.
  void pack() { move(true); }
  void unpack() { move(false); }
  bool is_done() const { return !moves_ || stream_->is_idle(); }

 private:
  struct Side {
    std::vector<device::cuda::PackedRows> rows;  ///< of no rows: nothing to do
    std::size_t bytes = 0, unit = 1;
    std::vector<device::Block> blocks;
    GpuBuffer memory;  ///< the packed buffer, and behind it the table of rows

    std::size_t table_at() const;
    std::size_t room() const;
  };

  bool find_rows(Side& side, const device::Packer* packer, std::size_t bytes);
  bool is_on_one_gpu(const device::cuda::PackedRows& rows);
  bool use_gpu();
  bool has_room() const;
  void take_memory(Side& side);
  void move(bool packs);

  Process& process_;
  Side in_, out_;
  device::Call call_;
  std::optional<device::cuda::Owner> owner_;
  std::shared_ptr<device::cuda::Gpu> gpu_;
  std::unique_ptr<device::cuda::GpuStream> stream_;  ///< on it
  bool refused_ = false;                             ///< the GPU takes no kernels
  bool moves_ = false;                               ///< something is in the stream
};

}  // namespace loom
