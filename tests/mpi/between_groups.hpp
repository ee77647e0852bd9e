// between_groups.hpp -- every collective that MPI has on intercommunicators.
#pragma once

#include <mpi.h>

namespace loom::mpi_test {

/// All collectives in all forms on an intercommunicator, with small and large messages. `first`: whether this
/// process is in the group that acts first as the root's; one group says so, the other not. Returns the first
/// that is wrong on this process, or nullptr.
const char* wrong_between_groups(MPI_Comm both, bool first);

}  // namespace loom::mpi_test
