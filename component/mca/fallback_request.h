/* Adds to requests of the fallback component what they lack. Includes only Open MPI. */
#ifndef LOOM_COMPONENT_MCA_FALLBACK_REQUEST_H
#define LOOM_COMPONENT_MCA_FALLBACK_REQUEST_H

#include "component/mca/ompi_compat.h"

/* Keeps the communicator as long as a request of the fallback component on it. Open MPI's own requests do
 * not: a program may free the communicator before they have ended or, if they are persistent, before they
 * have started. Returns `error`, the result of making the request. */
int coll_loom_keep_communicator(ompi_communicator_t* communicator, ompi_request_t* request, int error);

#endif
