/* Calls that do not wait, with buffers on devices: a request around the one of whoever carries the call on
 * staging buffers. It is complete when results have been copied back. Includes coll_loom.h downwards,
 * staging.h and wrapper_request.h in its code; staged.c includes it. */
#ifndef LOOM_COMPONENT_MCA_STAGED_REQUEST_H
#define LOOM_COMPONENT_MCA_STAGED_REQUEST_H

#include "component/mca/coll_loom.h"

struct coll_loom_staged_request;

/* Comes before the inner request is made, so that nothing can fail after; *made is NULL where nothing is on a
 * device. */
int coll_loom_staged_request_make(struct coll_loom_module* self, int which, struct coll_loom_args* args,
                                  bool persistent, struct coll_loom_staged_request** made);
/* Takes what the making of the inner one has returned, and replaces its request. */
int coll_loom_staged_request_finish(struct coll_loom_staged_request* made, int error,
                                    ompi_request_t** request);

#endif
