// handlers.hpp -- what handlers are made of: C++ types in place of those of PTX, and functions of a lane's
// values.
#pragma once

#include <cmath>
#include <concepts>
#include <limits>
#include <type_traits>

#include "tests/virtual_gpu/run/arithmetic.hpp"

namespace virtual_gpu::run::detail {

template <class T>
T unpack_as(Slot slot) {
  if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<float>(static_cast<std::uint32_t>(slot));
  else if constexpr (std::is_same_v<T, double>)
    return std::bit_cast<double>(slot);
  else if constexpr (std::is_same_v<T, bool>)
    return slot != 0;
  else
    return static_cast<T>(slot);
}
template <class T>
Slot packed(T value) {
  if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<std::uint32_t>(value);
  else if constexpr (std::is_same_v<T, double>)
    return std::bit_cast<std::uint64_t>(value);
  else if constexpr (std::is_same_v<T, bool>)
    return value ? 1 : 0;
  else
    return static_cast<std::make_unsigned_t<T>>(value);
}

template <class T>
concept Integer = std::integral<T> && !std::same_as<T, bool>;
template <class T>
concept Real = std::floating_point<T>;
template <class T>
concept Number = Integer<T> || Real<T>;
template <class T>
bool is_type(ptx::Type type) {
  using ptx::Kind;
  if (type.packed) return false;
  if constexpr (std::is_same_v<T, bool>) return type.kind == Kind::kPredicate;
  if (type.bits != sizeof(T) * 8) return false;
  if constexpr (Real<T>) return type.kind == Kind::kFloat;
  if constexpr (std::is_signed_v<T>) return type.kind == Kind::kSigned;
  return type.kind == Kind::kUnsigned || type.kind == Kind::kBits;
}
template <class... T>
struct TypeList {};
using Words = TypeList<std::uint32_t>;  ///< .b32 and .u32
using Integers =
    TypeList<std::uint16_t, std::int16_t, std::uint32_t, std::int32_t, std::uint64_t, std::int64_t>;
using Reals = TypeList<float, double>;
using Types = TypeList<std::uint16_t, std::int16_t, std::uint32_t, std::int32_t, std::uint64_t, std::int64_t,
                       float, double, bool>;

/// find<T>() of the type in the list that is meant; if none is, nothing.
template <class Find, class... T>
auto by_type(ptx::Type type, Find&& find, TypeList<T...>) {
  decltype(find.template operator()<std::uint32_t>()) result{};
  (void)((is_type<T>(type) && (result = find.template operator()<T>(), true)) || ...);
  return result;
}

/// The row of a table that has the name; nullptr: none has.
template <class Row, std::size_t kRows>
const Row* find_row(const Row (&table)[kRows], std::string_view name) {
  for (const Row& row : table)
    if (row.name == name) return &row;
  return nullptr;
}

}  // namespace virtual_gpu::run::detail
