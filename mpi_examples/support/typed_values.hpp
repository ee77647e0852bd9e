// typed_values.hpp -- element types, operations, and operands whose reduction is known exactly.
// A Tile is one period of a rank's operand, or of the result. The period is prime: data that is misplaced by
// a chunk (some power of two, or count / ranks) meets other values. Tiles make filling and checking as fast
// as memcpy.
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace loom::mpi {

enum class Type { kInt8, kInt16, kInt32, kInt64, kUint8, kUint16, kUint32, kUint64, kFloat, kDouble };
enum class Op { kSum, kProd, kMin, kMax, kLand, kLor, kLxor, kBand, kBor, kBxor };

inline constexpr std::array kTypes = {Type::kInt8,  Type::kInt16,  Type::kInt32,  Type::kInt64,
                                      Type::kUint8, Type::kUint16, Type::kUint32, Type::kUint64,
                                      Type::kFloat, Type::kDouble};
inline constexpr std::array kOps = {Op::kSum, Op::kProd, Op::kMin,  Op::kMax, Op::kLand,
                                    Op::kLor, Op::kLxor, Op::kBand, Op::kBor, Op::kBxor};

std::string_view name(Type type);
std::string_view name(Op op);
std::optional<Type> type_named(std::string_view name);
std::optional<Op> op_named(std::string_view name);
MPI_Datatype mpi_type(Type type);
MPI_Op mpi_op(Op op);
std::size_t size_of(Type type);

/// MPI defines logical and bitwise operations on integers only.
bool defined(Op op, Type type);

/// How large the operands may be.
enum class Range {
  kExact,  ///< every partial result is representable: any order, wrapping or saturating, gives the same bits
  kWrapping  ///< integer sums and products overflow and are expected to wrap, as in C on unsigned integers
};

/// Calls function(std::type_identity<T>{}) with the C++ type of `type`.
template <class Function>
decltype(auto) with_type(Type type, Function&& function) {
  switch (type) {
    case Type::kInt8:
      return function(std::type_identity<std::int8_t>{});
    case Type::kInt16:
      return function(std::type_identity<std::int16_t>{});
    case Type::kInt32:
      return function(std::type_identity<std::int32_t>{});
    case Type::kInt64:
      return function(std::type_identity<std::int64_t>{});
    case Type::kUint8:
      return function(std::type_identity<std::uint8_t>{});
    case Type::kUint16:
      return function(std::type_identity<std::uint16_t>{});
    case Type::kUint32:
      return function(std::type_identity<std::uint32_t>{});
    case Type::kUint64:
      return function(std::type_identity<std::uint64_t>{});
    case Type::kFloat:
      return function(std::type_identity<float>{});
    case Type::kDouble:
      break;
  }
  return function(std::type_identity<double>{});
}

/// A well-mixed 64-bit value of its argument: each round carries low bits up (multiply) and high bits down
/// (shift).
constexpr std::uint64_t mix(std::uint64_t x) {
  for (int round = 0; round < 3; ++round) {
    x = (x + 1) * 0x9e3779b97f4a7c15ULL;  // 2^64 / golden ratio, odd
    x ^= x >> 32;
  }
  return x;
}

class Tile {
 public:
  static constexpr std::size_t kPeriod = 4093;

  /// The operand of `rank` in a reduction over `ranks` ranks, and the result of that reduction, or of the
  /// first `operands` of it (at least 1).
  static Tile operand(Type type, Op op, Range range, int rank, int ranks);
  static Tile result(Type type, Op op, Range range, int ranks, int operands);
  static Tile result(Type type, Op op, Range range, int ranks) {
    return result(type, op, range, ranks, ranks);
  }
  /// Data of `rank` that is moved, not reduced.
  static Tile data(Type type, int rank);

  /// Element i of the buffer becomes element (i + shift) of the endless repetition of this tile.
  void fill(void* buffer, std::size_t count, std::uint64_t shift) const;

  /// How many of the elements are not what fill() would have put there.
  std::size_t count_wrong(const void* buffer, std::size_t count, std::uint64_t shift) const;

  /// The first such element, as "element 17 is 3, expected 4"; empty if there is none.
  std::string first_wrong(const void* buffer, std::size_t count, std::uint64_t shift) const;

 private:
  explicit Tile(Type type) : type_(type), elem_bytes_(size_of(type)), bytes_(kPeriod * elem_bytes_) {}
  template <class Visit>
  void for_each_piece(std::size_t count, std::uint64_t shift, Visit&& visit) const;
  std::string show(const std::byte* element) const;

  Type type_;
  std::size_t elem_bytes_;
  std::vector<std::byte> bytes_;
};

}  // namespace loom::mpi
