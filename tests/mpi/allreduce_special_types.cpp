// User-defined operations, which the fallback component carries, and types that are more than one plain
// number.
#include <complex>

#include "tests/mpi/harness.hpp"

namespace loom::mpi_test {
namespace {

constexpr int kCounts[] = {1, 10, 3000};

enum class Carrier { kLoom, kFallback };

/// Allreduces values made by `operand(rank, i)`; the result must be `expected(i)`.
template <class T, class Operand, class Expected>
void reduce_and_compare(Check& check, const char* what, MPI_Datatype type, MPI_Op op, Operand&& operand,
                        Expected&& expected, Carrier carrier = Carrier::kLoom) {
  for (const int count : kCounts) {
    std::vector<T> in, out(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) in.push_back(operand(check.world.rank, i));
    if (carrier == Carrier::kLoom)
      check.expect_carried(in.size() * sizeof(T));
    else
      check.expect_fallback();
    MPI_Allreduce(in.data(), out.data(), count, type, op, check.world.comm);
    int wrong = 0;
    for (int i = 0; i < count; ++i) wrong += !(out[static_cast<std::size_t>(i)] == expected(i));
    check.expect(wrong == 0, "{}: {} of {} elements are wrong", what, wrong, count);
  }
}

void user_defined(Check& check) {
  MPI_Op op;
  MPI_Op_create(
      [](void* in, void* inout, int* count, MPI_Datatype*) {
        for (int i = 0; i < *count; ++i) static_cast<int*>(inout)[i] += static_cast<int*>(in)[i];
      },
      1, &op);
  const int ranks = check.world.ranks;
  reduce_and_compare<int>(
      check, "user-defined sum", MPI_INT, op, [](int rank, int i) { return rank + i; },
      [=](int i) { return ranks * (ranks - 1) / 2 + ranks * i; }, Carrier::kFallback);
  MPI_Op_free(&op);
}

/// 2 x 2 matrices of integers; their product wraps and does not commute.
struct Matrix {
  std::uint32_t a, b, c, d;
  bool operator==(const Matrix&) const = default;
};
Matrix operator*(const Matrix& x, const Matrix& y) {
  return {x.a * y.a + x.b * y.c, x.a * y.b + x.b * y.d, x.c * y.a + x.d * y.c, x.c * y.b + x.d * y.d};
}
Matrix matrix_of(int rank, int i) {
  const auto r = static_cast<std::uint32_t>(rank);
  return {r + 1, static_cast<std::uint32_t>(i), 1, 2 * r + 1};
}

void not_commutative(Check& check) {
  MPI_Datatype type;
  MPI_Type_contiguous(4, MPI_UINT32_T, &type);
  MPI_Type_commit(&type);
  MPI_Op op;
  MPI_Op_create(
      [](void* in, void* inout, int* count, MPI_Datatype*) {
        auto* lower = static_cast<const Matrix*>(in);  // of the lower ranks
        auto* result = static_cast<Matrix*>(inout);
        for (int i = 0; i < *count; ++i) result[i] = lower[i] * result[i];
      },
      0, &op);
  const int ranks = check.world.ranks;
  const auto product_of_all = [=](int i) {
    Matrix product = matrix_of(0, i);
    for (int rank = 1; rank < ranks; ++rank) product = product * matrix_of(rank, i);
    return product;
  };
  reduce_and_compare<Matrix>(check, "matrix product", type, op, matrix_of, product_of_all,
                             Carrier::kFallback);
  MPI_Op_free(&op);
  MPI_Type_free(&type);
}

template <class T>
struct Located {
  T value;
  int location;
  bool operator==(const Located&) const = default;
};

template <class T>
void locations(Check& check, const char* what, MPI_Datatype type) {
  const int ranks = check.world.ranks;
  // The last rank has the smallest value; at every third element all are equal and the lowest location
  // counts.
  const auto operand = [=](int rank, int i) {
    return Located<T>{static_cast<T>(i % 3 == 0 ? 5 : 10 * i - rank), 100 + rank};
  };
  reduce_and_compare<Located<T>>(check, what, type, MPI_MINLOC, operand,
                                 [=](int i) { return operand(i % 3 == 0 ? 0 : ranks - 1, i); });
  reduce_and_compare<Located<T>>(check, what, type, MPI_MAXLOC, operand,
                                 [=](int i) { return operand(0, i); });
}

void pairs(Check& check) {
  locations<int>(check, "MPI_2INT", MPI_2INT);
  locations<float>(check, "MPI_FLOAT_INT", MPI_FLOAT_INT);
  locations<double>(check, "MPI_DOUBLE_INT", MPI_DOUBLE_INT);
  locations<long>(check, "MPI_LONG_INT", MPI_LONG_INT);
  locations<short>(check, "MPI_SHORT_INT", MPI_SHORT_INT);
  locations<long double>(check, "MPI_LONG_DOUBLE_INT", MPI_LONG_DOUBLE_INT);
}

void long_doubles(Check& check) {
  const int ranks = check.world.ranks;
  reduce_and_compare<long double>(
      check, "sum of long double", MPI_LONG_DOUBLE, MPI_SUM,
      [](int rank, int i) { return static_cast<long double>(rank + i); },
      [=](int i) { return static_cast<long double>(ranks * (ranks - 1) / 2 + ranks * i); });
  reduce_and_compare<long double>(
      check, "maximum of long double", MPI_LONG_DOUBLE, MPI_MAX,
      [](int rank, int i) { return static_cast<long double>(i - rank); },
      [](int i) { return static_cast<long double>(i); });
}

template <class T>
void complex_of(Check& check, const char* what, MPI_Datatype type) {
  const int ranks = check.world.ranks;
  reduce_and_compare<std::complex<T>>(
      check, what, type, MPI_SUM,
      [](int rank, int i) { return std::complex<T>(static_cast<T>(rank), static_cast<T>(i)); },
      [=](int i) {
        return std::complex<T>(static_cast<T>(ranks * (ranks - 1) / 2), static_cast<T>(ranks * i));
      });
  reduce_and_compare<std::complex<T>>(
      check, what, type, MPI_PROD, [](int, int) { return std::complex<T>(0, 1); },
      [=](int) {
        const std::complex<T> powers_of_i[] = {{1, 0}, {0, 1}, {-1, 0}, {0, -1}};
        return powers_of_i[ranks % 4];
      });
}

}  // namespace

void add_special_type_checks(Suite& suite) {
  suite.add("Allreduce performs a user-defined operation", user_defined);
  suite.add("Allreduce performs an operation that does not commute in the order of the ranks",
            not_commutative);
  suite.add("Allreduce finds the place of the minimum and maximum", pairs);
  suite.add("Allreduce reduces long double", long_doubles);
  suite.add("Allreduce reduces complex numbers", [](Check& check) {
    complex_of<float>(check, "MPI_C_FLOAT_COMPLEX", MPI_C_FLOAT_COMPLEX);
    complex_of<double>(check, "MPI_C_DOUBLE_COMPLEX", MPI_C_DOUBLE_COMPLEX);
    complex_of<long double>(check, "MPI_C_LONG_DOUBLE_COMPLEX", MPI_C_LONG_DOUBLE_COMPLEX);
  });
}

}  // namespace loom::mpi_test
