/* The shorter way of blocking calls on contiguous buffers of predefined types, once the ranks of the one host
 * have met. Whether a call takes it may differ from rank to rank: the core decides alike either way. */
#ifndef LOOM_COMPONENT_COLL_LOOM_PLAIN_H
#define LOOM_COMPONENT_COLL_LOOM_PLAIN_H

#include "component/coll_loom.h"
#include "component/coll_loom_kernels.h"

static inline bool coll_loom_plain_bytes(const struct coll_loom_side* side, uint64_t* bytes) {
  enum { PLAIN = OPAL_DATATYPE_FLAG_PREDEFINED | OPAL_DATATYPE_FLAG_CONTIGUOUS | OPAL_DATATYPE_FLAG_NO_GAPS };
  if (side->buffer == MPI_IN_PLACE) return false; /* its type means nothing */
  const opal_datatype_t* const type = &side->type->super;
  *bytes = side->count * type->size;
  return (type->flags & PLAIN) == PLAIN && *bytes > 0;
}

/* Describes the call for loom_perform; false: it needs the longer way. args->collective is known to the
 * compiler. */
static inline bool coll_loom_plain(const struct coll_loom_module* self, const struct coll_loom_args* args,
                                   struct loom_call* call) {
  if (OPAL_UNLIKELY(self->state != COLL_LOOM_READY || !self->one_host || coll_loom_variables.check))
    return false;
  *call = (struct loom_call){.collective = args->collective, .type = LOOM_UINT8, .root = args->root};
  call->in = args->in.buffer;
  call->out = args->out.buffer;
  uint64_t in_bytes;
  switch (args->collective) {
    case LOOM_BARRIER:
      return true;
    case LOOM_BCAST:
      return coll_loom_plain_bytes(&args->in, &call->count);
    case LOOM_ALLGATHER:
    case LOOM_ALLTOALL:
      return coll_loom_plain_bytes(&args->in, &in_bytes) && coll_loom_plain_bytes(&args->out, &call->count);
    case LOOM_REDUCE:
    case LOOM_REDUCE_SCATTER_BLOCK:
      if (call->in == MPI_IN_PLACE) call->in = call->out;
      call->count = args->in.count;
      return call->count > 0 && coll_loom_kernel(args->op, args->in.type, &call->op, &call->type);
    default:
      return false;
  }
}

#endif
