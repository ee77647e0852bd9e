#include "component/coll_loom.h"
#include "component/coll_loom_kernels.h"

/* Says once per communicator what the core never gets to see. */
static void explain_no_kernel(struct coll_loom_module* self, const struct ompi_op_t* op,
                              const struct ompi_datatype_t* datatype) {
  if (self->explained || coll_loom_variables.verbose < 2 || ompi_comm_rank(self->communicator) != 0) return;
  self->explained = true;
  opal_output(0, "coll:loom: %s: allreduce of %s with %s goes to the component below: loom has no such operation",
              coll_loom_name(self->communicator), datatype->name, op->o_name);
}

int coll_loom_allreduce(const void* sendbuf, void* recvbuf, coll_loom_count_t count,
                        struct ompi_datatype_t* datatype, struct ompi_op_t* op,
                        struct ompi_communicator_t* communicator, mca_coll_base_module_t* module) {
  struct coll_loom_module* self = (struct coll_loom_module*)module;
  enum loom_op loom_op;
  enum loom_type loom_type;
  const bool has_kernel = coll_loom_kernel(op, datatype, &loom_op, &loom_type);

  if (OPAL_UNLIKELY(has_kernel && coll_loom_wants_order(self, loom_op, loom_type))) {
    return coll_loom_in_order(self, sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf, recvbuf, count, 0, count, datatype,
                              loom_op, loom_type);
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
    if (!has_kernel) explain_no_kernel(self, op, datatype);
    loom_count_fallback(); /* but not a call from inside the set-up, which is not the program's */
  }
  return self->previous_allreduce(sendbuf, recvbuf, count, datatype, op, communicator,
                                  self->previous_allreduce_module);
}
