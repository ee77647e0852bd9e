// random_word.hpp -- a number that nobody guesses, from the system's source.
#pragma once

#include <cstdint>
#include <random>

namespace loom {

inline std::uint64_t random_word() {
  std::random_device source;
  return (std::uint64_t{source()} << 32) ^ source();
}

}  // namespace loom
