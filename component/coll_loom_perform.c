/* Who carries a call? Ranks may describe one message by different datatypes. What they share is its number of
 * bytes (of the v forms: each pair of ranks the number that passes between them), and for reductions the
 * operation and the type; only on these may it depend. */
#include "component/coll_loom.h"
#include "component/coll_loom_kernels.h"

static bool is_reduction(enum loom_collective collective) {
  return collective <= LOOM_REDUCE_SCATTER_BLOCK || collective == LOOM_REDUCE_SCATTER ||
         collective == LOOM_SCAN || collective == LOOM_EXSCAN;
}

/* Says once per communicator what the core never gets to see. */
void coll_loom_explain_no_kernel(struct coll_loom_module* self, const struct ompi_op_t* op,
                                 const struct ompi_datatype_t* datatype, enum loom_collective collective) {
  if (self->explained || coll_loom_variables.verbose < 2 || ompi_comm_rank(self->communicator) != 0) return;
  self->explained = true;
  opal_output(0, "coll:loom: %s: %s of %s with %s goes to the component below: loom has no such operation",
              coll_loom_name(self->communicator), loom_collective_name(collective), datatype->name,
              op->o_name);
}

enum coll_loom_way coll_loom_way_of(struct coll_loom_module* self, const struct coll_loom_args* args,
                                    bool may_wait, enum loom_op* op, enum loom_type* type) {
  *op = LOOM_SUM;
  *type = LOOM_UINT8;
  if (is_reduction(args->collective) && !coll_loom_kernel(args->op, args->in.type, op, type)) {
    if (self->state == COLL_LOOM_BROKEN) return COLL_LOOM_FAILS;
    coll_loom_explain_no_kernel(self, args->op, args->in.type, args->collective);
    loom_count_fallback(args->collective, LOOM_NO_KERNEL);
    return COLL_LOOM_BELOW;
  }
  if (OPAL_UNLIKELY(!self->one_host)) {
    if (is_reduction(args->collective) && coll_loom_wants_order(self, *op, *type)) return COLL_LOOM_IN_ORDER;
    if (args->collective != LOOM_ALLREDUCE) {
      loom_count_fallback(args->collective, LOOM_NOT_BETTER);
      return COLL_LOOM_BELOW;
    }
  }
  if (OPAL_UNLIKELY(self->state == COLL_LOOM_COLD)) {
    if (may_wait)
      coll_loom_set_up(self);
    else
      loom_count_fallback(args->collective, LOOM_NOT_CONNECTED);
  }
  switch (self->state) {
    case COLL_LOOM_READY:
      return COLL_LOOM_BY_LOOM;
    case COLL_LOOM_BROKEN:
      return COLL_LOOM_FAILS;
    case COLL_LOOM_DECLINED:
      loom_count_fallback(args->collective, LOOM_NOT_CONNECTED);
      return COLL_LOOM_BELOW;
    case COLL_LOOM_COLD: /* also a call from inside a set-up, which is not the program's */
      return COLL_LOOM_BELOW;
  }
  return COLL_LOOM_BELOW;
}

/* A reduction on several hosts under coll_loom_reproducible, as far as loom does it in order of rank. */
static bool perform_in_order(struct coll_loom_module* self, const struct coll_loom_args* args,
                             enum loom_op op, enum loom_type type, int* error) {
  const size_t ranks = (size_t)ompi_comm_size(self->communicator),
               rank = (size_t)ompi_comm_rank(self->communicator);
  const size_t count = args->in.count;
  const void* in = args->in.buffer == MPI_IN_PLACE ? args->out.buffer : args->in.buffer;
  switch (args->collective) {
    case LOOM_REDUCE:
      *error = coll_loom_in_order(self, in, args->out.buffer, count, 0, (int)rank == args->root ? count : 0,
                                  args->in.type, op, type);
      return true;
    case LOOM_REDUCE_SCATTER_BLOCK:
      *error = coll_loom_in_order(self, in, args->out.buffer, ranks * count, rank * count, count,
                                  args->in.type, op, type);
      return true;
    default:
      loom_count_fallback(args->collective, LOOM_NOT_BETTER);
      return false;
  }
}

bool coll_loom_perform(struct coll_loom_module* self, const struct coll_loom_args* args, int* error) {
  if (OPAL_UNLIKELY(coll_loom_variables.check) && !coll_loom_check(self, args, error)) return true;
  enum loom_op op;
  enum loom_type type;
  switch (coll_loom_way_of(self, args, true, &op, &type)) {
    case COLL_LOOM_BELOW:
      return false;
    case COLL_LOOM_FAILS:
      *error = self->error;
      return true;
    case COLL_LOOM_IN_ORDER:
      return perform_in_order(self, args, op, type, error);
    case COLL_LOOM_BY_LOOM:
      break;
  }
  struct loom_call call;
  int result = coll_loom_operands_make(&self->operands, self->communicator, args, op, type, &call);
  if (OPAL_UNLIKELY(result != LOOM_SUCCESS)) {
    loom_comm_abandon(self->comm);
  } else {
    coll_loom_operands_begin(&self->operands);
    result = loom_perform(self->comm, &call);
    coll_loom_operands_end(&self->operands);
  }
  *error = OMPI_SUCCESS;
  if (OPAL_LIKELY(result == LOOM_SUCCESS)) return true;
  if (result == LOOM_DECLINED) return false;
  coll_loom_break(self, result);
  *error = self->error;
  return true;
}
