#include "component/coll_loom.h"
#include "component/coll_loom_kernels.h"

int coll_loom_allreduce(const void* sendbuf, void* recvbuf, coll_loom_count_t count,
                        struct ompi_datatype_t* datatype, struct ompi_op_t* op,
                        struct ompi_communicator_t* communicator, mca_coll_base_module_t* module) {
  struct coll_loom_module* self = (struct coll_loom_module*)module;
  coll_loom_finish_connecting(self);
  if (OPAL_UNLIKELY(coll_loom_variables.check)) {
    const struct coll_loom_args args = {.collective = LOOM_ALLREDUCE, CALL_allreduce};
    int error;
    if (!coll_loom_check(self, &args, &error)) return error;
  }
  enum loom_op loom_op;
  enum loom_type loom_type;
  const bool has_kernel = coll_loom_kernel(op, datatype, &loom_op, &loom_type);

  if (OPAL_UNLIKELY(has_kernel && coll_loom_wants_order(self, loom_type))) {
    const struct coll_loom_args args = {.collective = LOOM_ALLREDUCE, CALL_allreduce};
    return coll_loom_in_order(self, &args, loom_op, loom_type);
  }
  if (OPAL_UNLIKELY(has_kernel && self->state == COLL_LOOM_COLD)) coll_loom_set_up(self);

  if (OPAL_LIKELY(has_kernel && self->state == COLL_LOOM_READY)) {
    const int result = loom_allreduce(self->comm, sendbuf == MPI_IN_PLACE ? NULL : sendbuf, recvbuf, count,
                                      loom_type, loom_op);
    if (OPAL_LIKELY(result == LOOM_SUCCESS)) return OMPI_SUCCESS;
    if (result != LOOM_DECLINED) {
      coll_loom_break(self, result);
      return self->error;
    }
  } else if (self->state == COLL_LOOM_BROKEN) {
    return self->error;
  } else if (!has_kernel || self->state == COLL_LOOM_DECLINED) {
    /* But not a call from inside the set-up, which is not the program's. */
    coll_loom_fall_back(self, LOOM_ALLREDUCE, has_kernel ? LOOM_NOT_CONNECTED : LOOM_NO_KERNEL, op, datatype);
  }
  return coll_loom_below_allreduce(sendbuf, recvbuf, count, datatype, op, communicator, self);
}
