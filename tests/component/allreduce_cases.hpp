// allreduce_cases.hpp -- one allreduce with inputs whose result is exact, checked on the calling rank.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "thread_ranks.hpp"

namespace loom::test {

/// Element i of a rank's operand in call number `call`: small, so that float sums over some hundred ranks are
/// exact.
template <class T>
T operand(int rank, std::size_t i, int call) {
  return static_cast<T>((static_cast<std::size_t>(rank) * 3 + i * 7 + static_cast<std::size_t>(call) * 5) %
                        31);
}

template <class T>
std::vector<T> operands(int rank, std::size_t count, int call) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = operand<T>(rank, i, call);
  return values;
}

/// The sum over all ranks, added up one by one.
template <class T>
std::vector<T> expected_sum(int ranks, std::size_t count, int call) {
  std::vector<T> sums(count, T{});
  for (int rank = 0; rank < ranks; ++rank)
    for (std::size_t i = 0; i < count; ++i) sums[i] = static_cast<T>(sums[i] + operand<T>(rank, i, call));
  return sums;
}

template <class T>
std::byte* bytes_of(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

/// Returns whether loom took the call; expects the sum where it did.
template <class T>
bool check_sum(Rank& self, Communicator& communicator, device::Type type, std::size_t count, bool in_place,
               int call) {
  std::vector<T> in = operands<T>(self.rank(), count, call);
  const std::vector<T> untouched = in;
  std::vector<T> out(count, T{99});
  if (in_place) out = in;
  if (!allreduce(communicator, bytes_of(in_place ? out : in), bytes_of(out), count, type, device::Op::kSum))
    return false;
  EXPECT_EQ(out, expected_sum<T>(self.size(), count, call)) << "rank " << self.rank() << ", count " << count;
  EXPECT_EQ(in, untouched);
  return true;
}

}  // namespace loom::test
