/* Requests of the fallback component, and what they lack. Includes Open MPI alone. */
#ifndef LOOM_COMPONENT_MCA_FALLBACK_REQUEST_H
#define LOOM_COMPONENT_MCA_FALLBACK_REQUEST_H

#include "component/mca/ompi_compat.h"

/* The communicator lives as long as a request of the fallback component on it, which Open MPI's own do not
 * see to: a program may free it before they have ended or, if they are persistent, have started. Returns
 * `error`, that of their making. */
int coll_loom_keep_communicator(ompi_communicator_t* communicator, ompi_request_t* request, int error);

#endif
