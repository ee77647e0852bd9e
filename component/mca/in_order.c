#include "component/mca/in_order.h"

#include "component/mca/fallback.h"

enum { TILE_BYTES = 256 * 1024 };

bool coll_loom_wants_order(const struct coll_loom_module* self, enum loom_type type) {
  return coll_loom_variables.reproducible && !self->orders_differ && loom_depends_on_order(type);
}

struct coll_loom_part coll_loom_part_of(struct coll_loom_module* self, const struct coll_loom_args* args) {
  const int rank = ompi_comm_rank(self->communicator), ranks = ompi_comm_size(self->communicator);
  const size_t n = args->in.count;
  const bool has_result =
      loom_is_significant(loom_significance_of(args->collective), LOOM_OUT, loom_role_of(rank, args->root));
  switch (args->collective) {
    case LOOM_REDUCE:
      return (struct coll_loom_part){ranks, n, 0, has_result ? n : 0};
    case LOOM_REDUCE_SCATTER_BLOCK:
      return (struct coll_loom_part){ranks, (size_t)ranks * n, (size_t)rank * n, n};
    case LOOM_REDUCE_SCATTER: {
      struct coll_loom_part part = {.operands = ranks};
      for (int of = 0; of < ranks; ++of) {
        if (of == rank) part.first = part.total;
        part.total += coll_loom_count_at(args->in.counts, (size_t)of);
      }
      part.count = coll_loom_count_at(args->in.counts, (size_t)rank);
      return part;
    }
    case LOOM_SCAN:
      return (struct coll_loom_part){rank + 1, n, 0, n};
    case LOOM_EXSCAN:
      return (struct coll_loom_part){rank, n, 0, has_result ? n : 0};
    default:
      return (struct coll_loom_part){ranks, n, 0, n};
  }
}

void coll_loom_reduce_operands(const void* operands, int n, size_t count, size_t elem, enum loom_op op,
                               enum loom_type type, void* out) {
  if (n == 1)
    memcpy(out, operands, count * elem);
  else
    loom_reduce_in_order(operands, n, count, type, op, out);
}

int coll_loom_in_order(struct coll_loom_module* self, const struct coll_loom_args* args, enum loom_op op,
                       enum loom_type type) {
  const struct coll_loom_part part = coll_loom_part_of(self, args);
  const char* const in = args->in.buffer == MPI_IN_PLACE ? args->out.buffer : args->in.buffer;
  struct ompi_datatype_t* const datatype = args->in.type;
  const size_t ranks = (size_t)ompi_comm_size(self->communicator);
  const size_t elem = coll_loom_element_bytes(datatype), tile = TILE_BYTES / elem;
  char* const operands = malloc((ranks + 2) * tile * elem);
  if (operands == NULL) return MPI_ERR_NO_MEM;
  char* const mine = operands + ranks * tile * elem; /* a copy: in place, results overwrite `in` */
  char* const result = mine + tile * elem;
  int error = MPI_SUCCESS;
  for (size_t at = 0; at < part.total && error == MPI_SUCCESS; at += tile) {
    const size_t length = part.total - at < tile ? part.total - at : tile;
    memcpy(mine, in + at * elem, length * elem);
    error = coll_loom_fallback_allgather(mine, (coll_loom_count_t)length, datatype, operands,
                                         (coll_loom_count_t)length, datatype, self->communicator, self);
    if (error != MPI_SUCCESS) break;
    /* The part of this tile that this rank needs. */
    const size_t from = at > part.first ? at : part.first;
    const size_t part_end = part.first + part.count, end = at + length < part_end ? at + length : part_end;
    if (from >= end) continue;
    coll_loom_reduce_operands(operands, part.operands, length, elem, op, type, result);
    memcpy((char*)args->out.buffer + (from - part.first) * elem, result + (from - at) * elem,
           (end - from) * elem);
  }
  free(operands);
  return error;
}
