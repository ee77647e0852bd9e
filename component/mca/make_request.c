#include "component/mca/make_request.h"

#include "component/mca/check.h"
#include "component/mca/checked_start.h"
#include "component/mca/connecting.h"
#include "component/mca/core_request.h"
#include "component/mca/in_order.h"
#include "component/mca/persistent.h"
#include "component/mca/setup.h"
#include "component/mca/way.h"

/* The core cannot perform the call. False: the fallback component can. Else sets *error. */
static bool give_up(struct coll_loom_module* self, const struct coll_loom_args* args, int result,
                    int* error) {
  if (result == LOOM_UNCONNECTED) coll_loom_fall_back(self, args->collective, LOOM_NOT_CONNECTED, NULL, NULL);
  if (result == LOOM_NO_LANE) coll_loom_fall_back(self, args->collective, LOOM_ANY_START_ORDER, NULL, NULL);
  if (result == LOOM_DECLINED || result == LOOM_UNCONNECTED || result == LOOM_NO_LANE) return false;
  coll_loom_leave(self);
  coll_loom_break(self, result);
  *error = self->error;
  return true;
}

static enum loom_request_kind kind_of(const struct coll_loom_module* self, bool persistent) {
  if (!persistent) return LOOM_NONBLOCKING;
  return coll_loom_starts_are_ordered(self->communicator) ? LOOM_PERSISTENT : LOOM_PERSISTENT_ANY_ORDER;
}

static bool make_in_order(struct coll_loom_module* self, const struct coll_loom_args* args, enum loom_op op,
                          enum loom_type type, bool persistent, ompi_request_t** request, int* error) {
  if (self->fallback_iallgather == NULL || self->fallback_allgather_init == NULL) return false;
  *error = coll_loom_make_in_order_request(self, args, op, type, persistent, request);
  return true;
}

bool coll_loom_make_request(struct coll_loom_module* self, const struct coll_loom_args* args, bool persistent,
                            coll_loom_maker_t again, ompi_request_t** request, int* error) {
  const enum coll_loom_form form = persistent ? COLL_LOOM_PERSISTENT_FORM : COLL_LOOM_NONBLOCKING_FORM;
  *request = MPI_REQUEST_NULL;                       /* for programs that wait in spite of an error */
  if (persistent) coll_loom_finish_connecting(self); /* also one that falls back */
  if (OPAL_UNLIKELY(coll_loom_is_empty(self, args))) {
    if (persistent) return false;
    *request = &ompi_request_empty;
    *error = OMPI_SUCCESS;
    return true;
  }
  if (!persistent && coll_loom_may_make_an_id(args)) {
    if (coll_loom_defer(self, args, again, request, error)) return true;
    coll_loom_fall_back(self, args->collective, LOOM_NOT_ORDERED, NULL, NULL);
    return false;
  }
  const bool checks = coll_loom_variables.check && !coll_loom_is_releasing();
  const bool may_wait = persistent || checks;
  if (OPAL_UNLIKELY(checks)) {
    coll_loom_finish_connecting(self);
    if (!coll_loom_check(self, args, form, error)) return true;
  }
  /* Once more for each set-up that the call turns out to need. It is deferred until the set-up is over,
   * unless that has happened already. */
  for (;;) {
    if (may_wait)
      coll_loom_finish_connecting(self);
    else if (OPAL_UNLIKELY(coll_loom_defer(self, args, again, request, error)))
      return true;
    enum loom_op op;
    enum loom_type type;
    switch (coll_loom_way_of(self, args, form, &op, &type)) {
      case COLL_LOOM_BY_FALLBACK:
        return false;
      case COLL_LOOM_IN_ORDER:
        return make_in_order(self, args, op, type, persistent, request, error);
      case COLL_LOOM_FAILS:
        *error = may_wait ? coll_loom_settled_error(self) : self->error;
        return true;
      case COLL_LOOM_DEFERRED:
        continue;
      case COLL_LOOM_BY_LOOM:
        break;
    }
    const enum loom_request_kind kind = kind_of(self, persistent);
    const int result = coll_loom_make_core_request(self, args, op, type, kind, request);
    if (OPAL_LIKELY(result == LOOM_SUCCESS)) {
      *error =
          kind == LOOM_PERSISTENT ? coll_loom_check_starts(self, args->collective, request) : OMPI_SUCCESS;
      return true;
    }
    if (result == LOOM_UNCONNECTED && coll_loom_start_connecting(self)) continue;
    const bool would_fall_back =
        result == LOOM_NO_LANE || result == LOOM_DECLINED || result == LOOM_UNCONNECTED;
    if (would_fall_back && coll_loom_is_to_be_in_order(self, args, type))
      return make_in_order(self, args, op, type, persistent, request, error);
    return give_up(self, args, result, error);
  }
}
