#include "component/mca/request_base.h"

void coll_loom_request_open(struct coll_loom_request_base* self, bool persistent,
                            ompi_communicator_t* communicator) {
  ompi_request_t* const request = coll_loom_as_mpi(self);
  OMPI_REQUEST_INIT(request, persistent);
  request->req_mpi_object.comm = communicator;
  OBJ_RETAIN(communicator);
}

void coll_loom_request_open_for(struct coll_loom_request_base* self, const struct coll_loom_args* args,
                                bool persistent, ompi_communicator_t* communicator) {
  if (persistent) self->handles = coll_loom_handles_keep(communicator, args);
  coll_loom_request_open(self, persistent, communicator);
}

void coll_loom_request_drop(struct coll_loom_request_base* self) {
  ompi_request_t* const request = coll_loom_as_mpi(self);
  ompi_communicator_t* communicator = request->req_mpi_object.comm;
  if (communicator != NULL) OMPI_REQUEST_FINI(request);
  OBJ_RELEASE(self);
  if (communicator != NULL) coll_loom_communicator_let_go(communicator);
}

static int request_free(ompi_request_t** request) {
  if (!coll_loom_is_complete(*request)) return MPI_ERR_REQUEST;
  coll_loom_request_drop((struct coll_loom_request_base*)*request);
  *request = MPI_REQUEST_NULL;
  return OMPI_SUCCESS;
}

/* MPI: collectives cannot be cancelled. */
static int request_cancel(ompi_request_t* request, int flag) {
  (void)request, (void)flag;
  return MPI_ERR_REQUEST;
}

static void construct(coll_loom_request_base_t* self) {
  ompi_request_t* const request = coll_loom_as_mpi(self);
  memset((char*)self + sizeof *request, 0, sizeof *self - sizeof *request);
  request->req_type = OMPI_REQUEST_COLL;
  request->req_start = NULL;
  request->req_free = request_free;
  request->req_cancel = request_cancel;
  request->req_mpi_object.comm = NULL;
}
/* After those of derived classes, which use the types. */
static void destruct(coll_loom_request_base_t* self) {
  coll_loom_handles_let_go(&self->handles);
}
OBJ_CLASS_INSTANCE(coll_loom_request_base_t, ompi_coll_base_nbc_request_t, construct, destruct);
