#include "component/mca/staged_request.h"

#include "component/mca/staging.h"
#include "component/mca/wrapper_request.h"

struct coll_loom_staged_request {
  struct coll_loom_wrapper super;
  struct coll_loom_staging* staging;
};
typedef struct coll_loom_staged_request coll_loom_staged_request_t;
OBJ_CLASS_DECLARATION(coll_loom_staged_request_t);

static int begin(struct coll_loom_wrapper* self) {
  return coll_loom_staging_begin(((struct coll_loom_staged_request*)self)->staging);
}
static int end(struct coll_loom_wrapper* self, int error) {
  return coll_loom_staging_end(((struct coll_loom_staged_request*)self)->staging, error);
}

static void construct(coll_loom_staged_request_t* self) {
  COLL_LOOM_CLEAR(self);
  self->super.begin = begin;
  self->super.end = end;
}
static void destruct(coll_loom_staged_request_t* self) {
  coll_loom_wrapper_let_go(&self->super);
  if (self->staging != NULL) coll_loom_staging_free(self->staging);
}
OBJ_CLASS_INSTANCE(coll_loom_staged_request_t, coll_loom_wrapper_t, construct, destruct);

int coll_loom_staged_request_make(struct coll_loom_module* self, int which, struct coll_loom_args* args,
                                  bool persistent, struct coll_loom_staged_request** made) {
  struct coll_loom_staging* staging;
  *made = NULL;
  int error = coll_loom_stage(self, which, args, &staging);
  if (OPAL_LIKELY(error != OMPI_SUCCESS || staging == NULL)) return error;
  coll_loom_staged_request_t* request = OBJ_NEW(coll_loom_staged_request_t);
  if (request == NULL) return coll_loom_staging_give_up(staging);
  request->staging = staging;
  coll_loom_request_open(&request->super.super, persistent, self->communicator);
  if (!persistent) error = coll_loom_staging_begin(staging);
  if (error == OMPI_SUCCESS)
    *made = request;
  else
    coll_loom_request_drop(&request->super.super);
  return error;
}

int coll_loom_staged_request_finish(struct coll_loom_staged_request* made, int error,
                                    ompi_request_t** request) {
  if (error != OMPI_SUCCESS) {
    coll_loom_request_drop(&made->super.super);
    return error;
  }
  coll_loom_wrapper_take(&made->super, *request, request);
  return OMPI_SUCCESS;
}
