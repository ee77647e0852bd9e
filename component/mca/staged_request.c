#include "component/mca/staged_request.h"

#include "component/mca/arrays.h"
#include "component/mca/connecting.h"
#include "component/mca/wrapper_request.h"

struct coll_loom_staged_request {
  struct coll_loom_wrapper super;
  struct coll_loom_staging* staging; /* NULL: the call only follows others */
  struct coll_loom_module* module;
  struct coll_loom_held held;
  int error; /* of the copies of its operands */
  /* If it is not persistent: */
  struct coll_loom_args args;
  void* arrays; /* copies of those that args has */
  coll_loom_maker_t maker;
};
typedef struct coll_loom_staged_request coll_loom_staged_request_t;
OBJ_CLASS_DECLARATION(coll_loom_staged_request_t);

static struct coll_loom_staged_request* of_held(struct coll_loom_held* held) {
  return (struct coll_loom_staged_request*)((char*)held - offsetof(struct coll_loom_staged_request, held));
}

static bool may_start(struct coll_loom_held* held) {
  struct coll_loom_staged_request* const self = of_held(held);
  self->error = self->staging != NULL ? coll_loom_staging_load(self->staging) : OMPI_SUCCESS;
  return self->error != COLL_LOOM_GOES_ON;
}

static void start(struct coll_loom_held* held) {
  struct coll_loom_staged_request* const self = of_held(held);
  int error = self->error;
  if (coll_loom_as_mpi(&self->super.super)->req_persistent) {
    coll_loom_wrapper_start(&self->super, error);
    return;
  }
  ompi_request_t* inner = NULL;
  if (error == OMPI_SUCCESS) error = self->maker(self->module, &self->args, &inner);
  coll_loom_wrapper_follow(&self->super, inner, error);
}

/* coll_loom_check compares calls as they start, and may wait: a held start would wait in the progress loop.
 * So each start waits for its operands then. */
static bool waits(const struct coll_loom_staged_request* self) {
  return coll_loom_variables.check || self->module->starts.state == COLL_LOOM_STARTS_COMPARED;
}

static void wait_for_operands(struct coll_loom_staged_request* self) {
  coll_loom_follow(self->module);
  while (!may_start(&self->held)) opal_progress();
}

/* Whether all operands are there, or have failed, and no call is before this one. After a wait both are so,
 * and a load that has failed is not tried again. */
static bool can_start_now(struct coll_loom_staged_request* self) {
  if (waits(self)) {
    wait_for_operands(self);
    return true;
  }
  return !coll_loom_must_follow(self->module) && may_start(&self->held);
}

/* Of a persistent call. */
static int begin(struct coll_loom_wrapper* wrapper) {
  struct coll_loom_staged_request* const self = (struct coll_loom_staged_request*)wrapper;
  const int error = coll_loom_staging_start(self->staging);
  if (error != OMPI_SUCCESS) return error;
  if (can_start_now(self)) return self->error;
  coll_loom_hold(self->module, &self->held);
  return COLL_LOOM_GOES_ON;
}

/* Called again until the results have been copied back. */
static int end(struct coll_loom_wrapper* wrapper, int error) {
  struct coll_loom_staged_request* const self = (struct coll_loom_staged_request*)wrapper;
  return error == OMPI_SUCCESS && self->staging != NULL ? coll_loom_staging_store(self->staging) : error;
}

static void construct(coll_loom_staged_request_t* self) {
  COLL_LOOM_CLEAR(self);
  self->super.begin = begin;
  self->super.end = end;
  self->held.may_start = may_start;
  self->held.start = start;
}
static void destruct(coll_loom_staged_request_t* self) {
  coll_loom_wrapper_let_go(&self->super);
  if (self->staging != NULL) coll_loom_staging_free(self->staging);
  free(self->arrays);
}
OBJ_CLASS_INSTANCE(coll_loom_staged_request_t, coll_loom_wrapper_t, construct, destruct);

bool coll_loom_must_follow(const struct coll_loom_module* self) {
  return coll_loom_holds(self) && !coll_loom_is_releasing();
}

static struct coll_loom_staged_request* make(struct coll_loom_module* self, const struct coll_loom_args* args,
                                             struct coll_loom_staging* staging, bool persistent) {
  coll_loom_staged_request_t* const made = OBJ_NEW(coll_loom_staged_request_t);
  if (made == NULL) return NULL;
  made->staging = staging;
  made->module = self;
  coll_loom_request_open_for(&made->super.super, args, persistent, self->communicator);
  return made;
}

int coll_loom_staged_request_start(struct coll_loom_module* self, const struct coll_loom_args* args,
                                   struct coll_loom_staging* staging, coll_loom_maker_t maker,
                                   ompi_request_t** request) {
  struct coll_loom_staged_request* const made = make(self, args, staging, false);
  if (made == NULL && staging != NULL) return coll_loom_staging_give_up(staging);
  if (made == NULL) { /* this rank waits */
    coll_loom_wait_for_held(self);
    return maker(self, args, request);
  }
  made->args = *args;
  made->maker = maker;
  int error = staging != NULL ? coll_loom_staging_start(staging) : OMPI_SUCCESS;
  if (error == OMPI_SUCCESS && !can_start_now(made)) {
    if (coll_loom_keep_arrays(self->communicator, &made->args, &made->arrays)) {
      coll_loom_request_activate(&made->super.super);
      *request = coll_loom_as_mpi(&made->super.super);
      coll_loom_hold(self, &made->held);
      return OMPI_SUCCESS;
    }
    wait_for_operands(made);
  }
  if (error == OMPI_SUCCESS) error = made->error;
  if (error == OMPI_SUCCESS) error = maker(self, &made->args, request);
  return coll_loom_staged_request_finish(made, error, request);
}

struct coll_loom_staged_request* coll_loom_staged_request_make(struct coll_loom_module* self,
                                                               const struct coll_loom_args* args,
                                                               struct coll_loom_staging* staging,
                                                               int* error) {
  struct coll_loom_staged_request* const made = make(self, args, staging, true);
  *error = made == NULL ? coll_loom_staging_give_up(staging) : OMPI_SUCCESS;
  return made;
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
