/* Calls that do not wait, with buffers on devices: a request around the one that performs the call on staging
 * buffers. It is complete when the results have been copied back. A call whose operands are still on their
 * way is held, and so are the calls of its communicator after it, on devices or not (held.h).
 *
 * Includes held.h, connecting.h, staging.h and wrapper_request.h downwards; staged.c includes it. */
#ifndef LOOM_COMPONENT_MCA_STAGED_REQUEST_H
#define LOOM_COMPONENT_MCA_STAGED_REQUEST_H

#include "component/mca/deferred.h"
#include "component/mca/held.h"
#include "component/mca/staging.h"

/* Whether calls before this one have not started yet: it has to follow them. */
bool coll_loom_must_follow(const struct coll_loom_module* self);
/* Waits for their start: for calls that may wait. */
static inline void coll_loom_follow(struct coll_loom_module* self) {
  const bool may_have_to = __atomic_load_n(&self->held.first, __ATOMIC_RELAXED) != NULL;
  if (OPAL_UNLIKELY(may_have_to) && coll_loom_must_follow(self)) coll_loom_wait_for_held(self);
}

/* Starts the call that `maker` makes of args, which have the staging buffers; staging: NULL if no buffer is
 * on a device. Returns an MPI error class. */
int coll_loom_staged_request_start(struct coll_loom_module* self, const struct coll_loom_args* args,
                                   struct coll_loom_staging* staging, coll_loom_maker_t maker,
                                   ompi_request_t** request);

struct coll_loom_staged_request;
/* Of a persistent call: made before the inner request, so that nothing can fail after it. NULL: there was no
 * memory; then *error says so. */
struct coll_loom_staged_request* coll_loom_staged_request_make(struct coll_loom_module* self,
                                                               const struct coll_loom_args* args,
                                                               struct coll_loom_staging* staging, int* error);
/* error, *request: from the making of the inner request, which this request replaces. */
int coll_loom_staged_request_finish(struct coll_loom_staged_request* made, int error,
                                    ompi_request_t** request);

#endif
