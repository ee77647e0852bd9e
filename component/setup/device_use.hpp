// device_use.hpp -- whether a rank keeps calls on GPUs, or why not: for the line that says why variables for
// GPUs have no effect.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "component/select/tune.hpp"
#include "component/setup/process.hpp"

namespace loom {

/// For messages, before why.
constexpr const char* kStagedCalls = "device buffers go through the host";

/// Plain data: ranks tell each other.
enum class DeviceUse : std::uint64_t {
  kKeepsCalls,
  kHostMemory,   ///< coll_loom_memory: there are no other buffers
  kNoDriver,     ///< CUDA's driver is not there yet
  kNoKernels,    ///< of this build
  kOtherRules,   ///< coll_loom_tune leaves no call to algorithms on GPUs
  kReproducible  ///< coll_loom_reproducible, and zero_copy is ruled out
};

/// Of this rank. looks: it looks for devices on this communicator.
DeviceUse device_use(Process& process, bool looks);

/// Why a communicator of these ranks keeps no calls on GPUs, as the rest of a sentence; of ranks that differ
/// the first that does not. Empty: it does. in_order: all of them want coll_loom_reproducible.
std::string why_not_on_gpus(std::span<const DeviceUse> ranks, int hosts, bool in_order);
/// Whether any of these ranks may have buffers on GPUs, so that this matters.
bool any_has_a_driver(std::span<const DeviceUse> ranks);

}  // namespace loom
