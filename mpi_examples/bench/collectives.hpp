// collectives.hpp -- what loom_bench can measure: one table entry per collective.
//
// Sizes follow nccl-tests: a case's size is that of the larger of a rank's two buffers, at the root of gather
// and scatter. A collective that spreads or gathers blocks has count / ranks elements per block.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "mpi_examples/support/typed_values.hpp"

namespace loom::bench {

/// One type and operation on one communicator, with the operands of all ranks that checking needs.
struct Case {
  mpi::Type type;
  mpi::Op op;
  int rank, ranks;
  int root;  // of the first call of a batch; call i has the rank i * root_step further
  int root_step = 0;
  bool in_place;
  std::size_t count = 0;  // elements of the larger buffer

  std::size_t block() const { return count / static_cast<std::size_t>(ranks); }
  std::size_t bytes() const { return count * mpi::size_of(type); }
  int root_of(std::size_t call) const {
    return (root + root_step * static_cast<int>(call % static_cast<std::size_t>(ranks))) % ranks;
  }

  mpi::Tile operand;                 // this rank's input
  std::optional<mpi::Tile> reduced;  // what a reduction gives; empty on rank 0 of an exscan
  std::vector<mpi::Tile> data;       // every rank's input, for collectives that move data
};

/// How much of `count` a buffer of this rank holds.
enum class Part { kNone, kBlock, kWhole };
std::size_t elements(Part part, const Case& one);

struct Call {
  const void* send;  // or MPI_IN_PLACE
  void* recv;
  const Case* one;
  int root;
  MPI_Comm comm;

  int count() const { return static_cast<int>(one->count); }
  int block() const { return static_cast<int>(one->block()); }
  MPI_Datatype type() const { return mpi::mpi_type(one->type); }
  MPI_Op op() const { return mpi::mpi_op(one->op); }
};

struct Collective {
  std::string_view name;
  bool reduces = false;
  bool blocks = false;  // count is a multiple of the ranks
  bool has_in_place = false;
  bool has_root = false;
  bool always_in_place = false;  // MPI gives it one buffer
  Part input, output;
  double (*busbw_factor)(double ranks) = [](double) { return 1.0; };  // bus bandwidth / algorithm bandwidth
  /// The result on a rank combines the operands of this many first ranks.
  int (*operands)(int rank, int ranks) = [](int, int ranks) { return ranks; };
  int (*call)(const Call&);
  int (*start)(const Call&, MPI_Request*);  // of the nonblocking form
  int (*init)(const Call&, MPI_Request*);   // makes the persistent request for it
  std::size_t (*count_wrong)(const Case&, int root, const std::byte* output, std::uint64_t shift);
};

std::span<const Collective> collectives();
const Collective* find_collective(std::string_view name);

/// A case with its tiles; count is still to be set.
Case make_case(const Collective& collective, mpi::Type type, mpi::Op op, int rank, int ranks, int root,
               bool in_place);

/// Writes this rank's operand to where the collective will read it; shift tells iterations apart.
void fill_input(const Collective& collective, const Case& one, std::byte* send, std::byte* recv,
                std::uint64_t shift);

}  // namespace loom::bench
