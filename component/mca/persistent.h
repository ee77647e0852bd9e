/* Who may carry persistent requests. Includes Open MPI alone. */
#ifndef LOOM_COMPONENT_MCA_PERSISTENT_H
#define LOOM_COMPONENT_MCA_PERSISTENT_H

#include "component/mca/ompi_compat.h"

/* Whether the program has promised that all ranks start the communicator's persistent requests in one order.
 * Where it has not, they go to the fallback component, which matches them as they were made.
 *
 * MPI 4.1 has an info key for it, mpi_assert_strict_persistent_collective_ordering, of which Open MPI up
 * to 6.0 takes the first 35 characters at the most: so that is one spelling, and loom's own the other. */
#define COLL_LOOM_ORDERED_STARTS_KEY "coll_loom_ordered_starts"
bool coll_loom_starts_are_ordered(const ompi_communicator_t* communicator);

#endif
