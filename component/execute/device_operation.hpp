// device_operation.hpp -- a call that does not wait, in a communicator whose ranks may have buffers on GPUs:
// how far it has come. DeviceCalls::advance() takes its steps.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>

#include "base/error.hpp"
#include "component/execute/packed_calls.hpp"
#include "component/execute/staged_call.hpp"
#include "component/select/algorithms.hpp"
#include "device/call.h"
#include "device/cuda/driver.hpp"
#include "device/cuda/program_mark.hpp"

namespace loom {

/// The call has ended, and its communicator goes on; but the results are not in the program's buffers,
/// because a copy has failed.
class NotCopied : public Error {
 public:
  explicit NotCopied(const Error& cause) : Error(cause) {}
};

/// When it is its turn, the ranks ask each other where their buffers are: by a call on host memory, for no
/// rank may wait. Then a kernel performs it, or whoever carries it on host memory.
struct DeviceOperation {
  enum class Phase : std::uint8_t { kHasToAsk, kAsks, kFollows, kPacks, kLoads, kRuns, kStores, kUnpacks };

  device::Call call;        ///< as the program has made it, or on packed buffers
  Algorithm on_host;        ///< what carries it there
  std::uint32_t epoch = 0;  ///< kernels that were made later are not for it (DeviceCalls)
  /// Of buffers that a kernel of this rank can reach. Nothing: they are on the host, maybe as staging
  /// buffers.
  std::optional<device::cuda::Owner> owner = {};
  std::unique_ptr<device::cuda::ProgramMark> after = {};  ///< what the program had enqueued before the call
  Phase phase = Phase::kHasToAsk;
  bool is_persistent = false;  ///< the ranks have asked when it was made; each start begins with kFollows
  std::exception_ptr not_marked = {};       ///< of the last start: why there is no mark
  std::uint64_t note = 0;                   ///< of the call, if there is an owner
  std::array<std::uint64_t, 3> words = {};  ///< the question, and its answer
  std::optional<Algorithm> on_gpus = {};    ///< what carries it there, once the ranks have asked
  PackedCalls::Lease packed = {};
  std::unique_ptr<StagedCall> staged = {};
  device::cuda::ProgramWait program_wait = {};
};

}  // namespace loom
