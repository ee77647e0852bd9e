/* Each entry point makes staging buffers if a buffer is on a device. Then it calls loom's own entry point;
 * for collectives that loom does not perform, the fallback component. */
#include "component/mca/staged.h"

#include "component/mca/device.h"
#include "component/mca/entries.h"
#include "component/mca/kernels.h"
#include "component/mca/setup.h"
#include "component/mca/staged_request.h"
#include "component/mca/staging.h"

/* Replaces the program's buffers by their staging buffers. */
#define BOTH_BUFFERS        \
  sendbuf = args.in.buffer; \
  recvbuf = args.out.buffer;
#define ONE_BUFFER buffer = args.out.buffer;
#define NO_BUFFER

#define FALLBACK(api, ...) self->fallback_##api(__VA_ARGS__, self->fallback_##api##_module)
/* The next function to call; `module` is loom's. */
#define NEXT(api, which, ...) \
  (self->carries[which] ? coll_loom_##api(__VA_ARGS__, module) : FALLBACK(api, __VA_ARGS__))
#define NEXT_FALLBACK(api, which, ...) FALLBACK(api, __VA_ARGS__)
/* The same for a blocking call whose copies may overlap with it. */
#define NEXT_STAGED(api, which, ...) \
  (self->carries[which] ? coll_loom_slow_path_##api(__VA_ARGS__, self) : FALLBACK(api, __VA_ARGS__))
/* The same for a call that is made later. */
#define NEXT_AGAIN(api, which, ...) \
  (self->carries[which] ? coll_loom_##api(__VA_ARGS__, &self->super) : FALLBACK(api, __VA_ARGS__))
#define NEXT_FALLBACK_AGAIN(api, which, ...) FALLBACK(api, __VA_ARGS__)
#define NEXT_FALLBACK_STAGED(api, which, ...) FALLBACK(api, __VA_ARGS__)

#define STAGED_BLOCKING(api, which, USE, GO_ON)                                                         \
  int coll_loom_staged_##api(PARAMS_##api struct ompi_communicator_t* communicator,                     \
                             mca_coll_base_module_t* module) {                                          \
    struct coll_loom_module* self = (struct coll_loom_module*)module;                                   \
    struct coll_loom_args args = {.collective = (enum loom_collective)which, CALL_##api};               \
    struct coll_loom_staging* staging;                                                                  \
    int error;                                                                                          \
    coll_loom_follow(self);                                                                             \
    if (OPAL_UNLIKELY(self->wants_devices) && coll_loom_carry_on_device(self, which, &args, &error))    \
      return error;                                                                                     \
    error = coll_loom_stage(self, which, COLL_LOOM_BLOCKING_FORM, self->fallback_##api##_module, &args, \
                            &staging);                                                                  \
    if (OPAL_UNLIKELY(error != OMPI_SUCCESS)) return error;                                             \
    if (OPAL_LIKELY(staging == NULL)) return GO_ON(api, which, ARGS_##api communicator);                \
    if (!coll_loom_staging_is_for_loom(staging)) {                                                      \
      USE                                                                                               \
    }                                                                                                   \
    error = coll_loom_staging_begin_blocking(staging, &args);                                           \
    if (error == OMPI_SUCCESS)                                                                          \
      error = coll_loom_staging_end(staging, GO_ON##_STAGED(api, which, ARGS_##api communicator));      \
    coll_loom_staging_free(staging);                                                                    \
    if (self->wants_devices) coll_loom_staged_call_ended(self);                                         \
    return error;                                                                                       \
  }

/* `make` makes a call of its staging buffers, when their operands are there, or one that follows such a call.
 */
#define STAGED_NOT_WAITING(api, which, USE, GO_ON)                                                           \
  static int make_i##api(struct coll_loom_module* self, const struct coll_loom_args* call,                   \
                         ompi_request_t** request) {                                                         \
    (void)call; /* of a barrier */                                                                           \
    return GO_ON##_AGAIN(i##api, which, AGAIN_##api self->communicator, request);                            \
  }                                                                                                          \
  int coll_loom_staged_i##api(PARAMS_##api struct ompi_communicator_t* communicator,                         \
                              ompi_request_t** request, mca_coll_base_module_t* module) {                    \
    struct coll_loom_module* self = (struct coll_loom_module*)module;                                        \
    struct coll_loom_args args = {.collective = (enum loom_collective)which, CALL_##api};                    \
    struct coll_loom_staging* staging;                                                                       \
    int error;                                                                                               \
    *request = MPI_REQUEST_NULL; /* for programs that wait in spite of an error */                           \
    if (OPAL_UNLIKELY(self->wants_devices) && !coll_loom_must_follow(self) &&                                \
        coll_loom_start_on_device(self, which, &args, request, &error))                                      \
      return error;                                                                                          \
    error = coll_loom_stage(self, which, COLL_LOOM_NONBLOCKING_FORM, self->fallback_i##api##_module, &args,  \
                            &staging);                                                                       \
    if (OPAL_UNLIKELY(error != OMPI_SUCCESS)) return error;                                                  \
    if (OPAL_LIKELY(staging == NULL && !coll_loom_must_follow(self)))                                        \
      return GO_ON(i##api, which, ARGS_##api communicator, request);                                         \
    return coll_loom_staged_request_start(self, &args, staging, make_i##api, request);                       \
  }                                                                                                          \
  int coll_loom_staged_##api##_init(PARAMS_##api struct ompi_communicator_t* communicator,                   \
                                    struct ompi_info_t* info, ompi_request_t** request,                      \
                                    mca_coll_base_module_t* module) {                                        \
    struct coll_loom_module* self = (struct coll_loom_module*)module;                                        \
    struct coll_loom_args args = {.collective = (enum loom_collective)which, CALL_##api};                    \
    struct coll_loom_staging* staging;                                                                       \
    *request = MPI_REQUEST_NULL; /* for programs that wait in spite of an error */                           \
    int error;                                                                                               \
    coll_loom_follow(self);                                                                                  \
    if (OPAL_UNLIKELY(self->wants_devices) && coll_loom_make_on_device(self, which, &args, request, &error)) \
      return error;                                                                                          \
    error = coll_loom_stage(self, which, COLL_LOOM_PERSISTENT_FORM, self->fallback_##api##_init_module,      \
                            &args, &staging);                                                                \
    if (OPAL_UNLIKELY(error != OMPI_SUCCESS)) return error;                                                  \
    if (OPAL_LIKELY(staging == NULL))                                                                        \
      return GO_ON(api##_init, which, ARGS_##api communicator, info, request);                               \
    struct coll_loom_staged_request* const made =                                                            \
        coll_loom_staged_request_make(self, &args, staging, &error);                                         \
    if (OPAL_UNLIKELY(made == NULL)) return error;                                                           \
    USE error = GO_ON(api##_init, which, ARGS_##api communicator, info, request);                            \
    return coll_loom_staged_request_finish(made, error, request);                                            \
  }

#define STAGED(api, which, USE) \
  STAGED_BLOCKING(api, which, USE, NEXT) STAGED_NOT_WAITING(api, which, USE, NEXT)
STAGED(allreduce, LOOM_ALLREDUCE, BOTH_BUFFERS)
STAGED(reduce, LOOM_REDUCE, BOTH_BUFFERS)
STAGED(reduce_scatter_block, LOOM_REDUCE_SCATTER_BLOCK, BOTH_BUFFERS)
STAGED(reduce_scatter, LOOM_REDUCE_SCATTER, BOTH_BUFFERS)
STAGED(scan, LOOM_SCAN, BOTH_BUFFERS)
STAGED(exscan, LOOM_EXSCAN, BOTH_BUFFERS)
STAGED(bcast, LOOM_BCAST, ONE_BUFFER)
STAGED(allgather, LOOM_ALLGATHER, BOTH_BUFFERS)
STAGED(allgatherv, LOOM_ALLGATHERV, BOTH_BUFFERS)
STAGED(alltoall, LOOM_ALLTOALL, BOTH_BUFFERS)
STAGED(alltoallv, LOOM_ALLTOALLV, BOTH_BUFFERS)
STAGED(alltoallw, LOOM_ALLTOALLW, BOTH_BUFFERS)
STAGED(gather, LOOM_GATHER, BOTH_BUFFERS)
STAGED(gatherv, LOOM_GATHERV, BOTH_BUFFERS)
STAGED(scatter, LOOM_SCATTER, BOTH_BUFFERS)
STAGED(scatterv, LOOM_SCATTERV, BOTH_BUFFERS)
STAGED(barrier, LOOM_BARRIER, NO_BUFFER)

#define STAGED_FALLBACK(api, which)                        \
  STAGED_BLOCKING(api, which, BOTH_BUFFERS, NEXT_FALLBACK) \
  STAGED_NOT_WAITING(api, which, BOTH_BUFFERS, NEXT_FALLBACK)
STAGED_FALLBACK(neighbor_allgather, LOOM_NEIGHBOR_ALLGATHER)
STAGED_FALLBACK(neighbor_allgatherv, LOOM_NEIGHBOR_ALLGATHERV)
STAGED_FALLBACK(neighbor_alltoall, LOOM_NEIGHBOR_ALLTOALL)
STAGED_FALLBACK(neighbor_alltoallv, LOOM_NEIGHBOR_ALLTOALLV)
STAGED_FALLBACK(neighbor_alltoallw, LOOM_NEIGHBOR_ALLTOALLW)

/* On MPI_COMM_SELF's module. */
int coll_loom_staged_reduce_local(const void* in, void* inout, coll_loom_count_t count,
                                  struct ompi_datatype_t* type, struct ompi_op_t* op,
                                  mca_coll_base_module_t* module) {
  struct coll_loom_module* self = (struct coll_loom_module*)module;
  struct coll_loom_args args = {.in = {.buffer = (void*)in, .count = (size_t)count, .type = type},
                                .out = {.buffer = inout}};
  struct coll_loom_staging* staging;
  enum loom_op kernel_op;
  enum loom_type kernel_type;
  if (self->wants_devices && count > 0 && coll_loom_kernel(op, type, &kernel_op, &kernel_type)) {
    const int result = loom_reduce_local_on_device(in, inout, (uint64_t)count, kernel_type, kernel_op,
                                                   coll_loom_name(self->communicator));
    if (result != LOOM_DECLINED) return result == LOOM_SUCCESS ? OMPI_SUCCESS : coll_loom_error_class(result);
  }
  int error = coll_loom_stage(self, LOOM_REDUCE_LOCAL, COLL_LOOM_BLOCKING_FORM,
                              self->fallback_reduce_local_module, &args, &staging);
  if (OPAL_UNLIKELY(error != OMPI_SUCCESS)) return error;
  if (OPAL_LIKELY(staging == NULL)) return FALLBACK(reduce_local, in, inout, count, type, op);
  error = coll_loom_staging_begin(staging);
  if (error == OMPI_SUCCESS)
    error = coll_loom_staging_end(staging,
                                  FALLBACK(reduce_local, args.in.buffer, args.out.buffer, count, type, op));
  coll_loom_staging_free(staging);
  return error;
}
