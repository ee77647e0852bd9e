/* Whether ranks start persistent requests in one order. Includes only Open MPI. */
#ifndef LOOM_COMPONENT_MCA_PERSISTENT_H
#define LOOM_COMPONENT_MCA_PERSISTENT_H

#include "component/mca/ompi_compat.h"

/* Whether the program has promised that all ranks start the communicator's persistent requests in one order.
 * Otherwise each needs room of its own (component/links/lane_memory.hpp), or falls back: the fallback
 * component matches them in the order of their making.
 *
 * MPI 4.1 has an info key for this, mpi_assert_strict_persistent_collective_ordering, but Open MPI up to 6.0
 * keeps at most 35 characters of a key. So these are one spelling, and loom's own key is the other. */
#define COLL_LOOM_ORDERED_STARTS_KEY "coll_loom_ordered_starts"
bool coll_loom_starts_are_ordered(const ompi_communicator_t* communicator);

#endif
