#include "component/mca/connecting.h"

#include <pthread.h>

#include "component/mca/exchange.h"
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

/* The set-up is over. A call that needs another set-up is deferred once more, inside its first request, and
 * so are the calls after it. */
static void release(struct coll_loom_module* self, enum coll_loom_state outcome) {
  struct coll_loom_connection* const connection = &self->connection;
  __atomic_store_n(&connection->outcome, outcome, __ATOMIC_SEQ_CST);
  releasing = self;
  made_again = coll_loom_make_again(self, &connection->deferred, made_again);
  releasing = NULL;
  if (coll_loom_has_left_exchanges(self))
    coll_loom_leave(self); /* also for a call that has failed meanwhile */
  enum coll_loom_state connecting_still = COLL_LOOM_CONNECTING; /* not broken by a call meanwhile */
  __atomic_compare_exchange_n(&self->state, &connecting_still, connection->outcome, false, __ATOMIC_RELEASE,
                              __ATOMIC_RELAXED);
}

static void forget(struct coll_loom_module* self) {
  struct coll_loom_module** link = &connecting;
  while (*link != self) link = &(*link)->connection.next;
  *link = self->connection.next;
}

/* Whether the set-up is to look after its ranks, which takes longer than a turn of the progress loop should.
 */
static bool is_due(struct coll_loom_connection* connection) {
  static const double between_s = 0.1;
  const double now = PMPI_Wtime();
  if (now - connection->looked < between_s) return false;
  connection->looked = now;
  return true;
}

/* Returns whether anything has happened. */
static bool advance(struct coll_loom_module* self) {
  struct coll_loom_connection* connection = &self->connection;
  enum loom_exchanged exchanged = coll_loom_has_left_exchanges(self) ? LOOM_EXCHANGE_LEFT : LOOM_EXCHANGED;
  if (connection->exchanges) {
    exchanged = coll_loom_test_exchange(self);
    if (exchanged == LOOM_EXCHANGE_PENDING && !is_due(connection)) return false;
    connection->exchanges = exchanged == LOOM_EXCHANGE_PENDING;
    connection->left = exchanged == LOOM_EXCHANGE_LEFT ? PMPI_Wtime() : 0;
  }
  if (connection->left > 0) {
    exchanged = LOOM_EXCHANGE_LEFT;
    if (coll_loom_may_hear_more(self, connection->left)) return false;
    connection->left = 0;
  }
  struct loom_exchange next;
  enum loom_set_up_state state;
  while ((state = loom_set_up_advance(connection->set_up, exchanged, &next)) == LOOM_SET_UP_EXCHANGES) {
    if (connection->exchanges) coll_loom_give_exchange_up(self); /* the next one is over at once, then */
    exchanged = coll_loom_start_exchange(self, &next);
    connection->exchanges = exchanged == LOOM_EXCHANGE_PENDING;
    if (connection->exchanges) return true;
  }
  if (state == LOOM_SET_UP_WAITS) return false;
  if (connection->exchanges) coll_loom_give_exchange_up(self);
  connection->exchanges = false;
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
  inside = false;
  pthread_mutex_unlock(&mutex);
  coll_loom_deferred_follow(made); /* comes last: communicators may be gone after it */
  return steps;
}

bool coll_loom_start_connecting(struct coll_loom_module* self) {
  if (!self->carries_all || OMPI_COMM_IS_TOPO(self->communicator))
    return false; /* neighbourhood collectives do not come to loom */
  /* Calls that are made again began before the variable was set. */
  if (coll_loom_variables.check && !coll_loom_is_releasing()) return false;
  struct coll_loom_connection* connection = &self->connection;
  const struct loom_bootstrap bootstrap = coll_loom_bootstrap_of(self);
  struct loom_set_up* const set_up = loom_set_up_create(&bootstrap, self->comm);
  if (set_up == NULL) {
    /* Without a thread or memory this rank waits, because the others have begun. Not under the mutex, unless
     * this call is made again: they may wait for another communicator's set-up first. */
    const enum coll_loom_state outcome =
        coll_loom_state_after(self, loom_set_up_now(&bootstrap, self->comm, &self->comm));
    if (releasing == self)
      __atomic_store_n(&connection->outcome, outcome, __ATOMIC_SEQ_CST);
    else
      __atomic_store_n(&self->state, outcome, __ATOMIC_RELEASE);
    return true;
  }
  lock();
  connection->set_up = set_up;
  if (!registered) opal_progress_register(progress);
  registered = true;
  connection->next = connecting;
  connecting = self;
  __atomic_store_n(&connection->outcome, COLL_LOOM_CONNECTING, __ATOMIC_SEQ_CST);
  if (releasing != self) __atomic_store_n(&self->state, COLL_LOOM_CONNECTING, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&mutex);
  return true;
}

bool coll_loom_defer(struct coll_loom_module* self, const struct coll_loom_args* args,
                     coll_loom_maker_t maker, ompi_request_t** request, int* error) {
  if (OPAL_LIKELY(coll_loom_state_of(self) != COLL_LOOM_CONNECTING)) return false;
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
  if (OPAL_LIKELY(coll_loom_state_of(self) != COLL_LOOM_CONNECTING)) return;
  if (releasing != NULL) return; /* inside the progress loop, where nobody may wait */
  while (coll_loom_state_of(self) == COLL_LOOM_CONNECTING) opal_progress();
}
