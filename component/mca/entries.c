/* A call that loom does not perform goes to the fallback component unchanged. */
#include "component/mca/entries.h"

#include "component/mca/alltoall_in_place.h"
#include "component/mca/fallback.h"
#include "component/mca/fallback_request.h"
#include "component/mca/make_request.h"
#include "component/mca/perform.h"
#include "component/mca/setup.h"
#include "component/mca/small.h"

/* Makes a call that was deferred. */
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

/* Ends the function, unless the call needs a slower path. */
#define TAKE_FAST_PATH(middle, slower)                                      \
  int result;                                                               \
  if (!coll_loom_perform_fast(self, &args, middle, &result)) return slower; \
  if (OPAL_LIKELY(result == LOOM_SUCCESS)) return OMPI_SUCCESS;             \
  return coll_loom_failed_waiting(self, result);

/* Each path is a function of its own: otherwise small calls, too, would write their arguments to memory.
 * staged.c calls the slow one when it has left copies to coll_loom_perform. */
#define ENTRY_BLOCKING(api, which)                                                            \
  __attribute__((noinline)) int coll_loom_slow_path_##api(                                    \
      PARAMS_##api struct ompi_communicator_t* communicator, struct coll_loom_module* self) { \
    const struct coll_loom_args args = {.collective = which, CALL_##api};                     \
    int error;                                                                                \
    if (coll_loom_perform(self, &args, &error)) return error;                                 \
    return coll_loom_fallback_##api(ARGS_##api communicator, self);                           \
  }                                                                                           \
  static __attribute__((noinline)) int middle_path_##api(                                     \
      PARAMS_##api struct ompi_communicator_t* communicator, struct coll_loom_module* self) { \
    const struct coll_loom_args args = {.collective = which, CALL_##api};                     \
    TAKE_FAST_PATH(true, coll_loom_slow_path_##api(ARGS_##api communicator, self))            \
  }                                                                                           \
  int coll_loom_##api(PARAMS_##api struct ompi_communicator_t* communicator,                  \
                      mca_coll_base_module_t* module) {                                       \
    struct coll_loom_module* self = (struct coll_loom_module*)module;                         \
    const struct coll_loom_args args = {.collective = which, CALL_##api};                     \
    TAKE_FAST_PATH(false, middle_path_##api(ARGS_##api communicator, self))                   \
  }

/* Whether it is an all-to-all in place: alltoall_in_place.c. */
static inline bool is_in_place(const struct coll_loom_args* args) {
  return args->in.buffer == MPI_IN_PLACE && !loom_reduces(args->collective) &&
         loom_significance_of(args->collective)->in_place.source == LOOM_SAME_BLOCKS;
}

#define ENTRY_NOT_WAITING(api, which)                                                                   \
  int coll_loom_i##api(PARAMS_##api struct ompi_communicator_t* communicator, ompi_request_t** request, \
                       mca_coll_base_module_t* module) {                                                \
    struct coll_loom_module* self = (struct coll_loom_module*)module;                                   \
    const struct coll_loom_args args = {.collective = which, CALL_##api};                               \
    int error;                                                                                          \
    if (coll_loom_make_request(self, &args, false, make_again, request, &error)) return error;          \
    if (is_in_place(&args)) return coll_loom_fall_back_in_place(self, &args, false, NULL, request);     \
    error = self->fallback_i##api(ARGS_##api communicator, request, self->fallback_i##api##_module);    \
    return coll_loom_keep_for_request(communicator, &args, *request, error);                            \
  }                                                                                                     \
  int coll_loom_##api##_init(PARAMS_##api struct ompi_communicator_t* communicator,                     \
                             struct ompi_info_t* info, ompi_request_t** request,                        \
                             mca_coll_base_module_t* module) {                                          \
    struct coll_loom_module* self = (struct coll_loom_module*)module;                                   \
    const struct coll_loom_args args = {.collective = which, CALL_##api};                               \
    int error;                                                                                          \
    if (coll_loom_make_request(self, &args, true, NULL, request, &error)) return error;                 \
    if (is_in_place(&args)) return coll_loom_fall_back_in_place(self, &args, true, info, request);      \
    error = self->fallback_##api##_init(ARGS_##api communicator, info, request,                         \
                                        self->fallback_##api##_init_module);                            \
    return coll_loom_keep_for_request(communicator, &args, *request, error);                            \
  }

#define ENTRIES(api, which) ENTRY_BLOCKING(api, which) ENTRY_NOT_WAITING(api, which)

ENTRIES(allreduce, LOOM_ALLREDUCE)
ENTRIES(reduce, LOOM_REDUCE)
ENTRIES(reduce_scatter_block, LOOM_REDUCE_SCATTER_BLOCK)
ENTRIES(reduce_scatter, LOOM_REDUCE_SCATTER)
ENTRIES(scan, LOOM_SCAN)
ENTRIES(exscan, LOOM_EXSCAN)
ENTRIES(bcast, LOOM_BCAST)
ENTRIES(allgather, LOOM_ALLGATHER)
ENTRIES(alltoall, LOOM_ALLTOALL)
ENTRIES(alltoallv, LOOM_ALLTOALLV)
ENTRIES(alltoallw, LOOM_ALLTOALLW)
ENTRIES(gather, LOOM_GATHER)
ENTRIES(gatherv, LOOM_GATHERV)
ENTRIES(scatter, LOOM_SCATTER)
ENTRIES(scatterv, LOOM_SCATTERV)
ENTRIES(barrier, LOOM_BARRIER)
/* MPI_Allgatherv has a slow path of its own: allgatherv.c. */
ENTRY_NOT_WAITING(allgatherv, LOOM_ALLGATHERV)
