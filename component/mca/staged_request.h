/* Calls that do not wait, with buffers on devices: a request around the one that performs the call on staging
 * buffers. It is complete when the results have been copied back. Includes coll_loom.h downwards, staging.h
 * and wrapper_request.h in its code; staged.c includes it. */
#ifndef LOOM_COMPONENT_MCA_STAGED_REQUEST_H
#define LOOM_COMPONENT_MCA_STAGED_REQUEST_H

#include "component/mca/coll_loom.h"

struct coll_loom_staged_request;

/* Called before the inner request is made, so that nothing can fail after it. *made is NULL if no buffer is
 * on a device. */
int coll_loom_staged_request_make(struct coll_loom_module* self, int which, struct coll_loom_args* args,
                                  bool persistent, struct coll_loom_staged_request** made);
/* error, *request: from the making of the inner request, which this request replaces. */
int coll_loom_staged_request_finish(struct coll_loom_staged_request* made, int error,
                                    ompi_request_t** request);

#endif
