/* Calls that do not wait, as requests of Open MPI: nonblocking ones, which start at once, and persistent
 * ones. */
#include "component/mca/request.h"

static int start(struct coll_loom_request* self) {
  coll_loom_request_activate(&self->super.super);
  if (OPAL_UNLIKELY(self->module->state == COLL_LOOM_BROKEN)) loom_comm_leave(self->module->comm);
  coll_loom_operands_begin(&self->operands);
  loom_request_start(self->core); /* maybe done on return */
  return OMPI_SUCCESS;
}

/* Of MPI_Start and MPI_Startall. */
static int start_all(size_t count, ompi_request_t** requests) {
  for (size_t i = 0; i < count; ++i) start((struct coll_loom_request*)requests[i]);
  return OMPI_SUCCESS;
}

/* Whoever waits may free the request as soon as it is complete. */
static void done(void* context, int result) {
  struct coll_loom_request* self = context;
  result = coll_loom_operands_end(&self->operands, result);
  if (OPAL_UNLIKELY(result != LOOM_SUCCESS))
    self->super.super.req_status.MPI_ERROR = coll_loom_failed(self->module, result);
  ompi_request_complete(&self->super.super, true);
}

static int request_free(ompi_request_t** request) {
  if (!REQUEST_COMPLETE(*request)) return MPI_ERR_REQUEST;
  OMPI_REQUEST_FINI(*request);
  ompi_communicator_t* communicator = (*request)->req_mpi_object.comm;
  OBJ_RELEASE(*request);
  *request = MPI_REQUEST_NULL;
  OBJ_RELEASE(communicator); /* the last reference, if the program has freed it already */
  return OMPI_SUCCESS;
}

/* MPI: collectives cannot be cancelled. */
static int request_cancel(ompi_request_t* request, int flag) {
  (void)request, (void)flag;
  return MPI_ERR_REQUEST;
}

void coll_loom_request_construct(ompi_request_t* request, ompi_request_start_fn_t start) {
  request->req_type = OMPI_REQUEST_COLL;
  request->req_start = start;
  request->req_free = request_free;
  request->req_cancel = request_cancel;
}

static void construct(coll_loom_request_t* self) {
  memset((char*)self + sizeof(ompi_request_t), 0, sizeof *self - sizeof(ompi_request_t));
  coll_loom_request_construct(&self->super.super, start_all);
}
static void destruct(coll_loom_request_t* self) {
  if (self->core != NULL) loom_request_destroy(self->core);
  coll_loom_operands_free(&self->operands);
}
OBJ_CLASS_INSTANCE(coll_loom_request_t, ompi_coll_base_nbc_request_t, construct, destruct);

bool coll_loom_make_request(struct coll_loom_module* self, const struct coll_loom_args* args, bool persistent,
                            ompi_request_t** request, int* error) {
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
    if (coll_loom_defer(self, args, true, request, error)) return true;
    coll_loom_fall_back(self, args->collective, LOOM_NOT_ORDERED, NULL, NULL);
    return false;
  }
  const bool checks = coll_loom_variables.check && !coll_loom_is_releasing();
  if (checks)
    coll_loom_finish_connecting(self);
  else if (!persistent && OPAL_UNLIKELY(coll_loom_defer(self, args, false, request, error)))
    return true;
  if (OPAL_UNLIKELY(checks) && !coll_loom_check(self, args, form, error)) return true;
  enum loom_op op;
  enum loom_type type;
  switch (coll_loom_way_of(self, args, form, &op, &type)) {
    case COLL_LOOM_BY_FALLBACK:
      return false;
    case COLL_LOOM_IN_ORDER:
      if (self->fallback_iallgather == NULL || self->fallback_allgather_init == NULL) return false;
      *error = coll_loom_make_in_order_request(self, args, op, type, persistent, request);
      return true;
    case COLL_LOOM_FAILS:
      *error = self->error;
      return true;
    case COLL_LOOM_DEFERRED: /* from now on, unless that is over already */
      return coll_loom_make_request(self, args, persistent, request, error);
    case COLL_LOOM_BY_LOOM:
      break;
  }
  struct loom_call call;
  int result = LOOM_ERR_OUT_OF_MEMORY;
  coll_loom_request_t* made = OBJ_NEW(coll_loom_request_t);
  if (made != NULL)
    result = coll_loom_operands_make(&made->operands, self->communicator, args, op, type, &call);
  if (OPAL_LIKELY(result == LOOM_SUCCESS))
    result = loom_request_create(self->comm, &call, persistent, done, made, &made->core);
  *error = OMPI_SUCCESS;
  if (OPAL_LIKELY(result == LOOM_SUCCESS)) {
    OMPI_REQUEST_INIT(&made->super.super, persistent);
    made->module = self;
    made->super.super.req_mpi_object.comm = self->communicator;
    OBJ_RETAIN(self->communicator); /* MPI_Comm_free lets calls finish that were started before */
    *request = &made->super.super;
    if (!persistent)
      start(made);
    else
      *error = coll_loom_check_starts(self, args->collective, request);
    return true;
  }
  if (made != NULL) OBJ_RELEASE(made);
  if (result == LOOM_UNCONNECTED && coll_loom_start_connecting(self))
    return coll_loom_make_request(self, args, persistent, request, error);
  if (result == LOOM_UNCONNECTED) coll_loom_fall_back(self, args->collective, LOOM_NOT_CONNECTED, NULL, NULL);
  if (result == LOOM_DECLINED || result == LOOM_UNCONNECTED) return false;
  loom_comm_abandon(self->comm);
  coll_loom_break(self, result);
  *error = self->error;
  return true;
}
