/* coll_loom_check of persistent requests whose starts have to come in one order on all ranks. Includes
 * coll_loom.h downwards; make_request.c includes it. */
#ifndef LOOM_COMPONENT_MCA_CHECKED_START_H
#define LOOM_COMPONENT_MCA_CHECKED_START_H

#include "component/mca/coll_loom.h"

/* For programs that have promised to start persistent requests in one order: puts a request around *request
 * that compares the order. Returns an MPI error class; after an error *request is freed. Collective. */
int coll_loom_check_starts(struct coll_loom_module* self, enum loom_collective collective,
                           ompi_request_t** request);

#endif
