/* coll_loom_reproducible on several hosts: sums and products of floating point numbers in order of rank,
 * whatever the hosts, the sizes and the algorithms. Every rank gets every operand from the component below
 * and reduces them itself: (n-1) S bytes in and out of each rank instead of 2 (n-1)/n S. On one host loom
 * reduces in order of rank anyway. */
#include "component/coll_loom.h"

enum { TILE_BYTES = 256 * 1024 };

bool coll_loom_wants_order(const struct coll_loom_module* self, enum loom_op op, enum loom_type type) {
  return coll_loom_variables.reproducible && !self->one_host && loom_depends_on_order(op, type);
}

int coll_loom_in_order(struct coll_loom_module* self, const void* in, void* out, size_t total, size_t first,
                       size_t count, struct ompi_datatype_t* datatype, enum loom_op op, enum loom_type type) {
  const int ranks = ompi_comm_size(self->communicator);
  const size_t elem = (size_t)(datatype->super.ub - datatype->super.lb);
  const size_t tile = TILE_BYTES / elem;
  char* const operands = malloc(((size_t)ranks + 2) * tile * elem);
  if (operands == NULL) return MPI_ERR_NO_MEM;
  char* const mine = operands + (size_t)ranks * tile * elem; /* in place, `in` is overwritten by results */
  char* const result = mine + tile * elem;
  int error = MPI_SUCCESS;
  for (size_t at = 0; at < total && error == MPI_SUCCESS; at += tile) {
    const size_t length = total - at < tile ? total - at : tile;
    memcpy(mine, (const char*)in + at * elem, length * elem);
    error = coll_loom_below_allgather(mine, (coll_loom_count_t)length, datatype, operands,
                                      (coll_loom_count_t)length, datatype, self->communicator, self);
    if (error != MPI_SUCCESS) break;
    loom_reduce_in_order(operands, ranks, length, type, op, result);
    /* What of this tile is wanted. */
    const size_t from = at > first ? at : first,
                 end = at + length < first + count ? at + length : first + count;
    if (from < end)
      memcpy((char*)out + (from - first) * elem, result + (from - at) * elem, (end - from) * elem);
  }
  free(operands);
  return error;
}
