// pipeline.hpp -- how ranks cut what they send to other hosts: evenly, and a message that they pass on into
// as many slices as its way asks for.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "device/link/step_flag.hpp"
#include "device/schedule/divide_up.hpp"

namespace loom::device {

/// The elements of a piece where as few pieces as there can be, of at most so many elements, are all about as
/// long: whole cache lines if `most` is.
inline std::size_t cut_evenly(std::size_t count, std::size_t elem_bytes, std::size_t most) {
  const std::size_t pieces = std::max<std::size_t>(1, divide_up(count, most));
  const std::size_t line = std::max<std::size_t>(1, kCacheLine / elem_bytes);
  return std::min(most, divide_up(std::max<std::size_t>(1, divide_up(count, pieces)), line) * line);
}

/// The longest way from the first rank to the last.
struct PipelineHops {
  int between_hosts = 0;
  int inside = 0;  ///< from rank to rank of a host
};

/// The elements of a slice: whole cache lines if elements are shorter than those, and slot_bytes at the most.
/// The same on all ranks, whatever their CPUs: what is rounded are a product, a quotient and a root.
///
/// With n slices of S bytes in all, h hops between hosts and l inside, the last slice arrives after
///
///   (n + h - 1) (a + b S/n) + l c S/n
///
/// where a message between hosts costs a and b for each byte, and a byte inside c. That is least for
/// n = sqrt((h - 1 + l c/b) S b/a). From links of 1 Gbit/s to those that are faster than the cores (TCP), a/b
/// is 1 to 20 KiB and b/c 80 to 4. 16 KiB and 20 suit links of 10 Gbit/s and more, and cost little on slower
/// ones (loom_bench bcast on three to six virtual hosts). Inside a host alone, a flag of 1 us is what 10 KiB
/// take.
inline std::size_t pipeline_slice_elems(std::size_t count, std::size_t elem_bytes, const PipelineHops& hops,
                                        std::size_t slot_bytes) {
  constexpr double kBytesPerMessage = 16 * 1024, kBytesPerFlag = 10 * 1024;  // a/b, inside a host
  constexpr int kBetweenToInside = 20;                                       // b/c
  const bool between = hops.between_hosts > 0;
  const int further =
      between ? (hops.between_hosts - 1) * kBetweenToInside + hops.inside : std::max(hops.inside - 1, 0);
  const double least = between ? kBytesPerMessage * kBetweenToInside : kBytesPerFlag;
  const auto best = static_cast<std::size_t>(
      std::lround(std::sqrt(static_cast<double>(further) * static_cast<double>(count * elem_bytes) / least)));
  const std::size_t line = std::max<std::size_t>(1, kCacheLine / elem_bytes);
  const std::size_t wanted = divide_up(divide_up(count, std::max<std::size_t>(1, best)), line) * line;
  const std::size_t in_slot = std::max(line, slot_bytes / elem_bytes / line * line);
  return cut_evenly(count, elem_bytes, std::clamp(wanted, line, in_slot));
}

}  // namespace loom::device
