#include "component/mca/setup.h"

#include "component/mca/exchange.h"

int coll_loom_error_class(int result) {
  switch (result) {
    case LOOM_ERR_OUT_OF_MEMORY:
      return MPI_ERR_NO_MEM;
    case LOOM_ERR_PEER_FAILED:
      return COLL_LOOM_PROC_FAILED;
    case LOOM_ERR_REVOKED:
      return COLL_LOOM_REVOKED;
    case LOOM_TRUNCATED:
    case LOOM_ERR_TRUNCATED:
      return MPI_ERR_TRUNCATE;
    case LOOM_ERR_MISMATCH:
      return MPI_ERR_COUNT;
    default:
      return MPI_ERR_OTHER;
  }
}

static struct loom_health health(void* context) {
  ompi_communicator_t* const communicator = ((const struct coll_loom_module*)context)->communicator;
  if (coll_loom_is_revoked(communicator)) return (struct loom_health){.result = LOOM_ERR_REVOKED};
  if (!coll_loom_has_failed_rank(communicator)) return (struct loom_health){.result = LOOM_SUCCESS};
  return (struct loom_health){.result = LOOM_ERR_PEER_FAILED, .failed = coll_loom_failed_rank(communicator)};
}

/* While the ranks connect, the communicator is the set-up's: that leaves when it is over (connecting.c). In
 * one order with what happens there: the one or the other leaves. */
static bool connects(const struct coll_loom_module* self) {
  return __atomic_load_n(&self->connection.outcome, __ATOMIC_SEQ_CST) == COLL_LOOM_CONNECTING;
}

/* Peers learn by the links that this rank has given up, or else by messages. */
static void leave_exchanges(struct coll_loom_module* self) {
  coll_loom_leave_exchanges(self, false);
  if (!connects(self))
    coll_loom_leave_exchanges(self, self->comm == NULL || !loom_comm_has_tried_links(self->comm));
}

void coll_loom_leave(struct coll_loom_module* self) {
  coll_loom_leave_exchanges(self, false);
  if (self->comm != NULL && !connects(self)) loom_comm_leave(self->comm);
  leave_exchanges(self);
}

/* Of a lost peer, or one that makes another call, the others learn as this rank has. If messages of Open
 * MPI's have failed, the bootstrap has kept the error, which says more than the core's result. */
static void note_failure(struct coll_loom_module* self, int result) {
  if (result == LOOM_ERR_OUT_OF_MEMORY || result == LOOM_ERR_SYSTEM || result == LOOM_ERR_DEVICE ||
      result == LOOM_ERR_INTERNAL)
    leave_exchanges(self);
  if (self->error == OMPI_SUCCESS || result == LOOM_ERR_REVOKED) self->error = coll_loom_error_class(result);
}

/* The error first: whoever sees that the communicator is broken returns it. */
void coll_loom_break(struct coll_loom_module* self, int result) {
  note_failure(self, result);
  __atomic_store_n(&self->state, COLL_LOOM_BROKEN, __ATOMIC_RELEASE);
}

int coll_loom_failed(struct coll_loom_module* self, int result) {
  if (result == LOOM_TRUNCATED || result == LOOM_NOT_COPIED) return coll_loom_error_class(result);
  coll_loom_break(self, result);
  return self->error;
}

bool coll_loom_may_hear_more(struct coll_loom_module* self, double since) {
  static const double patience_s = 1;
  return coll_loom_hears_of_failures() && health(self).result == LOOM_SUCCESS &&
         PMPI_Wtime() - since < patience_s;
}

int coll_loom_settled_error(struct coll_loom_module* self) {
  if (self->error == COLL_LOOM_PROC_FAILED &&
      !__atomic_exchange_n(&self->has_settled, true, __ATOMIC_RELAXED))
    for (const double since = PMPI_Wtime(); coll_loom_may_hear_more(self, since);) opal_progress();
  if (coll_loom_is_revoked(self->communicator)) self->error = COLL_LOOM_REVOKED;
  return self->error;
}

int coll_loom_failed_waiting(struct coll_loom_module* self, int result) {
  const int error = coll_loom_failed(self, result);
  return result < 0 ? coll_loom_settled_error(self) : error;
}

int coll_loom_no_memory(const struct coll_loom_module* self) {
  coll_loom_help("resources", coll_loom_name(self->communicator), "There is no memory left.");
  return LOOM_ERR_OUT_OF_MEMORY;
}

void coll_loom_abandon(struct coll_loom_module* self) {
  coll_loom_no_memory(self);
  coll_loom_leave(self);
}

int coll_loom_fail_alone(struct coll_loom_module* self, int result) {
  const bool is_alone = OMPI_COMM_IS_INTER(self->communicator) || ompi_comm_size(self->communicator) == 1;
  if (__atomic_load_n(&self->state, __ATOMIC_ACQUIRE) != COLL_LOOM_DECLINED &&
      !(is_alone && self->comm == NULL)) {
    coll_loom_leave(self);
    coll_loom_break(self, result);
  }
  return coll_loom_error_class(result);
}

/* Programs that only open MPI sessions have no MPI_COMM_WORLD. */
static bool is_alone(void) {
  ompi_communicator_t* world = &ompi_mpi_comm_world.comm;
  return world->c_local_group != NULL && ompi_comm_size(world) == 1;
}

struct loom_bootstrap coll_loom_bootstrap_of(struct coll_loom_module* self) {
  return (struct loom_bootstrap){.context = self,
                                 .rank = ompi_comm_rank(self->communicator),
                                 .size = ompi_comm_size(self->communicator),
                                 .exchange = coll_loom_exchange,
                                 .standing = coll_loom_exchange_standing,
                                 .health = coll_loom_hears_of_failures() ? health : NULL,
                                 .name = coll_loom_name(self->communicator),
                                 .alone = is_alone(),
                                 .looks_for_devices = self->stages,
                                 .orders_differ = &self->orders_differ};
}

enum coll_loom_state coll_loom_state_after(struct coll_loom_module* self, int result) {
  static const struct loom_fast_below nothing;
  if (result == LOOM_SUCCESS) {
    __atomic_store_n(&self->found_one_host, self->of_jobs && loom_comm_is_on_one_host(self->comm),
                     __ATOMIC_RELAXED);
    self->fast_below = coll_loom_is_on_one_host(self) ? loom_fast_below_of(self->comm) : &nothing;
    return COLL_LOOM_READY;
  }
  if (result == LOOM_DECLINED) return COLL_LOOM_DECLINED;
  note_failure(self, result);
  return COLL_LOOM_BROKEN;
}

void coll_loom_set_up(struct coll_loom_module* self) {
  const struct loom_bootstrap bootstrap = coll_loom_bootstrap_of(self);
  const enum coll_loom_state state = coll_loom_state_after(self, loom_comm_create(&bootstrap, &self->comm));
  __atomic_store_n(&self->state, state, __ATOMIC_RELEASE);
}
