/* The collectives that loom takes over, and the arguments of each. The three forms of an entry point are made
 * from them. */
#ifndef LOOM_COMPONENT_MCA_CALLS_H
#define LOOM_COMPONENT_MCA_CALLS_H

#include "component/core.h"
#include "component/mca/ompi_compat.h"
#include "device/significance.h"

/* clang-format off */
/* X(name in Open MPI, enum loom_collective) */
#define COLL_LOOM_COLLECTIVES(X)                     \
  X(allreduce, LOOM_ALLREDUCE)                       \
  X(reduce, LOOM_REDUCE)                             \
  X(reduce_scatter_block, LOOM_REDUCE_SCATTER_BLOCK) \
  X(reduce_scatter, LOOM_REDUCE_SCATTER)             \
  X(scan, LOOM_SCAN)                                 \
  X(exscan, LOOM_EXSCAN)                             \
  X(bcast, LOOM_BCAST)                               \
  X(allgather, LOOM_ALLGATHER)                       \
  X(allgatherv, LOOM_ALLGATHERV)                     \
  X(alltoall, LOOM_ALLTOALL)                         \
  X(alltoallv, LOOM_ALLTOALLV)                       \
  X(alltoallw, LOOM_ALLTOALLW)                       \
  X(gather, LOOM_GATHER)                             \
  X(gatherv, LOOM_GATHERV)                           \
  X(scatter, LOOM_SCATTER)                           \
  X(scatterv, LOOM_SCATTERV)                         \
  X(barrier, LOOM_BARRIER)

/* Every function of the coll framework among them: X(name, enum loom_collective), for each form. */
#define COLL_LOOM_BLOCKING(X) COLL_LOOM_COLLECTIVES(X)
#define COLL_LOOM_NONBLOCKING(X)                      \
  X(iallreduce, LOOM_ALLREDUCE)                       \
  X(ireduce, LOOM_REDUCE)                             \
  X(ireduce_scatter_block, LOOM_REDUCE_SCATTER_BLOCK) \
  X(ireduce_scatter, LOOM_REDUCE_SCATTER)             \
  X(iscan, LOOM_SCAN)                                 \
  X(iexscan, LOOM_EXSCAN)                             \
  X(ibcast, LOOM_BCAST)                               \
  X(iallgather, LOOM_ALLGATHER)                       \
  X(iallgatherv, LOOM_ALLGATHERV)                     \
  X(ialltoall, LOOM_ALLTOALL)                         \
  X(ialltoallv, LOOM_ALLTOALLV)                       \
  X(ialltoallw, LOOM_ALLTOALLW)                       \
  X(igather, LOOM_GATHER)                             \
  X(igatherv, LOOM_GATHERV)                           \
  X(iscatter, LOOM_SCATTER)                           \
  X(iscatterv, LOOM_SCATTERV)                         \
  X(ibarrier, LOOM_BARRIER)
#define COLL_LOOM_PERSISTENT(X)                           \
  X(allreduce_init, LOOM_ALLREDUCE)                       \
  X(reduce_init, LOOM_REDUCE)                             \
  X(reduce_scatter_block_init, LOOM_REDUCE_SCATTER_BLOCK) \
  X(reduce_scatter_init, LOOM_REDUCE_SCATTER)             \
  X(scan_init, LOOM_SCAN)                                 \
  X(exscan_init, LOOM_EXSCAN)                             \
  X(bcast_init, LOOM_BCAST)                               \
  X(allgather_init, LOOM_ALLGATHER)                       \
  X(allgatherv_init, LOOM_ALLGATHERV)                     \
  X(alltoall_init, LOOM_ALLTOALL)                         \
  X(alltoallv_init, LOOM_ALLTOALLV)                       \
  X(alltoallw_init, LOOM_ALLTOALLW)                       \
  X(gather_init, LOOM_GATHER)                             \
  X(gatherv_init, LOOM_GATHERV)                           \
  X(scatter_init, LOOM_SCATTER)                           \
  X(scatterv_init, LOOM_SCATTERV)                         \
  X(barrier_init, LOOM_BARRIER)
#define COLL_LOOM_APIS(X) COLL_LOOM_BLOCKING(X) COLL_LOOM_NONBLOCKING(X) COLL_LOOM_PERSISTENT(X)

/* What loom intercepts only for buffers on devices: X(name), each in three forms. */
#define COLL_LOOM_NEIGHBORHOODS(X) \
  X(neighbor_allgather)            \
  X(neighbor_allgatherv)           \
  X(neighbor_alltoall)             \
  X(neighbor_alltoallv)            \
  X(neighbor_alltoallw)
#define COLL_LOOM_NEIGHBORHOOD_APIS(X) \
  COLL_LOOM_NEIGHBORHOODS(X)           \
  X(ineighbor_allgather)               \
  X(ineighbor_allgatherv)              \
  X(ineighbor_alltoall)                \
  X(ineighbor_alltoallv)               \
  X(ineighbor_alltoallw)               \
  X(neighbor_allgather_init)           \
  X(neighbor_allgatherv_init)          \
  X(neighbor_alltoall_init)            \
  X(neighbor_alltoallv_init)           \
  X(neighbor_alltoallw_init)
/* clang-format on */

/* One side of a call that moves data: blocks in a buffer. In v forms counts and displacements are by rank; in
 * alltoallw the types too, and displacements are in bytes. In other forms blocks lie one behind the other. */
struct coll_loom_side {
  void* buffer;
  size_t count;
  struct ompi_datatype_t* type;
  coll_loom_counts_t counts;
  coll_loom_disps_t disps;
  coll_loom_byte_disps_t byte_disps; /* of neighbor_alltoallw, in place of disps */
  struct ompi_datatype_t* const* types;
};

enum coll_loom_form { COLL_LOOM_BLOCKING_FORM, COLL_LOOM_NONBLOCKING_FORM, COLL_LOOM_PERSISTENT_FORM };

/* A call as the program made it. A reduction has its operand in `in`, with count and type, and its result in
 * `out`; a bcast has its buffer in both. */
struct coll_loom_args {
  enum loom_collective collective;
  struct coll_loom_side in, out;
  struct ompi_op_t* op;
  int root;
};
static inline const struct coll_loom_side* coll_loom_side_of(const struct coll_loom_args* args,
                                                             enum loom_side side) {
  return side == LOOM_IN ? &args->in : &args->out;
}

/* For each collective: parameters and arguments (both end in a comma), and the members of struct
 * coll_loom_args. */
#define COLL_LOOM_ONE_TO_ONE_PARAMS                                                                  \
  const void *sendbuf, coll_loom_count_t sendcount, struct ompi_datatype_t *sendtype, void *recvbuf, \
      coll_loom_count_t recvcount, struct ompi_datatype_t *recvtype,
#define COLL_LOOM_ONE_TO_ONE_ARGS sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype,
#define COLL_LOOM_ONE_TO_ONE_CALL                                                 \
  .in = {.buffer = (void*)sendbuf, .count = (size_t)sendcount, .type = sendtype}, \
  .out = {.buffer = recvbuf, .count = (size_t)recvcount, .type = recvtype},

#define COLL_LOOM_ONE_TO_V_PARAMS                                                                    \
  const void *sendbuf, coll_loom_count_t sendcount, struct ompi_datatype_t *sendtype, void *recvbuf, \
      coll_loom_counts_t recvcounts, coll_loom_disps_t disps, struct ompi_datatype_t *recvtype,
#define COLL_LOOM_ONE_TO_V_ARGS sendbuf, sendcount, sendtype, recvbuf, recvcounts, disps, recvtype,
#define COLL_LOOM_ONE_TO_V_CALL                                                   \
  .in = {.buffer = (void*)sendbuf, .count = (size_t)sendcount, .type = sendtype}, \
  .out = {.buffer = recvbuf, .counts = recvcounts, .disps = disps, .type = recvtype},

#define COLL_LOOM_REDUCTION_PARAMS                                                               \
  const void *sendbuf, void *recvbuf, coll_loom_count_t count, struct ompi_datatype_t *datatype, \
      struct ompi_op_t *op,
#define COLL_LOOM_REDUCTION_ARGS sendbuf, recvbuf, count, datatype, op,
#define COLL_LOOM_REDUCTION_CALL                                                                          \
  .in = {.buffer = (void*)sendbuf, .count = (size_t)count, .type = datatype}, .out = {.buffer = recvbuf}, \
  .op = op,

#define PARAMS_allreduce COLL_LOOM_REDUCTION_PARAMS
#define ARGS_allreduce COLL_LOOM_REDUCTION_ARGS
#define CALL_allreduce COLL_LOOM_REDUCTION_CALL
#define PARAMS_reduce_scatter_block COLL_LOOM_REDUCTION_PARAMS
#define ARGS_reduce_scatter_block COLL_LOOM_REDUCTION_ARGS
#define CALL_reduce_scatter_block COLL_LOOM_REDUCTION_CALL
#define PARAMS_scan COLL_LOOM_REDUCTION_PARAMS
#define ARGS_scan COLL_LOOM_REDUCTION_ARGS
#define CALL_scan COLL_LOOM_REDUCTION_CALL
#define PARAMS_exscan COLL_LOOM_REDUCTION_PARAMS
#define ARGS_exscan COLL_LOOM_REDUCTION_ARGS
#define CALL_exscan COLL_LOOM_REDUCTION_CALL
#define PARAMS_reduce COLL_LOOM_REDUCTION_PARAMS int root,
#define ARGS_reduce COLL_LOOM_REDUCTION_ARGS root,
#define CALL_reduce COLL_LOOM_REDUCTION_CALL.root = root,
#define PARAMS_reduce_scatter                                                                          \
  const void *sendbuf, void *recvbuf, coll_loom_counts_t recvcounts, struct ompi_datatype_t *datatype, \
      struct ompi_op_t *op,
#define ARGS_reduce_scatter sendbuf, recvbuf, recvcounts, datatype, op,
#define CALL_reduce_scatter                                                                             \
  .in = {.buffer = (void*)sendbuf, .counts = recvcounts, .type = datatype}, .out = {.buffer = recvbuf}, \
  .op = op,
#define PARAMS_bcast void *buffer, coll_loom_count_t count, struct ompi_datatype_t *datatype, int root,
#define ARGS_bcast buffer, count, datatype, root,
#define CALL_bcast                                                    \
  .in = {.buffer = buffer, .count = (size_t)count, .type = datatype}, \
  .out = {.buffer = buffer, .count = (size_t)count, .type = datatype}, .root = root,
#define PARAMS_allgather COLL_LOOM_ONE_TO_ONE_PARAMS
#define ARGS_allgather COLL_LOOM_ONE_TO_ONE_ARGS
#define CALL_allgather COLL_LOOM_ONE_TO_ONE_CALL
#define PARAMS_alltoall COLL_LOOM_ONE_TO_ONE_PARAMS
#define ARGS_alltoall COLL_LOOM_ONE_TO_ONE_ARGS
#define CALL_alltoall COLL_LOOM_ONE_TO_ONE_CALL
#define PARAMS_gather COLL_LOOM_ONE_TO_ONE_PARAMS int root,
#define ARGS_gather COLL_LOOM_ONE_TO_ONE_ARGS root,
#define CALL_gather COLL_LOOM_ONE_TO_ONE_CALL.root = root,
#define PARAMS_scatter COLL_LOOM_ONE_TO_ONE_PARAMS int root,
#define ARGS_scatter COLL_LOOM_ONE_TO_ONE_ARGS root,
#define CALL_scatter COLL_LOOM_ONE_TO_ONE_CALL.root = root,
#define PARAMS_allgatherv COLL_LOOM_ONE_TO_V_PARAMS
#define ARGS_allgatherv COLL_LOOM_ONE_TO_V_ARGS
#define CALL_allgatherv COLL_LOOM_ONE_TO_V_CALL
#define PARAMS_gatherv COLL_LOOM_ONE_TO_V_PARAMS int root,
#define ARGS_gatherv COLL_LOOM_ONE_TO_V_ARGS root,
#define CALL_gatherv COLL_LOOM_ONE_TO_V_CALL.root = root,
#define PARAMS_scatterv                                                             \
  const void *sendbuf, coll_loom_counts_t sendcounts, coll_loom_disps_t disps,      \
      struct ompi_datatype_t *sendtype, void *recvbuf, coll_loom_count_t recvcount, \
      struct ompi_datatype_t *recvtype, int root,
#define ARGS_scatterv sendbuf, sendcounts, disps, sendtype, recvbuf, recvcount, recvtype, root,
#define CALL_scatterv                                                                       \
  .in = {.buffer = (void*)sendbuf, .counts = sendcounts, .disps = disps, .type = sendtype}, \
  .out = {.buffer = recvbuf, .count = (size_t)recvcount, .type = recvtype}, .root = root,
#define PARAMS_alltoallv                                                              \
  const void *sendbuf, coll_loom_counts_t sendcounts, coll_loom_disps_t senddisps,    \
      struct ompi_datatype_t *sendtype, void *recvbuf, coll_loom_counts_t recvcounts, \
      coll_loom_disps_t recvdisps, struct ompi_datatype_t *recvtype,
#define ARGS_alltoallv sendbuf, sendcounts, senddisps, sendtype, recvbuf, recvcounts, recvdisps, recvtype,
#define CALL_alltoallv                                                                          \
  .in = {.buffer = (void*)sendbuf, .counts = sendcounts, .disps = senddisps, .type = sendtype}, \
  .out = {.buffer = recvbuf, .counts = recvcounts, .disps = recvdisps, .type = recvtype},
#define PARAMS_alltoallw                                                                      \
  const void *sendbuf, coll_loom_counts_t sendcounts, coll_loom_disps_t senddisps,            \
      struct ompi_datatype_t *const *sendtypes, void *recvbuf, coll_loom_counts_t recvcounts, \
      coll_loom_disps_t recvdisps, struct ompi_datatype_t *const *recvtypes,
#define ARGS_alltoallw sendbuf, sendcounts, senddisps, sendtypes, recvbuf, recvcounts, recvdisps, recvtypes,
#define CALL_alltoallw                                                                            \
  .in = {.buffer = (void*)sendbuf, .counts = sendcounts, .disps = senddisps, .types = sendtypes}, \
  .out = {.buffer = recvbuf, .counts = recvcounts, .disps = recvdisps, .types = recvtypes},
#define PARAMS_neighbor_allgather COLL_LOOM_ONE_TO_ONE_PARAMS
#define ARGS_neighbor_allgather COLL_LOOM_ONE_TO_ONE_ARGS
#define CALL_neighbor_allgather COLL_LOOM_ONE_TO_ONE_CALL
#define PARAMS_neighbor_alltoall COLL_LOOM_ONE_TO_ONE_PARAMS
#define ARGS_neighbor_alltoall COLL_LOOM_ONE_TO_ONE_ARGS
#define CALL_neighbor_alltoall COLL_LOOM_ONE_TO_ONE_CALL
#define PARAMS_neighbor_allgatherv COLL_LOOM_ONE_TO_V_PARAMS
#define ARGS_neighbor_allgatherv COLL_LOOM_ONE_TO_V_ARGS
#define CALL_neighbor_allgatherv COLL_LOOM_ONE_TO_V_CALL
#define PARAMS_neighbor_alltoallv PARAMS_alltoallv
#define ARGS_neighbor_alltoallv ARGS_alltoallv
#define CALL_neighbor_alltoallv CALL_alltoallv
#define PARAMS_neighbor_alltoallw                                                             \
  const void *sendbuf, coll_loom_counts_t sendcounts, coll_loom_byte_disps_t senddisps,       \
      struct ompi_datatype_t *const *sendtypes, void *recvbuf, coll_loom_counts_t recvcounts, \
      coll_loom_byte_disps_t recvdisps, struct ompi_datatype_t *const *recvtypes,
#define ARGS_neighbor_alltoallw ARGS_alltoallw
#define CALL_neighbor_alltoallw                                                                        \
  .in = {.buffer = (void*)sendbuf, .counts = sendcounts, .byte_disps = senddisps, .types = sendtypes}, \
  .out = {.buffer = recvbuf, .counts = recvcounts, .byte_disps = recvdisps, .types = recvtypes},
#define PARAMS_barrier
#define ARGS_barrier
#define CALL_barrier

/* The arguments again, from struct coll_loom_args* call. */
#define AGAIN_REDUCTION \
  call->in.buffer, call->out.buffer, (coll_loom_count_t)call->in.count, call->in.type, call->op,
#define AGAIN_ONE_TO_ONE                                                               \
  call->in.buffer, (coll_loom_count_t)call->in.count, call->in.type, call->out.buffer, \
      (coll_loom_count_t)call->out.count, call->out.type,
#define AGAIN_ONE_TO_V                                                                                   \
  call->in.buffer, (coll_loom_count_t)call->in.count, call->in.type, call->out.buffer, call->out.counts, \
      call->out.disps, call->out.type,
#define AGAIN_allreduce AGAIN_REDUCTION
#define AGAIN_reduce AGAIN_REDUCTION call->root,
#define AGAIN_reduce_scatter_block AGAIN_REDUCTION
#define AGAIN_reduce_scatter call->in.buffer, call->out.buffer, call->in.counts, call->in.type, call->op,
#define AGAIN_scan AGAIN_REDUCTION
#define AGAIN_exscan AGAIN_REDUCTION
#define AGAIN_bcast call->in.buffer, (coll_loom_count_t)call->in.count, call->in.type, call->root,
#define AGAIN_allgather AGAIN_ONE_TO_ONE
#define AGAIN_allgatherv AGAIN_ONE_TO_V
#define AGAIN_alltoall AGAIN_ONE_TO_ONE
#define AGAIN_alltoallv                                                                                \
  call->in.buffer, call->in.counts, call->in.disps, call->in.type, call->out.buffer, call->out.counts, \
      call->out.disps, call->out.type,
#define AGAIN_alltoallw                                                                                 \
  call->in.buffer, call->in.counts, call->in.disps, call->in.types, call->out.buffer, call->out.counts, \
      call->out.disps, call->out.types,
#define AGAIN_gather AGAIN_ONE_TO_ONE call->root,
#define AGAIN_gatherv AGAIN_ONE_TO_V call->root,
#define AGAIN_scatter AGAIN_ONE_TO_ONE call->root,
#define AGAIN_scatterv                                                               \
  call->in.buffer, call->in.counts, call->in.disps, call->in.type, call->out.buffer, \
      (coll_loom_count_t)call->out.count, call->out.type, call->root,
#define AGAIN_barrier
#define AGAIN_neighbor_allgather AGAIN_ONE_TO_ONE
#define AGAIN_neighbor_allgatherv AGAIN_ONE_TO_V
#define AGAIN_neighbor_alltoall AGAIN_ONE_TO_ONE
#define AGAIN_neighbor_alltoallv AGAIN_alltoallv
#define AGAIN_neighbor_alltoallw                                                                             \
  call->in.buffer, call->in.counts, call->in.byte_disps, call->in.types, call->out.buffer, call->out.counts, \
      call->out.byte_disps, call->out.types,

#endif
