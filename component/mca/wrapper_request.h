/* A request around another one: for a call that needs work before it starts or after it has ended, or whose
 * own request does not exist yet. It is complete when the inner request is, and `end` has done the rest.
 *
 * Includes request_base.h; staged_request.c, in_order_request.c, alltoall_in_place.c, checked_start.c and
 * deferred.c derive their requests from it. It knows none of them. */
#ifndef LOOM_COMPONENT_MCA_WRAPPER_REQUEST_H
#define LOOM_COMPONENT_MCA_WRAPPER_REQUEST_H

#include <limits.h>

#include "component/mca/request_base.h"

/* The constructor of a derived class sets the two functions. Its destructor frees the inner request
 * (coll_loom_wrapper_let_go) before the rest. */
struct coll_loom_wrapper {
  struct coll_loom_request_base super;
  ompi_request_t* inner;
  /* Before a persistent inner one starts. An error ends the call; COLL_LOOM_GOES_ON: it has been started, or
   * coll_loom_wrapper_start starts it later. May be NULL. */
  int (*begin)(struct coll_loom_wrapper* self);
  /* error: of the inner request. Returns the error of the call, or COLL_LOOM_GOES_ON: wait again for `inner`,
   * which may be another request now. NULL: the inner request's error is the call's. */
  int (*end)(struct coll_loom_wrapper* self, int error);
  int error;                      /* there is no inner request: the call has failed with this */
  struct coll_loom_wrapper* next; /* in the list of wrappers that wait */
};
typedef struct coll_loom_wrapper coll_loom_wrapper_t;
OBJ_CLASS_DECLARATION(coll_loom_wrapper_t);

enum { COLL_LOOM_GOES_ON = INT_MIN };

/* Puts the wrapper, which has been opened, around `inner`, which has been started unless it is persistent. */
void coll_loom_wrapper_take(struct coll_loom_wrapper* self, ompi_request_t* inner, ompi_request_t** request);
/* The same for an active wrapper: waits for `inner`, or ends with `error`. */
void coll_loom_wrapper_follow(struct coll_loom_wrapper* self, ompi_request_t* inner, int error);
/* Starts the inner request of a persistent wrapper that is active, unless there is an `error`. */
void coll_loom_wrapper_start(struct coll_loom_wrapper* self, int error);
/* Only starts the inner request, as MPI_Start does. */
int coll_loom_wrapper_start_inner(struct coll_loom_wrapper* self);
/* For destructors: frees the inner request. */
void coll_loom_wrapper_let_go(struct coll_loom_wrapper* self);

#endif
