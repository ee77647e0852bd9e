// What allreduce computes: every type, operation and count, in place and not.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>

#include "tests/mpi/harness.hpp"

namespace loom::mpi_test {
namespace {

using mpi::Op;
using mpi::Range;
using mpi::Type;

/// Around the borders that algorithms have: nothing, fewer elements than ranks, one slot, several, odd rests.
std::set<std::size_t> counts(int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  return {0, 1, 2, 3, 7, 8, n - 1, n, n + 1, 100, 1000, 4096, 65536 + 3, (1 << 20) + 1};
}

void exact_for_every_count(Check& check, Type type, Op op) {
  const Reduction reduction(check.world, type, op);
  std::uint64_t shift = 0;
  for (const std::size_t count : counts(check.world.ranks)) {
    for (const bool in_place : {false, true})
      reduction.run(check, count, {.in_place = in_place, .shift = ++shift});
  }
}

void integers_wrap(Check& check, Type type, Op op) {
  const std::set<std::size_t> counts = {1, 7, 1000, 65536 + 3};
  const std::size_t least_bytes = *counts.begin() * mpi::size_of(type);
  if (mpi::size_of(type) < 4 && !check.settings.loom_carries(least_bytes)) {
    return check.skip("the fallback component may saturate 8- and 16-bit sums");
  }
  const Reduction reduction(check.world, type, op, Range::kWrapping);
  for (const std::size_t count : counts) reduction.run(check, count, {.shift = count});
}

/// Bitwise equal on all ranks, and as near to the sum of all operands as any order of adding gives.
template <class T>
void floats_agree(Check& check, MPI_Datatype type) {
  const Group& world = check.world;
  std::mt19937_64 random(check.settings.seed + static_cast<std::uint64_t>(world.rank));
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (const std::size_t count : {1UL, 5UL, 1000UL, 20000UL, 300000UL}) {
    const int n = static_cast<int>(count);
    std::vector<T> operand(count), sum(count);
    for (T& value : operand)
      value = static_cast<T>(std::ldexp(uniform(random), static_cast<int>(random() % 20)));
    check.expect_carried(count * sizeof(T));
    MPI_Allreduce(operand.data(), sum.data(), n, type, MPI_SUM, world.comm);

    std::vector<T> of_rank_zero = sum;
    MPI_Bcast(of_rank_zero.data(), n, type, 0, world.comm);
    std::size_t different = 0;
    for (std::size_t i = 0; i < count; ++i)
      different += std::memcmp(&sum[i], &of_rank_zero[i], sizeof(T)) != 0;
    check.expect(different == 0, "{} of {} sums differ from those on rank 0", different, count);

    std::vector<T> all(count * static_cast<std::size_t>(world.ranks));
    MPI_Allgather(operand.data(), n, type, all.data(), n, type, world.comm);
    for (std::size_t i = 0; i < count; ++i) {
      long double exact = 0, magnitude = 0;
      for (std::size_t rank = 0; rank < static_cast<std::size_t>(world.ranks); ++rank) {
        exact += all[rank * count + i];
        magnitude += std::abs(all[rank * count + i]);
      }
      const long double allowed = magnitude * world.ranks * std::numeric_limits<T>::epsilon();
      if (!check.expect(std::abs(sum[i] - exact) <= allowed, "element {} of {} is {}, expected about {}", i,
                        count, sum[i], static_cast<double>(exact))) {
        break;
      }
    }
  }
}

void special_values(Check& check) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const bool first = check.world.rank == 0;
  const std::vector<double> operand = {first ? inf : 1, first ? -inf : 1, first ? nan : 1, -0.0};
  std::vector<double> sum(operand.size()), largest(2);
  check.expect_carried(sum.size() * sizeof(double));
  MPI_Allreduce(operand.data(), sum.data(), static_cast<int>(sum.size()), MPI_DOUBLE, MPI_SUM,
                check.world.comm);
  check.expect_carried(largest.size() * sizeof(double));
  MPI_Allreduce(operand.data(), largest.data(), 2, MPI_DOUBLE, MPI_MAX, check.world.comm);
  check.expect(sum[0] == inf, "the sum with infinity is {}", sum[0]);
  check.expect(sum[1] == -inf, "the sum with -infinity is {}", sum[1]);
  check.expect(std::isnan(sum[2]), "the sum with NaN is {}", sum[2]);
  check.expect(sum[3] == 0 && std::signbit(sum[3]), "the sum of negative zeros is {}", sum[3]);
  check.expect(largest[0] == inf, "the maximum with infinity is {}", largest[0]);
}

/// The ranks choose by turns from types that are one and the same in C on this machine.
void equivalent_types(Check& check) {
  struct Pair {
    Type type;
    MPI_Datatype even, odd;
  };
  const Pair pairs[] = {
      {Type::kInt64, MPI_LONG, MPI_INT64_T},       {Type::kInt64, MPI_LONG_LONG, MPI_LONG},
      {Type::kInt32, MPI_INT, MPI_INT32_T},        {Type::kInt16, MPI_SHORT, MPI_INT16_T},
      {Type::kInt8, MPI_SIGNED_CHAR, MPI_INT8_T},  {Type::kUint8, MPI_UNSIGNED_CHAR, MPI_UINT8_T},
      {Type::kUint32, MPI_UNSIGNED, MPI_UINT32_T}, {Type::kUint64, MPI_UNSIGNED_LONG, MPI_UINT64_T}};
  const Group& world = check.world;
  for (const auto& [type, even, odd] : pairs) {
    const auto operand = mpi::Tile::operand(type, Op::kSum, Range::kExact, world.rank, world.ranks);
    const auto expected = mpi::Tile::result(type, Op::kSum, Range::kExact, world.ranks);
    for (const std::size_t count : {3UL, 1000UL, 100000UL}) {
      GuardedBuffer in(count * mpi::size_of(type)), out(count * mpi::size_of(type));
      operand.fill(in.data(), count, count);
      check.expect_carried(count * mpi::size_of(type));
      MPI_Allreduce(in.data(), out.data(), static_cast<int>(count), world.rank % 2 == 0 ? even : odd, MPI_SUM,
                    world.comm);
      check.expect(expected.count_wrong(out.data(), count, count) == 0, "{} x {}: {}", count, mpi::name(type),
                   expected.first_wrong(out.data(), count, count));
    }
  }
}

void bytes_and_bools(Check& check) {
  const Group& world = check.world;
  const auto bit = static_cast<unsigned char>(1U << (world.rank % 8));
  std::vector<unsigned char> bytes(1000, bit);
  check.expect_either();
  MPI_Allreduce(MPI_IN_PLACE, bytes.data(), 1000, MPI_BYTE, MPI_BOR, world.comm);
  const int expected = world.ranks >= 8 ? 255 : (1 << world.ranks) - 1;
  check.expect(bytes.front() == expected && bytes.back() == expected, "bor of MPI_BYTE is {}, expected {}",
               static_cast<int>(bytes.back()), expected);

  bool any = world.rank == world.ranks - 1, all = any;
  check.expect_either();
  MPI_Allreduce(MPI_IN_PLACE, &any, 1, MPI_C_BOOL, MPI_LOR, world.comm);
  check.expect_either();
  MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_C_BOOL, MPI_LAND, world.comm);
  check.expect(any, "lor of MPI_C_BOOL is false, expected true");
  check.expect(all == (world.ranks == 1), "land of MPI_C_BOOL is {}", all);
}

void misaligned(Check& check) {
  for (const Type type : {Type::kInt8, Type::kInt16, Type::kFloat, Type::kDouble}) {
    const Reduction reduction(check.world, type, Op::kSum);
    const std::size_t elem = mpi::size_of(type);
    // Whole elements past the alignment that vector instructions like; and, last, not even aligned for the
    // type. The ranks differ, as their buffers do in real programs.
    for (const std::size_t misalignment : {elem, 3 * elem, static_cast<std::size_t>(check.world.rank) * elem,
                                           static_cast<std::size_t>(1 + check.world.rank % 7)}) {
      for (const std::size_t count : {1UL, 17UL, 1000UL, 70001UL}) {
        for (const bool in_place : {false, true}) {
          reduction.run(check, count, {.in_place = in_place, .shift = count, .misalignment = misalignment});
        }
      }
    }
  }
}

}  // namespace

void add_value_checks(Suite& suite) {
  for (const Type type : mpi::kTypes) {
    for (const Op op : mpi::kOps) {
      if (!mpi::defined(op, type)) continue;
      suite.add(
          loom::format("Allreduce gives the exact {} of {} for every count", mpi::name(op), mpi::name(type)),
          [=](Check& check) { exact_for_every_count(check, type, op); });
    }
  }
  for (const Type type : mpi::kTypes) {
    if (type == Type::kFloat || type == Type::kDouble) continue;
    for (const Op op : {Op::kSum, Op::kProd}) {
      suite.add(loom::format("Allreduce wraps a {} of {} that overflows", mpi::name(op), mpi::name(type)),
                [=](Check& check) { integers_wrap(check, type, op); });
    }
  }
  suite.add("Allreduce of random floats gives the same bits on all ranks",
            [](Check& check) { floats_agree<float>(check, MPI_FLOAT); });
  suite.add("Allreduce of random doubles gives the same bits on all ranks",
            [](Check& check) { floats_agree<double>(check, MPI_DOUBLE); });
  suite.add("Allreduce keeps infinities, NaN and negative zero", special_values);
  suite.add("Allreduce takes equivalent types that differ from rank to rank", equivalent_types);
  suite.add("Allreduce reduces bytes and truth values", bytes_and_bools);
  suite.add("Allreduce takes buffers that are not aligned", misaligned);
}

}  // namespace loom::mpi_test
