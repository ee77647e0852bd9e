#ifndef LOOM_COMPONENT_MCA_REQUEST_H
#define LOOM_COMPONENT_MCA_REQUEST_H

#include "component/mca/coll_loom.h"
#include "ompi/mca/coll/base/coll_base_util.h"

/* Begins with what Open MPI's bindings expect of a collective's request: they keep types and operations
 * there. */
struct coll_loom_request {
  ompi_coll_base_nbc_request_t super;
  struct coll_loom_module* module;
  struct loom_request* core;
  struct coll_loom_operands operands;
};
typedef struct coll_loom_request coll_loom_request_t;
OBJ_CLASS_DECLARATION(coll_loom_request_t);

/* Of every request of loom's: it holds a reference to its communicator, req_mpi_object.comm. `start` is that
 * of MPI_Start and MPI_Startall. */
void coll_loom_request_construct(ompi_request_t* request, ompi_request_start_fn_t start);
/* As it starts. */
static inline void coll_loom_request_activate(ompi_request_t* request) {
  request->req_status =
      (ompi_status_public_t){.MPI_SOURCE = MPI_ANY_SOURCE, .MPI_TAG = MPI_ANY_TAG, .MPI_ERROR = MPI_SUCCESS};
  request->req_complete = REQUEST_PENDING;
  request->req_state = OMPI_REQUEST_ACTIVE;
}
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
