/* What all of loom's requests share: the functions that Open MPI calls, and references that keep the
 * communicator, and types and operation of a persistent call, as long as the request. Includes handles.h; all
 * files that make requests include it. */
#ifndef LOOM_COMPONENT_MCA_REQUEST_BASE_H
#define LOOM_COMPONENT_MCA_REQUEST_BASE_H

#include "component/mca/handles.h"
#include "component/mca/ompi_compat.h"
#include "ompi/mca/coll/base/coll_base_util.h"

/* Begins with the struct that Open MPI's bindings expect of a collective's request: they keep types and
 * operations there. The constructor of a derived class sets req_start, unless its requests are never
 * persistent. */
struct coll_loom_request_base {
  ompi_coll_base_nbc_request_t super;
  struct coll_loom_handles handles;
};
typedef struct coll_loom_request_base coll_loom_request_base_t;
OBJ_CLASS_DECLARATION(coll_loom_request_base_t);

static inline ompi_request_t* coll_loom_as_mpi(struct coll_loom_request_base* self) {
  return &self->super.super;
}

/* Called before the program sees the request. From now on it holds a reference to its communicator: calls
 * that were started before MPI_Comm_free can finish. */
void coll_loom_request_open(struct coll_loom_request_base* self, bool persistent,
                            ompi_communicator_t* communicator);
/* The same for a call with such arguments: a persistent one also holds its types and its operation. Open MPI
 * does that for others. */
void coll_loom_request_open_for(struct coll_loom_request_base* self, const struct coll_loom_args* args,
                                bool persistent, ompi_communicator_t* communicator);
/* Frees a request that the program has not seen, open or not. */
void coll_loom_request_drop(struct coll_loom_request_base* self);

/* Called when the request starts. */
static inline void coll_loom_request_activate(struct coll_loom_request_base* self) {
  ompi_request_t* const request = coll_loom_as_mpi(self);
  request->req_status =
      (ompi_status_public_t){.MPI_SOURCE = MPI_ANY_SOURCE, .MPI_TAG = MPI_ANY_TAG, .MPI_ERROR = MPI_SUCCESS};
  request->req_complete = REQUEST_PENDING;
  request->req_state = OMPI_REQUEST_ACTIVE;
}
/* Called last: the program may free the request as soon as it is complete. error: an MPI error class. */
static inline void coll_loom_request_complete(struct coll_loom_request_base* self, int error) {
  ompi_request_t* const request = coll_loom_as_mpi(self);
  request->req_status.MPI_ERROR = error;
  /* Another thread may find it complete without any lock: then it sees the results, too. Open MPI before 6.0
   * does not see to that. */
  __atomic_thread_fence(__ATOMIC_RELEASE);
  ompi_request_complete(request, true);
}

/* Makes any complete request inactive, as MPI's wait would, except the empty request, which all calls share.
 */
static inline void coll_loom_request_retire(ompi_request_t* request) {
  if (request != &ompi_request_empty) request->req_state = OMPI_REQUEST_INACTIVE;
}

/* For constructors: zeroes the members that an object has beyond its superclass. */
#define COLL_LOOM_CLEAR(self) \
  memset((char*)(self) + sizeof(self)->super, 0, sizeof *(self) - sizeof(self)->super)

#endif
