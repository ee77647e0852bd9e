#include "component/mca/deferred.h"

#include "component/mca/arrays.h"
#include "component/mca/wrapper_request.h"

struct coll_loom_deferred {
  struct coll_loom_wrapper super;
  struct coll_loom_args args;
  void* arrays; /* copies of those that args has */
  coll_loom_maker_t maker;
  ompi_request_t* made; /* by the maker, with `error` */
  int error;
  struct coll_loom_deferred* next;
};
typedef struct coll_loom_deferred coll_loom_deferred_t;
OBJ_CLASS_DECLARATION(coll_loom_deferred_t);

static void construct(coll_loom_deferred_t* self) {
  COLL_LOOM_CLEAR(self);
}
static void destruct(coll_loom_deferred_t* self) {
  coll_loom_wrapper_let_go(&self->super);
  free(self->arrays);
}
OBJ_CLASS_INSTANCE(coll_loom_deferred_t, coll_loom_wrapper_t, construct, destruct);

struct coll_loom_deferred* coll_loom_deferred_create(struct coll_loom_module* self,
                                                     const struct coll_loom_args* args,
                                                     coll_loom_maker_t maker) {
  coll_loom_deferred_t* deferred = OBJ_NEW(coll_loom_deferred_t);
  if (deferred == NULL) return NULL;
  deferred->args = *args;
  deferred->maker = maker;
  if (!coll_loom_keep_arrays(self->communicator, &deferred->args, &deferred->arrays)) {
    coll_loom_deferred_drop(deferred);
    return NULL;
  }
  coll_loom_request_open(&deferred->super.super, false, self->communicator);
  return deferred;
}

void coll_loom_deferred_drop(struct coll_loom_deferred* deferred) {
  coll_loom_request_drop(&deferred->super.super);
}

ompi_request_t* coll_loom_deferred_append(struct coll_loom_deferred_queue* queue,
                                          struct coll_loom_deferred* deferred) {
  if (queue->first == NULL) queue->last = &queue->first;
  *queue->last = deferred;
  queue->last = &deferred->next;
  coll_loom_request_activate(&deferred->super.super);
  return coll_loom_as_mpi(&deferred->super.super);
}

struct coll_loom_deferred* coll_loom_make_again(struct coll_loom_module* self,
                                                struct coll_loom_deferred_queue* queue,
                                                struct coll_loom_deferred* made) {
  struct coll_loom_deferred* next = queue->first;
  queue->first = NULL;
  while (next != NULL) {
    struct coll_loom_deferred* const deferred = next;
    next = deferred->next;
    deferred->error = deferred->maker(self, &deferred->args, &deferred->made);
    deferred->next = made;
    made = deferred;
  }
  return made;
}

void coll_loom_deferred_follow(struct coll_loom_deferred* made) {
  while (made != NULL) {
    struct coll_loom_deferred* const deferred = made;
    made = deferred->next;
    coll_loom_wrapper_follow(&deferred->super, deferred->made, deferred->error);
  }
}
