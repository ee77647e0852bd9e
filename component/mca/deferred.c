/* Set-up for programs whose calls do not wait. Starting such a call may not wait for other ranks, and the
 * set-up does: so it goes on in Open MPI's progress loop, while the calls made meanwhile are deferred back.
 * Then they are made again, in their order.
 *
 * That keeps what MPI asks of the fallback component, that all ranks start its collectives in one order:
 * until the set-up is over, which began at the same call on all ranks, nothing but its exchanges falls back,
 * and afterwards everything goes as the program made it. So this needs all collectives of the communicator to
 * come by loom. */
#include <pthread.h>

#include "component/mca/request.h"

/* A call deferred back, and then a request around the one that it got. */
struct coll_loom_deferred {
  ompi_coll_base_nbc_request_t super;
  struct coll_loom_args args;
  void* arrays; /* of v and w forms: what converts a program's (Fortran, mpi4py) keeps them not for long */
  ompi_request_t* inner;
  struct coll_loom_deferred* next;
};
typedef struct coll_loom_deferred coll_loom_deferred_t;
OBJ_CLASS_DECLARATION(coll_loom_deferred_t);

/* Of the lists, of everything in the modules on them, and of the step from connecting to another state. Taken
 * again by the calls that are made again. */
static pthread_mutex_t mutex;
static pthread_once_t mutex_is_made = PTHREAD_ONCE_INIT;
static struct coll_loom_module* connecting;
static struct coll_loom_deferred* made_again;
static bool inside;

/* Whose calls this thread makes again. */
static _Thread_local struct coll_loom_module* releasing;

static void make_mutex(void) {
  pthread_mutexattr_t recursive;
  pthread_mutexattr_init(&recursive);
  pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&mutex, &recursive);
}

static void lock(void) {
  pthread_once(&mutex_is_made, make_mutex);
  pthread_mutex_lock(&mutex);
}

enum coll_loom_state coll_loom_state_of(const struct coll_loom_module* self) {
  const enum coll_loom_state state = __atomic_load_n(&self->state, __ATOMIC_ACQUIRE);
  return state == COLL_LOOM_CONNECTING && releasing == self ? self->deferral.outcome : state;
}

bool coll_loom_is_releasing(void) {
  return releasing != NULL;
}

/* The exchanges, through collectives of the fallback component that do not wait either. */
static int start_exchange(struct coll_loom_module* self, const struct loom_exchange* exchange,
                          ompi_request_t** request) {
  const bool before = coll_loom_set_gathering(true);
  struct coll_loom_deferral* deferral = &self->deferral;
  int error = OMPI_SUCCESS;
  if (exchange->words > 0) {
    error = self->fallback_iallreduce(exchange->in, exchange->out, (coll_loom_count_t)exchange->words,
                                      &ompi_mpi_uint64_t.dt,
                                      exchange->op == LOOM_SUM ? &ompi_mpi_op_sum.op : &ompi_mpi_op_max.op,
                                      self->communicator, request, self->fallback_iallreduce_module);
  } else {
    /* As one element: counts are int up to 5.0, and components multiply them by the communicator's size. */
    error = exchange->bytes_per_rank > INT_MAX
                ? MPI_ERR_COUNT
                : ompi_datatype_create_contiguous((int)exchange->bytes_per_rank, &ompi_mpi_byte.dt,
                                                  &deferral->bytes);
    if (error == OMPI_SUCCESS) {
      ompi_datatype_commit(&deferral->bytes);
      error = self->fallback_iallgather(exchange->in, 1, deferral->bytes, exchange->out, 1, deferral->bytes,
                                        self->communicator, request, self->fallback_iallgather_module);
    }
  }
  coll_loom_set_gathering(before);
  return error;
}

static int end_exchange(struct coll_loom_module* self, int error, ompi_request_t** request) {
  if (error == OMPI_SUCCESS) error = (*request)->req_status.MPI_ERROR;
  if (*request != NULL && *request != MPI_REQUEST_NULL) ompi_request_free(request);
  if (self->deferral.bytes != NULL) ompi_datatype_destroy(&self->deferral.bytes);
  if (error != OMPI_SUCCESS) self->error = error;
  return error;
}

/* For the core, where it cannot but wait. */
static int exchange_now(struct coll_loom_module* self, const struct loom_exchange* exchange) {
  ompi_request_t* request = NULL;
  const int error = start_exchange(self, exchange, &request);
  if (error == OMPI_SUCCESS) ompi_request_wait_completion(request);
  return end_exchange(self, error, &request);
}
static int all_gather(void* context, const void* in, void* out, size_t bytes_per_rank) {
  return exchange_now(context,
                      &(struct loom_exchange){.in = in, .out = out, .bytes_per_rank = bytes_per_rank});
}
static int all_reduce(void* context, const uint64_t* in, uint64_t* out, size_t n, enum loom_op op) {
  return exchange_now(context, &(struct loom_exchange){.in = in, .out = out, .words = n, .op = op});
}

static int make_again(struct coll_loom_module* self, const struct coll_loom_args* call,
                      ompi_request_t** request) {
  switch (call->collective) {
#define MAKE_AGAIN(api, which) \
  case which:                  \
    return coll_loom_i##api(AGAIN_##api self->communicator, request, &self->super);
    COLL_LOOM_COLLECTIVES(MAKE_AGAIN)
    default:
      return MPI_ERR_INTERN;
  }
}

/* The set-up is over. A call that needs more of it is deferred back again, inside its first request, and so
 * are those after it. */
static void release(struct coll_loom_module* self, enum coll_loom_state outcome) {
  struct coll_loom_deferral* deferral = &self->deferral;
  struct coll_loom_deferred* first = deferral->first;
  deferral->first = NULL;
  deferral->last = &deferral->first;
  deferral->outcome = outcome;
  releasing = self;
  while (first != NULL) {
    struct coll_loom_deferred* const deferred = first;
    first = deferred->next;
    deferred->super.super.req_status.MPI_ERROR = make_again(self, &deferred->args, &deferred->inner);
    deferred->next = made_again;
    made_again = deferred;
  }
  releasing = NULL;
  if (self->state == COLL_LOOM_CONNECTING)
    __atomic_store_n(&self->state, deferral->outcome, __ATOMIC_RELEASE);
}

static void forget(struct coll_loom_module* self) {
  struct coll_loom_module** link = &connecting;
  while (*link != self) link = &(*link)->deferral.next;
  *link = self->deferral.next;
}

/* Returns whether anything has happened. */
static bool advance(struct coll_loom_module* self) {
  struct coll_loom_deferral* deferral = &self->deferral;
  int exchanged = OMPI_SUCCESS;
  if (deferral->exchange != NULL) {
    if (!REQUEST_COMPLETE(deferral->exchange)) return false;
    exchanged = end_exchange(self, OMPI_SUCCESS, &deferral->exchange);
    deferral->exchange = NULL;
  }
  struct loom_exchange next;
  enum loom_set_up_state state;
  while ((state = loom_set_up_advance(deferral->set_up, exchanged, &next)) == LOOM_SET_UP_EXCHANGES) {
    exchanged = start_exchange(self, &next, &deferral->exchange);
    if (exchanged == OMPI_SUCCESS) return true;
    end_exchange(self, exchanged, &deferral->exchange);
    deferral->exchange = NULL;
  }
  if (state == LOOM_SET_UP_WAITS) return false;
  forget(self);
  release(self, coll_loom_state_after(self, loom_set_up_finish(deferral->set_up, &self->comm)));
  return true;
}

/* Whoever waits may free the request as soon as it is complete. */
static void complete(struct coll_loom_deferred* deferred) {
  if (deferred->super.super.req_status.MPI_ERROR == OMPI_SUCCESS && deferred->inner != NULL) {
    deferred->super.super.req_status.MPI_ERROR = deferred->inner->req_status.MPI_ERROR;
    coll_loom_request_retire(deferred->inner);
  }
  ompi_request_complete(&deferred->super.super, true);
}

static int progress(void) {
  if (pthread_mutex_trylock(&mutex) != 0) return 0;
  if (inside) {
    pthread_mutex_unlock(&mutex);
    return 0;
  }
  inside = true;
  /* Whoever waits here may wait for an exchange of another communicator. */
  const bool gathered = coll_loom_set_gathering(false);
  int steps = 0;
  for (struct coll_loom_module *self = connecting, *next; self != NULL; self = next) {
    next = self->deferral.next;
    steps += advance(self);
  }
  struct coll_loom_deferred* done = NULL;
  for (struct coll_loom_deferred** link = &made_again; *link != NULL;) {
    struct coll_loom_deferred* const deferred = *link;
    const bool failed = deferred->super.super.req_status.MPI_ERROR != OMPI_SUCCESS;
    if (!failed && !REQUEST_COMPLETE(deferred->inner)) {
      link = &deferred->next;
      continue;
    }
    *link = deferred->next;
    deferred->next = done;
    done = deferred;
  }
  if (connecting == NULL && made_again == NULL) opal_progress_unregister(progress);
  coll_loom_set_gathering(gathered);
  inside = false;
  pthread_mutex_unlock(&mutex);
  while (done != NULL) {
    struct coll_loom_deferred* const deferred = done;
    done = deferred->next;
    complete(deferred);
    ++steps;
  }
  return steps;
}

bool coll_loom_start_connecting(struct coll_loom_module* self) {
  if (!self->carries_all || OMPI_COMM_IS_TOPO(self->communicator))
    return false; /* neighbourhoods go past loom */
  /* Calls made again began before the variable was set. */
  if ((coll_loom_variables.check && !coll_loom_is_releasing()) || coll_loom_is_gathering()) return false;
  if (self->fallback_iallreduce == NULL || self->fallback_iallgather == NULL) return false;
  lock();
  struct coll_loom_deferral* deferral = &self->deferral;
  struct loom_bootstrap bootstrap = coll_loom_bootstrap_of(self);
  bootstrap.all_gather = all_gather;
  bootstrap.all_reduce = all_reduce;
  deferral->set_up = loom_set_up_create(&bootstrap, self->comm);
  if (deferral->set_up ==
      NULL) { /* without a thread or memory this rank waits, for the others are on their way */
    const enum coll_loom_state outcome =
        coll_loom_state_after(self, loom_set_up_now(&bootstrap, self->comm, &self->comm));
    if (releasing == self)
      deferral->outcome = outcome;
    else
      __atomic_store_n(&self->state, outcome, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&mutex);
    return true;
  }
  if (connecting == NULL && made_again == NULL) opal_progress_register(progress);
  deferral->next = connecting;
  connecting = self;
  deferral->outcome = COLL_LOOM_CONNECTING;
  if (releasing != self) {
    deferral->first = NULL;
    deferral->last = &deferral->first;
    __atomic_store_n(&self->state, COLL_LOOM_CONNECTING, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&mutex);
  return true;
}

static void construct(coll_loom_deferred_t* deferred) {
  memset((char*)deferred + sizeof(ompi_request_t), 0, sizeof *deferred - sizeof(ompi_request_t));
  coll_loom_request_construct(&deferred->super.super, NULL); /* never persistent */
}
static void destruct(coll_loom_deferred_t* deferred) {
  if (deferred->inner != NULL && deferred->inner != MPI_REQUEST_NULL) ompi_request_free(&deferred->inner);
  free(deferred->arrays);
}
OBJ_CLASS_INSTANCE(coll_loom_deferred_t, ompi_coll_base_nbc_request_t, construct, destruct);

/* Whether arrays on this side mean anything on this rank. */
static bool reads_arrays(struct coll_loom_module* self, const struct coll_loom_args* args,
                         enum loom_side side) {
  const struct loom_significance* const row = loom_significance_of(args->collective);
  const loom_role role = loom_role_of(ompi_comm_rank(self->communicator), args->root);
  const bool in_place = coll_loom_side_of(args, side)->buffer == MPI_IN_PLACE;
  return loom_arrays_of(row, side, role, in_place) != 0;
}

enum { ARRAY_ELEMENT_BYTES = 8 };

static void keep_arrays(struct coll_loom_side* side, size_t ranks, char** room) {
  if (side->counts != COLL_LOOM_NO_COUNTS) side->counts = coll_loom_copy_counts(*room, side->counts, ranks);
  *room += ranks * ARRAY_ELEMENT_BYTES;
  if (side->disps != COLL_LOOM_NO_DISPS) side->disps = coll_loom_copy_disps(*room, side->disps, ranks);
  *room += ranks * ARRAY_ELEMENT_BYTES;
  if (side->types != NULL) side->types = memcpy(*room, side->types, ranks * sizeof *side->types);
  *room += ranks * ARRAY_ELEMENT_BYTES;
}

/* NULL: there is no memory for it. */
static struct coll_loom_deferred* make_deferred(struct coll_loom_module* self,
                                                const struct coll_loom_args* args) {
  coll_loom_deferred_t* deferred = OBJ_NEW(coll_loom_deferred_t);
  if (deferred == NULL) return NULL;
  deferred->args = *args;
  const size_t ranks = (size_t)ompi_comm_size(self->communicator);
  const bool in = reads_arrays(self, args, LOOM_IN), out = reads_arrays(self, args, LOOM_OUT);
  if (!in && !out) return deferred;
  char* room = deferred->arrays = malloc(6 * ranks * ARRAY_ELEMENT_BYTES);
  if (room == NULL) {
    OBJ_RELEASE(deferred);
    return NULL;
  }
  if (in) keep_arrays(&deferred->args.in, ranks, &room);
  if (out) keep_arrays(&deferred->args.out, ranks, &room);
  return deferred;
}

bool coll_loom_defer(struct coll_loom_module* self, const struct coll_loom_args* args, bool from_anywhere,
                     ompi_request_t** request, int* error) {
  if (OPAL_LIKELY(coll_loom_state_of(self) != COLL_LOOM_CONNECTING)) return false;
  if (coll_loom_is_gathering() && !from_anywhere) return false;
  struct coll_loom_deferred* deferred = make_deferred(self, args);
  if (deferred == NULL) { /* this rank waits */
    coll_loom_finish_connecting(self);
    return false;
  }
  lock();
  const bool connects = coll_loom_state_of(self) == COLL_LOOM_CONNECTING;
  if (connects) {
    OMPI_REQUEST_INIT(&deferred->super.super, false);
    deferred->super.super.req_mpi_object.comm = self->communicator;
    OBJ_RETAIN(self->communicator); /* MPI_Comm_free lets calls finish that were started before */
    deferred->super.super.req_status = (ompi_status_public_t){
        .MPI_SOURCE = MPI_ANY_SOURCE, .MPI_TAG = MPI_ANY_TAG, .MPI_ERROR = MPI_SUCCESS};
    deferred->super.super.req_complete = REQUEST_PENDING;
    deferred->super.super.req_state = OMPI_REQUEST_ACTIVE;
    deferred->next = NULL;
    *self->deferral.last = deferred;
    self->deferral.last = &deferred->next;
    *request = &deferred->super.super;
    *error = OMPI_SUCCESS;
  }
  pthread_mutex_unlock(&mutex);
  if (connects)
    progress();
  else
    OBJ_RELEASE(deferred);
  return connects;
}

void coll_loom_finish_connecting(struct coll_loom_module* self) {
  if (OPAL_LIKELY(coll_loom_state_of(self) != COLL_LOOM_CONNECTING) || coll_loom_is_gathering()) return;
  if (releasing != NULL) return; /* inside the progress loop, where nobody may wait */
  while (coll_loom_state_of(self) == COLL_LOOM_CONNECTING) opal_progress();
}
