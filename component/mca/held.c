#include "component/mca/held.h"

#include <pthread.h>

#include "component/mca/handles.h"

/* Guards the queues and the list of modules that have calls in theirs. Recursive: what a call does as it
 * starts may come here again, for another communicator. */
static pthread_mutex_t mutex;
static pthread_once_t mutex_is_made = PTHREAD_ONCE_INIT;
static struct coll_loom_module* holding;
static bool inside, registered;

/* The module whose call this thread starts. */
static _Thread_local const struct coll_loom_module* starting;

static void make_mutex(void) {
  pthread_mutexattr_t recursive;
  pthread_mutexattr_init(&recursive);
  pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&mutex, &recursive);
}

bool coll_loom_holds(const struct coll_loom_module* self) {
  return OPAL_UNLIKELY(__atomic_load_n(&self->held.first, __ATOMIC_ACQUIRE) != NULL) && starting != self;
}

/* A call leaves the queue when it has started: until then, in all threads, later calls come after it. The
 * reference to the communicator keeps the module, although the call itself may be complete, and freed. */
static int start_those_that_can(struct coll_loom_module* self) {
  int steps = 0;
  struct coll_loom_held* held;
  while ((held = self->held.first) != NULL && (held->may_start == NULL || held->may_start(held))) {
    struct coll_loom_held* const next = held->next;
    starting = self;
    held->start(held);
    starting = NULL;
    __atomic_store_n(&self->held.first, next, __ATOMIC_RELEASE);
    ++steps;
  }
  return steps;
}

/* Others may have come before it since: what a call does as it starts may hold calls of other communicators.
 */
static void forget(struct coll_loom_module* self) {
  struct coll_loom_module** link = &holding;
  while (*link != self) link = &(*link)->held.next_module;
  *link = self->held.next_module;
}

static int progress(void) {
  if (pthread_mutex_trylock(&mutex) != 0) return 0;
  int steps = 0;
  if (!inside) {
    inside = true;
    for (struct coll_loom_module *self = holding, *next; self != NULL; self = next) {
      steps += start_those_that_can(self);
      next = self->held.next_module;
      if (self->held.first != NULL) continue;
      forget(self);
      coll_loom_communicator_let_go(self->communicator);
    }
    if (holding == NULL && registered) {
      opal_progress_unregister(progress);
      registered = false;
    }
    inside = false;
  }
  pthread_mutex_unlock(&mutex);
  return steps;
}

void coll_loom_hold(struct coll_loom_module* self, struct coll_loom_held* held) {
  pthread_once(&mutex_is_made, make_mutex);
  pthread_mutex_lock(&mutex);
  struct coll_loom_held_queue* const queue = &self->held;
  held->next = NULL;
  if (queue->first != NULL) {
    queue->last->next = held;
  } else {
    OBJ_RETAIN(self->communicator);
    queue->next_module = holding;
    holding = self;
    __atomic_store_n(&queue->first, held, __ATOMIC_RELEASE);
    if (!registered) opal_progress_register(progress);
    registered = true;
  }
  queue->last = held;
  pthread_mutex_unlock(&mutex);
}

void coll_loom_wait_for_held(struct coll_loom_module* self) {
  while (coll_loom_holds(self)) opal_progress();
}
