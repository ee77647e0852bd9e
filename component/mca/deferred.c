#include "component/mca/deferred.h"

#include "component/mca/wrapper_request.h"

struct coll_loom_deferred {
  struct coll_loom_wrapper super;
  struct coll_loom_args args;
  void* arrays; /* of v and w forms, copied: bindings (Fortran, mpi4py) may free theirs soon */
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

/* Whether this side's arrays are significant on this rank. */
static bool reads_arrays(struct coll_loom_module* self, const struct coll_loom_args* args,
                         enum loom_side side) {
  const struct loom_significance* const row = loom_significance_of(args->collective);
  const loom_role role = loom_role_of(ompi_comm_rank(self->communicator), args->root);
  const bool in_place = coll_loom_side_of(args, side)->buffer == MPI_IN_PLACE;
  return loom_arrays_of(row, side, role, in_place) != 0;
}

enum { ARRAY_ELEMENT_BYTES = 8 };

static void keep_arrays(struct coll_loom_side* side, size_t ranks, char** room) {
  if (side->counts != COLL_LOOM_NO_COUNTS) side->counts = coll_loom_copy_counts(*room, side->counts, ranks);
  *room += ranks * ARRAY_ELEMENT_BYTES;
  if (side->disps != COLL_LOOM_NO_DISPS) side->disps = coll_loom_copy_disps(*room, side->disps, ranks);
  *room += ranks * ARRAY_ELEMENT_BYTES;
  if (side->types != NULL) side->types = memcpy(*room, side->types, ranks * sizeof *side->types);
  *room += ranks * ARRAY_ELEMENT_BYTES;
}

/* False: there is no memory for the copies. */
static bool keep_all_arrays(struct coll_loom_deferred* deferred, struct coll_loom_module* self) {
  const size_t ranks = (size_t)ompi_comm_size(self->communicator);
  struct coll_loom_args* const args = &deferred->args;
  const bool in = reads_arrays(self, args, LOOM_IN), out = reads_arrays(self, args, LOOM_OUT);
  if (!in && !out) return true;
  char* room = deferred->arrays = malloc(6 * ranks * ARRAY_ELEMENT_BYTES);
  if (room == NULL) return false;
  if (in) keep_arrays(&args->in, ranks, &room);
  if (out) keep_arrays(&args->out, ranks, &room);
  return true;
}

struct coll_loom_deferred* coll_loom_deferred_create(struct coll_loom_module* self,
                                                     const struct coll_loom_args* args,
                                                     coll_loom_maker_t maker) {
  coll_loom_deferred_t* deferred = OBJ_NEW(coll_loom_deferred_t);
  if (deferred == NULL) return NULL;
  deferred->args = *args;
  deferred->maker = maker;
  if (!keep_all_arrays(deferred, self)) {
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
