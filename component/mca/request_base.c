#include "component/mca/request_base.h"

#include <pthread.h>
#include <stdlib.h>

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

/* Returns memory that is still to be freed: that of the last reference. */
static void* drop(struct coll_loom_request_base* self) {
  ompi_request_t* const request = coll_loom_as_mpi(self);
  opal_object_t* const object = (opal_object_t*)self;
  ompi_communicator_t* communicator = request->req_mpi_object.comm;
  if (communicator != NULL) OMPI_REQUEST_FINI(request);
  const bool is_last = opal_obj_update(object, -1) == 0;
  if (is_last) opal_obj_run_destructors(object);
  if (communicator != NULL) coll_loom_communicator_let_go(communicator);
  return is_last ? object : NULL;
}

void coll_loom_request_drop(struct coll_loom_request_base* self) {
  free(drop(self));
}

#if COLL_LOOM_FREED_REQUESTS_ARE_READ
/* Each thread keeps the memory of the request that it has freed last. */
static pthread_key_t kept;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool has_key;
static void make_key(void) {
  has_key = pthread_key_create(&kept, free) == 0;
}
static void free_later(void* memory) {
  pthread_once(&once, make_key);
  if (!has_key) return; /* rather a leak */
  free(pthread_getspecific(kept));
  if (pthread_setspecific(kept, memory) != 0) pthread_setspecific(kept, NULL);
}
/* The key's destructor must not outlive this library. */
static void __attribute__((destructor)) delete_key(void) {
  if (!has_key) return;
  free(pthread_getspecific(kept));
  pthread_key_delete(kept);
}
#else
static void free_later(void* memory) {
  free(memory);
}
#endif

static int request_free(ompi_request_t** request) {
  if (!coll_loom_is_complete(*request)) return MPI_ERR_REQUEST;
  free_later(drop((struct coll_loom_request_base*)*request));
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
