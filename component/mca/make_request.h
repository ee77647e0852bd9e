/* A call that does not wait: who carries it, and its request. Above all that makes requests (core_request.h,
 * in_order.h, checked_start.h, connecting.h) and way.h; entries.c alone includes it. */
#ifndef LOOM_COMPONENT_MCA_MAKE_REQUEST_H
#define LOOM_COMPONENT_MCA_MAKE_REQUEST_H

#include "component/mca/deferred.h"

/* False: the fallback component has to carry the call. Else *request, or *error. A persistent request is not
 * started. again: makes such a call, should it be deferred; not of a persistent one. */
bool coll_loom_make_request(struct coll_loom_module* self, const struct coll_loom_args* args, bool persistent,
                            coll_loom_maker_t again, ompi_request_t** request, int* error);

#endif
