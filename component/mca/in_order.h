/* coll_loom_reproducible: reductions of floating-point numbers in order of rank, for all hosts, sizes and
 * algorithms. Every rank gets all operands through the fallback component and reduces them itself: (n-1) S
 * bytes in and out of each rank instead of 2 (n-1)/n S. loom's own reductions on one host are in order of
 * rank anyway.
 *
 * Includes coll_loom.h downwards, fallback.h and wrapper_request.h in its code. */
#ifndef LOOM_COMPONENT_MCA_IN_ORDER_H
#define LOOM_COMPONENT_MCA_IN_ORDER_H

#include "component/mca/coll_loom.h"

/* The same on all ranks once they are connected, or have failed to be. */
bool coll_loom_wants_order(const struct coll_loom_module* self, enum loom_type type);
/* The same of a call that would fall back. */
static inline bool coll_loom_is_to_be_in_order(const struct coll_loom_module* self,
                                               const struct coll_loom_args* args, enum loom_type type) {
  return loom_reduces(args->collective) && coll_loom_wants_order(self, type);
}
/* Gathers the operands of a reduction from all ranks and reduces them in order of rank. Returns an MPI error
 * class. */
int coll_loom_in_order(struct coll_loom_module* self, const struct coll_loom_args* args, enum loom_op op,
                       enum loom_type type);
/* in_order_request.c: the same for a call that does not wait. A persistent one is not started. */
int coll_loom_make_in_order_request(struct coll_loom_module* self, const struct coll_loom_args* args,
                                    enum loom_op op, enum loom_type type, bool persistent,
                                    ompi_request_t** request);

/* What a rank computes from operands of `total` elements: elements [first, first + count), reduced over the
 * first `operands` ranks. */
struct coll_loom_part {
  int operands;
  size_t total, first, count;
};
struct coll_loom_part coll_loom_part_of(struct coll_loom_module* self, const struct coll_loom_args* args);

/* type: a predefined one. */
static inline size_t coll_loom_element_bytes(const struct ompi_datatype_t* type) {
  return (size_t)(type->super.ub - type->super.lb);
}

/* Reduces n >= 1 operands that lie one behind the other. */
void coll_loom_reduce_operands(const void* operands, int n, size_t count, size_t elem, enum loom_op op,
                               enum loom_type type, void* out);

#endif
