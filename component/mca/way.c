/* Ranks may describe one message by different datatypes. They share the number of its bytes (in v forms, each
 * pair of ranks shares the number between them), and in reductions the operation and the type. The choice of
 * who performs a call may depend only on these. */
#include "component/mca/way.h"

#include "component/mca/connecting.h"
#include "component/mca/in_order.h"
#include "component/mca/kernels.h"
#include "component/mca/persistent.h"
#include "component/mca/setup.h"

bool coll_loom_is_empty(struct coll_loom_module* self, const struct coll_loom_args* args) {
  const struct loom_significance* const row = loom_significance_of(args->collective);
  if (row->size != LOOM_SIZE_OF_ALL) return false;
  const enum loom_side side =
      loom_side_of_size(row, loom_role_of(ompi_comm_rank(self->communicator), args->root));
  const struct coll_loom_side* const sized = coll_loom_side_of(args, side);
  if (sized->type->super.size == 0) return true;
  if ((row->sides[side].arrays & LOOM_COUNTS) == 0) return sized->count == 0;
  const size_t ranks = (size_t)ompi_comm_size(self->communicator);
  for (size_t part = 0; part < ranks; ++part)
    if (coll_loom_count_at(sized->counts, part) > 0) return false;
  return true;
}

_Static_assert(LOOM_COLLECTIVE_COUNT <= 32, "coll_loom_module.explained has a bit for each");

void coll_loom_fall_back(struct coll_loom_module* self, enum loom_collective collective,
                         enum loom_fallback reason, const struct ompi_op_t* op,
                         const struct ompi_datatype_t* type) {
  static const char* const because[] = {
      [LOOM_NO_KERNEL] = "loom has no such operation",
      [LOOM_NOT_CONNECTED] = "loom has not connected the ranks, and this call may not wait",
      [LOOM_NOT_BETTER] = "between hosts loom carries no such call on host memory",
      [LOOM_NOT_ORDERED] =
          "Open MPI makes such calls itself, in MPI_Comm_dup and the like, in no fixed order with the "
          "program's",
      [LOOM_ANY_START_ORDER] =
          "ranks may start persistent requests in any order, unless the communicator has the info key "
          "\"" COLL_LOOM_ORDERED_STARTS_KEY
          "\" with the value \"true\"; loom carries those of one host as far "
          "as coll_loom_lane_bytes go"};
  loom_count_fallback(collective, reason);
  if (coll_loom_variables.verbose < 2 || ompi_comm_rank(self->communicator) != 0) return;
  if (self->explained[reason] >> collective & 1) return;
  self->explained[reason] |= 1u << collective;
  const bool named = reason == LOOM_NO_KERNEL && op != NULL && type != NULL;
  /* Not all types have a name. */
  char unnamed[48];
  const char* type_name = named ? type->name : "";
  if (named && *type_name == '\0') {
    snprintf(unnamed, sizeof unnamed, "an unnamed type of %zu bytes", type->super.size);
    type_name = unnamed;
  }
  const bool stepped_aside = reason == LOOM_NOT_CONNECTED && self->state == COLL_LOOM_DECLINED;
  opal_output(0, "coll:loom: %s: %s%s%s%s%s goes to the fallback component: %s",
              coll_loom_name(self->communicator), loom_collective_name(collective), named ? " of " : "",
              type_name, named ? " with " : "", named ? op->o_name : "",
              stepped_aside ? "loom could not connect the ranks" : because[reason]);
}

bool coll_loom_may_make_an_id(const struct coll_loom_args* args) {
  enum loom_op op = LOOM_SUM;
  enum loom_type type = LOOM_UINT8;
  const enum loom_collective collective = args->collective;
  if (collective != LOOM_BCAST && collective != LOOM_ALLREDUCE && collective != LOOM_REDUCE) return false;
  if (loom_reduces(collective) && !coll_loom_kernel(args->op, args->in.type, &op, &type)) return false;
  return loom_may_make_an_id(collective, args->in.count * args->in.type->super.size, op, type);
}

/* Such calls loom leaves to the fallback component, unless ranks may have their buffers on GPUs. */
static bool is_carried_beside_devices(const struct coll_loom_module* self, enum loom_collective collective,
                                      enum coll_loom_form form) {
  return form == COLL_LOOM_NONBLOCKING_FORM && coll_loom_state_of(self) == COLL_LOOM_READY &&
         loom_carries_beside_devices(self->comm, collective);
}

bool coll_loom_always_falls_back(const struct coll_loom_module* self, const struct coll_loom_args* args,
                                 enum coll_loom_form form) {
  const enum loom_collective collective = args->collective;
  enum loom_op op;
  enum loom_type type;
  if (!self->carries[collective]) return true;
  if (loom_reduces(collective)) {
    if (!coll_loom_kernel(args->op, args->in.type, &op, &type)) return true;
    if (coll_loom_wants_order(self, type)) return false; /* in_order.h reads the operand */
  }
  if (self->state == COLL_LOOM_DECLINED) return true;
  const bool may_be_on_one_host = self->one_host || self->of_jobs;
  return !may_be_on_one_host && !loom_may_carry(collective, false) &&
         !is_carried_beside_devices(self, collective, form);
}

/* Whatever failed, the peers may wait for this rank in the call. */
static enum coll_loom_way fails(struct coll_loom_module* self) {
  coll_loom_leave(self);
  return COLL_LOOM_FAILS;
}

/* No algorithm carries such calls on host memory. */
static bool is_for_devices_alone(const struct coll_loom_module* self, enum loom_collective collective) {
  return !loom_may_carry(collective, self->one_host) && loom_may_carry_on_devices(collective, self->one_host);
}

/* False: a call of this form cannot connect the ranks. */
static bool connect_ranks(struct coll_loom_module* self, enum coll_loom_form form) {
  if (OPAL_LIKELY(self->state != COLL_LOOM_COLD)) return true;
  if (form == COLL_LOOM_NONBLOCKING_FORM && ompi_comm_size(self->communicator) > 1)
    return coll_loom_start_connecting(self);
  coll_loom_set_up(self);
  return true;
}

enum coll_loom_way coll_loom_way_of(struct coll_loom_module* self, const struct coll_loom_args* args,
                                    enum coll_loom_form form, enum loom_op* op, enum loom_type* type) {
  *op = LOOM_SUM;
  *type = LOOM_UINT8;
  if (OPAL_UNLIKELY(coll_loom_state_of(self) == COLL_LOOM_BROKEN)) return fails(self);
  if (loom_reduces(args->collective) && !coll_loom_kernel(args->op, args->in.type, op, type)) {
    coll_loom_fall_back(self, args->collective, LOOM_NO_KERNEL, args->op, args->in.type);
    return COLL_LOOM_BY_FALLBACK;
  }
  const bool in_any_order =
      form == COLL_LOOM_PERSISTENT_FORM && !coll_loom_starts_are_ordered(self->communicator);
  if (OPAL_UNLIKELY(in_any_order || !self->one_host || coll_loom_variables.reproducible)) {
    /* The set-up compares coll_loom_reproducible, and finds out whether all ranks have GPUs, and whether
     * those of several jobs are on one host. So all ranks come to it first, whatever they have there. */
    const bool reduces_in_order = loom_reduces(args->collective) && loom_depends_on_order(*type);
    if (reduces_in_order || self->of_jobs ||
        (!in_any_order && is_for_devices_alone(self, args->collective))) {
      connect_ranks(self, form);
      const enum coll_loom_state state = coll_loom_state_of(self);
      if (state == COLL_LOOM_BROKEN) return fails(self);
      if (state == COLL_LOOM_CONNECTING) return COLL_LOOM_DEFERRED;
      /* As loom has found it: what Open MPI takes for one host may be several, as containers are. */
      const bool is_in_order = state == COLL_LOOM_READY && loom_comm_is_on_one_host(self->comm);
      if (reduces_in_order && coll_loom_wants_order(self, *type) && !is_in_order) return COLL_LOOM_IN_ORDER;
    }
    const bool one_host = coll_loom_is_on_one_host(self);
    const bool declines = !one_host && !in_any_order && !loom_may_carry(args->collective, false) &&
                          !is_carried_beside_devices(self, args->collective, form);
    if ((in_any_order && !one_host) || declines) {
      const bool is_known = !self->of_jobs || coll_loom_state_of(self) == COLL_LOOM_READY;
      const enum loom_fallback between_hosts = declines ? LOOM_NOT_BETTER : LOOM_ANY_START_ORDER;
      coll_loom_fall_back(self, args->collective, is_known ? between_hosts : LOOM_NOT_CONNECTED, NULL, NULL);
      return COLL_LOOM_BY_FALLBACK;
    }
  }
  if (OPAL_UNLIKELY(!connect_ranks(self, form)))
    coll_loom_fall_back(self, args->collective, LOOM_NOT_CONNECTED, NULL, NULL);
  switch (coll_loom_state_of(self)) {
    case COLL_LOOM_CONNECTING:
      return COLL_LOOM_DEFERRED;
    case COLL_LOOM_READY:
      return COLL_LOOM_BY_LOOM;
    case COLL_LOOM_BROKEN:
      return fails(self);
    case COLL_LOOM_DECLINED:
      coll_loom_fall_back(self, args->collective, LOOM_NOT_CONNECTED, NULL, NULL);
      return COLL_LOOM_BY_FALLBACK;
    case COLL_LOOM_COLD:
      return COLL_LOOM_BY_FALLBACK;
  }
  return COLL_LOOM_BY_FALLBACK;
}
