#include "component/mca/wrapper_request.h"

#include <pthread.h>

/* The wrappers that wait. Open MPI's progress loop looks whether their inner requests are complete: a
 * callback of the inner request could be set too late if another thread completes it. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct coll_loom_wrapper* waiting;

static void await_inner(struct coll_loom_wrapper* self);

static bool may_end(const struct coll_loom_wrapper* self) {
  return self->error != OMPI_SUCCESS || coll_loom_is_complete(self->inner);
}

/* Returns whether it is complete. */
static bool end(struct coll_loom_wrapper* self) {
  int error = self->error;
  if (error == OMPI_SUCCESS) {
    coll_loom_request_retire(self->inner);
    error = self->inner->req_status.MPI_ERROR;
    if (self->end != NULL) error = self->end(self, error);
  }
  if (error == COLL_LOOM_GOES_ON) {
    await_inner(self);
    return false;
  }
  coll_loom_request_complete(&self->super, error);
  return true;
}

static int progress(void) {
  if (pthread_mutex_trylock(&mutex) != 0) return 0;
  struct coll_loom_wrapper* ended = NULL;
  for (struct coll_loom_wrapper** link = &waiting; *link != NULL;) {
    struct coll_loom_wrapper* const wrapper = *link;
    if (!may_end(wrapper)) {
      link = &wrapper->next;
      continue;
    }
    *link = wrapper->next;
    wrapper->next = ended;
    ended = wrapper;
  }
  if (ended != NULL && waiting == NULL) opal_progress_unregister(progress);
  pthread_mutex_unlock(&mutex);
  int completed = 0;
  while (ended != NULL) {
    struct coll_loom_wrapper* const wrapper = ended;
    ended = wrapper->next;
    completed += end(wrapper);
  }
  return completed;
}

static void await_inner(struct coll_loom_wrapper* self) {
  pthread_mutex_lock(&mutex);
  if (waiting == NULL) opal_progress_register(progress);
  self->next = waiting;
  waiting = self;
  pthread_mutex_unlock(&mutex);
}

void coll_loom_wrapper_follow(struct coll_loom_wrapper* self, ompi_request_t* inner, int error) {
  self->inner = inner;
  self->error = error;
  await_inner(self);
}

void coll_loom_wrapper_take(struct coll_loom_wrapper* self, ompi_request_t* inner, ompi_request_t** request) {
  *request = coll_loom_as_mpi(&self->super);
  self->inner = inner;
  if ((*request)->req_persistent) return;
  coll_loom_request_activate(&self->super);
  coll_loom_wrapper_follow(self, inner, OMPI_SUCCESS);
}

void coll_loom_wrapper_let_go(struct coll_loom_wrapper* self) {
  if (self->inner != NULL && self->inner != MPI_REQUEST_NULL) ompi_request_free(&self->inner);
}

/* A request that has nothing to do (no peers, no bytes) has no start function. */
int coll_loom_wrapper_start_inner(struct coll_loom_wrapper* self) {
  if (self->inner->req_type != OMPI_REQUEST_NOOP) return self->inner->req_start(1, &self->inner);
  self->inner->req_state = OMPI_REQUEST_ACTIVE;
  return OMPI_SUCCESS;
}

/* A call whose start fails is complete. */
void coll_loom_wrapper_start(struct coll_loom_wrapper* self, int error) {
  if (error == OMPI_SUCCESS) error = coll_loom_wrapper_start_inner(self);
  if (error == OMPI_SUCCESS)
    await_inner(self);
  else
    coll_loom_request_complete(&self->super, error);
}

/* For MPI_Start and MPI_Startall. */
static int start_all(size_t count, ompi_request_t** requests) {
  for (size_t i = 0; i < count; ++i) {
    struct coll_loom_wrapper* const self = (struct coll_loom_wrapper*)requests[i];
    coll_loom_request_activate(&self->super);
    const int error = self->begin != NULL ? self->begin(self) : OMPI_SUCCESS;
    if (error != COLL_LOOM_GOES_ON) coll_loom_wrapper_start(self, error);
  }
  return OMPI_SUCCESS;
}

static void construct(coll_loom_wrapper_t* self) {
  COLL_LOOM_CLEAR(self);
  coll_loom_as_mpi(&self->super)->req_start = start_all;
}
OBJ_CLASS_INSTANCE(coll_loom_wrapper_t, coll_loom_request_base_t, construct, NULL);
