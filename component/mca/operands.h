/* The buffers of a call as the core needs them. Contiguous buffers are used where they lie. Open MPI's
 * convertors pack and unpack the others, piece by piece during the call. Ranks may differ in which kind they
 * have. */
#ifndef LOOM_COMPONENT_MCA_OPERANDS_H
#define LOOM_COMPONENT_MCA_OPERANDS_H

#include "component/mca/calls.h"
#include "opal/datatype/opal_convertor.h"

/* The position in a non-contiguous block. Convertors pack only whole elements: if a piece ends inside one,
 * its rest is kept for the next piece. */
struct coll_loom_cursor {
  opal_convertor_t convertor;
  char* address;
  size_t count;
  struct ompi_datatype_t* type;
  bool packs;
  bool goes_by_pieces;   /* where the bytes lie comes from Open MPI; its convertor does not move them */
  unsigned kept, taken;  /* of one that packs: bytes of `element` */
  unsigned pieces, next; /* of one that goes by pieces: how many there are, and the one that is next */
  bool has_all_pieces;   /* there are no further ones */
  union {
    char element[64]; /* the largest basic type has 32 bytes */
    struct iovec piece[4];
  };
};

/* One side's blocks, if they are not contiguous. */
struct coll_loom_packing {
  struct loom_packer packer;
  struct coll_loom_cursor* cursors;
  int blocks; /* 0: contiguous */
};

/* What a call's buffers need in addition. All zero at first; reused by later calls. */
struct coll_loom_operands {
  void* memory;
  size_t room, used;
  struct coll_loom_packing in, out;
  bool cuts; /* this rank has less room for a block than it sends itself: the data that do not fit are lost */
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
/* All bytes of a block, one after the other. */
void coll_loom_pack(const struct coll_loom_piece* piece, char* packed);

/* Where the data of each side of a move lies on this rank; if a side is in place, on the other side. each:
 * the blocks of a side that has one for each peer. Returns whether a side is in place. */
bool coll_loom_find_blocks(const struct coll_loom_args* args, const struct loom_significance* row,
                           loom_role role, int rank, const int each[LOOM_SIDE_COUNT],
                           struct coll_loom_blocks blocks[LOOM_SIDE_COUNT]);

/* Describes args in *call, which refers to *operands from then on. LOOM_SUCCESS or LOOM_ERR_OUT_OF_MEMORY. */
int coll_loom_operands_make(struct coll_loom_operands* operands, ompi_communicator_t* communicator,
                            const struct coll_loom_args* args, enum loom_op op, enum loom_type type,
                            struct loom_call* call);
void coll_loom_operands_free(struct coll_loom_operands* operands);

/* Before and after each time the call is performed. */
void coll_loom_cursors_begin(struct coll_loom_packing* packing);
void coll_loom_cursors_end(struct coll_loom_packing* packing);
static inline void coll_loom_operands_begin(struct coll_loom_operands* operands) {
  if (OPAL_UNLIKELY(operands->in.blocks > 0)) coll_loom_cursors_begin(&operands->in);
  if (OPAL_UNLIKELY(operands->out.blocks > 0)) coll_loom_cursors_begin(&operands->out);
}
/* result: that of the core. Returns that of the call. */
static inline int coll_loom_operands_end(struct coll_loom_operands* operands, int result) {
  if (OPAL_UNLIKELY(operands->in.blocks > 0)) coll_loom_cursors_end(&operands->in);
  if (OPAL_UNLIKELY(operands->out.blocks > 0)) coll_loom_cursors_end(&operands->out);
  return OPAL_UNLIKELY(operands->cuts) && result == LOOM_SUCCESS ? LOOM_TRUNCATED : result;
}

#endif
