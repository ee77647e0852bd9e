#include "component/mca/exchange.h"

#include "component/mca/fallback.h"
#include "component/mca/meeting.h"

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

static bool is_meeting(const struct loom_exchange* exchange) {
  return exchange->words == 0 && exchange->bytes_per_rank == 0;
}

static ompi_op_t* op_of(const struct loom_exchange* exchange) {
  return exchange->op == LOOM_SUM ? &ompi_mpi_op_sum.op : &ompi_mpi_op_max.op;
}

/* What a rank sends: `count` of `type`. Counts are int up to 5.0, and components multiply them by the
 * communicator's size. Where that does not fit, it is one element of a type made for it. */
struct block {
  coll_loom_count_t count;
  ompi_datatype_t *type, *made;
};

static int block_of(const struct coll_loom_module* self, size_t bytes, struct block* block) {
  *block = (struct block){(coll_loom_count_t)bytes, &ompi_mpi_byte.dt, NULL};
  if (bytes <= INT_MAX / (size_t)ompi_comm_size(self->communicator)) return OMPI_SUCCESS;
  if (bytes > INT_MAX) return MPI_ERR_COUNT;
  const int error = ompi_datatype_create_contiguous((int)bytes, &ompi_mpi_byte.dt, &block->made);
  if (error != OMPI_SUCCESS) return error;
  ompi_datatype_commit(&block->made);
  *block = (struct block){1, block->made, block->made};
  return OMPI_SUCCESS;
}

int coll_loom_gather_bytes(struct coll_loom_module* self, const void* in, void* out, size_t bytes_per_rank) {
  if (bytes_per_rank == 0) return OMPI_SUCCESS;
  struct block block;
  int error = block_of(self, bytes_per_rank, &block);
  if (error != OMPI_SUCCESS) return error;
  const bool before = coll_loom_set_gathering(true);
  error = coll_loom_fallback_allgather(in, block.count, block.type, out, block.count, block.type,
                                       self->communicator, self);
  coll_loom_set_gathering(before);
  if (block.made != NULL) ompi_datatype_destroy(&block.made);
  return error;
}

static int reduce(struct coll_loom_module* self, const struct loom_exchange* exchange) {
  const bool before = coll_loom_set_gathering(true);
  const int error =
      coll_loom_fallback_allreduce(exchange->in, exchange->out, (coll_loom_count_t)exchange->words,
                                   &ompi_mpi_uint64_t.dt, op_of(exchange), self->communicator, self);
  coll_loom_set_gathering(before);
  return error;
}

static enum loom_exchanged ended_with(struct coll_loom_module* self, int error) {
  if (error == OMPI_SUCCESS) return LOOM_EXCHANGED;
  self->error = error;
  return LOOM_EXCHANGE_FAILED;
}

static enum loom_exchanged meet(struct coll_loom_module* self, const struct loom_watch* watch) {
  enum { TURNS_PER_LOOK = 64 };
  enum loom_exchanged met = coll_loom_start_meeting(self);
  for (unsigned turns = 1; met == LOOM_EXCHANGE_PENDING; ++turns) {
    met = coll_loom_test_meeting(self);
    if (met != LOOM_EXCHANGE_PENDING) break;
    opal_progress();
    if (turns % TURNS_PER_LOOK != 0 || watch->goes_on(watch->context)) continue;
    coll_loom_leave_meetings(self);
    return LOOM_EXCHANGE_GIVEN_UP;
  }
  return met;
}

enum loom_exchanged coll_loom_exchange(void* context, const struct loom_exchange* exchange,
                                       const struct loom_watch* watch) {
  struct coll_loom_module* const self = context;
  if (is_meeting(exchange)) return meet(self, watch);
  return ended_with(self, exchange->words > 0 ? reduce(self, exchange)
                                              : coll_loom_gather_bytes(self, exchange->in, exchange->out,
                                                                       exchange->bytes_per_rank));
}

bool coll_loom_may_start_exchange(const struct coll_loom_module* self) {
  return self->fallback_iallreduce != NULL && self->fallback_iallgather != NULL;
}

static int start_reduce(struct coll_loom_module* self, const struct loom_exchange* exchange) {
  return self->fallback_iallreduce(exchange->in, exchange->out, (coll_loom_count_t)exchange->words,
                                   &ompi_mpi_uint64_t.dt, op_of(exchange), self->communicator,
                                   &self->exchanging.request, self->fallback_iallreduce_module);
}

static int start_gather(struct coll_loom_module* self, const struct loom_exchange* exchange) {
  struct block block;
  const int error = block_of(self, exchange->bytes_per_rank, &block);
  self->exchanging.type = block.made;
  if (error != OMPI_SUCCESS) return error;
  return self->fallback_iallgather(exchange->in, block.count, block.type, exchange->out, block.count,
                                   block.type, self->communicator, &self->exchanging.request,
                                   self->fallback_iallgather_module);
}

static enum loom_exchanged end_exchange(struct coll_loom_module* self, int error) {
  if (self->exchanging.type != NULL) ompi_datatype_destroy(&self->exchanging.type);
  return ended_with(self, error);
}

enum loom_exchanged coll_loom_start_exchange(struct coll_loom_module* self,
                                             const struct loom_exchange* exchange) {
  self->exchanging.meets = is_meeting(exchange);
  if (self->exchanging.meets) return coll_loom_start_meeting(self);
  const bool before = coll_loom_set_gathering(true);
  const int error = exchange->words > 0 ? start_reduce(self, exchange) : start_gather(self, exchange);
  coll_loom_set_gathering(before);
  return error == OMPI_SUCCESS ? LOOM_EXCHANGE_PENDING : end_exchange(self, error);
}

enum loom_exchanged coll_loom_test_exchange(struct coll_loom_module* self) {
  if (self->exchanging.meets) return coll_loom_test_meeting(self);
  ompi_request_t** const request = &self->exchanging.request;
  if (!REQUEST_COMPLETE(*request)) return LOOM_EXCHANGE_PENDING;
  const int error = (*request)->req_status.MPI_ERROR;
  ompi_request_free(request);
  return end_exchange(self, error);
}

enum loom_exchanged coll_loom_exchange_with_them(void* context, const struct loom_exchange* exchange,
                                                 const struct loom_watch* watch) {
  struct coll_loom_module* const self = context;
  if (is_meeting(exchange)) return meet(self, watch);
  enum loom_exchanged exchanged = coll_loom_start_exchange(self, exchange);
  while (exchanged == LOOM_EXCHANGE_PENDING) {
    ompi_request_wait_completion(self->exchanging.request);
    exchanged = coll_loom_test_exchange(self);
  }
  return exchanged;
}
