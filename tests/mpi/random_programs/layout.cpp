#include "tests/mpi/random_programs/layout.hpp"

#include <algorithm>
#include <cstring>

#include "base/format.hpp"

namespace loom::random_programs {
namespace {

template <class T>
void add(void* in, void* inout, int count) {
  for (int i = 0; i < count; ++i) static_cast<T*>(inout)[i] += static_cast<T*>(in)[i];
}
void sum(void* in, void* inout, int* count, MPI_Datatype* type) {
  if (*type == MPI_DOUBLE)
    add<double>(in, inout, *count);
  else
    add<int>(in, inout, *count);
}

std::uint64_t packed(std::uint32_t a, std::uint32_t b) {
  return std::uint64_t{b} << 32 | a;
}

void compose(void* in, void* inout, int* count, MPI_Datatype* type) {
  MPI_Aint lowest, extent;
  MPI_Type_get_extent(*type, &lowest, &extent);
  const MPI_Aint second = extent - static_cast<MPI_Aint>(sizeof(std::uint32_t));
  const auto load = [&](const std::byte* unit) {
    std::uint32_t a, b;
    std::memcpy(&a, unit, sizeof(a));
    std::memcpy(&b, unit + second, sizeof(b));
    return packed(a, b);
  };
  for (MPI_Aint i = 0; i < *count; ++i) {
    const auto* const below = static_cast<std::byte*>(in) + i * extent;
    auto* const above = static_cast<std::byte*>(inout) + i * extent;
    const std::uint64_t both = combine(Operation::kCompose, load(below), load(above));
    const auto a = static_cast<std::uint32_t>(both), b = static_cast<std::uint32_t>(both >> 32);
    std::memcpy(above, &a, sizeof(a));
    std::memcpy(above + second, &b, sizeof(b));
  }
}

}  // namespace

UserOperations::UserOperations() {
  MPI_Op_create(sum, 1, &sum_);
  MPI_Op_create(compose, 0, &compose_);
}
UserOperations::~UserOperations() {
  MPI_Op_free(&sum_);
  MPI_Op_free(&compose_);
}
MPI_Op UserOperations::of(Operation operation) const {
  switch (operation) {
    case Operation::kSum:
      return MPI_SUM;
    case Operation::kMax:
      return MPI_MAX;
    case Operation::kUserSum:
      return sum_;
    case Operation::kCompose:
      break;
  }
  return compose_;
}

Layout::Layout(Element element, std::uint64_t which) : element_(element), offsets_{0} {
  switch (element) {
    case Element::kInt:
      extent_ = sizeof(int);
      type_ = MPI_INT;
      return;
    case Element::kDouble:
      extent_ = sizeof(double);
      type_ = MPI_DOUBLE;
      return;
    case Element::kTriple:
      if (which % 3 == 0) {
        offsets_ = {0, 4, 8};
        extent_ = 12;
      } else if (which % 3 == 1) {
        offsets_ = {0, 8, 16};
        extent_ = 28;
      } else {
        offsets_ = {-8, 4, 12};
        extent_ = 24;
        lowest_ = -8;
      }
      break;
    case Element::kPair:
      offsets_ = {0, 4};
      extent_ = 8;
      break;
    case Element::kGappedPair:
      offsets_ = {0, 8};
      extent_ = 12;
      break;
  }
  MPI_Datatype bare;
  MPI_Type_create_hindexed_block(static_cast<int>(offsets_.size()), 1, offsets_.data(),
                                 element == Element::kTriple ? MPI_INT : MPI_UNSIGNED, &bare);
  MPI_Type_create_resized(bare, lowest_, static_cast<MPI_Aint>(extent_), &type_);
  MPI_Type_commit(&type_);
  MPI_Type_free(&bare);
}
Layout::~Layout() {
  if (type_ != MPI_INT && type_ != MPI_DOUBLE) MPI_Type_free(&type_);
}

void Layout::put(std::byte* unit, std::uint64_t value) const {
  if (element_ == Element::kDouble) {
    const auto x = static_cast<double>(value);
    std::memcpy(unit, &x, sizeof(x));
    return;
  }
  const bool pair = element_ == Element::kPair || element_ == Element::kGappedPair;
  for (std::size_t k = 0; k < offsets_.size(); ++k) {
    const auto x = static_cast<std::uint32_t>(pair ? value >> (32 * k) : value + k * 7919);
    std::memcpy(unit + offsets_[k], &x, sizeof(x));
  }
}

std::string Layout::show(const std::byte* unit) const {
  if (element_ == Element::kDouble) {
    double x;
    std::memcpy(&x, unit, sizeof(x));
    return loom::format("{}", x);
  }
  std::string text;
  for (const MPI_Aint offset : offsets_) {
    std::uint32_t x;
    std::memcpy(&x, unit + offset, sizeof(x));
    text += loom::format("{}{}", text.empty() ? "" : " ", x);
  }
  return text;
}

std::size_t Layout::data_bytes(Element element) {
  switch (element) {
    case Element::kInt:
      return 4;
    case Element::kTriple:
      return 12;
    default:
      return 8;
  }
}

std::uint64_t operand(Element element, std::uint64_t block, std::size_t i) {
  std::uint64_t x = block + i * 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x ^= x >> 31;
  const bool pair = element == Element::kPair || element == Element::kGappedPair;
  return pair ? x | 1 : x >> 44;  // odd factors are never lost; sums of 20 bits fit an int
}

std::uint64_t combine(Operation operation, std::uint64_t below, std::uint64_t above) {
  switch (operation) {
    case Operation::kSum:
    case Operation::kUserSum:
      return below + above;
    case Operation::kMax:
      return std::max(below, above);
    case Operation::kCompose:
      break;
  }
  const auto a = static_cast<std::uint32_t>(below), b = static_cast<std::uint32_t>(below >> 32);
  const auto c = static_cast<std::uint32_t>(above), d = static_cast<std::uint32_t>(above >> 32);
  return packed(a * c, b * c + d);  // first the one of the rank below
}

}  // namespace loom::random_programs
