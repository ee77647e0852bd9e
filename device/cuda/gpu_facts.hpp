// gpu_facts.hpp -- what the ranks of a host tell each other of their GPUs before they share memory of them,
// and what follows from it. Pure functions, so that all ranks get the same answer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace loom::device::cuda {

/// One rank's. Plain data: it travels as bytes.
struct GpuFacts {
  std::array<std::byte, 16> uuid{};  ///< ranks with the same one share a GPU (or an instance of one)
  std::uint64_t room = 0;            ///< bytes that this process may still allocate there
  std::int32_t multiprocessors = 0;  ///< that this process may use
  bool mps = false;                  ///< its work reaches the GPU through MPS
  bool ipc = false;                  ///< Gpu::Memory::kPlain may be shared, as far as the driver tells
  bool virtual_memory = false;       ///< Gpu::Memory::kVirtual, likewise
};

enum class Sharing {
  kNone,         ///< each rank has a GPU of its own
  kResident,     ///< some share one, but the kernels of all can be resident at once
  kTakingTurns,  ///< some share one, and a kernel that waits may keep the one it waits for out for ever
};

/// facts: of all ranks. blocks: the most that a rank's kernel has.
///
/// Work of several processes is on a GPU at once only where MPS serves all of them. Even then it must have
/// room: each block is compiled to fit a multiprocessor, so one multiprocessor for each block suffices,
/// whatever else it needs.
Sharing sharing_of(std::span<const GpuFacts> facts, int blocks);

}  // namespace loom::device::cuda
