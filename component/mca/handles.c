#include "component/mca/handles.h"

static void keep(struct coll_loom_handles* handles, struct ompi_datatype_t* type) {
  if (type == NULL || ompi_datatype_is_predefined(type)) return;
  OBJ_RETAIN(type);
  handles->types[handles->number++] = type;
}

/* The type is that of both sides, in place too. */
static void keep_reduction(struct coll_loom_handles* handles, const struct coll_loom_args* args) {
  keep(handles, args->in.type);
  if (handles->op != NULL || ompi_op_is_intrinsic(args->op)) return;
  handles->op = args->op;
  OBJ_RETAIN(handles->op);
}

struct coll_loom_handles coll_loom_handles_keep(ompi_communicator_t* communicator,
                                                const struct coll_loom_args* args) {
  const struct loom_significance* const row = loom_significance_of(args->collective);
  const loom_role role = coll_loom_role_of(communicator, args->root);
  struct coll_loom_handles handles = {0};
  int each[LOOM_SIDE_COUNT];
  coll_loom_peers_of(communicator, args->collective, each);
  handles.types =
      malloc(((size_t)each[LOOM_IN] + (size_t)each[LOOM_OUT] + LOOM_SIDE_COUNT) * sizeof *handles.types);
  if (handles.types == NULL) return handles;
  for (enum loom_side which = LOOM_IN; which < LOOM_SIDE_COUNT; ++which) {
    const struct coll_loom_side* const side = coll_loom_side_of(args, which);
    const int blocks = loom_blocks_of(row, which, role, each[which]);
    if (blocks == 0) continue;
    if (loom_reduces(args->collective))
      keep_reduction(&handles, args);
    else if (side->buffer == MPI_IN_PLACE)
      continue;
    else if (side->types == NULL)
      keep(&handles, side->type);
    else
      for (int block = 0; block < blocks; ++block) keep(&handles, side->types[block]);
  }
  if (handles.number == 0) {
    free(handles.types);
    handles.types = NULL;
  }
  return handles;
}

void coll_loom_handles_let_go(struct coll_loom_handles* handles) {
  for (size_t i = 0; i < handles->number; ++i) OBJ_RELEASE(handles->types[i]);
  free(handles->types);
  if (handles->op != NULL) OBJ_RELEASE(handles->op);
  *handles = (struct coll_loom_handles){0};
}
