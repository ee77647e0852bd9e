// clock.hpp -- the time that benchmarks tell: MPI_Wtime, or the virtual time of tests/virtual_gpu where that
// keeps it.
#pragma once

#include <mpi.h>

namespace loom::mpi {

/// In seconds; after MPI_Init. Only differences mean something.
double now();
/// When all ranks have come, which is the same moment for all of them.
double begin_together(MPI_Comm comm);

}  // namespace loom::mpi
