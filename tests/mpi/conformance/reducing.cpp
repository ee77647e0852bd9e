// Reductions: every predefined operation on every type that MPI gives it, with operands whose every partial
// result is exact; and sums of random floating point numbers, held to a bound.
#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <numeric>

#include "tests/mpi/conformance/conformance.hpp"

namespace loom::conformance {
namespace {

/// A value in any type; of pairs also the index.
struct Value {
  std::int64_t value = 0;
  int index = 0;
  bool operator==(const Value&) const = default;
};

enum Ops : unsigned { kArithmetic = 1, kLogical = 2, kBitwise = 4, kComplex = 8, kLocation = 16 };

struct ElementType {
  const char* name;
  MPI_Datatype type;
  std::size_t bytes;
  unsigned ops;
  void (*store)(std::byte*, Value);
  Value (*load)(const std::byte*);
};

template <class T>
ElementType plain(const char* name, MPI_Datatype type, unsigned ops) {
  return {name,
          type,
          sizeof(T),
          ops,
          [](std::byte* at, Value v) {
            T x{};
            if constexpr (requires { x.real(); })
              x = static_cast<typename T::value_type>(v.value);
            else
              x = static_cast<T>(v.value);
            std::memcpy(at, &x, sizeof(T));
          },
          [](const std::byte* at) {
            T x;
            std::memcpy(&x, at, sizeof(T));
            if constexpr (requires { x.real(); })
              return Value{x.imag() == 0 ? static_cast<std::int64_t>(x.real()) : -999};
            else
              return Value{static_cast<std::int64_t>(x)};
          }};
}

template <class T>
struct Pair {
  T value;
  int index;
};
template <class T>
ElementType pair(const char* name, MPI_Datatype type) {
  return {name,
          type,
          sizeof(Pair<T>),
          kLocation,
          [](std::byte* at, Value v) {
            const Pair<T> x{static_cast<T>(v.value), v.index};
            std::memcpy(at, &x, sizeof(x));
          },
          [](const std::byte* at) {
            Pair<T> x;
            std::memcpy(&x, at, sizeof(x));
            return Value{static_cast<std::int64_t>(x.value), x.index};
          }};
}

std::vector<ElementType> element_types() {
  constexpr unsigned kInteger = kArithmetic | kLogical | kBitwise;
  return {plain<signed char>("signed char", MPI_SIGNED_CHAR, kInteger),
          plain<unsigned char>("unsigned char", MPI_UNSIGNED_CHAR, kInteger),
          plain<short>("short", MPI_SHORT, kInteger),
          plain<unsigned short>("unsigned short", MPI_UNSIGNED_SHORT, kInteger),
          plain<int>("int", MPI_INT, kInteger),
          plain<unsigned>("unsigned", MPI_UNSIGNED, kInteger),
          plain<long>("long", MPI_LONG, kInteger),
          plain<std::uint64_t>("uint64", MPI_UINT64_T, kInteger),
          plain<float>("float", MPI_FLOAT, kArithmetic),
          plain<double>("double", MPI_DOUBLE, kArithmetic),
          plain<long double>("long double", MPI_LONG_DOUBLE, kArithmetic),
          plain<std::complex<float>>("float complex", MPI_C_FLOAT_COMPLEX, kComplex),
          plain<std::complex<double>>("double complex", MPI_C_DOUBLE_COMPLEX, kComplex),
          plain<bool>("C bool", MPI_C_BOOL, kLogical),
          plain<unsigned char>("byte", MPI_BYTE, kBitwise),
          pair<float>("float int", MPI_FLOAT_INT),
          pair<double>("double int", MPI_DOUBLE_INT),
          pair<long>("long int", MPI_LONG_INT),
          pair<int>("int int", MPI_2INT),
          pair<short>("short int", MPI_SHORT_INT),
          pair<long double>("long double int", MPI_LONG_DOUBLE_INT)};
}

const struct Operation {
  const char* name;
  MPI_Op op;
  unsigned ops;  ///< a type takes the operation if it has one of these
  Value (*apply)(Value, Value);
} kOperations[] = {
    {"sum", MPI_SUM, kArithmetic | kComplex, [](Value a, Value b) { return Value{a.value + b.value}; }},
    {"prod", MPI_PROD, kArithmetic | kComplex, [](Value a, Value b) { return Value{a.value * b.value}; }},
    {"min", MPI_MIN, kArithmetic, [](Value a, Value b) { return Value{std::min(a.value, b.value)}; }},
    {"max", MPI_MAX, kArithmetic, [](Value a, Value b) { return Value{std::max(a.value, b.value)}; }},
    {"land", MPI_LAND, kLogical, [](Value a, Value b) { return Value{a.value && b.value}; }},
    {"lor", MPI_LOR, kLogical, [](Value a, Value b) { return Value{a.value || b.value}; }},
    {"lxor", MPI_LXOR, kLogical, [](Value a, Value b) { return Value{!a.value != !b.value}; }},
    {"band", MPI_BAND, kBitwise, [](Value a, Value b) { return Value{a.value & b.value}; }},
    {"bor", MPI_BOR, kBitwise, [](Value a, Value b) { return Value{a.value | b.value}; }},
    {"bxor", MPI_BXOR, kBitwise, [](Value a, Value b) { return Value{a.value ^ b.value}; }},
    {"minloc", MPI_MINLOC, kLocation,
     [](Value a, Value b) {
       return a.value < b.value ? a : b.value < a.value ? b : Value{a.value, std::min(a.index, b.index)};
     }},
    {"maxloc", MPI_MAXLOC, kLocation,
     [](Value a, Value b) {
       return a.value > b.value ? a : b.value > a.value ? b : Value{a.value, std::min(a.index, b.index)};
     }},
};

/// Element i of every operand is that of i + kPeriod. A prime, so that no block of a power of two repeats
/// another.
constexpr std::size_t kPeriod = 7;

/// Small enough that the sum of 16 of them, and the product, fits a signed char.
Value operand(const Operation& operation, int rank, std::size_t i) {
  const auto mixed = static_cast<std::int64_t>((i * 5 + static_cast<std::size_t>(rank) * 3) % kPeriod);
  if (operation.op == MPI_PROD) return {mixed % 5 == 0 && rank % 2 == 0 && rank < 10 ? 2 : 1};
  if ((operation.ops & kLogical) != 0) return {mixed % 3 != 0};
  return {mixed, rank * 2 + 1};
}

/// Over ranks [0, end), in order.
Value result_over(const Operation& operation, int end, std::size_t i) {
  Value so_far = operand(operation, 0, i);
  for (int rank = 1; rank < end; ++rank) so_far = operation.apply(so_far, operand(operation, rank, i));
  return so_far;
}

enum class Reduction { kAllreduce, kReduce, kBlock, kScatter, kScan, kExscan };
constexpr std::pair<Reduction, const char*> kReductions[] = {{Reduction::kAllreduce, "allreduce"},
                                                             {Reduction::kReduce, "reduce"},
                                                             {Reduction::kBlock, "reduce_scatter_block"},
                                                             {Reduction::kScatter, "reduce_scatter"},
                                                             {Reduction::kScan, "scan"},
                                                             {Reduction::kExscan, "exscan"}};

/// Elements of the parts of a reduce_scatter.
std::vector<Count> parts(const Run& run, int count) {
  std::vector<Count> result;
  for (int rank = 0; rank < run.ranks; ++rank)
    result.push_back(rank % 3 == 1 ? 0 : rank % 3 == 2 ? count + 2 : count);
  return result;
}

/// One call on operands that `store(at, i)` makes; `check(at, i)` judges element i of the whole result.
template <class Store, class Check>
bool call(Run& run, Reduction which, Form form, MPI_Datatype type, std::size_t bytes, MPI_Op op, int count,
          int root, bool in_place, Store&& store, Check&& check) {
  const auto n = static_cast<std::size_t>(count), me = static_cast<std::size_t>(run.rank);
  const auto ranks = static_cast<std::size_t>(run.ranks);
  const std::vector<Count> counts = parts(run, count);
  std::size_t in_count = n, out_count = n, first = 0;
  if (which == Reduction::kBlock) {
    in_count = n * ranks;
    first = me * n;
  } else if (which == Reduction::kScatter) {
    in_count = static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), 0));
    first = static_cast<std::size_t>(std::accumulate(counts.begin(), counts.begin() + run.rank, 0));
    out_count = static_cast<std::size_t>(counts[me]);
  }
  const bool is_root = run.rank == root, receives = which != Reduction::kReduce || is_root;
  const bool mine_in_place = in_place && receives;
  constexpr std::size_t kGuard = 64;
  mpi::Memory in(in_count * bytes), out((mine_in_place ? in_count : out_count) * bytes + 2 * kGuard);
  std::byte* const result = out.mirror.data() + kGuard;
  const auto refill = [&] {
    std::fill(out.mirror.begin(), out.mirror.end(), std::byte{0x5a});
    std::fill(in.mirror.begin(), in.mirror.end(), std::byte{0});
    for (std::size_t i = 0; i < in_count; ++i)
      store((mine_in_place ? result : in.mirror.data()) + i * bytes, i);
    in.upload();
    out.upload();
  };
  void* const send = mine_in_place ? MPI_IN_PLACE : in.address();
  void* const recv = receives ? out.address() + kGuard : nullptr;
  switch (which) {
    case Reduction::kAllreduce:
      LOOM_CALL(form, refill, Allreduce, allreduce, send, recv, count, type, op, run.comm);
      break;
    case Reduction::kReduce:
      LOOM_CALL(form, refill, Reduce, reduce, send, recv, count, type, op, root, run.comm);
      break;
    case Reduction::kBlock:
      LOOM_CALL(form, refill, Reduce_scatter_block, reduce_scatter_block, send, recv, count, type, op,
                run.comm);
      break;
    case Reduction::kScatter:
      LOOM_CALL(form, refill, Reduce_scatter, reduce_scatter, send, recv, counts.data(), type, op, run.comm);
      break;
    case Reduction::kScan:
      LOOM_CALL(form, refill, Scan, scan, send, recv, count, type, op, run.comm);
      break;
    case Reduction::kExscan:
      LOOM_CALL(form, refill, Exscan, exscan, send, recv, count, type, op, run.comm);
      break;
  }
  const auto intact = [](std::byte byte) { return byte == std::byte{0x5a}; };
  out.download();
  bool right = std::all_of(out.mirror.begin(), out.mirror.begin() + kGuard, intact) &&
               std::all_of(out.mirror.end() - kGuard, out.mirror.end(), intact);
  if (!receives || (which == Reduction::kExscan && run.rank == 0)) return right;
  for (std::size_t i = 0; i < out_count && right; ++i) right = check(result + i * bytes, first + i);
  return right;
}

/// This rank's result covers the operands of ranks [0, returned value).
int operands(const Run& run, Reduction which) {
  return which == Reduction::kScan ? run.rank + 1 : which == Reduction::kExscan ? run.rank : run.ranks;
}

/// A double of element i of a rank's operand, in (-1, 1).
double random_operand(int rank, std::size_t i) {
  std::uint64_t x = (i * 1000 + static_cast<std::size_t>(rank) + 1) * 0x9e3779b97f4a7c15;  // splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return static_cast<double>(static_cast<std::int64_t>(x ^ (x >> 31))) * 0x1p-63;
}

/// Whether it may be the sum over ranks [0, end), end > 0. in_order: it must be the sum rounded after each
/// rank.
bool is_sum(double sum, int end, std::size_t i, bool in_order) {
  long double exact = 0, size = 0;
  double rounded = random_operand(0, i);
  for (int rank = 0; rank < end; ++rank) {
    const double x = random_operand(rank, i);
    if (rank > 0) rounded += x;
    exact += x;
    size += std::fabs(x);
  }
  if (in_order) return sum == rounded;
  // Whatever the order: end - 1 roundings, each of a partial sum that is no larger than this.
  return std::fabs(sum - exact) <= end * size * std::numeric_limits<double>::epsilon();
}

void random_sums(Run& run) {
  for (const auto& [which, which_name] : kReductions)
    for (const Form form : kForms)
      for (const bool in_place : {false, true})
        for (const int count : {2003, static_cast<int>(run.settings.big)}) {
          if (!run.takes(which_name) || !run.takes(form) || !(run.settings.in_order || run.draw())) continue;
          const int root = count % run.ranks;
          const bool right = call(
              run, which, form, MPI_DOUBLE, sizeof(double), MPI_SUM, count, root, in_place,
              [&](std::byte* to, std::size_t i) {
                const double x = random_operand(run.rank, i);
                std::memcpy(to, &x, sizeof(x));
              },
              [&](const std::byte* from, std::size_t i) {
                double x;
                std::memcpy(&x, from, sizeof(x));
                return is_sum(x, operands(run, which), i, run.settings.in_order);
              });
          run.judge(
              right, which_name, form,
              loom::format("sum of {} random doubles, root {}{}", count, root, in_place ? ", in place" : ""));
        }
}

}  // namespace

void run_reducing(Run& run) {
  const std::vector<ElementType> types = element_types();
  for (const auto& [which, which_name] : kReductions) {
    if (!run.takes(which_name)) continue;
    for (const Form form : kForms)
      for (const ElementType& type : types)
        for (const Operation& operation : kOperations) {
          if (!run.takes(form) || (type.ops & operation.ops) == 0) continue;
          for (const bool in_place : {false, true})
            for (const int count : run.counts())
              for (const int root : {0, run.ranks - 1}) {
                if (root > 0 && which != Reduction::kReduce) continue;
                if (!run.draw()) continue;
                std::array<Value, kPeriod> mine, expected;
                for (std::size_t i = 0; i < kPeriod; ++i) {
                  mine[i] = operand(operation, run.rank, i);
                  expected[i] = result_over(operation, operands(run, which), i);
                  if ((type.ops & kLocation) == 0) expected[i].index = 0;
                }
                const bool right = call(
                    run, which, form, type.type, type.bytes, operation.op, count, root, in_place,
                    [&](std::byte* to, std::size_t i) { type.store(to, mine[i % kPeriod]); },
                    [&](const std::byte* from, std::size_t i) {
                      return type.load(from) == expected[i % kPeriod];
                    });
                run.judge(right, which_name, form,
                          loom::format("{} of {} {}, root {}{}", operation.name, count, type.name, root,
                                       in_place ? ", in place" : ""));
              }
        }
  }
  random_sums(run);
}

}  // namespace loom::conformance
