#include "component/mca/device.h"

#include "component/mca/connecting.h"
#include "component/mca/core_request.h"
#include "component/mca/kernels.h"
#include "component/mca/perform.h"
#include "component/mca/persistent.h"
#include "component/mca/regions.h"
#include "component/mca/setup.h"
#include "component/mca/way.h"

/* Of facts that all ranks share; those of several jobs count as on several hosts. between_hosts: also where
 * the ranks are on several. Completes *args. */
static bool may_stay(struct coll_loom_module* self, int which, bool between_hosts,
                     struct coll_loom_args* args, enum loom_op* op, enum loom_type* type) {
  if (coll_loom_variables.check) return false; /* the check must come once, at the same place on all ranks */
  if (which >= LOOM_COLLECTIVE_COUNT || !self->carries[which] || !(self->one_host || between_hosts) ||
      !loom_may_carry_on_devices((enum loom_collective)which, self->one_host))
    return false;
  args->collective = (enum loom_collective)which;
  *op = LOOM_SUM;
  *type = LOOM_UINT8;
  if (coll_loom_is_empty(self, args)) return false;
  return !loom_reduces(which) || coll_loom_kernel(args->op, args->in.type, op, type);
}

/* For calls that may wait. Collective; the same on all ranks. Those that have no driver connect the ranks in
 * way.c. */
static bool are_connected(struct coll_loom_module* self) {
  coll_loom_finish_connecting(self);
  if (self->state == COLL_LOOM_COLD) coll_loom_set_up(self);
  return self->state == COLL_LOOM_READY;
}

/* The core asks the other ranks, so all ranks get there or none: before that, only facts that they share
 * decide. */
bool coll_loom_carry_on_device(struct coll_loom_module* self, int which, const struct coll_loom_args* given,
                               int* error) {
  struct coll_loom_args args = *given;
  enum loom_op op;
  enum loom_type type;
  if (!may_stay(self, which, true, &args, &op, &type) || !are_connected(self)) return false;

  if (self->operands_in_use) return false; /* the call comes from inside the fallback component */
  self->operands_in_use = true;
  struct loom_call call;
  int result = coll_loom_operands_make(&self->operands, self->communicator, &args, op, type, &call);
  if (result != LOOM_SUCCESS) {
    coll_loom_abandon(self);
  } else {
    coll_loom_let_list_rows(&self->operands);
    result = loom_perform_on_device(self->comm, &call);
  }
  self->operands_in_use = false;
  return coll_loom_has_ended(self, result, error);
}

/* Ranks whose buffers are staged make the same request of the core, when their operands are there. So this
 * may rest on facts of this rank. */
bool coll_loom_start_on_device(struct coll_loom_module* self, int which, const struct coll_loom_args* given,
                               ompi_request_t** request, int* error) {
  struct coll_loom_args args = *given;
  enum loom_op op;
  enum loom_type type;
  if (!may_stay(self, which, true, &args, &op, &type) || coll_loom_may_make_an_id(&args)) return false;
  if (coll_loom_state_of(self) != COLL_LOOM_READY || coll_loom_is_releasing()) return false;
  const int result = coll_loom_make_core_request(self, &args, op, type, LOOM_ON_DEVICE, request);
  *error = OMPI_SUCCESS;
  if (result == LOOM_SUCCESS) return true;
  if (result == LOOM_DECLINED || result == LOOM_UNCONNECTED) return false;
  *error = coll_loom_fail_alone(self, result);
  return true;
}

/* As for a blocking call, only facts that all ranks share decide. */
bool coll_loom_make_on_device(struct coll_loom_module* self, int which, const struct coll_loom_args* given,
                              ompi_request_t** request, int* error) {
  struct coll_loom_args args = *given;
  enum loom_op op;
  enum loom_type type;
  /* Between hosts such requests wait in one queue. */
  const bool between_hosts = coll_loom_starts_are_ordered(self->communicator);
  if (!may_stay(self, which, between_hosts, &args, &op, &type) || !are_connected(self)) return false;
  const int result = coll_loom_make_core_request(self, &args, op, type, LOOM_PERSISTENT_ON_DEVICE, request);
  *error = OMPI_SUCCESS;
  if (result == LOOM_DECLINED) return false;
  if (result != LOOM_SUCCESS) *error = coll_loom_fail_alone(self, result);
  return true;
}

void coll_loom_staged_call_ended(struct coll_loom_module* self) {
  if (self->comm != NULL) loom_staged_call_ended(self->comm);
}
