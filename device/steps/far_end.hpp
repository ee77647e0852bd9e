// far_end.hpp -- a rank's ends of links to other hosts, and the memory that they lie in. Host code.
#pragma once

#include <span>

#include "device/steps/channel.hpp"

namespace loom::device::steps {

/// Each flag has a line of its own: two sides write.
inline constexpr std::size_t kFlagBytes = 128;

/// This rank's end of a link to another host. Its words lie in memory of the host.
struct FarEnd {
  int link = 0;  ///< its number among all such links of all ranks: the other end has the same
  int channel = 0;
  int peer = 0;
  LinkKind kind = LinkKind::kRing;
  bool sends = false;
  FifoForm form = {};
  bool on_gpu = false;  ///< its slots, which the network reads and writes there; else beside its words
  std::byte* slots = nullptr;
  Word* filled = nullptr;    ///< of an end that sends, the kernel's; else its carrier's
  Word* consumed = nullptr;  ///< the other way round
  Sent* sent = nullptr;      ///< of an end that sends: see SendEnd
};

/// What a rank's ends take of the host's memory and of its GPU's.
struct FarBytes {
  std::size_t host = 0, gpu = 0;
};
/// Of one end, wherever its slots lie.
std::size_t bytes_of_far_end(const FifoForm& form);
FarBytes far_bytes(std::span<const FarEnd> ends);
/// Gives each its place in memory of so many bytes, at multiples of 128. Must be zeroed before the first
/// call.
void place(std::span<FarEnd> ends, std::byte* on_host, std::byte* on_gpu);

}  // namespace loom::device::steps
