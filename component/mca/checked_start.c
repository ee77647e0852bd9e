/* coll_loom_check of persistent requests whose starts have to come in one order on all ranks: a request
 * around the one that loom has made. When it starts, the ranks tell each other the number of this start on
 * the communicator. They use a persistent all-gather of the fallback component, which matches requests by the
 * order of their making. The call itself starts after that, and after the calls that were started before it.
 * If the ranks start in different orders, the call fails on all of them, and no data moves. */
#include "component/mca/checked_start.h"

#include <pthread.h>

#include "component/mca/setup.h"
#include "component/mca/wrapper_request.h"

struct coll_loom_checked_start {
  struct coll_loom_wrapper super; /* its `inner` is one of the next two members */
  ompi_request_t *exchange, *call;
  struct coll_loom_module* module;
  enum loom_collective collective;
  uint64_t number;                      /* by the order of making, from 1 on */
  uint64_t* starts;                     /* this rank's, and then of all ranks */
  struct coll_loom_checked_start* next; /* started after this one */
};
typedef struct coll_loom_checked_start coll_loom_checked_start_t;
OBJ_CLASS_DECLARATION(coll_loom_checked_start_t);

/* Guards struct coll_loom_starts of all modules. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* Its exchange could not be started: those behind it need not wait for it. */
static void take_back(struct coll_loom_checked_start* self) {
  struct coll_loom_starts* const starts = &self->module->starts;
  pthread_mutex_lock(&mutex);
  struct coll_loom_checked_start** link = &starts->first;
  while (*link != self) link = &(*link)->next;
  *link = self->next;
  if (starts->last == &self->next) starts->last = link;
  pthread_mutex_unlock(&mutex);
}

static int begin(struct coll_loom_wrapper* wrapper) {
  struct coll_loom_checked_start* self = (struct coll_loom_checked_start*)wrapper;
  struct coll_loom_starts* const starts = &self->module->starts;
  pthread_mutex_lock(&mutex);
  self->starts[0] = ++starts->started;
  self->next = NULL;
  if (starts->first == NULL) starts->last = &starts->first;
  *starts->last = self;
  starts->last = &self->next;
  pthread_mutex_unlock(&mutex);
  wrapper->inner = self->exchange;
  const int error = coll_loom_wrapper_start_inner(wrapper);
  if (error == OMPI_SUCCESS) {
    coll_loom_wrapper_follow(wrapper, self->exchange, OMPI_SUCCESS);
    return COLL_LOOM_GOES_ON;
  }
  take_back(self);
  coll_loom_abandon(self->module); /* the others wait for the exchange */
  coll_loom_break(self->module, LOOM_ERR_OUT_OF_MEMORY);
  return error;
}

/* Whether all ranks have the same number; if not, rank 0 reports how they differ. */
static bool are_alike(const struct coll_loom_checked_start* self) {
  ompi_communicator_t* const communicator = self->module->communicator;
  const int ranks = ompi_comm_size(communicator);
  const uint64_t* const all = self->starts + 1;
  for (int rank = 1; rank < ranks; ++rank) {
    if (all[rank] == all[0]) continue;
    char cause[256];
    snprintf(cause, sizeof cause,
             "%s: the order of starts differs. The persistent request that was made as number %" PRIu64
             " is the start number %" PRIu64 " of rank 0, but number %" PRIu64 " of rank %d.",
             loom_collective_name(self->collective), self->number, all[0], all[rank], rank);
    if (ompi_comm_rank(communicator) == 0) coll_loom_help("mismatch", coll_loom_name(communicator), cause);
    return false;
  }
  return true;
}

/* Called when the exchange has ended, and again when the call has. */
static int end(struct coll_loom_wrapper* wrapper, int error) {
  struct coll_loom_checked_start* self = (struct coll_loom_checked_start*)wrapper;
  struct coll_loom_starts* const starts = &self->module->starts;
  if (wrapper->inner == self->call) return error;
  pthread_mutex_lock(&mutex);
  if (starts->first != self) {
    pthread_mutex_unlock(&mutex);
    return COLL_LOOM_GOES_ON;
  }
  if (error == OMPI_SUCCESS && !are_alike(self)) error = MPI_ERR_OTHER;
  if (error == OMPI_SUCCESS) {
    wrapper->inner = self->call;
    error = self->call->req_start(1, &self->call);
    if (error == OMPI_SUCCESS) error = COLL_LOOM_GOES_ON;
  }
  starts->first = self->next;
  pthread_mutex_unlock(&mutex);
  return error;
}

static void construct(coll_loom_checked_start_t* self) {
  COLL_LOOM_CLEAR(self);
  self->super.begin = begin;
  self->super.end = end;
}
static void destruct(coll_loom_checked_start_t* self) {
  if (self->exchange != NULL) ompi_request_free(&self->exchange);
  if (self->call != NULL) ompi_request_free(&self->call);
  free(self->starts);
}
OBJ_CLASS_INSTANCE(coll_loom_checked_start_t, coll_loom_wrapper_t, construct, destruct);

int coll_loom_check_starts(struct coll_loom_module* self, enum loom_collective collective,
                           ompi_request_t** request) {
  const int ranks = ompi_comm_size(self->communicator);
  if (ranks == 1) return OMPI_SUCCESS;
  /* One answer for all requests of a communicator: a request that is not compared would overtake those that
   * are. */
  if (self->starts.state == COLL_LOOM_STARTS_UNDECIDED)
    self->starts.state = coll_loom_variables.check ? COLL_LOOM_STARTS_COMPARED : COLL_LOOM_STARTS_TRUSTED;
  if (self->starts.state == COLL_LOOM_STARTS_TRUSTED) return OMPI_SUCCESS;

  int error = MPI_ERR_NO_MEM;
  coll_loom_checked_start_t* made = OBJ_NEW(coll_loom_checked_start_t);
  if (made != NULL) made->starts = malloc(((size_t)ranks + 1) * sizeof *made->starts);
  if (made != NULL && made->starts != NULL)
    error = self->fallback_allgather_init == NULL
                ? MPI_ERR_UNSUPPORTED_OPERATION
                : self->fallback_allgather_init(made->starts, 1, &ompi_mpi_uint64_t.dt, made->starts + 1, 1,
                                                &ompi_mpi_uint64_t.dt, self->communicator, MPI_INFO_NULL,
                                                &made->exchange, self->fallback_allgather_init_module);
  if (error != OMPI_SUCCESS) {
    if (made != NULL) coll_loom_request_drop(&made->super.super);
    ompi_request_free(request);
    coll_loom_abandon(self); /* the others would wait for the exchange */
    coll_loom_break(self, LOOM_ERR_OUT_OF_MEMORY);
    return error;
  }
  made->module = self;
  made->call = *request;
  made->collective = collective;
  made->number = ++self->starts.made;
  coll_loom_request_open(&made->super.super, true, self->communicator);
  coll_loom_wrapper_take(&made->super, made->exchange, request);
  return OMPI_SUCCESS;
}
