// floor.hpp -- what the machine itself needs: the least that a collective of one host can take, measured
// without MPI's help beyond shared memory.
#pragma once

#include <mpi.h>

#include <cstddef>

namespace loom::bench {

struct Floor {
  double flag_us = 0;    ///< one way of a cache line between ranks 0 and 1
  double reduce_us = 0;  ///< every rank adds up its share of all ranks' operands where they lie
  double copy_us = 0;    ///< every rank copies the other shares from where they have been added up
};

/// Collective over a communicator of one host with at least two ranks; `bytes` of floats per rank. The median
/// of some runs.
Floor measure_floor(MPI_Comm comm, std::size_t bytes);

}  // namespace loom::bench
