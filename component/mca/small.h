/* The fast paths of small calls, in whose time every instruction shows: blocking calls on contiguous buffers
 * of predefined types, once the ranks of one host are connected. Ranks of one call may differ in whether they
 * use one: loom_perform chooses the same algorithm. */
#ifndef LOOM_COMPONENT_MCA_SMALL_H
#define LOOM_COMPONENT_MCA_SMALL_H

#include "component/mca/coll_loom.h"
#include "component/mca/kernels.h"

static inline __attribute__((always_inline)) bool coll_loom_plain_bytes(const struct coll_loom_side* side,
                                                                        uint64_t* bytes) {
  enum { PLAIN = OPAL_DATATYPE_FLAG_PREDEFINED | OPAL_DATATYPE_FLAG_CONTIGUOUS | OPAL_DATATYPE_FLAG_NO_GAPS };
  if (side->buffer == MPI_IN_PLACE) return false; /* its type means nothing */
  const opal_datatype_t* const type = &side->type->super;
  *bytes = side->count * type->size;
  return (type->flags & PLAIN) == PLAIN && *bytes > 0;
}

/* False: the call needs a slower path. middle: of calls that are not small. Inlined where args->collective is
 * a constant, so that args stays in registers. */
static inline __attribute__((always_inline)) bool coll_loom_perform_fast(const struct coll_loom_module* self,
                                                                         const struct coll_loom_args* args,
                                                                         bool middle, int* result) {
  /* Acquire: another thread's progress may have connected the ranks. */
  if (OPAL_UNLIKELY(__atomic_load_n(&self->state, __ATOMIC_ACQUIRE) != COLL_LOOM_READY ||
                    coll_loom_variables.check))
    return false;
  const void* in = args->in.buffer;
  uint64_t count = 0, in_bytes, offered;
  enum loom_op op = LOOM_SUM;
  enum loom_type type = LOOM_UINT8;
  switch (args->collective) {
    case LOOM_BARRIER:
      break;
    case LOOM_BCAST:
      if (!coll_loom_plain_bytes(&args->in, &count)) return false;
      break;
    case LOOM_ALLGATHER:
    case LOOM_ALLTOALL:
      if (!coll_loom_plain_bytes(&args->in, &in_bytes) || !coll_loom_plain_bytes(&args->out, &count) ||
          OPAL_UNLIKELY(in_bytes != count))
        return false;
      break;
    case LOOM_ALLREDUCE:
    case LOOM_REDUCE:
    case LOOM_REDUCE_SCATTER_BLOCK:
      if (in == MPI_IN_PLACE) in = args->out.buffer;
      count = args->in.count;
      if (count == 0 || !coll_loom_kernel(args->op, args->in.type, &op, &type)) return false;
      break;
    default:
      return false;
  }
  offered = count;
  if (args->collective <= LOOM_REDUCE_SCATTER_BLOCK) offered *= coll_loom_bytes_of(args->in.type);
  if (args->collective == LOOM_REDUCE_SCATTER_BLOCK || args->collective == LOOM_ALLTOALL)
    offered *= (uint64_t)ompi_comm_size(self->communicator);
  const uint64_t* const below = middle ? self->fast_below->middle : self->fast_below->small;
  if (offered >= __atomic_load_n(&below[args->collective], __ATOMIC_RELAXED)) return false;
  const struct loom_kind kind = {
      .collective = args->collective, .type = (uint8_t)type, .op = (uint8_t)op, .root = args->root};
  *result = middle ? loom_perform_middle(self->comm, in, args->out.buffer, count, kind)
                   : loom_perform_small(self->comm, in, args->out.buffer, count, kind);
  return !middle || *result != LOOM_DECLINED;
}

#endif
