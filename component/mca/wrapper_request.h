/* A request around another one: of a call that needs something done before it starts or after it has ended,
 * or that nobody carries yet. Complete when the inner one is, and `end` has done the rest.
 *
 * Includes request_base.h; staged_request.c, in_order_request.c, alltoall_in_place.c, checked_start.c and
 * deferred.c make their requests of it. It knows none of them. */
#ifndef LOOM_COMPONENT_MCA_WRAPPER_REQUEST_H
#define LOOM_COMPONENT_MCA_WRAPPER_REQUEST_H

#include <limits.h>

#include "component/mca/request_base.h"

/* What is made of it sets the two functions in its constructor, and in its destructor lets go of the inner
 * request before it frees the rest. */
struct coll_loom_wrapper {
  struct coll_loom_request_base super;
  ompi_request_t* inner;
  /* Before a persistent inner one starts. An error ends the call. May be NULL. */
  int (*begin)(struct coll_loom_wrapper* self);
  /* error: of the inner one. Returns that of the call, or COLL_LOOM_GOES_ON: `inner`, which may be another
   * one now, is to be waited for, again. NULL: the inner one's error is the call's. */
  int (*end)(struct coll_loom_wrapper* self, int error);
  int error;                      /* there is nothing to wait for: the call has failed so */
  struct coll_loom_wrapper* next; /* of those that wait for their inner ones */
};
typedef struct coll_loom_wrapper coll_loom_wrapper_t;
OBJ_CLASS_DECLARATION(coll_loom_wrapper_t);

enum { COLL_LOOM_GOES_ON = INT_MIN };

/* Goes around `inner`, which is started already unless it is persistent. The wrapper has been opened. */
void coll_loom_wrapper_take(struct coll_loom_wrapper* self, ompi_request_t* inner, ompi_request_t** request);
/* The same for one that is active already: waits for `inner`, or ends with `error`. */
void coll_loom_wrapper_follow(struct coll_loom_wrapper* self, ompi_request_t* inner, int error);
/* For destructors. */
void coll_loom_wrapper_let_go(struct coll_loom_wrapper* self);

#endif
