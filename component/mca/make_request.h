/* A call that does not wait: chooses who performs it, and makes its request. Above way.h and all files that
 * make requests (core_request.h, in_order.h, checked_start.h, connecting.h); only entries.c includes it. */
#ifndef LOOM_COMPONENT_MCA_MAKE_REQUEST_H
#define LOOM_COMPONENT_MCA_MAKE_REQUEST_H

#include "component/mca/deferred.h"

/* False: the call falls back. Else sets *request, or *error. A persistent request is not started. again:
 * makes the call if it was deferred; NULL for a persistent one. */
bool coll_loom_make_request(struct coll_loom_module* self, const struct coll_loom_args* args, bool persistent,
                            coll_loom_maker_t again, ompi_request_t** request, int* error);

#endif
