/* Maps MPI's predefined operations and types to those that loom has kernels for: two table lookups per call.
 *
 * Ranks of one call may name one type differently (MPI_LONG, MPI_INT64_T, MPI_INTEGER8): these have the same
 * representation and the same entry. Other types only look alike; the table keeps them apart as the MPI
 * standard does and Open MPI's own type numbers do not: MPI_CHAR is no integer, MPI_BYTE has only bitwise
 * operations, MPI_C_BOOL only logical ones. */
#ifndef LOOM_COMPONENT_MCA_KERNELS_H
#define LOOM_COMPONENT_MCA_KERNELS_H

#include "component/core.h"
#include "component/mca/ompi_compat.h"

struct coll_loom_type {
  uint16_t ops;  /* bit 1 << op for each enum loom_op that the type takes; 0: not a type of loom's */
  uint8_t type;  /* enum loom_type */
  uint8_t bytes; /* from one element to the next */
};

/* Both tables are indexed by Fortran handle. The handles of predefined objects are small, fixed and never
 * reused. */
enum { COLL_LOOM_OPS = OMPI_OP_BASE_FORTRAN_MINLOC + 1, COLL_LOOM_TYPES = 128 };
/* enum loom_op, or LOOM_OP_COUNT, a bit that no type has. */
extern const uint8_t coll_loom_ops[COLL_LOOM_OPS];
extern struct coll_loom_type coll_loom_types[COLL_LOOM_TYPES];

/* Fills the table of types. Open MPI must have initialised its types already. */
void coll_loom_kernels_init(void);

static inline bool coll_loom_kernel(const struct ompi_op_t* ompi_op, const struct ompi_datatype_t* datatype,
                                    enum loom_op* op, enum loom_type* type) {
  const unsigned op_index = (unsigned)ompi_op->o_f_to_c_index;
  const unsigned type_index = (unsigned)datatype->d_f_to_c_index;
  if (op_index >= COLL_LOOM_OPS || type_index >= COLL_LOOM_TYPES) return false;
  *op = (enum loom_op)coll_loom_ops[op_index];
  *type = (enum loom_type)coll_loom_types[type_index].type;
  return coll_loom_types[type_index].ops >> *op & 1;
}

/* datatype: one that coll_loom_kernel knows. */
static inline uint64_t coll_loom_bytes_of(const struct ompi_datatype_t* datatype) {
  return coll_loom_types[datatype->d_f_to_c_index].bytes;
}

#endif
