// gpu_facts.hpp -- what the ranks of a host tell each other of their GPUs before they share memory of them,
// and what follows from it. Pure functions, so that all ranks get the same answer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace loom::device::cuda {

/// One rank's. Plain data: it travels as bytes.
struct GpuFacts {
  std::array<std::byte, 16> uuid{};  ///< ranks with the same one share a GPU (or an instance of one)
  std::uint64_t room = 0;            ///< bytes that this process may still allocate there
  std::int32_t multiprocessors = 0;  ///< that this process may use
  std::int32_t capability = 0;       ///< compute capability: 90 is 9.0
  std::array<char, 19> bus_id{};     ///< "0000:0a:00.0"; its end is a 0
  std::int8_t gpu_direct = -1;       ///< 1: network cards may read and write its memory; -1: not known
  bool mps = false;                  ///< its work reaches the GPU through MPS
  bool ipc = false;                  ///< Gpu::Memory::kPlain may be shared, as far as the driver tells
  bool virtual_memory = false;       ///< Gpu::Memory::kVirtual, likewise
  bool is_shared_by_others = false;  ///< so is the program's memory, by others than loom
};

enum class Sharing {
  kNone,         ///< each rank has a GPU of its own
  kResident,     ///< some share one, but the kernels of all can be resident at once
  kTakingTurns,  ///< some share one, and a kernel that waits may keep the one it waits for out for ever
};

/// Ranks that share this one's GPU, it included. facts: of all ranks. hosts: by rank; empty: all are on one.
/// (Cloned virtual machines may have GPUs of the same UUID.)
int sharers_of(std::span<const GpuFacts> facts, std::size_t rank, std::span<const int> hosts = {});

/// blocks: the most that a rank's kernel has.
///
/// Work of several processes is on a GPU at once only where MPS serves all of them. Even then it must have
/// room: each block is compiled to fit a multiprocessor, so one multiprocessor for each block suffices,
/// whatever else it needs.
Sharing sharing_of(std::span<const GpuFacts> facts, int blocks, std::span<const int> hosts = {});

/// LL128 relies on lines of 128 bytes that arrive whole. Over NVLink they do, from compute capability 7.0 on,
/// as NCCL counts on. Within a GPU nobody says so. So a rank's kernels may use it if NVLink leads to the GPUs
/// with these bus ids, which are all others'. Nothing: they may not, whatever leads there.
std::optional<std::vector<std::string>> nvlink_peers_for_ll128(std::span<const GpuFacts> facts,
                                                               std::size_t self);

}  // namespace loom::device::cuda
