// lane.hpp -- what one persistent request has of its own: memory of all ranks, and a queue. So it needs no
// place among the starts of others.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "component/communicator/requests.hpp"
#include "component/execute/execution.hpp"
#include "component/execute/packed_calls.hpp"
#include "component/links/lane_memory.hpp"
#include "component/links/links.hpp"
#include "component/setup/member.hpp"
#include "device/cuda/program_mark.hpp"
#include "device/cuda/zero_copy_executor.hpp"

namespace loom {

/// What a request has in addition whose buffers lie on GPUs on all ranks, and stay there.
class LaneOnGpu {
 public:
  /// boards: by rank. All must outlive this. Throws Error.
  LaneOnGpu(device::cuda::GpuLinks& gpus, const device::cuda::Driver& driver,
            std::vector<device::cuda::ZeroCopyBoard*> boards, int self)
      : gpus_(gpus),
        driver_(driver),
        links_(gpus.stream_of_lanes(), gpus.launch_words(), {}, 0, std::move(boards), self) {}
  ~LaneOnGpu();

  /// Before anybody starts the request: tries to reach all buffers.
  void begin_try(Operation& operation) {
    operation.executor.emplace<device::cuda::ZeroCopyExecutor>(gpus_, links_, operation.call, nullptr);
  }
  /// The request's call is that of `packed`.
  void pack_by(PackedCalls::Lease packed) noexcept { packed_ = std::move(packed); }
  /// At a start: the call comes after what the program has enqueued by now. advance() throws what fails here.
  void mark_program(device::cuda::ProgramMark::Behind behind) noexcept;
  /// Throws as Execution::advance(), and NotCopied.
  State advance(Execution& execution, Operation& operation);

 private:
  enum class Phase : std::uint8_t { kFollows, kPacks, kRuns, kUnpacks };

  device::cuda::GpuLinks& gpus_;
  const device::cuda::Driver& driver_;
  device::cuda::ZeroCopyLinks links_;
  Phase phase_ = Phase::kFollows;
  PackedCalls::Lease packed_;
  device::cuda::ProgramWait program_wait_;
  std::unique_ptr<device::cuda::ProgramMark> after_;
  std::exception_ptr not_marked_;
};

struct Lane {
  /// All must outlive this. Its place in this rank's memory is cleared; no other rank may use the lane before
  /// all have made it.
  Lane(Communicator& communicator, Member& member, const Links& of_communicator, LaneMemory::Place& at,
       const LaneForm& form, std::atomic<bool>& any_released_of_communicator);
  ~Lane() { place.left = true; }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  Links links;  ///< its memory, and nothing else
  std::optional<LaneOnGpu> on_gpu;
  Execution execution;
  RequestQueue queue;
  LaneMemory::Place& place;
  std::atomic<bool> released{false};  ///< its request has gone; pairs with the look before it is taken back
  std::atomic<bool>& any_released;    ///< of the communicator
};

}  // namespace loom
