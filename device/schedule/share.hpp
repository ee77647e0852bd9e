// share.hpp -- how channels share a chunk, by weight. Pure arithmetic; all ranks compute the same.
#pragma once

#include "device/schedule/divide_up.hpp"

namespace loom::device {

/// Elements [first, first + length).
struct Part {
  std::size_t first = 0, length = 0;
};

/// A channel's weight among those that take part in a call, which stand in one order on all ranks.
struct Share {
  unsigned before = 0;  ///< the weights of those before it
  unsigned weight = 1;
  unsigned total = 1;  ///< of all that take part; at most 2^24, so that nothing below overflows
};

/// The share's part of `length` elements: whole lines of `line` elements, but for the end of the last one.
/// The parts of all shares cover the elements exactly once.
LOOM_HOST_DEVICE constexpr Part window(std::size_t length, std::size_t line, const Share& share) {
  const std::size_t lines = divide_up(length, line), end = share.before + share.weight;
  const auto least = [](std::size_t a, std::size_t b) { return a < b ? a : b; };
  const std::size_t first = least(length, lines * share.before / share.total * line);
  return {first, least(length, lines * end / share.total * line) - first};
}

/// No part of the share is longer, of so many elements or of fewer. (A part may be longer than that of more
/// elements: lines that one share gains another loses.)
LOOM_HOST_DEVICE constexpr std::size_t longest_window(std::size_t length, std::size_t line,
                                                      const Share& share) {
  return divide_up(divide_up(length, line) * share.weight, share.total) * line;
}

/// Elements [offset, offset + most) of a part.
LOOM_HOST_DEVICE constexpr Part slice_of(const Part& part, std::size_t offset, std::size_t most) {
  const std::size_t skipped = part.length < offset ? part.length : offset, left = part.length - skipped;
  return {part.first + skipped, left < most ? left : most};
}

}  // namespace loom::device
