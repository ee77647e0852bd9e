// pipeline.hpp -- into how many slices ranks cut a message that they pass on.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "device/link/step_flag.hpp"
#include "device/schedule/divide_up.hpp"

namespace loom::device {

/// The longest way from the first rank to the last.
struct PipelineHops {
  int between_hosts = 0;
  int inside = 0;  ///< from rank to rank of a host
};

/// The elements of a slice: whole cache lines if they are shorter than that, and slot_bytes at the most.
///
/// With n slices of S bytes in all, h hops between hosts and l inside, the last slice arrives after
///
///   (n + h - 1) (a + b S/n) + l c S/n
///
/// where a message between hosts costs a and b for each byte, and a byte inside c. That is least for
/// n = sqrt((h - 1 + l c/b) S b/a). From links of 1 Gbit/s to links faster than the cores (TCP), a/b is 1 to
/// 20 KiB and b/c 80 to 4: with what lies between, slices are much too long for none and too short for none.
inline std::size_t pipeline_slice_elems(std::size_t count, std::size_t elem_bytes, const PipelineHops& hops,
                                        std::size_t slot_bytes) {
  constexpr double kBytesPerMessage = 16 * 1024, kBytesPerMessageInside = 10 * 1024;  // a/b
  constexpr double kInsideToBetween = 1.0 / 20;                                      // c/b
  const std::size_t bytes = count * elem_bytes;
  const double further = hops.between_hosts > 0 ? hops.between_hosts - 1 + hops.inside * kInsideToBetween
                                                : std::max(hops.inside - 1, 0);
  const double least = hops.between_hosts > 0 ? kBytesPerMessage : kBytesPerMessageInside;
  const auto best =
      static_cast<std::size_t>(std::lround(std::sqrt(further * static_cast<double>(bytes) / least)));
  const std::size_t slices = std::max({std::size_t{1}, best, divide_up(bytes, slot_bytes)});
  const std::size_t line = std::max<std::size_t>(1, kCacheLine / elem_bytes);
  const std::size_t elems = divide_up(divide_up(count, slices), line) * line;
  return std::clamp(elems, line, std::max(line, slot_bytes / elem_bytes / line * line));
}

}  // namespace loom::device
