#include "component/mca/connecting.h"

#include <pthread.h>

#include "component/mca/setup.h"

/* Guards the lists, everything in the modules on them, and the step from connecting to another state.
 * Recursive: the calls that are made again take it. */
static pthread_mutex_t mutex;
static pthread_once_t mutex_is_made = PTHREAD_ONCE_INIT;
static struct coll_loom_module* connecting;
static struct coll_loom_deferred* made_again; /* in this pass of the progress loop */
static bool inside, registered;

/* The module whose calls this thread makes again. */
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
  return state == COLL_LOOM_CONNECTING && releasing == self ? self->connection.outcome : state;
}

bool coll_loom_is_releasing(void) {
  return releasing != NULL;
}

/* The exchanges use collectives of the fallback component that do not wait either. */
static int start_exchange(struct coll_loom_module* self, const struct loom_exchange* exchange,
                          ompi_request_t** request) {
  const bool before = coll_loom_set_gathering(true);
  struct coll_loom_connection* connection = &self->connection;
  int error = OMPI_SUCCESS;
  if (exchange->words > 0) {
    error = self->fallback_iallreduce(exchange->in, exchange->out, (coll_loom_count_t)exchange->words,
                                      &ompi_mpi_uint64_t.dt,
                                      exchange->op == LOOM_SUM ? &ompi_mpi_op_sum.op : &ompi_mpi_op_max.op,
                                      self->communicator, request, self->fallback_iallreduce_module);
  } else {
    /* As one element: counts are int up to 5.0, and components multiply counts by the communicator's size. */
    error = exchange->bytes_per_rank > INT_MAX
                ? MPI_ERR_COUNT
                : ompi_datatype_create_contiguous((int)exchange->bytes_per_rank, &ompi_mpi_byte.dt,
                                                  &connection->bytes);
    if (error == OMPI_SUCCESS) {
      ompi_datatype_commit(&connection->bytes);
      error =
          self->fallback_iallgather(exchange->in, 1, connection->bytes, exchange->out, 1, connection->bytes,
                                    self->communicator, request, self->fallback_iallgather_module);
    }
  }
  coll_loom_set_gathering(before);
  return error;
}

static int end_exchange(struct coll_loom_module* self, int error, ompi_request_t** request) {
  if (error == OMPI_SUCCESS) error = (*request)->req_status.MPI_ERROR;
  if (*request != NULL && *request != MPI_REQUEST_NULL) ompi_request_free(request);
  if (self->connection.bytes != NULL) ompi_datatype_destroy(&self->connection.bytes);
  if (error != OMPI_SUCCESS) self->error = error;
  return error;
}

/* For the core, where it has to wait. */
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

/* The set-up is over. A call that needs another set-up is deferred once more, inside its first request, and
 * so are the calls after it. */
static void release(struct coll_loom_module* self, enum coll_loom_state outcome) {
  struct coll_loom_connection* const connection = &self->connection;
  connection->outcome = outcome;
  releasing = self;
  made_again = coll_loom_make_again(self, &connection->deferred, made_again);
  releasing = NULL;
  if (self->state == COLL_LOOM_CONNECTING)
    __atomic_store_n(&self->state, connection->outcome, __ATOMIC_RELEASE);
}

static void forget(struct coll_loom_module* self) {
  struct coll_loom_module** link = &connecting;
  while (*link != self) link = &(*link)->connection.next;
  *link = self->connection.next;
}

/* Returns whether anything has happened. */
static bool advance(struct coll_loom_module* self) {
  struct coll_loom_connection* connection = &self->connection;
  int exchanged = OMPI_SUCCESS;
  if (connection->exchange != NULL) {
    if (!REQUEST_COMPLETE(connection->exchange)) return false;
    exchanged = end_exchange(self, OMPI_SUCCESS, &connection->exchange);
    connection->exchange = NULL;
  }
  struct loom_exchange next;
  enum loom_set_up_state state;
  while ((state = loom_set_up_advance(connection->set_up, exchanged, &next)) == LOOM_SET_UP_EXCHANGES) {
    exchanged = start_exchange(self, &next, &connection->exchange);
    if (exchanged == OMPI_SUCCESS) return true;
    end_exchange(self, exchanged, &connection->exchange);
    connection->exchange = NULL;
  }
  if (state == LOOM_SET_UP_WAITS) return false;
  forget(self);
  release(self, coll_loom_state_after(self, loom_set_up_finish(connection->set_up, &self->comm)));
  return true;
}

static int progress(void) {
  if (pthread_mutex_trylock(&mutex) != 0) return 0;
  if (inside) {
    pthread_mutex_unlock(&mutex);
    return 0;
  }
  inside = true;
  /* Code that waits here may wait for an exchange of another communicator. */
  const bool gathered = coll_loom_set_gathering(false);
  int steps = 0;
  for (struct coll_loom_module *self = connecting, *next; self != NULL; self = next) {
    next = self->connection.next;
    steps += advance(self);
  }
  if (connecting == NULL && registered) {
    opal_progress_unregister(progress);
    registered = false;
  }
  struct coll_loom_deferred* const made = made_again;
  made_again = NULL;
  coll_loom_set_gathering(gathered);
  inside = false;
  pthread_mutex_unlock(&mutex);
  coll_loom_deferred_follow(made); /* comes last: communicators may be gone after it */
  return steps;
}

bool coll_loom_start_connecting(struct coll_loom_module* self) {
  if (!self->carries_all || OMPI_COMM_IS_TOPO(self->communicator))
    return false; /* neighbourhood collectives do not come to loom */
  /* Calls that are made again began before the variable was set. */
  if ((coll_loom_variables.check && !coll_loom_is_releasing()) || coll_loom_is_gathering()) return false;
  if (self->fallback_iallreduce == NULL || self->fallback_iallgather == NULL) return false;
  lock();
  struct coll_loom_connection* connection = &self->connection;
  struct loom_bootstrap bootstrap = coll_loom_bootstrap_of(self);
  bootstrap.all_gather = all_gather;
  bootstrap.all_reduce = all_reduce;
  connection->set_up = loom_set_up_create(&bootstrap, self->comm);
  if (connection->set_up == NULL) {
    /* Without a thread or memory this rank waits, because the others have begun. */
    const enum coll_loom_state outcome =
        coll_loom_state_after(self, loom_set_up_now(&bootstrap, self->comm, &self->comm));
    if (releasing == self)
      connection->outcome = outcome;
    else
      __atomic_store_n(&self->state, outcome, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&mutex);
    return true;
  }
  if (!registered) opal_progress_register(progress);
  registered = true;
  connection->next = connecting;
  connecting = self;
  connection->outcome = COLL_LOOM_CONNECTING;
  if (releasing != self) __atomic_store_n(&self->state, COLL_LOOM_CONNECTING, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&mutex);
  return true;
}

bool coll_loom_defer(struct coll_loom_module* self, const struct coll_loom_args* args, bool from_anywhere,
                     coll_loom_maker_t maker, ompi_request_t** request, int* error) {
  if (OPAL_LIKELY(coll_loom_state_of(self) != COLL_LOOM_CONNECTING)) return false;
  if (coll_loom_is_gathering() && !from_anywhere) return false;
  struct coll_loom_deferred* const deferred = coll_loom_deferred_create(self, args, maker);
  if (deferred == NULL) { /* this rank waits */
    coll_loom_finish_connecting(self);
    return false;
  }
  lock();
  const bool connects = coll_loom_state_of(self) == COLL_LOOM_CONNECTING;
  if (connects) *request = coll_loom_deferred_append(&self->connection.deferred, deferred);
  pthread_mutex_unlock(&mutex);
  if (!connects) {
    coll_loom_deferred_drop(deferred);
    return false;
  }
  *error = OMPI_SUCCESS;
  progress();
  return true;
}

void coll_loom_finish_connecting(struct coll_loom_module* self) {
  if (OPAL_LIKELY(coll_loom_state_of(self) != COLL_LOOM_CONNECTING) || coll_loom_is_gathering()) return;
  if (releasing != NULL) return; /* inside the progress loop, where nobody may wait */
  while (coll_loom_state_of(self) == COLL_LOOM_CONNECTING) opal_progress();
}
