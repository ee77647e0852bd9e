#include "component/mca/outer_request.h"

#include <pthread.h>

/* Those that are started. Whether their inner ones are complete is looked up from Open MPI's progress loop: a
 * callback of the inner request could be set too late where another thread completes it. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct coll_loom_outer_request* started;

/* Whoever waits may free the request as soon as it is complete. */
static void complete(struct coll_loom_outer_request* self, int error) {
  self->super.super.req_status.MPI_ERROR = error;
  ompi_request_complete(&self->super.super, true);
}

static void await_inner(struct coll_loom_outer_request* self);

static int progress(void) {
  if (pthread_mutex_trylock(&mutex) != 0) return 0;
  struct coll_loom_outer_request* done = NULL;
  for (struct coll_loom_outer_request** link = &started; *link != NULL;) {
    struct coll_loom_outer_request* const request = *link;
    if (!REQUEST_COMPLETE(request->inner)) {
      link = &request->next;
      continue;
    }
    *link = request->next;
    request->next = done;
    done = request;
  }
  if (done != NULL && started == NULL) opal_progress_unregister(progress);
  pthread_mutex_unlock(&mutex);
  int completed = 0;
  while (done != NULL) {
    struct coll_loom_outer_request* const request = done;
    done = request->next;
    coll_loom_request_retire(request->inner);
    const int error = request->end(request, request->inner->req_status.MPI_ERROR);
    if (error == COLL_LOOM_GOES_ON) {
      await_inner(request);
      continue;
    }
    complete(request, error);
    ++completed;
  }
  return completed;
}

static void await_inner(struct coll_loom_outer_request* self) {
  pthread_mutex_lock(&mutex);
  if (started == NULL) opal_progress_register(progress);
  self->next = started;
  started = self;
  pthread_mutex_unlock(&mutex);
}

/* As MPI_Start does: a request that has nothing to do (no ranks to talk to, no bytes) has no function for it.
 */
static int start_inner(struct coll_loom_outer_request* self) {
  if (self->inner->req_type != OMPI_REQUEST_NOOP) return self->inner->req_start(1, &self->inner);
  self->inner->req_state = OMPI_REQUEST_ACTIVE;
  return OMPI_SUCCESS;
}

/* Of MPI_Start and MPI_Startall. A call that fails as it starts is complete. */
static int start_all(size_t count, ompi_request_t** requests) {
  for (size_t i = 0; i < count; ++i) {
    struct coll_loom_outer_request* self = (struct coll_loom_outer_request*)requests[i];
    coll_loom_request_activate(requests[i]);
    int error = self->begin != NULL ? self->begin(self) : OMPI_SUCCESS;
    if (error == OMPI_SUCCESS) error = start_inner(self);
    if (error == OMPI_SUCCESS)
      await_inner(self);
    else
      complete(self, error);
  }
  return OMPI_SUCCESS;
}

static void construct(coll_loom_outer_request_t* self) {
  memset((char*)self + sizeof(ompi_request_t), 0, sizeof *self - sizeof(ompi_request_t));
  coll_loom_request_construct(&self->super.super, start_all);
}
OBJ_CLASS_INSTANCE(coll_loom_outer_request_t, ompi_coll_base_nbc_request_t, construct, NULL);

void coll_loom_outer_request_make(struct coll_loom_outer_request* self, bool persistent,
                                  struct ompi_communicator_t* communicator) {
  OMPI_REQUEST_INIT(&self->super.super, persistent);
  self->super.super.req_mpi_object.comm = communicator;
}

void coll_loom_outer_request_take(struct coll_loom_outer_request* self, ompi_request_t* inner) {
  self->inner = inner;
  /* MPI_Comm_free lets calls finish that were started before. */
  OBJ_RETAIN(self->super.super.req_mpi_object.comm);
  if (self->super.super.req_persistent) return;
  coll_loom_request_activate(&self->super.super);
  await_inner(self);
}

void coll_loom_outer_request_let_go(struct coll_loom_outer_request* self) {
  if (self->inner != NULL) ompi_request_free(&self->inner);
}
