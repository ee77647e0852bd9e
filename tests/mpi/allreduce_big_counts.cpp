// Messages past 2^31 bytes. Each rank needs two buffers of that size.
#include <limits>

#include "tests/mpi/harness.hpp"

namespace loom::mpi_test {
namespace {

using mpi::Op;
using mpi::Type;

void big(Check& check, Type type, std::size_t count) {
  if (!check.settings.big) return check.skip("run with --big; it takes some 4 GiB of memory per rank");
  if (count > static_cast<std::size_t>(std::numeric_limits<int>::max()) && OMPI_MAJOR_VERSION < 6) {
    return check.skip("this MPI library has no MPI_Allreduce_c");
  }
  Reduction(check.world, type, Op::kSum).run(check, count, {.shift = 3});
}

}  // namespace

void add_big_count_checks(Suite& suite) {
  const std::pair<Type, std::size_t> cases[] = {{Type::kInt32, (1UL << 29) + 5},
                                                {Type::kInt64, (1UL << 28) + 5},
                                                {Type::kInt8, (1UL << 31) - 1},
                                                {Type::kInt8, (1UL << 31) + 5}};
  for (const auto& [type, count] : cases) {
    suite.add(loom::format("Allreduce carries {} elements of {}", count, mpi::name(type)),
              [type = type, count = count](Check& check) { big(check, type, count); });
  }
}

}  // namespace loom::mpi_test
