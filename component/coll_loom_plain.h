/* The shorter way of blocking calls on contiguous buffers of predefined types, once the ranks of the one host
 * have met. Whether a call takes it may differ from rank to rank: the core decides alike either way. */
#ifndef LOOM_COMPONENT_COLL_LOOM_PLAIN_H
#define LOOM_COMPONENT_COLL_LOOM_PLAIN_H

#include "component/coll_loom.h"
#include "component/coll_loom_kernels.h"

enum { COLL_LOOM_NOT_PLAIN = LOOM_UNCONNECTED + 1 }; /* beside what the core returns */

static inline __attribute__((always_inline)) bool coll_loom_plain_bytes(const struct coll_loom_side* side,
                                                                        uint64_t* bytes) {
  enum { PLAIN = OPAL_DATATYPE_FLAG_PREDEFINED | OPAL_DATATYPE_FLAG_CONTIGUOUS | OPAL_DATATYPE_FLAG_NO_GAPS };
  if (side->buffer == MPI_IN_PLACE) return false; /* its type means nothing */
  const opal_datatype_t* const type = &side->type->super;
  *bytes = side->count * type->size;
  return (type->flags & PLAIN) == PLAIN && *bytes > 0;
}

/* Performs the call; COLL_LOOM_NOT_PLAIN: it needs the longer way. Inlined where args->collective is known
 * and args is nothing but names for parameters. */
static inline __attribute__((always_inline)) int coll_loom_plain(const struct coll_loom_module* self,
                                                                 const struct coll_loom_args* args) {
  /* Acquire: another thread's progress may have connected the ranks. */
  if (OPAL_UNLIKELY(__atomic_load_n(&self->state, __ATOMIC_ACQUIRE) != COLL_LOOM_READY || !self->one_host ||
                    coll_loom_variables.check))
    return COLL_LOOM_NOT_PLAIN;
  const void* in = args->in.buffer;
  uint64_t count = 0, in_bytes;
  enum loom_op op = LOOM_SUM;
  enum loom_type type = LOOM_UINT8;
  switch (args->collective) {
    case LOOM_BARRIER:
      break;
    case LOOM_BCAST:
      if (!coll_loom_plain_bytes(&args->in, &count)) return COLL_LOOM_NOT_PLAIN;
      break;
    case LOOM_ALLGATHER:
    case LOOM_ALLTOALL:
      if (!coll_loom_plain_bytes(&args->in, &in_bytes) || !coll_loom_plain_bytes(&args->out, &count))
        return COLL_LOOM_NOT_PLAIN;
      break;
    case LOOM_ALLREDUCE:
    case LOOM_REDUCE:
    case LOOM_REDUCE_SCATTER_BLOCK:
      if (in == MPI_IN_PLACE) in = args->out.buffer;
      count = args->in.count;
      if (count == 0 || !coll_loom_kernel(args->op, args->in.type, &op, &type)) return COLL_LOOM_NOT_PLAIN;
      break;
    default:
      return COLL_LOOM_NOT_PLAIN;
  }
  return loom_perform_plain(self->comm, args->collective, in, args->out.buffer, count, type, op, args->root);
}

#endif
