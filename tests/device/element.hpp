// element.hpp -- random values of the types that reductions take.
#pragma once

#include <random>
#include <type_traits>

namespace loom::device {

/// A small number, so that there are ties, zeros and both signs; of integers every other one is any value.
template <class T>
T element(std::mt19937_64& random) {
  const auto small = static_cast<int>(random() % 9) - 4;  // ties, zeros, signs
  if constexpr (requires(T t) { t.re; })
    return {element<decltype(T::re)>(random), element<decltype(T::re)>(random)};
  else if constexpr (requires(T t) { t.index; })
    return {static_cast<decltype(T::value)>(small), static_cast<decltype(T::index)>(random() % 5)};
  else if constexpr (requires(T t) { t.bits; })
    return T::from_float(static_cast<float>(small) / 3);
  else if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(small) / 3;
  else
    return random() % 2 ? static_cast<T>(random()) : static_cast<T>(small);
}

}  // namespace loom::device
