/* Reductions in order of rank between hosts. */
#ifndef LOOM_COMPONENT_MCA_IN_ORDER_H
#define LOOM_COMPONENT_MCA_IN_ORDER_H

#include "component/mca/coll_loom.h"

/* What a rank makes of the operands of `total` elements: elements [first, first + count) over the first
 * ranks. */
struct coll_loom_part {
  int operands;
  size_t total, first, count;
};
struct coll_loom_part coll_loom_part_of(struct coll_loom_module* self, const struct coll_loom_args* args);

/* Of a predefined type. */
static inline size_t coll_loom_element_bytes(const struct ompi_datatype_t* type) {
  return (size_t)(type->super.ub - type->super.lb);
}

/* Over n >= 1 operands that lie one behind the other. */
void coll_loom_reduce_operands(const void* operands, int n, size_t count, size_t elem, enum loom_op op,
                               enum loom_type type, void* out);

#endif
