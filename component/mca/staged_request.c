/* Calls that do not wait, with buffers on devices: a request around the one of whoever carries the call on
 * staging buffers. It is complete when results have been copied back. */
#include "component/mca/outer_request.h"
#include "component/mca/staging.h"

struct coll_loom_staged_request {
  struct coll_loom_outer_request super;
  struct coll_loom_staging* staging;
};
typedef struct coll_loom_staged_request coll_loom_staged_request_t;
OBJ_CLASS_DECLARATION(coll_loom_staged_request_t);

static int begin(struct coll_loom_outer_request* self) {
  return coll_loom_staging_begin(((struct coll_loom_staged_request*)self)->staging);
}
static int end(struct coll_loom_outer_request* self, int error) {
  return coll_loom_staging_end(((struct coll_loom_staged_request*)self)->staging, error);
}

static void construct(coll_loom_staged_request_t* self) {
  self->super.begin = begin;
  self->super.end = end;
  self->staging = NULL;
}
static void destruct(coll_loom_staged_request_t* self) {
  coll_loom_outer_request_let_go(&self->super);
  if (self->staging != NULL) coll_loom_staging_free(self->staging);
}
OBJ_CLASS_INSTANCE(coll_loom_staged_request_t, coll_loom_outer_request_t, construct, destruct);

int coll_loom_staged_request_make(struct coll_loom_module* self, int which, struct coll_loom_args* args,
                                  bool persistent, struct coll_loom_staged_request** made) {
  struct coll_loom_staging* staging;
  *made = NULL;
  int error = coll_loom_stage(self, which, args, &staging);
  if (OPAL_LIKELY(error != OMPI_SUCCESS || staging == NULL)) return error;
  coll_loom_staged_request_t* request = OBJ_NEW(coll_loom_staged_request_t);
  if (request == NULL) return coll_loom_staging_give_up(staging);
  request->staging = staging;
  coll_loom_outer_request_make(&request->super, persistent, self->communicator);
  if (!persistent) error = coll_loom_staging_begin(staging);
  if (error == OMPI_SUCCESS)
    *made = request;
  else
    coll_loom_request_drop(&request->super.super.super);
  return error;
}

int coll_loom_staged_request_finish(struct coll_loom_staged_request* made, int error,
                                    ompi_request_t** request) {
  if (error != OMPI_SUCCESS) {
    coll_loom_request_drop(&made->super.super.super);
    return error;
  }
  coll_loom_outer_request_take(&made->super, *request);
  *request = &made->super.super.super;
  return OMPI_SUCCESS;
}
