#include "component/mca/setup.h"

#include "component/mca/fallback.h"

/* Per thread: other threads may be setting up other communicators. */
static _Thread_local bool gathering;
bool coll_loom_is_gathering(void) {
  return gathering;
}
bool coll_loom_set_gathering(bool yes) {
  const bool before = gathering;
  gathering = yes;
  return before;
}

static int gather(struct coll_loom_module* self, const void* in, void* out, coll_loom_count_t count,
                  ompi_datatype_t* datatype) {
  return coll_loom_fallback_allgather(in, count, datatype, out, count, datatype, self->communicator, self);
}

/* Counts are int up to 5.0, and components multiply them by the communicator's size. If the product does not
 * fit, each rank sends one element of a large type. */
static int gather_large(struct coll_loom_module* self, const void* in, void* out, size_t bytes_per_rank) {
  ompi_datatype_t* large;
  if (bytes_per_rank > INT_MAX) return MPI_ERR_COUNT;
  int error = ompi_datatype_create_contiguous((int)bytes_per_rank, &ompi_mpi_byte.dt, &large);
  if (error != OMPI_SUCCESS) return error;
  ompi_datatype_commit(&large);
  error = gather(self, in, out, 1, large);
  ompi_datatype_destroy(&large);
  return error;
}

int coll_loom_exchange(struct coll_loom_module* self, const void* in, void* out, size_t bytes_per_rank) {
  if (bytes_per_rank == 0) return OMPI_SUCCESS;
  const bool nested = gathering;
  gathering = true;
  const size_t most = INT_MAX / (size_t)ompi_comm_size(self->communicator);
  const int error = bytes_per_rank <= most
                        ? gather(self, in, out, (coll_loom_count_t)bytes_per_rank, &ompi_mpi_byte.dt)
                        : gather_large(self, in, out, bytes_per_rank);
  gathering = nested;
  return error;
}

static int all_gather(void* context, const void* in, void* out, size_t bytes_per_rank) {
  struct coll_loom_module* self = context;
  const int error = coll_loom_exchange(self, in, out, bytes_per_rank);
  if (error != OMPI_SUCCESS) self->error = error;
  return error;
}

static int all_reduce(void* context, const uint64_t* in, uint64_t* out, size_t n, enum loom_op op) {
  struct coll_loom_module* self = context;
  const bool nested = gathering;
  gathering = true;
  const int error = coll_loom_fallback_allreduce(in, out, (coll_loom_count_t)n, &ompi_mpi_uint64_t.dt,
                                                 op == LOOM_SUM ? &ompi_mpi_op_sum.op : &ompi_mpi_op_max.op,
                                                 self->communicator, self);
  gathering = nested;
  if (error != OMPI_SUCCESS) self->error = error;
  return error;
}

int coll_loom_error_class(int result) {
  switch (result) {
    case LOOM_ERR_OUT_OF_MEMORY:
      return MPI_ERR_NO_MEM;
    case LOOM_ERR_PEER_FAILED:
      return COLL_LOOM_PROC_FAILED;
    case LOOM_TRUNCATED:
    case LOOM_ERR_TRUNCATED:
      return MPI_ERR_TRUNCATE;
    case LOOM_ERR_MISMATCH:
      return MPI_ERR_COUNT;
    default:
      return MPI_ERR_OTHER;
  }
}

/* If the fallback component has failed, the bootstrap has kept its error, which says more than the core's
 * result. */
void coll_loom_break(struct coll_loom_module* self, int result) {
  self->state = COLL_LOOM_BROKEN;
  if (self->error == OMPI_SUCCESS) self->error = coll_loom_error_class(result);
}

int coll_loom_failed(struct coll_loom_module* self, int result) {
  if (result == LOOM_TRUNCATED || result == LOOM_NOT_COPIED) return coll_loom_error_class(result);
  coll_loom_break(self, result);
  return self->error;
}

int coll_loom_fail_alone(struct coll_loom_module* self, int result) {
  if (self->comm != NULL) {
    loom_comm_abandon(self->comm);
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
                                 .all_gather = all_gather,
                                 .all_reduce = all_reduce,
                                 .name = coll_loom_name(self->communicator),
                                 .alone = is_alone(),
                                 .looks_for_devices = self->stages,
                                 .orders_differ = &self->orders_differ};
}

enum coll_loom_state coll_loom_state_after(struct coll_loom_module* self, int result) {
  static const uint64_t nothing[LOOM_BARRIER + 1];
  if (result == LOOM_SUCCESS) {
    self->small_below = self->one_host ? loom_small_below(self->comm) : nothing;
    return COLL_LOOM_READY;
  }
  if (result == LOOM_DECLINED) return COLL_LOOM_DECLINED;
  if (self->error == OMPI_SUCCESS) self->error = coll_loom_error_class(result);
  return COLL_LOOM_BROKEN;
}

void coll_loom_set_up(struct coll_loom_module* self) {
  if (gathering) return;
  const struct loom_bootstrap bootstrap = coll_loom_bootstrap_of(self);
  self->state = coll_loom_state_after(self, loom_comm_create(&bootstrap, &self->comm));
}
