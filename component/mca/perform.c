#include "component/mca/perform.h"

#include "component/mca/check.h"
#include "component/mca/connecting.h"
#include "component/mca/in_order.h"
#include "component/mca/setup.h"
#include "component/mca/way.h"

/* False: a copy has failed, and this rank cannot take part. */
static bool fetch_all(struct coll_loom_module* self, struct loom_streamed_copies* copies, int* error) {
  if (OPAL_LIKELY(copies == NULL)) return true;
  const int result = loom_streamed_copies_need_all(copies, coll_loom_name(self->communicator));
  if (result == LOOM_SUCCESS) return true;
  *error = coll_loom_fail_alone(self, result);
  return false;
}

/* copies: NULL, or the copies of the call's buffers, for which only loom's own executors wait. */
static bool perform(struct coll_loom_module* self, const struct coll_loom_args* args,
                    struct loom_streamed_copies* copies, int* error) {
  *error = OMPI_SUCCESS;
  if (OPAL_UNLIKELY(coll_loom_is_empty(self, args))) return true;
  /* The call comes from inside this module's own call, which waits in Open MPI's progress loop. The core
   * would decline it as well, but the operands are in use. */
  if (OPAL_UNLIKELY(self->operands_in_use)) return false;
  coll_loom_finish_connecting(self);
  if (OPAL_UNLIKELY(coll_loom_variables.check) &&
      !coll_loom_check(self, args, COLL_LOOM_BLOCKING_FORM, error))
    return true;
  enum loom_op op;
  enum loom_type type;
  switch (coll_loom_way_of(self, args, COLL_LOOM_BLOCKING_FORM, &op, &type)) {
    case COLL_LOOM_BY_FALLBACK:
    case COLL_LOOM_DEFERRED: /* never for a call that may wait */
      return false;
    case COLL_LOOM_FAILS:
      *error = coll_loom_settled_error(self);
      return true;
    case COLL_LOOM_IN_ORDER:
      if (fetch_all(self, copies, error)) *error = coll_loom_in_order(self, args, op, type);
      return true;
    case COLL_LOOM_BY_LOOM:
      break;
  }
  struct loom_call call;
  self->operands_in_use = true;
  int result = coll_loom_operands_make(&self->operands, self->communicator, args, op, type, &call);
  if (OPAL_UNLIKELY(result != LOOM_SUCCESS)) {
    coll_loom_abandon(self);
  } else {
    coll_loom_operands_begin(&self->operands);
    call.streaming = copies;
    result = loom_perform(self->comm, &call);
    result = coll_loom_operands_end(&self->operands, result);
  }
  self->operands_in_use = false;
  if (OPAL_UNLIKELY(result == LOOM_DECLINED) && coll_loom_is_to_be_in_order(self, args, type)) {
    if (fetch_all(self, copies, error)) *error = coll_loom_in_order(self, args, op, type);
    return true;
  }
  return coll_loom_has_ended(self, result, error);
}

bool coll_loom_perform(struct coll_loom_module* self, const struct coll_loom_args* args, int* error) {
  struct coll_loom_staged_call* const staged = self->staged;
  if (OPAL_LIKELY(staged == NULL)) return perform(self, args, NULL, error);
  self->staged = NULL;
  if (perform(self, staged->args != NULL ? staged->args : args, staged->copies, error)) return true;
  staged->fell_back = staged->args != NULL;
  return !staged->fell_back && !fetch_all(self, staged->copies, error);
}

bool coll_loom_has_ended(struct coll_loom_module* self, int result, int* error) {
  *error = OMPI_SUCCESS;
  if (OPAL_LIKELY(result == LOOM_SUCCESS)) return true;
  if (result == LOOM_DECLINED) return false;
  *error = coll_loom_failed_waiting(self, result);
  return true;
}
