#include "component/mca/core_request.h"

#include "component/mca/held.h"
#include "component/mca/regions.h"
#include "component/mca/request_base.h"
#include "component/mca/setup.h"

struct coll_loom_core_request {
  struct coll_loom_request_base super;
  struct coll_loom_module* module;
  struct loom_request* core;
  struct coll_loom_operands operands;
  struct coll_loom_held held;
};
typedef struct coll_loom_core_request coll_loom_core_request_t;
OBJ_CLASS_DECLARATION(coll_loom_core_request_t);

static void start(struct coll_loom_core_request* self) {
  if (OPAL_UNLIKELY(self->module->state == COLL_LOOM_BROKEN)) loom_comm_leave(self->module->comm);
  coll_loom_operands_begin(&self->operands);
  loom_request_start(self->core); /* maybe done on return */
}

static void start_held(struct coll_loom_held* held) {
  start((struct coll_loom_core_request*)((char*)held - offsetof(struct coll_loom_core_request, held)));
}

/* For MPI_Start and MPI_Startall. */
static int start_all(size_t count, ompi_request_t** requests) {
  for (size_t i = 0; i < count; ++i) {
    struct coll_loom_core_request* const self = (struct coll_loom_core_request*)requests[i];
    coll_loom_request_activate(&self->super);
    loom_request_mark_start(self->core);
    if (coll_loom_holds(self->module) && !loom_request_is_in_any_order(self->core))
      coll_loom_hold(self->module, &self->held);
    else
      start(self);
  }
  return OMPI_SUCCESS;
}

static void done(void* context, int result) {
  struct coll_loom_core_request* self = context;
  result = coll_loom_operands_end(&self->operands, result);
  const int error =
      OPAL_LIKELY(result == LOOM_SUCCESS) ? MPI_SUCCESS : coll_loom_failed(self->module, result);
  coll_loom_request_complete(&self->super, error);
}

static void construct(coll_loom_core_request_t* self) {
  COLL_LOOM_CLEAR(self);
  coll_loom_as_mpi(&self->super)->req_start = start_all;
  self->held.start = start_held;
}
static void destruct(coll_loom_core_request_t* self) {
  if (self->core != NULL) loom_request_destroy(self->core);
  coll_loom_operands_free(&self->operands);
}
OBJ_CLASS_INSTANCE(coll_loom_core_request_t, coll_loom_request_base_t, construct, destruct);

int coll_loom_make_core_request(struct coll_loom_module* self, const struct coll_loom_args* args,
                                enum loom_op op, enum loom_type type, enum loom_request_kind kind,
                                ompi_request_t** request) {
  const bool persistent = kind != LOOM_NONBLOCKING && kind != LOOM_ON_DEVICE;
  struct loom_call call;
  coll_loom_core_request_t* made = OBJ_NEW(coll_loom_core_request_t);
  if (made == NULL) return coll_loom_no_memory(self);
  int result = coll_loom_operands_make(&made->operands, self->communicator, args, op, type, &call);
  if (OPAL_UNLIKELY(result != LOOM_SUCCESS)) coll_loom_no_memory(self);
  if (kind == LOOM_ON_DEVICE || kind == LOOM_PERSISTENT_ON_DEVICE) coll_loom_let_list_rows(&made->operands);
  if (OPAL_LIKELY(result == LOOM_SUCCESS))
    result = loom_request_create(self->comm, &call, kind, done, made, &made->core);
  if (OPAL_UNLIKELY(result != LOOM_SUCCESS)) {
    coll_loom_request_drop(&made->super);
    return result;
  }
  coll_loom_request_open_for(&made->super, args, persistent, self->communicator);
  made->module = self;
  *request = coll_loom_as_mpi(&made->super);
  if (persistent) return LOOM_SUCCESS;
  coll_loom_request_activate(&made->super);
  start(made);
  return LOOM_SUCCESS;
}
