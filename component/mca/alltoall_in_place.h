/* All-to-alls in place that do not wait and fall back. Includes coll_loom.h downwards;
 * entries.c includes it. */
#ifndef LOOM_COMPONENT_MCA_ALLTOALL_IN_PLACE_H
#define LOOM_COMPONENT_MCA_ALLTOALL_IN_PLACE_H

#include "component/mca/coll_loom.h"

/* For any of the three forms (alltoall, alltoallv, alltoallw). Returns an MPI error class. */
int coll_loom_fall_back_in_place(struct coll_loom_module* self, const struct coll_loom_args* call,
                                 bool persistent, struct ompi_info_t* info, ompi_request_t** request);

#endif
