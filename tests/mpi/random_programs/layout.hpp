// layout.hpp -- elements of a call in memory: their MPI type, and how values lie in them.
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/mpi/random_programs/program.hpp"

namespace loom::random_programs {

/// kUserSum and kCompose as operations of MPI. Lives between MPI_Init and MPI_Finalize.
class UserOperations {
 public:
  UserOperations();
  ~UserOperations();
  UserOperations(const UserOperations&) = delete;
  UserOperations& operator=(const UserOperations&) = delete;
  MPI_Op of(Operation operation) const;

 private:
  MPI_Op sum_, compose_;
};

/// Values have 64 bits; an element holds as many of them as it has room for.
class Layout {
 public:
  /// For triples, `which` selects one of the ways to place them.
  Layout(Element element, std::uint64_t which);
  ~Layout();
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;

  MPI_Datatype type() const { return type_; }
  std::size_t extent() const { return extent_; }
  /// How far a unit reaches before its address.
  std::size_t before() const { return static_cast<std::size_t>(-lowest_); }
  void put(std::byte* unit, std::uint64_t value) const;
  /// The values of a unit, as text.
  std::string show(const std::byte* unit) const;

  static std::size_t data_bytes(Element element);

 private:
  Element element_;
  std::vector<MPI_Aint> offsets_;
  std::size_t extent_;
  MPI_Aint lowest_ = 0;
  MPI_Datatype type_;
};

/// An operand of a rank, and the result over all operands: exact in every element's type.
std::uint64_t operand(Element element, std::uint64_t block, std::size_t i);
std::uint64_t combine(Operation operation, std::uint64_t below, std::uint64_t above);

}  // namespace loom::random_programs
