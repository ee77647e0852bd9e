// packed_call.hpp -- a call whose buffers lie on a GPU and have gaps: kernels pack its operands into other
// memory of the GPU, where the call is performed, and unpack its results from there. Whether a rank does so
// is its own business; the others need not know.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "component/execute/gpu_buffer.hpp"
#include "component/setup/process.hpp"
#include "device/call.h"
#include "device/cuda/gpu_stream.hpp"
#include "device/cuda/program_mark.hpp"

namespace loom {

class PackedCall {
 public:
  /// of_all: bytes of GPUs that all packed calls of the communicator hold. Both must outlive this.
  PackedCall(Process& process, std::atomic<std::size_t>& of_all) : process_(process), of_all_(of_all) {}
  ~PackedCall() { of_all_ -= counted_; }
  PackedCall(const PackedCall&) = delete;
  PackedCall& operator=(const PackedCall&) = delete;

  /// Of a call with packers. False: its buffers have to be staged, which are on the host or on several GPUs,
  /// in very many pieces, or with blocks whose lengths do not match.
  /// Or it lacks memory and kernels, which to make may wait for the GPU, and it may not wait.
  bool prepare(const device::Call& call, int rank, int ranks, bool may_wait);
  /// Whether the call was one that lacks them. make_ready() makes them; false: they are not to be had.
  bool lacks() const noexcept { return lacks_; }
  bool make_ready();
  /// Then: there is memory, but the communicator's packed calls would hold too much of it.
  bool lacks_room() const noexcept { return lacks_room_; }
  /// Bytes of the GPU. To free them may wait for it.
  std::size_t holds() const noexcept { return in_.memory.bytes() + out_.memory.bytes(); }
  std::size_t needs() const noexcept { return in_.room() + out_.room(); }
  /// Of the buffers of such a call: whose, and some of their memory.
  const device::cuda::Owner& owner() const noexcept { return *owner_; }
  const std::byte* buffer() const noexcept;

  /// The same call on packed buffers, until the next one.
  const device::Call& call() const noexcept { return call_; }
  /// Before and after it: begin, pack() after a mark in the program's work; nullptr: after all that it has
  /// put into the legacy default stream. Done when is_done() says so. Of a block that came short, which is an
  /// error of the program, the rest is what lay there before. All throw Error.
  void pack(const device::cuda::ProgramMark* after);
  void unpack();
  bool is_done() const { return !moves_ || stream_->is_idle(); }
  /// The context of its stream and its memory has ended, as by cudaDeviceReset(): both are gone.
  bool has_lost_gpu() const { return gpu_ && !gpu_->is_alive(); }

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
  bool has_gpu() const;
  bool has_memory() const;
  bool use_gpu();
  bool has_room() const;
  void take_memory(Side& side);
  void count_memory() noexcept;
  void upload_table(Side& side);
  void move(bool packs, Side& side);

  Process& process_;
  std::atomic<std::size_t>& of_all_;
  std::size_t counted_ = 0;  ///< there, of this one
  Side in_, out_;
  device::Call call_;
  std::optional<device::cuda::Owner> owner_;
  std::shared_ptr<device::cuda::Gpu> gpu_;
  std::unique_ptr<device::cuda::GpuStream> stream_;  ///< on it
  bool refused_ = false;                             ///< the GPU takes no kernels
  bool lacks_ = false, lacks_room_ = false;
  bool moves_ = false;  ///< something is in the stream
};

}  // namespace loom
