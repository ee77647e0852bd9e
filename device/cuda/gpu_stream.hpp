// gpu_stream.hpp -- a GPU's work for the calls of one communicator: a stream that waits for no other, so that
// kernels which wait for other ranks hold up nobody else. Never run on a GPU so far.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "device/cuda/gpu.hpp"
#include "device/cuda/program_mark.hpp"

namespace loom::device::cuda {

/// For data between rows that lie apart and a packed buffer. `unit` bytes divide all addresses, distances and
/// lengths of `entries` rows; 1, 2, 4, 8 or 16.
struct PackArgs {
  const PackedRows* table;  ///< in device memory
  int entries;
  std::size_t unit;
  std::byte* packed;
};

/// Only synchronize() waits for what is enqueued. Every function throws Error (kDevice, kOutOfMemory).
class GpuStream {
 public:
  /// gpu must outlive this.
  explicit GpuStream(Gpu& gpu);
  ~GpuStream();
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;

  Gpu& gpu() const noexcept { return gpu_; }

  /// What is enqueued from now on begins after all that the program has put so far into the legacy default
  /// stream and into those that synchronise with it.
  void follow_program();
  /// The same, but only after a mark on this GPU.
  void follow(const ProgramMark& mark);
  /// Whether what follow_program() has found there has ended. A query of the driver.
  bool program_has_ended() const;
  void copy(void* to, const void* from, std::size_t bytes);
  /// No op: data is only moved, as kUint8.
  void combine(std::optional<Op> op, Type type, const CombineArgs& args);
  /// Packs rows, or unpacks them. bytes: of all.
  void move_rows(bool packs, const PackArgs& args, std::size_t bytes);
  /// A kernel that performs the collective; one block for each channel. No op as for combine().
  void perform(std::optional<Op> op, Type type, const CollectiveArgs& args, unsigned channels);
  /// Whether all that was enqueued has ended.
  bool is_idle() const;
  void synchronize();
  /// Loads combine()'s kernel, launches it with nothing to do, and waits for it.
  void prepare_combine(std::optional<Op> op, Type type);

 private:
  struct Functions;
  void launch(void* kernel, std::size_t blocks, unsigned threads, void* args);
  void check(int result, const char* doing) const;
  bool has_ended(int (*query)(void*), void* what) const;

  Gpu& gpu_;
  std::unique_ptr<Functions> functions_;
  void* stream_ = nullptr;
  void* event_ = nullptr;  ///< in the program's stream
};

}  // namespace loom::device::cuda
