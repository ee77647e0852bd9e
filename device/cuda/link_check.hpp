// link_check.hpp -- tries the links of kernels once before calls use them: peer access may be announced and
// not work, or not as a protocol needs it.
#pragma once

#include <chrono>
#include <functional>

#include "device/cuda/kernel_links.hpp"

namespace loom::device::cuda {

/// An all-reduce of a few elements through every channel, or an all-to-all, for each pattern of links and
/// each protocol that KernelWays may choose. All ranks call it at a time, prepare()d for kCheckOp and
/// kCheckType: a driver may compile for longer than the limit on one rank alone. channels: what the links are
/// of. Throws Error, which names pattern and protocol, where a result is wrong or is not there after so long;
/// and what `check_peers` throws, which is called while this waits. Then the links must not be used any more,
/// and no kernel is on them.
void check_links(KernelLinks& links, GpuStream& stream, int rank, const KernelChannels& channels, int ranks,
                 std::chrono::milliseconds limit, const std::function<void()>& check_peers);

/// The operation of these calls, whose kernels are loaded for it.
inline constexpr Op kCheckOp = Op::kSum;
inline constexpr Type kCheckType = Type::kUint64;

}  // namespace loom::device::cuda
