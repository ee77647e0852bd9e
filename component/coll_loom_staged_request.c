/* Calls that do not wait, with buffers on devices: a request of loom's around the one of whoever carries the
 * call on stand-ins. It is complete when that one is and results have been copied back. */
#include <pthread.h>

#include "component/coll_loom_request.h"
#include "component/coll_loom_staging.h"

/* Begins with what Open MPI's bindings expect, as struct coll_loom_request does. */
struct coll_loom_staged_request {
  ompi_coll_base_nbc_request_t super;
  struct coll_loom_staging* staging;
  ompi_request_t* inner;
  struct coll_loom_staged_request* next; /* of those that are started */
};
typedef struct coll_loom_staged_request coll_loom_staged_request_t;
OBJ_CLASS_DECLARATION(coll_loom_staged_request_t);

/* Those that are started. Whether their inner ones are complete is looked up from Open MPI's progress loop: a
 * callback of the inner request could be set too late where another thread completes it. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct coll_loom_staged_request* started;

/* Whoever waits may free the request as soon as it is complete. */
static void complete(struct coll_loom_staged_request* self) {
  coll_loom_request_retire(self->inner);
  self->super.super.req_status.MPI_ERROR =
      coll_loom_staging_end(self->staging, self->inner->req_status.MPI_ERROR);
  ompi_request_complete(&self->super.super, true);
}

static int progress(void) {
  if (pthread_mutex_trylock(&mutex) != 0) return 0;
  struct coll_loom_staged_request* done = NULL;
  for (struct coll_loom_staged_request** link = &started; *link != NULL;) {
    struct coll_loom_staged_request* const request = *link;
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
    struct coll_loom_staged_request* const request = done;
    done = request->next;
    complete(request);
    ++completed;
  }
  return completed;
}

static void await_inner(struct coll_loom_staged_request* self) {
  pthread_mutex_lock(&mutex);
  if (started == NULL) opal_progress_register(progress);
  self->next = started;
  started = self;
  pthread_mutex_unlock(&mutex);
}

static void activate(struct coll_loom_staged_request* self) {
  self->super.super.req_status =
      (ompi_status_public_t){.MPI_SOURCE = MPI_ANY_SOURCE, .MPI_TAG = MPI_ANY_TAG, .MPI_ERROR = MPI_SUCCESS};
  self->super.super.req_complete = REQUEST_PENDING;
  self->super.super.req_state = OMPI_REQUEST_ACTIVE;
}

/* Of MPI_Start and MPI_Startall. A call that fails as it starts is complete. */
static int start_all(size_t count, ompi_request_t** requests) {
  for (size_t i = 0; i < count; ++i) {
    struct coll_loom_staged_request* self = (struct coll_loom_staged_request*)requests[i];
    activate(self);
    int error = coll_loom_staging_begin(self->staging);
    if (error == OMPI_SUCCESS) error = self->inner->req_start(1, &self->inner);
    if (error == OMPI_SUCCESS) {
      await_inner(self);
    } else {
      self->super.super.req_status.MPI_ERROR = error;
      ompi_request_complete(&self->super.super, true);
    }
  }
  return OMPI_SUCCESS;
}

static void construct(coll_loom_staged_request_t* self) {
  memset((char*)self + sizeof(ompi_request_t), 0, sizeof *self - sizeof(ompi_request_t));
  self->super.super.req_type = OMPI_REQUEST_COLL;
  self->super.super.req_start = start_all;
  self->super.super.req_free = coll_loom_request_free;
  self->super.super.req_cancel = coll_loom_request_cancel;
}
static void destruct(coll_loom_staged_request_t* self) {
  if (self->inner != NULL) ompi_request_free(&self->inner);
  if (self->staging != NULL) coll_loom_staging_free(self->staging);
}
OBJ_CLASS_INSTANCE(coll_loom_staged_request_t, ompi_coll_base_nbc_request_t, construct, destruct);

int coll_loom_staged_request_make(struct coll_loom_module* self, int which, struct coll_loom_args* args,
                                  bool persistent, struct coll_loom_staged_request** made) {
  struct coll_loom_staging* staging;
  *made = NULL;
  int error = coll_loom_stage(self, which, args, &staging);
  if (OPAL_LIKELY(error != OMPI_SUCCESS || staging == NULL)) return error;
  coll_loom_staged_request_t* request = OBJ_NEW(coll_loom_staged_request_t);
  if (request == NULL) return coll_loom_staging_give_up(staging);
  OMPI_REQUEST_INIT(&request->super.super, persistent);
  request->staging = staging;
  request->super.super.req_mpi_object.comm = self->communicator;
  if (!persistent) error = coll_loom_staging_begin(staging);
  if (error != OMPI_SUCCESS) {
    coll_loom_request_drop(&request->super.super);
    return error;
  }
  *made = request;
  return OMPI_SUCCESS;
}

int coll_loom_staged_request_finish(struct coll_loom_staged_request* made, int error,
                                    ompi_request_t** request) {
  if (error != OMPI_SUCCESS) {
    coll_loom_request_drop(&made->super.super);
    return error;
  }
  made->inner = *request;
  OBJ_RETAIN(
      made->super.super.req_mpi_object.comm); /* MPI_Comm_free lets calls finish that were started before */
  *request = &made->super.super;
  if (made->super.super.req_persistent) return OMPI_SUCCESS;
  activate(made);
  await_inner(made);
  return OMPI_SUCCESS;
}
