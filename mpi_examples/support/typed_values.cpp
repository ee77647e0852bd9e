#include "mpi_examples/support/typed_values.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/format.hpp"

namespace loom::mpi {
namespace {

constexpr std::array<std::string_view, kTypes.size()> kTypeNames = {
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float", "double"};
constexpr std::array<std::string_view, kOps.size()> kOpNames = {"sum", "prod", "min",  "max", "land",
                                                                "lor", "lxor", "band", "bor", "bxor"};

template <class Kind, std::size_t N>
std::optional<Kind> find_name(const std::array<std::string_view, N>& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Kind>(found - names.begin());
}

std::uint64_t draw(std::uint64_t index, int rank) {
  return mix(index + mix(static_cast<std::uint64_t>(rank)));
}

/// Any value of an integer type; a whole number of at most 20 bits, exact in every type, for floating point.
template <class T>
T any_value(std::uint64_t random) {
  if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(static_cast<std::int64_t>(random >> 43) - (1 << 20));
  else
    return static_cast<T>(random);
}

/// The largest result that an exact sum may have.
template <class T>
constexpr std::uint64_t sum_limit() {
  if constexpr (std::is_floating_point_v<T>)
    return std::uint64_t{1} << std::numeric_limits<T>::digits;
  else
    return static_cast<std::uint64_t>(std::numeric_limits<T>::max());
}

template <class T>
T exact_addend(std::uint64_t random, std::uint64_t index, int rank, int ranks) {
  const std::uint64_t share = sum_limit<T>() / static_cast<std::uint64_t>(ranks);
  if (share == 0) {  // more ranks than the type can count: one of them has a value, the others zero
    const bool mine = index % static_cast<std::uint64_t>(ranks) == static_cast<std::uint64_t>(rank);
    return mine ? static_cast<T>(1 + random % 100) : T{0};
  }
  const auto magnitude = static_cast<std::int64_t>(random % (std::min<std::uint64_t>(share, 1000) + 1));
  if (std::is_signed_v<T> && (random >> 40) % 2 == 1) return static_cast<T>(-magnitude);
  return static_cast<T>(magnitude);
}

/// One or two, such that the product over all ranks is 2^n with an n that varies and that the type can hold.
template <class T>
T exact_factor(std::uint64_t index, int rank, int ranks) {
  constexpr int kMostTwos = std::is_floating_point_v<T> ? 100 : std::numeric_limits<T>::digits - 1;
  const std::uint64_t random = draw(index, -1);  // the same on every rank
  const int twos = static_cast<int>(random % static_cast<std::uint64_t>(std::min(ranks, kMostTwos) + 1));
  const auto turn = (static_cast<std::uint64_t>(rank) + (random >> 32)) % static_cast<std::uint64_t>(ranks);
  return static_cast<int>(turn) < twos ? T{2} : T{1};
}

template <class T>
T operand_value(Op op, Range range, std::uint64_t index, int rank, int ranks) {
  const std::uint64_t random = draw(index, rank);
  const bool wrapping = range == Range::kWrapping && std::is_integral_v<T>;
  // Rare values stay visible in a logical result. The result of one rank alone is not normalized to 0 or 1,
  // so it has no other values.
  const bool rare = random % (2 * static_cast<std::uint64_t>(ranks)) == 0;
  const T truth = ranks == 1 ? T{1} : static_cast<T>(1 + (random >> 32) % 100);
  const std::uint64_t sparse_bits = random & mix(random) & mix(random + 1);  // one bit in eight
  switch (op) {
    case Op::kSum:
      return wrapping ? any_value<T>(random) : exact_addend<T>(random, index, rank, ranks);
    case Op::kProd:
      return wrapping ? any_value<T>(random | 1) : exact_factor<T>(index, rank, ranks);
    case Op::kMin:
    case Op::kMax:
      return any_value<T>(random);
    case Op::kLand:
      return rare ? T{0} : truth;
    case Op::kLor:
      return rare ? truth : T{0};
    case Op::kLxor:
      return random % 2 == 0 ? truth : T{0};
    case Op::kBand:
      return static_cast<T>(~sparse_bits);
    case Op::kBor:
      return static_cast<T>(sparse_bits);
    case Op::kBxor:
      return any_value<T>(random);
  }
  return T{};
}

template <class T>
T combine(Op op, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    const auto x = static_cast<std::uint64_t>(a);  // unsigned: overflow wraps
    const auto y = static_cast<std::uint64_t>(b);
    switch (op) {
      case Op::kSum:
        return static_cast<T>(x + y);
      case Op::kProd:
        return static_cast<T>(x * y);
      case Op::kLand:
        return static_cast<T>(a != 0 && b != 0);
      case Op::kLor:
        return static_cast<T>(a != 0 || b != 0);
      case Op::kLxor:
        return static_cast<T>((a != 0) != (b != 0));
      case Op::kBand:
        return static_cast<T>(x & y);
      case Op::kBor:
        return static_cast<T>(x | y);
      case Op::kBxor:
        return static_cast<T>(x ^ y);
      case Op::kMin:
        return std::min(a, b);
      case Op::kMax:
        return std::max(a, b);
    }
    return T{};
  } else {
    switch (op) {
      case Op::kSum:
        return a + b;
      case Op::kProd:
        return a * b;
      case Op::kMin:
        return std::min(a, b);
      default:
        return std::max(a, b);
    }
  }
}

template <class T>
void put(std::vector<std::byte>& bytes, std::size_t index, T value) {
  std::memcpy(bytes.data() + index * sizeof(T), &value, sizeof(T));
}

}  // namespace

std::string_view name(Type type) {
  return kTypeNames[static_cast<std::size_t>(type)];
}
std::string_view name(Op op) {
  return kOpNames[static_cast<std::size_t>(op)];
}
std::optional<Type> type_named(std::string_view name) {
  return find_name<Type>(kTypeNames, name);
}
std::optional<Op> op_named(std::string_view name) {
  return find_name<Op>(kOpNames, name);
}

MPI_Datatype mpi_type(Type type) {
  const std::array<MPI_Datatype, kTypes.size()> types = {
      MPI_INT8_T,   MPI_INT16_T,  MPI_INT32_T,  MPI_INT64_T, MPI_UINT8_T,
      MPI_UINT16_T, MPI_UINT32_T, MPI_UINT64_T, MPI_FLOAT,   MPI_DOUBLE};
  return types[static_cast<std::size_t>(type)];
}

MPI_Op mpi_op(Op op) {
  const std::array<MPI_Op, kOps.size()> ops = {MPI_SUM, MPI_PROD, MPI_MIN,  MPI_MAX, MPI_LAND,
                                               MPI_LOR, MPI_LXOR, MPI_BAND, MPI_BOR, MPI_BXOR};
  return ops[static_cast<std::size_t>(op)];
}

std::size_t size_of(Type type) {
  return with_type(type, []<class T>(std::type_identity<T>) { return sizeof(T); });
}

bool defined(Op op, Type type) {
  return (type != Type::kFloat && type != Type::kDouble) || op <= Op::kMax;
}

Tile Tile::operand(Type type, Op op, Range range, int rank, int ranks) {
  Tile tile(type);
  with_type(type, [&]<class T>(std::type_identity<T>) {
    for (std::size_t i = 0; i < kPeriod; ++i)
      put(tile.bytes_, i, operand_value<T>(op, range, i, rank, ranks));
  });
  return tile;
}

Tile Tile::result(Type type, Op op, Range range, int ranks, int operands) {
  Tile tile(type);
  with_type(type, [&]<class T>(std::type_identity<T>) {
    for (std::size_t i = 0; i < kPeriod; ++i) {
      T total = operand_value<T>(op, range, i, 0, ranks);
      for (int rank = 1; rank < operands; ++rank) {
        total = combine(op, total, operand_value<T>(op, range, i, rank, ranks));
      }
      put(tile.bytes_, i, total);
    }
  });
  return tile;
}

Tile Tile::data(Type type, int rank) {
  Tile tile(type);
  with_type(type, [&]<class T>(std::type_identity<T>) {
    for (std::size_t i = 0; i < kPeriod; ++i) put(tile.bytes_, i, any_value<T>(draw(i, rank)));
  });
  return tile;
}

// visit(offset in the buffer, offset in the tile, bytes) for each run that is contiguous in both.
template <class Visit>
void Tile::for_each_piece(std::size_t count, std::uint64_t shift, Visit&& visit) const {
  std::size_t position = static_cast<std::size_t>(shift % kPeriod);
  for (std::size_t done = 0; done < count;) {
    const std::size_t elems = std::min(kPeriod - position, count - done);
    visit(done * elem_bytes_, position * elem_bytes_, elems * elem_bytes_);
    done += elems;
    position = 0;
  }
}

void Tile::fill(void* buffer, std::size_t count, std::uint64_t shift) const {
  for_each_piece(count, shift, [&](std::size_t to, std::size_t from, std::size_t bytes) {
    std::memcpy(static_cast<std::byte*>(buffer) + to, bytes_.data() + from, bytes);
  });
}

std::size_t Tile::count_wrong(const void* buffer, std::size_t count, std::uint64_t shift) const {
  std::size_t wrong = 0;
  for_each_piece(count, shift, [&](std::size_t at, std::size_t expected_at, std::size_t bytes) {
    const std::byte* got = static_cast<const std::byte*>(buffer) + at;
    const std::byte* expected = bytes_.data() + expected_at;
    if (std::memcmp(got, expected, bytes) == 0) return;
    for (std::size_t i = 0; i < bytes; i += elem_bytes_)
      wrong += std::memcmp(got + i, expected + i, elem_bytes_) != 0;
  });
  return wrong;
}

std::string Tile::first_wrong(const void* buffer, std::size_t count, std::uint64_t shift) const {
  for (std::size_t i = 0; i < count; ++i) {
    const std::byte* got = static_cast<const std::byte*>(buffer) + i * elem_bytes_;
    const std::byte* expected = bytes_.data() + (i + shift) % kPeriod * elem_bytes_;
    if (std::memcmp(got, expected, elem_bytes_) == 0) continue;
    return loom::format("element {} is {}, expected {}", i, show(got), show(expected));
  }
  return {};
}

std::string Tile::show(const std::byte* element) const {
  return with_type(type_, [&]<class T>(std::type_identity<T>) {
    T value;
    std::memcpy(&value, element, sizeof value);
    return loom::format("{}", value);
  });
}

}  // namespace loom::mpi
