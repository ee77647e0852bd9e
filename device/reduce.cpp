#include "device/reduce.hpp"

#include <array>
#include <cstring>
#include <utility>

namespace loom::device {
namespace {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class Operation, class T>
void reduce(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count) {
  // `out` is `a`, is `b`, or overlaps neither: no iteration reads what another wrote.
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) {
    const T value = Operation{}(load<T>(a + i * sizeof(T)), load<T>(b + i * sizeof(T)));
    std::memcpy(out + i * sizeof(T), &value, sizeof(T));
  }
}

template <class Operation, class T>
constexpr ReduceFn entry() {
  if constexpr (std::is_invocable_v<Operation, T, T>)
    return &reduce<Operation, T>;
  else
    return nullptr;  // e.g. a bitwise operation on float
}

using Row = std::array<ReduceFn, kTypeCount>;

template <class Operation, class... T>
constexpr Row row(std::tuple<T...>*) {
  return {entry<Operation, T>()...};
}

template <class... Operation>
constexpr std::array<Row, sizeof...(Operation)> table(std::tuple<Operation...>*) {
  return {row<Operation>(static_cast<Types*>(nullptr))...};
}

constexpr auto kReduce = table(static_cast<Operations*>(nullptr));

template <class... T>
constexpr std::array<std::size_t, kTypeCount> sizes(std::tuple<T...>*) {
  return {sizeof(T)...};
}
constexpr auto kSizes = sizes(static_cast<Types*>(nullptr));

}  // namespace

ReduceFn find_reduce(Op op, Type type) noexcept {
  return kReduce[static_cast<std::size_t>(op)][static_cast<std::size_t>(type)];
}

std::size_t size_of(Type type) noexcept { return kSizes[static_cast<std::size_t>(type)]; }

}  // namespace loom::device
