/* All-to-alls in place that do not wait, for the fallback component. Includes coll_loom.h downwards;
 * entries.c includes it. */
#ifndef LOOM_COMPONENT_MCA_ALLTOALL_IN_PLACE_H
#define LOOM_COMPONENT_MCA_ALLTOALL_IN_PLACE_H

#include "component/mca/coll_loom.h"

/* Of any of the three kinds. An MPI error class. */
int coll_loom_hand_down_in_place(struct coll_loom_module* self, const struct coll_loom_args* call,
                                 bool persistent, struct ompi_info_t* info, ompi_request_t** request);

#endif
