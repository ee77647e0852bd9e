/* Adds to requests of the fallback component what they lack. Includes handles.h. */
#ifndef LOOM_COMPONENT_MCA_FALLBACK_REQUEST_H
#define LOOM_COMPONENT_MCA_FALLBACK_REQUEST_H

#include "component/mca/handles.h"

/* Keeps the communicator of a call of the fallback component as long as its request, and if that is
 * persistent the types and the operation. Open MPI's own requests do not: a program may free them before
 * calls have ended or, if they are persistent, before they have started. Returns `error`, the result of
 * making the request. */
int coll_loom_keep_for_request(ompi_communicator_t* communicator, const struct coll_loom_args* args,
                               ompi_request_t* request, int error);

#endif
