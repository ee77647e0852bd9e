// floor.hpp -- what the machine itself needs: the least time that a collective of one host can take. Measured
// with nothing of MPI but shared memory, in turn with the collective.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>

namespace loom::bench {

class Floor {
 public:
  /// Collective over a communicator of one host with at least two ranks; for up to so many bytes per rank.
  Floor(MPI_Comm comm, std::size_t most_bytes);
  ~Floor();

  /// One way of a cache line between ranks 0 and 1. Collective.
  double flag_us();
  /// Every rank adds up its share of all ranks' operands where they lie. Collective, as copy_us().
  double reduce_us(std::size_t bytes);
  /// Every rank copies the other ranks' sums from where they lie.
  double copy_us(std::size_t bytes);

 private:
  class SharedParts;
  MPI_Comm comm_;
  int rank_, ranks_;
  std::size_t most_bytes_;
  std::unique_ptr<SharedParts> flags_, in_, out_;
  int step_ = 0;  ///< of the flags
};

}  // namespace loom::bench
