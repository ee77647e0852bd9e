// run.hpp -- one rank's run of a program.
#pragma once

#include <mpi.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/mpi/random_programs/operands.hpp"
#include "tests/mpi/random_programs/program.hpp"

namespace loom::random_programs {

/// What is the same for all programs.
struct Environment {
  explicit Environment(const UserOperations& of_program) : operations(of_program) {}
  const UserOperations& operations;
  int rank = 0, ranks = 0;
  MPI_Comm base = MPI_COMM_WORLD;  ///< what programs begin with
  std::string memory = "host";
  std::string ordered_key;  ///< of the info that promises one order of starts
  bool traces = false;      ///< says what it does, on stderr
};

using ByCollective = std::array<std::uint64_t, kCollectives>;

/// What this rank has done; adds up over programs.
struct Totals {
  ByCollective requests{}, starts{}, asserted_starts{}, blocking{}, nonblocking{};
  std::uint64_t messages = 0, freed_communicators = 0, checks = 0;
};

/// The program's communicators, before it begins: threads must not make any at the same time, where Open MPI
/// 4.1 hangs now and then.
std::vector<Place> make_communicators(const Program& program, const Environment& environment);

/// Returns what was wrong on this rank. `made`: its communicators; empty: it makes them.
std::vector<std::string> run(const Program& program, const Environment& environment, Totals& totals,
                             std::vector<Place> made = {});

}  // namespace loom::random_programs
