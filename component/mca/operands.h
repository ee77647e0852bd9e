/* The buffers of a call as the core wants them. Contiguous ones are used where they lie; what has packer is
 * packed and unpacked by Open MPI's convertors, piece by piece while the call goes on. Which it is differs
 * from rank to rank. */
#ifndef LOOM_COMPONENT_MCA_OPERANDS_H
#define LOOM_COMPONENT_MCA_OPERANDS_H

#include "component/mca/calls.h"
#include "opal/datatype/opal_convertor.h"

/* Where a block with packer has come to. Convertors pack whole elements only: the rest of one that a piece
 * has cut is deferred until the next piece. */
struct coll_loom_cursor {
  opal_convertor_t convertor;
  char* address;
  size_t count;
  struct ompi_datatype_t* type;
  bool packs;
  unsigned deferred, taken;
  char element[64]; /* the largest basic type has 32 bytes */
};

/* One side's blocks, if they have packer. */
struct coll_loom_gapped {
  struct loom_packer packer;
  struct coll_loom_cursor* cursors;
  int blocks; /* 0: contiguous */
};

/* What a call's buffers need besides themselves. All zero at first; kept from call to call. */
struct coll_loom_operands {
  void* memory;
  size_t room, used;
  struct coll_loom_gapped in, out;
  bool cuts; /* this rank has less room for each block than it sends itself: what does not fit is left out */
};

/* A side's blocks, from `first` on. */
struct coll_loom_blocks {
  const struct coll_loom_side* side;
  int first, number;
};

/* One block: `count` elements of `type` at `address`, its bytes when packed, and whether it lies in one
 * piece. */
struct coll_loom_piece {
  char* address;
  size_t count, bytes;
  struct ompi_datatype_t* type;
  bool contiguous;
};
struct coll_loom_piece coll_loom_piece_of(const struct coll_loom_blocks* blocks, int block);

/* Where the data of a move lies on this rank, of each side: in place, on the other one. each: the blocks of a
 * side that has one for each peer. Returns whether a side is in place. */
bool coll_loom_find_blocks(const struct coll_loom_args* args, const struct loom_significance* row,
                           loom_role role, int rank, const int each[LOOM_SIDE_COUNT],
                           struct coll_loom_blocks blocks[LOOM_SIDE_COUNT]);

/* Describes args in *call, which refers to *operands from then on. LOOM_SUCCESS or LOOM_ERR_OUT_OF_MEMORY. */
int coll_loom_operands_make(struct coll_loom_operands* operands, ompi_communicator_t* communicator,
                            const struct coll_loom_args* args, enum loom_op op, enum loom_type type,
                            struct loom_call* call);
void coll_loom_operands_free(struct coll_loom_operands* operands);

/* Before and after each time that the call is performed. */
void coll_loom_cursors_begin(struct coll_loom_gapped* gapped);
void coll_loom_cursors_end(struct coll_loom_gapped* gapped);
static inline void coll_loom_operands_begin(struct coll_loom_operands* operands) {
  if (OPAL_UNLIKELY(operands->in.blocks > 0)) coll_loom_cursors_begin(&operands->in);
  if (OPAL_UNLIKELY(operands->out.blocks > 0)) coll_loom_cursors_begin(&operands->out);
}
/* Returns what has become of the call, which the core has performed with `result`. */
static inline int coll_loom_operands_end(struct coll_loom_operands* operands, int result) {
  if (OPAL_UNLIKELY(operands->in.blocks > 0)) coll_loom_cursors_end(&operands->in);
  if (OPAL_UNLIKELY(operands->out.blocks > 0)) coll_loom_cursors_end(&operands->out);
  return OPAL_UNLIKELY(operands->cuts) && result == LOOM_SUCCESS ? LOOM_TRUNCATED : result;
}

#endif
