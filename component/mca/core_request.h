/* A call that does not wait and that loom's core performs, as a request of Open MPI. Includes request_base.h
 * downwards; make_request.c makes them. */
#ifndef LOOM_COMPONENT_MCA_CORE_REQUEST_H
#define LOOM_COMPONENT_MCA_CORE_REQUEST_H

#include "component/mca/coll_loom.h"

/* LOOM_SUCCESS: sets *request, started unless it is persistent. Otherwise there is no request, and the result
 * is the core's. op, type: of a reduction. */
int coll_loom_make_core_request(struct coll_loom_module* self, const struct coll_loom_args* args,
                                enum loom_op op, enum loom_type type, enum loom_request_kind kind,
                                ompi_request_t** request);

#endif
