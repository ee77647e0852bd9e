/* Reductions in order of rank between hosts that do not wait: a request around an all-gather of the component
 * below, which fetches all operands in one piece, n S bytes. They are reduced when it is complete. */
#include <pthread.h>

#include "component/coll_loom_in_order.h"
#include "component/coll_loom_request.h"

struct coll_loom_in_order_request {
  ompi_coll_base_nbc_request_t super;
  struct coll_loom_part part;
  char* operands;
  void* out;
  size_t elem;
  enum loom_op op;
  enum loom_type type;
  ompi_request_t* inner;
  struct coll_loom_in_order_request* next; /* of those that are started */
};
typedef struct coll_loom_in_order_request coll_loom_in_order_request_t;
OBJ_CLASS_DECLARATION(coll_loom_in_order_request_t);

/* Those that are started; as in coll_loom_staged_request.c. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static coll_loom_in_order_request_t* started;

/* Whoever waits may free the request as soon as it is complete. */
static void complete(coll_loom_in_order_request_t* self) {
  const struct coll_loom_part* part = &self->part;
  const size_t bytes = part->count * self->elem;
  coll_loom_request_retire(self->inner);
  self->super.super.req_status.MPI_ERROR = self->inner->req_status.MPI_ERROR;
  if (part->count > 0 && self->inner->req_status.MPI_ERROR == MPI_SUCCESS) {
    for (int of = 0; part->count < part->total && of < part->operands; ++of)
      memmove(self->operands + (size_t)of * bytes,
              self->operands + ((size_t)of * part->total + part->first) * self->elem, bytes);
    coll_loom_reduce_operands(self->operands, part->operands, part->count, self->elem, self->op, self->type,
                              self->out);
  }
  ompi_request_complete(&self->super.super, true);
}

static int progress(void) {
  if (pthread_mutex_trylock(&mutex) != 0) return 0;
  coll_loom_in_order_request_t* done = NULL;
  for (coll_loom_in_order_request_t** link = &started; *link != NULL;) {
    coll_loom_in_order_request_t* const request = *link;
    if (!REQUEST_COMPLETE(request->inner)) {
      link = &request->next;
      continue;
    }
    *link = request->next;
    request->next = done;
    done = request;
  }
  if (done != NULL && started == NULL) opal_progress_unregister(progress);
  pthread_mutex_unlock(&mutex);
  int completed = 0;
  while (done != NULL) {
    coll_loom_in_order_request_t* const request = done;
    done = request->next;
    complete(request);
    ++completed;
  }
  return completed;
}

static void await_inner(coll_loom_in_order_request_t* self) {
  self->super.super.req_status =
      (ompi_status_public_t){.MPI_SOURCE = MPI_ANY_SOURCE, .MPI_TAG = MPI_ANY_TAG, .MPI_ERROR = MPI_SUCCESS};
  self->super.super.req_complete = REQUEST_PENDING;
  self->super.super.req_state = OMPI_REQUEST_ACTIVE;
  pthread_mutex_lock(&mutex);
  if (started == NULL) opal_progress_register(progress);
  self->next = started;
  started = self;
  pthread_mutex_unlock(&mutex);
}

/* Of MPI_Start and MPI_Startall. */
static int start_all(size_t count, ompi_request_t** requests) {
  for (size_t i = 0; i < count; ++i) {
    coll_loom_in_order_request_t* self = (coll_loom_in_order_request_t*)requests[i];
    const int error = self->inner->req_start(1, &self->inner);
    if (error != OMPI_SUCCESS) return error;
    await_inner(self);
  }
  return OMPI_SUCCESS;
}

static void construct(coll_loom_in_order_request_t* self) {
  memset((char*)self + sizeof(ompi_request_t), 0, sizeof *self - sizeof(ompi_request_t));
  self->super.super.req_type = OMPI_REQUEST_COLL;
  self->super.super.req_start = start_all;
  self->super.super.req_free = coll_loom_request_free;
  self->super.super.req_cancel = coll_loom_request_cancel;
}
static void destruct(coll_loom_in_order_request_t* self) {
  if (self->inner != NULL) ompi_request_free(&self->inner);
  free(self->operands);
}
OBJ_CLASS_INSTANCE(coll_loom_in_order_request_t, ompi_coll_base_nbc_request_t, construct, destruct);

int coll_loom_make_in_order_request(struct coll_loom_module* self, const struct coll_loom_args* args,
                                    enum loom_op op, enum loom_type type, bool persistent,
                                    ompi_request_t** request) {
  const size_t ranks = (size_t)ompi_comm_size(self->communicator);
  coll_loom_in_order_request_t* made = OBJ_NEW(coll_loom_in_order_request_t);
  if (made == NULL) return MPI_ERR_NO_MEM;
  made->part = coll_loom_part_of(self, args);
  made->elem = coll_loom_element_bytes(args->in.type);
  made->op = op;
  made->type = type;
  made->out = args->out.buffer;
  made->operands = malloc(ranks * made->part.total * made->elem);
  int error = MPI_ERR_NO_MEM;
  if (made->operands != NULL) {
    /* In place the operand stays where it is until all have been fetched. */
    const void* const in = args->in.buffer == MPI_IN_PLACE ? args->out.buffer : args->in.buffer;
    const coll_loom_count_t total = (coll_loom_count_t)made->part.total;
    if (persistent)
      error = self->previous_allgather_init(in, total, args->in.type, made->operands, total, args->in.type,
                                            self->communicator, MPI_INFO_NULL, &made->inner,
                                            self->previous_allgather_init_module);
    else
      error = self->previous_iallgather(in, total, args->in.type, made->operands, total, args->in.type,
                                        self->communicator, &made->inner, self->previous_iallgather_module);
  }
  if (error != OMPI_SUCCESS) {
    OBJ_RELEASE(made);
    return error;
  }
  OMPI_REQUEST_INIT(&made->super.super, persistent);
  made->super.super.req_mpi_object.comm = self->communicator;
  OBJ_RETAIN(self->communicator); /* MPI_Comm_free lets calls finish that were started before */
  *request = &made->super.super;
  if (!persistent) await_inner(made);
  return OMPI_SUCCESS;
}
