/* What every request of loom's shares: what Open MPI calls on it, and that its communicator lives as long as
 * it does. Includes nothing of loom's but ompi_compat.h; all that make requests include it. */
#ifndef LOOM_COMPONENT_MCA_REQUEST_BASE_H
#define LOOM_COMPONENT_MCA_REQUEST_BASE_H

#include "component/mca/ompi_compat.h"
#include "ompi/mca/coll/base/coll_base_util.h"

/* Begins with what Open MPI's bindings expect of a collective's request: they keep types and operations
 * there. A constructor of what is made of it sets req_start, unless it is never persistent. */
struct coll_loom_request_base {
  ompi_coll_base_nbc_request_t super;
};
typedef struct coll_loom_request_base coll_loom_request_base_t;
OBJ_CLASS_DECLARATION(coll_loom_request_base_t);

static inline ompi_request_t* coll_loom_as_mpi(struct coll_loom_request_base* self) {
  return &self->super.super;
}

/* Before the program sees it. From now on the request holds a reference to its communicator: MPI_Comm_free
 * lets calls finish that were started before. */
void coll_loom_request_open(struct coll_loom_request_base* self, bool persistent,
                            ompi_communicator_t* communicator);
/* Frees one that the program has not seen, open or not. */
void coll_loom_request_drop(struct coll_loom_request_base* self);

/* As it starts. */
static inline void coll_loom_request_activate(struct coll_loom_request_base* self) {
  ompi_request_t* const request = coll_loom_as_mpi(self);
  request->req_status =
      (ompi_status_public_t){.MPI_SOURCE = MPI_ANY_SOURCE, .MPI_TAG = MPI_ANY_TAG, .MPI_ERROR = MPI_SUCCESS};
  request->req_complete = REQUEST_PENDING;
  request->req_state = OMPI_REQUEST_ACTIVE;
}
/* Comes last: whoever waits may free the request as soon as it is complete. error: an MPI error class. */
static inline void coll_loom_request_complete(struct coll_loom_request_base* self, int error) {
  ompi_request_t* const request = coll_loom_as_mpi(self);
  request->req_status.MPI_ERROR = error;
  ompi_request_complete(request, true);
}

/* Of anybody's request that is complete, as MPI's wait would: the empty one belongs to all. */
static inline void coll_loom_request_retire(ompi_request_t* request) {
  if (request != &ompi_request_empty) request->req_state = OMPI_REQUEST_INACTIVE;
}

/* For constructors: what an object has beyond its superclass becomes zero. */
#define COLL_LOOM_CLEAR(self) \
  memset((char*)(self) + sizeof(self)->super, 0, sizeof *(self) - sizeof(self)->super)

#endif
