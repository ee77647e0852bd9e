// draw.hpp -- random numbers that are the same on every machine: a stream, and numbers that belong to names.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace loom::random_programs {

/// A well-mixed number for some numbers. What depends on this alone does not change when others are left out.
constexpr std::uint64_t hash(std::initializer_list<std::uint64_t> numbers) {
  std::uint64_t x = 0x243f6a8885a308d3;
  for (const std::uint64_t number : numbers) {  // splitmix64
    x += number + 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    x ^= x >> 31;
  }
  return x;
}

/// The uses of numbers that belong to the same name.
enum Use : std::uint64_t {
  kStart,
  kStartOrder,
  kJoin,
  kWait,
  kWaitOrder,
  kHow,
  kFree,
  kTest,
  kLayout,
  kUnits,
  kPlace,
  kMemory,
  kValues,
  kMembers,
  kPauses
};

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(hash({seed})) {}
  std::uint64_t next() { return hash({state_, ++count_}); }
  /// In [0, n).
  int below(int n) { return static_cast<int>(next() % static_cast<std::uint64_t>(n)); }
  /// In [first, last].
  int between(int first, int last) { return first + below(last - first + 1); }
  /// In [0, 1).
  double share() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  bool chance(double share_of_one) { return share() < share_of_one; }

 private:
  std::uint64_t state_, count_ = 0;
};

}  // namespace loom::random_programs
