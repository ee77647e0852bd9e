// host_driven_executor.hpp -- collectives of one host on memory of GPUs, driven by the host: each round of
// the CICO buffers puts small copies and reductions on a stream, and sets a flag in host memory for the
// others when they have ended. Nothing spins on a GPU, so ranks may share one. Resumable as the others. Never
// run on a GPU so far: the tests use tests/virtual_gpu.
//
// Reductions go in order of rank, as on the host.
#pragma once

#include <vector>

#include "device/cuda/gpu_stream.hpp"
#include "device/host/cico_walk.hpp"

namespace loom::device::cuda {

/// The CICO buffers of one communicator, each on its rank's GPU.
class GpuCicoBuffers : public Rounds {
 public:
  /// Large enough to hide the launches of a round, which take some 10 us (an estimate; not measured).
  static constexpr std::size_t kBankBytes = std::size_t{4} << 20;
  static constexpr std::size_t bytes(std::size_t bank_bytes) { return kFewestBanks * bank_bytes; }

  /// banks[r]: where this process reaches the bytes() of rank r; all have the same. stream: of this rank's
  /// GPU.
  GpuCicoBuffers(GpuStream& stream, std::vector<std::byte*> banks, std::size_t bank_bytes,
                 std::vector<RoundFlags*> flags, int self)
      : Rounds(std::move(flags), self), stream_(stream), banks_(std::move(banks)), bank_bytes_(bank_bytes) {}

  GpuStream& stream() const noexcept { return stream_; }
  std::size_t bank_bytes() const noexcept { return bank_bytes_; }
  std::byte* to_write() const { return bank(self(), bank_to_write()); }
  const std::byte* to_read(int rank) const { return bank(rank, bank_to_read()); }

 private:
  std::byte* bank(int rank, std::uint64_t which) const {
    return banks_[static_cast<std::size_t>(rank)] + which * bank_bytes_;
  }
  GpuStream& stream_;
  std::vector<std::byte*> banks_;
  std::size_t bank_bytes_;
};

class HostDrivenExecutor : public CicoWalk {
 public:
  static constexpr bool takes(Collective collective) { return collective <= Collective::kAllToAll; }

  /// A call whose buffers lie on the GPU and are contiguous. takes(call.collective), count >= 1; a reduction
  /// is supported by Gpu.
  HostDrivenExecutor(GpuCicoBuffers& cico, const Call& call);
  /// Waits for what is on the GPU: until then nobody may use the buffers.
  ~HostDrivenExecutor();
  HostDrivenExecutor(const HostDrivenExecutor&) = delete;
  HostDrivenExecutor& operator=(const HostDrivenExecutor&) = delete;

  /// Begins a round unless it must wait for another rank, and ends it when its work has. Throws what Rounds
  /// and GpuStream throw.
  State advance();

 private:
  void offer(std::size_t tile);
  void reduce_own(std::size_t tile);
  void take(std::size_t tile);
  template <class OperandOf>
  void reduce_all(std::byte* out, int operands, OperandOf&& operand_of, std::size_t bytes);
  std::byte* piece(int part) const { return cico_.to_write() + piece_at(part); }
  const std::byte* piece_of(int rank, int part) const { return cico_.to_read(rank) + piece_at(part); }

  GpuCicoBuffers& cico_;
  GpuStream& stream_;
  bool follows_ = false;  ///< the program's work comes before this call's
  bool works_ = false;    ///< on a round
};

}  // namespace loom::device::cuda
