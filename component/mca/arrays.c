#include "component/mca/arrays.h"

#include "ompi/mca/topo/base/base.h"

loom_role coll_loom_role_of(ompi_communicator_t* communicator, int root) {
  return OMPI_COMM_IS_INTER(communicator) ? loom_role_between_groups(root == MPI_ROOT, root >= 0)
                                          : loom_role_of(ompi_comm_rank(communicator), root);
}

void coll_loom_peers_of(ompi_communicator_t* communicator, int which, int each[LOOM_SIDE_COUNT]) {
  if (coll_loom_is_of_neighbours(which)) {
    mca_topo_base_neighbor_count(communicator, &each[LOOM_OUT], &each[LOOM_IN]);
    return;
  }
  /* Between two groups, each reduces for the other, in shares of its own ranks. */
  each[LOOM_IN] = each[LOOM_OUT] = OMPI_COMM_IS_INTER(communicator) && !loom_reduces(which)
                                       ? ompi_comm_remote_size(communicator)
                                       : ompi_comm_size(communicator);
}

enum { ARRAY_ELEMENT_BYTES = 8, ARRAYS_OF_SIDE = 3 };

static char* keep_arrays_of(struct coll_loom_side* side, size_t n, char* room) {
  const size_t array_bytes = n * ARRAY_ELEMENT_BYTES;
  char *const counts = room, *const disps = room + array_bytes, *const types = room + 2 * array_bytes;
  if (side->counts != COLL_LOOM_NO_COUNTS) side->counts = coll_loom_copy_counts(counts, side->counts, n);
  if (side->disps != COLL_LOOM_NO_DISPS) side->disps = coll_loom_copy_disps(disps, side->disps, n);
  if (side->byte_disps != COLL_LOOM_NO_BYTE_DISPS)
    side->byte_disps = coll_loom_copy_byte_disps(disps, side->byte_disps, n);
  if (side->types != NULL) side->types = memcpy(types, side->types, n * sizeof *side->types);
  return room + ARRAYS_OF_SIDE * array_bytes;
}

bool coll_loom_keep_arrays(ompi_communicator_t* communicator, struct coll_loom_args* args, void** memory) {
  const struct loom_significance* const row = loom_significance_of(args->collective);
  const loom_role role = coll_loom_role_of(communicator, args->root);
  struct coll_loom_side* const sides[LOOM_SIDE_COUNT] = {&args->in, &args->out};
  bool reads[LOOM_SIDE_COUNT];
  size_t elements = 0;
  int each[LOOM_SIDE_COUNT];
  *memory = NULL;
  for (int side = 0; side < LOOM_SIDE_COUNT; ++side)
    reads[side] = loom_arrays_of(row, (enum loom_side)side, role, sides[side]->buffer == MPI_IN_PLACE) != 0;
  if (!reads[LOOM_IN] && !reads[LOOM_OUT]) return true;
  coll_loom_peers_of(communicator, args->collective, each);
  for (int side = 0; side < LOOM_SIDE_COUNT; ++side)
    if (reads[side]) elements += ARRAYS_OF_SIDE * (size_t)each[side];
  char* room = *memory = malloc(elements * ARRAY_ELEMENT_BYTES + 1);
  if (room == NULL) return false;
  for (int side = 0; side < LOOM_SIDE_COUNT; ++side)
    if (reads[side]) room = keep_arrays_of(sides[side], (size_t)each[side], room);
  return true;
}
