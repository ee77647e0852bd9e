#ifndef LOOM_COMPONENT_COLL_LOOM_REQUEST_H
#define LOOM_COMPONENT_COLL_LOOM_REQUEST_H

#include "component/coll_loom.h"
#include "ompi/mca/coll/base/coll_base_util.h"

/* Begins with what Open MPI's bindings expect of a collective's request: they keep types and operations
 * there. */
struct coll_loom_request {
  ompi_coll_base_nbc_request_t super;
  struct coll_loom_module* module;
  struct loom_job* job;
  struct coll_loom_operands operands;
};
typedef struct coll_loom_request coll_loom_request_t;
OBJ_CLASS_DECLARATION(coll_loom_request_t);

/* Of every request of loom's: it holds a reference to its communicator, req_mpi_object.comm. */
int coll_loom_request_free(ompi_request_t** request);
int coll_loom_request_cancel(ompi_request_t* request, int flag);
/* One that nobody has seen. */
static inline void coll_loom_request_drop(ompi_request_t* request) {
  OMPI_REQUEST_FINI(request);
  OBJ_RELEASE(request);
}
/* As MPI's wait would, for one that is complete: the empty one belongs to everybody. */
static inline void coll_loom_request_retire(ompi_request_t* request) {
  if (request != &ompi_request_empty) request->req_state = OMPI_REQUEST_INACTIVE;
}

#endif
