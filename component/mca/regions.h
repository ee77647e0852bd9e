/* Which bytes a rank reads and writes in a call: the blocks that are significant on it, and the regions of
 * memory that these are. Includes operands.h downwards; staging.c copies what is on a device. */
#ifndef LOOM_COMPONENT_MCA_REGIONS_H
#define LOOM_COMPONENT_MCA_REGIONS_H

#include "component/mca/operands.h"

/* The blocks of each side's buffer that this rank reads, and those that it writes. A reduction has sides of
 * one block. */
struct coll_loom_significant {
  struct coll_loom_side operand, result;
  struct coll_loom_blocks load[LOOM_SIDE_COUNT], store[LOOM_SIDE_COUNT];
};

/* All zero at first. `list` is from malloc. */
struct coll_loom_regions {
  struct loom_strided_region* list;
  size_t number, room;
  bool failed; /* there was no memory */
};

/* Reads only arguments that are significant on this rank. *of refers to *args. which: enum loom_collective or
 * loom_staged_only. */
void coll_loom_find_significant(ompi_communicator_t* communicator, int which,
                                const struct coll_loom_args* args, struct coll_loom_significant* of);

void coll_loom_add_blocks(struct coll_loom_regions* regions, const struct coll_loom_blocks* blocks);
/* loom_packer.list_rows of a coll_loom_packing. */
bool coll_loom_list_rows(void* packing, size_t most, struct loom_packed_rows** list, size_t* number);
/* Of a call that may stay on a device. */
static inline void coll_loom_let_list_rows(struct coll_loom_operands* operands) {
  operands->in.packer.list_rows = operands->out.packer.list_rows = coll_loom_list_rows;
}
/* The first byte of the first block that has any, or NULL. */
const char* coll_loom_first_byte(const struct coll_loom_blocks* blocks);

#endif
