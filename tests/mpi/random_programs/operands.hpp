// operands.hpp -- the buffers of one call, what is in them before it and what ought to be after it, and the
// call itself in its three forms.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mpi_examples/support/device_memory.hpp"
#include "tests/mpi/random_programs/layout.hpp"

namespace loom::random_programs {

enum class Form { kBlocking, kNonblocking, kPersistent };

/// A communicator of the program, as this rank sees it.
struct Place {
  MPI_Comm comm = MPI_COMM_NULL;
  int group = 0, rank = 0, ranks = 0;
};

class Operands {
 public:
  /// `name`: what only this call has; the same on all ranks. `memory`: for set_memory_kinds.
  Operands(const Call& call, const Place& place, const UserOperations& operations, std::uint64_t name,
           const std::string& memory);

  /// Operands of this run of the call; results are not there yet.
  void fill(std::uint64_t run);
  /// The request belongs to the two forms that have one.
  void call(Form form, MPI_Request* request);
  /// Empty if all is right after this run; else what is wrong first.
  std::optional<std::string> wrong();

 private:
  /// Units next to each other in a buffer.
  struct Block {
    std::size_t first = 0, units = 0;
    bool before = false, after = false;  ///< when its values must be there
    int from = 0, to = 0;
    std::size_t offset = 0;  ///< of the first unit among those from one rank to another
    int operands = 0;        ///< above 0: results of ranks [0, that)
    bool anything = false;   ///< MPI leaves open what is there after the call
  };
  /// One of the two buffers, between guards.
  struct Side {
    Layout layout;
    std::string name;
    std::vector<Block> blocks = {};
    std::unique_ptr<mpi::Memory> memory = {};
    void* data() const { return memory->address() + kGuard; }
  };
  static constexpr std::size_t kGuard = 64;

  /// Blocks of a v form, in this order by rank.
  struct Blocks {
    std::vector<int> counts, disps, byte_disps;
    std::vector<MPI_Datatype> types;
  };

  std::uint64_t drawn(std::uint64_t use, int a, int b = 0) const;
  int units_between(int from, int to) const;
  Blocks place_blocks(Side& side, bool apart, const std::vector<int>& units,
                      std::vector<std::size_t>& first) const;
  void lay_out();
  void lay_out_reduction();
  void lay_out_gather();
  void lay_out_scatter();
  void lay_out_exchange();
  void allocate(Side& side);
  void paint(const Side& side, bool after, std::vector<std::byte>& bytes,
             const std::vector<std::byte>* found) const;
  std::vector<std::uint64_t> sources(const Block& block) const;
  std::optional<std::string> wrong(Side& side) const;

  const Call call_;
  const Place place_;
  const std::uint64_t name_;
  const std::string memory_;
  MPI_Op op_;
  int count_ = 0;  ///< units of a block, or of all
  bool equal_ = true;
  bool in_place_ = false;  ///< on this rank
  Side in_, out_;
  Blocks sent_, received_;
  std::uint64_t run_ = 0;
};

}  // namespace loom::random_programs
