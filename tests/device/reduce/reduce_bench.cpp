// reduce_bench -- the bandwidth of every reduction kernel beside that of a copy, as a table.
//
//   reduce_bench [bytes of the operand, default 32 MiB]
//
// GB/s are bytes read and written per second: a += b moves three bytes for each byte of an operand, a copy
// two. The copy is memcpy's to a buffer that is in use already, the fastest of twenty measurements. Each
// figure is the median of seven runs.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/format.hpp"
#include "device/reduce/reduce.hpp"

namespace {

using namespace loom::device;

constexpr std::string_view kOpNames[] = {"sum",  "prod", "min", "max",  "land",   "lor",
                                         "lxor", "band", "bor", "bxor", "minloc", "maxloc"};
static_assert(std::size(kOpNames) == kOpCount);
constexpr std::string_view kTypeNames[] = {
    "int8",      "int16",           "int32",          "int64",
    "uint8",     "uint16",          "uint32",         "uint64",
    "float",     "double",          "long double",    "half",
    "bfloat16",  "complex float",   "complex double", "complex long double",
    "float int", "double int",      "long int",       "int int",
    "short int", "long double int", "float float",    "double double"};
static_assert(std::size(kTypeNames) == kTypeCount);

template <class Body>
double median_seconds(Body&& body) {
  std::vector<double> seconds;
  for (int run = 0; run < 8; ++run) {
    const auto began = std::chrono::steady_clock::now();
    body();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    if (run > 0) seconds.push_back(took.count());  // the first one warms up
  }
  std::nth_element(seconds.begin(), seconds.begin() + 3, seconds.end());
  return seconds[3];
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t bytes = argc > 1 ? std::stoul(argv[1]) : std::size_t{32} << 20;
  // Zeros: no type takes longer for them than for other values, and sums and products stay the same.
  std::vector<std::byte> a(bytes), b(bytes);
  const int repeat = static_cast<int>(std::max<std::size_t>(1, (std::size_t{32} << 20) / bytes));
  const auto gigabytes_per_second = [&](double moved, auto&& body) {
    return moved * repeat / 1e9 / median_seconds([&] {
             for (int i = 0; i < repeat; ++i) body();
           });
  };
  const auto copy = [&] {
    return gigabytes_per_second(2.0 * static_cast<double>(bytes),
                                [&] { std::memcpy(a.data(), b.data(), bytes); });
  };
  double copied = 0;
  for (int i = 0; i < 20; ++i) copied = std::max(copied, copy());
  loom::print("# operands of {} bytes, loops for {}, copy {:.1f} GB/s\n", bytes, reduce_target(), copied);
  loom::print("| type |");
  for (const auto name : kOpNames) loom::print(" {} |", name);
  loom::print("\n| --- |{}\n", [] {
    std::string dashes;
    for (int i = 0; i < kOpCount; ++i) dashes += " ---: |";
    return dashes;
  }());
  for (int type = 0; type < kTypeCount; ++type) {
    loom::print("| {} |", kTypeNames[type]);
    const std::size_t elem = size_of(static_cast<Type>(type)), count = bytes / elem;
    for (int op = 0; op < kOpCount; ++op) {
      const ReduceFn reduce = find_reduce(static_cast<Op>(op), static_cast<Type>(type));
      if (reduce == nullptr) {
        loom::print(" |");
        continue;
      }
      const double reduced = gigabytes_per_second(3.0 * static_cast<double>(count * elem),
                                                  [&] { reduce(a.data(), a.data(), b.data(), count); });
      loom::print(" {:.0f} % |", 100 * reduced / copied);
    }
    loom::print("\n");
  }
}
