/* The collectives besides allreduce: carried where all ranks are on one host.
 *
 * Ranks may describe one message by different datatypes. What they share is its number of bytes, and for
 * reductions the operation and the type; only on these may it depend who carries a call. */
#include "component/coll_loom.h"
#include "component/coll_loom_kernels.h"

/* Whether loom may carry a call on this communicator; connects it at the first one. */
static bool is_ready(struct coll_loom_module* self) {
  if (OPAL_UNLIKELY(self->state == COLL_LOOM_COLD && self->one_host)) coll_loom_set_up(self);
  return self->one_host && self->state == COLL_LOOM_READY;
}

/* LOOM_SUCCESS, or LOOM_DECLINED, or the module is broken from now on. */
static int perform(struct coll_loom_module* self, const struct loom_call* call) {
  const int result = loom_perform(self->comm, call);
  if (OPAL_UNLIKELY(result != LOOM_SUCCESS && result != LOOM_DECLINED)) coll_loom_break(self, result);
  return result;
}

/* What a call returns whose `result` is neither LOOM_DECLINED nor to be found out below. */
#define RETURN_UNLESS_DECLINED(self, result)                                                  \
  do {                                                                                        \
    if (OPAL_LIKELY((result) == LOOM_SUCCESS)) return OMPI_SUCCESS;                           \
    if ((result) != LOOM_DECLINED || (self)->state == COLL_LOOM_BROKEN) return (self)->error; \
  } while (0)

int coll_loom_reduce(const void* sendbuf, void* recvbuf, coll_loom_count_t count,
                     struct ompi_datatype_t* datatype, struct ompi_op_t* op, int root,
                     struct ompi_communicator_t* communicator, mca_coll_base_module_t* module) {
  struct coll_loom_module* self = (struct coll_loom_module*)module;
  struct loom_call call = {.collective = LOOM_REDUCE,
                           .in = sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf,
                           .out = recvbuf,
                           .count = count,
                           .root = root};
  int result = LOOM_DECLINED;
  if (coll_loom_kernel(op, datatype, &call.op, &call.type)) {
    if (OPAL_UNLIKELY(coll_loom_wants_order(self, call.op, call.type))) {
      const size_t kept = ompi_comm_rank(communicator) == root ? (size_t)count : 0;
      return coll_loom_in_order(self, call.in, call.out, count, 0, kept, datatype, call.op, call.type);
    }
    if (is_ready(self)) result = perform(self, &call);
  }
  RETURN_UNLESS_DECLINED(self, result);
  return self->previous_reduce(sendbuf, recvbuf, count, datatype, op, root, communicator,
                               self->previous_reduce_module);
}

int coll_loom_reduce_scatter_block(const void* sendbuf, void* recvbuf, coll_loom_count_t count,
                                   struct ompi_datatype_t* datatype, struct ompi_op_t* op,
                                   struct ompi_communicator_t* communicator, mca_coll_base_module_t* module) {
  struct coll_loom_module* self = (struct coll_loom_module*)module;
  struct loom_call call = {.collective = LOOM_REDUCE_SCATTER_BLOCK,
                           .in = sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf,
                           .out = recvbuf,
                           .count = count};
  int result = LOOM_DECLINED;
  if (coll_loom_kernel(op, datatype, &call.op, &call.type)) {
    if (OPAL_UNLIKELY(coll_loom_wants_order(self, call.op, call.type))) {
      const size_t ranks = (size_t)ompi_comm_size(communicator), rank = (size_t)ompi_comm_rank(communicator);
      return coll_loom_in_order(self, call.in, call.out, ranks * count, rank * count, count, datatype,
                                call.op, call.type);
    }
    if (is_ready(self)) result = perform(self, &call);
  }
  RETURN_UNLESS_DECLINED(self, result);
  return self->previous_reduce_scatter_block(sendbuf, recvbuf, count, datatype, op, communicator,
                                             self->previous_reduce_scatter_block_module);
}

int coll_loom_bcast(void* buffer, coll_loom_count_t count, struct ompi_datatype_t* datatype, int root,
                    struct ompi_communicator_t* communicator, mca_coll_base_module_t* module) {
  struct coll_loom_module* self = (struct coll_loom_module*)module;
  int result = LOOM_DECLINED;
  if (is_ready(self)) {
    const bool is_root = ompi_comm_rank(communicator) == root;
    struct coll_loom_bytes message;
    const int error = coll_loom_bytes_of(&message, buffer, count, datatype, is_root);
    if (error != MPI_SUCCESS) return error;
    result = perform(self, &(struct loom_call){.collective = LOOM_BCAST,
                                               .in = message.data,
                                               .out = message.data,
                                               .count = message.bytes,
                                               .type = LOOM_UINT8,
                                               .root = root});
    coll_loom_bytes_end(&message, result == LOOM_SUCCESS && !is_root);
  }
  RETURN_UNLESS_DECLINED(self, result);
  return self->previous_bcast(buffer, count, datatype, root, communicator, self->previous_bcast_module);
}

/* All-gather and all-to-all: blocks of equally many bytes. own_block: which of recvbuf's blocks MPI_IN_PLACE
 * sends, or -1 for all of them. */
static int exchange_blocks(struct coll_loom_module* self, enum loom_collective collective,
                           const void* sendbuf, coll_loom_count_t sendcount, struct ompi_datatype_t* sendtype,
                           void* recvbuf, coll_loom_count_t recvcount, struct ompi_datatype_t* recvtype,
                           int own_block) {
  const bool in_place = sendbuf == MPI_IN_PLACE;
  const size_t ranks = (size_t)ompi_comm_size(self->communicator);
  struct coll_loom_bytes out, in = {.copy = NULL};
  int result = coll_loom_bytes_of(&out, recvbuf, (size_t)recvcount * ranks, recvtype, in_place);
  if (result == MPI_SUCCESS && !in_place) {
    const size_t blocks = own_block < 0 ? ranks : 1;
    result = coll_loom_bytes_of(&in, sendbuf, (size_t)sendcount * blocks, sendtype, true);
  }
  if (result != MPI_SUCCESS) {
    coll_loom_bytes_end(&out, false);
    self->state = COLL_LOOM_BROKEN;
    self->error = result;
    return LOOM_ERR_OUT_OF_MEMORY;
  }
  const size_t block_bytes = out.bytes / ranks;
  const char* own = out.data + (own_block < 0 || out.data == NULL ? 0 : (size_t)own_block * block_bytes);
  result = perform(self, &(struct loom_call){.collective = collective,
                                             .in = in_place ? own : in.data,
                                             .out = out.data,
                                             .count = block_bytes,
                                             .type = LOOM_UINT8});
  coll_loom_bytes_end(&in, false);
  coll_loom_bytes_end(&out, result == LOOM_SUCCESS);
  return result;
}

int coll_loom_allgather(const void* sendbuf, coll_loom_count_t sendcount, struct ompi_datatype_t* sendtype,
                        void* recvbuf, coll_loom_count_t recvcount, struct ompi_datatype_t* recvtype,
                        struct ompi_communicator_t* communicator, mca_coll_base_module_t* module) {
  struct coll_loom_module* self = (struct coll_loom_module*)module;
  int result = LOOM_DECLINED;
  if (is_ready(self))
    result = exchange_blocks(self, LOOM_ALLGATHER, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype,
                             ompi_comm_rank(communicator));
  RETURN_UNLESS_DECLINED(self, result);
  return self->previous_allgather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, communicator,
                                  self->previous_allgather_module);
}

int coll_loom_alltoall(const void* sendbuf, coll_loom_count_t sendcount, struct ompi_datatype_t* sendtype,
                       void* recvbuf, coll_loom_count_t recvcount, struct ompi_datatype_t* recvtype,
                       struct ompi_communicator_t* communicator, mca_coll_base_module_t* module) {
  struct coll_loom_module* self = (struct coll_loom_module*)module;
  int result = LOOM_DECLINED;
  if (is_ready(self))
    result =
        exchange_blocks(self, LOOM_ALLTOALL, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, -1);
  RETURN_UNLESS_DECLINED(self, result);
  return self->previous_alltoall(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, communicator,
                                 self->previous_alltoall_module);
}

int coll_loom_barrier(struct ompi_communicator_t* communicator, mca_coll_base_module_t* module) {
  struct coll_loom_module* self = (struct coll_loom_module*)module;
  int result = LOOM_DECLINED;
  if (is_ready(self))
    result = perform(self, &(struct loom_call){.collective = LOOM_BARRIER, .type = LOOM_UINT8});
  RETURN_UNLESS_DECLINED(self, result);
  return self->previous_barrier(communicator, self->previous_barrier_module);
}
