#ifndef LOOM_COMPONENT_MCA_OUTER_REQUEST_H
#define LOOM_COMPONENT_MCA_OUTER_REQUEST_H

#include "component/mca/request.h"

/* A request around the one of whoever carries the call: complete when that one is and `end` has done the
 * rest. What is made of it sets the two functions in its constructor and frees the rest in its destructor.
 *
 * Begins with what Open MPI's bindings expect, as struct coll_loom_request does. */
struct coll_loom_outer_request {
  ompi_coll_base_nbc_request_t super;
  ompi_request_t* inner;
  int (*begin)(struct coll_loom_outer_request* self); /* before a persistent inner one starts; may be NULL */
  /* error: of the inner one. Returns that of the call, or COLL_LOOM_GOES_ON: `inner`, which may be another
   * one now, is to be waited for, again. */
  int (*end)(struct coll_loom_outer_request* self, int error);
  struct coll_loom_outer_request* next; /* of those that are started */
};
typedef struct coll_loom_outer_request coll_loom_outer_request_t;
OBJ_CLASS_DECLARATION(coll_loom_outer_request_t);

enum { COLL_LOOM_GOES_ON = INT_MIN };

/* Before `inner` is made. */
void coll_loom_outer_request_make(struct coll_loom_outer_request* self, bool persistent,
                                  struct ompi_communicator_t* communicator);
/* Goes around `inner`, which is started already unless it is persistent. */
void coll_loom_outer_request_take(struct coll_loom_outer_request* self, ompi_request_t* inner);
/* For destructors, before they free what `inner` uses. */
void coll_loom_outer_request_let_go(struct coll_loom_outer_request* self);

#endif
