#include "component/mca/operands.h"

static bool is_contiguous(struct ompi_datatype_t* type, size_t count) {
  return ompi_datatype_is_contiguous_memory_layout(type, count > 1 ? 2 : 1);
}

struct coll_loom_piece coll_loom_piece_of(const struct coll_loom_blocks* blocks, int block) {
  const struct coll_loom_side* side = blocks->side;
  const size_t at = (size_t)(blocks->first + block);
  struct coll_loom_piece piece = {.type = side->type, .count = side->count};
  size_t size;
  ptrdiff_t lb, extent;
  if (side->types != NULL) piece.type = side->types[at];
  if (side->counts != COLL_LOOM_NO_COUNTS) piece.count = coll_loom_count_at(side->counts, at);
  if (piece.count == 0) return (struct coll_loom_piece){.type = piece.type, .contiguous = true};
  ompi_datatype_type_size(piece.type, &size);
  ompi_datatype_get_extent(piece.type, &lb, &extent);
  ptrdiff_t offset = (ptrdiff_t)(at * piece.count) * extent;
  if (side->disps != COLL_LOOM_NO_DISPS)
    offset = coll_loom_disp_at(side->disps, at) * (side->types != NULL ? 1 : extent);
  if (side->byte_disps != COLL_LOOM_NO_BYTE_DISPS) offset = coll_loom_byte_disp_at(side->byte_disps, at);
  piece.address = (char*)side->buffer + offset;
  piece.bytes = size * piece.count;
  piece.contiguous = piece.bytes == 0 || is_contiguous(piece.type, piece.count);
  return piece;
}

/* Where the bytes of a contiguous piece begin. */
static char* data_of(const struct coll_loom_piece* piece) {
  return piece->bytes == 0 ? piece->address : piece->address + piece->type->super.true_lb;
}

/* Where data end within an element of a basic type, Open MPI's unpacking keeps the beginning of it in 16
 * bytes, and writes beyond them if the type has more (seen in 4.1.4: long double complex). */
static bool has_long_elements(const struct ompi_datatype_t* type) {
  enum { MOST_KEPT = 16 };
  for (int basic = 0; basic < OPAL_DATATYPE_MAX_PREDEFINED; ++basic)
    if ((type->super.bdt_used >> basic & 1) != 0 && opal_datatype_basicDatatypes[basic]->size > MOST_KEPT)
      return true;
  return false;
}

static bool find_pieces(struct coll_loom_cursor* cursor) {
  if (cursor->has_all_pieces) return false;
  uint32_t pieces = sizeof cursor->piece / sizeof *cursor->piece;
  size_t bytes = 0;
  cursor->has_all_pieces = opal_convertor_raw(&cursor->convertor, cursor->piece, &pieces, &bytes) != 0;
  cursor->pieces = pieces;
  cursor->next = 0;
  return pieces > 0;
}

static void move_by_pieces(struct coll_loom_cursor* cursor, char* packed, uint64_t bytes) {
  while (bytes > 0) {
    if (cursor->next == cursor->pieces && !find_pieces(cursor)) return; /* more than there is, or room for */
    struct iovec* const piece = &cursor->piece[cursor->next];
    const size_t length = bytes < piece->iov_len ? bytes : piece->iov_len;
    if (cursor->packs)
      memcpy(packed, piece->iov_base, length);
    else
      memcpy(piece->iov_base, packed, length);
    packed += length;
    bytes -= length;
    piece->iov_base = (char*)piece->iov_base + length;
    piece->iov_len -= length;
    if (piece->iov_len == 0) ++cursor->next;
  }
}

/* Packs or unpacks the next bytes of a block. */
static void move(void* context, int block, void* packed, uint64_t bytes) {
  struct coll_loom_cursor* cursor = &((struct coll_loom_packing*)context)->cursors[block];
  char* at = packed;
  if (cursor->goes_by_pieces) {
    move_by_pieces(cursor, packed, bytes);
    return;
  }
  while (bytes > 0) {
    if (cursor->kept > 0) {
      const size_t length = bytes < cursor->kept ? bytes : cursor->kept;
      memcpy(at, cursor->element + cursor->taken, length);
      cursor->kept -= (unsigned)length;
      cursor->taken += (unsigned)length;
      at += length;
      bytes -= length;
      continue;
    }
    struct iovec piece = {.iov_base = at, .iov_len = bytes};
    uint32_t pieces = 1;
    size_t converted = bytes;
    if (!cursor->packs) {
      opal_convertor_unpack(&cursor->convertor, &piece, &pieces, &converted);
      return;
    }
    opal_convertor_pack(&cursor->convertor, &piece, &pieces, &converted);
    at += converted;
    bytes -= converted;
    if (bytes == 0) return;
    piece = (struct iovec){.iov_base = cursor->element, .iov_len = sizeof cursor->element};
    pieces = 1;
    converted = sizeof cursor->element;
    opal_convertor_pack(&cursor->convertor, &piece, &pieces, &converted);
    cursor->kept = (unsigned)converted;
    cursor->taken = 0;
    if (converted == 0) return; /* the peer expects more than there is: the program's error */
  }
}

void coll_loom_cursors_begin(struct coll_loom_packing* packing) {
  for (int block = 0; block < packing->blocks; ++block) {
    struct coll_loom_cursor* cursor = &packing->cursors[block];
    cursor->kept = cursor->pieces = cursor->next = 0;
    cursor->has_all_pieces = cursor->count == 0;
    OBJ_CONSTRUCT(&cursor->convertor, opal_convertor_t);
    if (cursor->count == 0) continue;
    if (cursor->packs || cursor->goes_by_pieces)
      opal_convertor_copy_and_prepare_for_send(ompi_mpi_local_convertor, &cursor->type->super, cursor->count,
                                               cursor->address, 0, &cursor->convertor);
    else
      opal_convertor_copy_and_prepare_for_recv(ompi_mpi_local_convertor, &cursor->type->super, cursor->count,
                                               cursor->address, 0, &cursor->convertor);
  }
}

void coll_loom_cursors_end(struct coll_loom_packing* packing) {
  for (int block = 0; block < packing->blocks; ++block) OBJ_DESTRUCT(&packing->cursors[block].convertor);
}

/* Makes room for a call; what was there before is lost. */
static bool make_room(struct coll_loom_operands* operands, size_t bytes) {
  operands->used = 0;
  if (bytes <= operands->room) return true;
  free(operands->memory);
  operands->memory = malloc(bytes);
  operands->room = operands->memory == NULL ? 0 : bytes;
  return operands->memory != NULL;
}
static void* take_room(struct coll_loom_operands* operands, size_t bytes) {
  void* const taken = (char*)operands->memory + operands->used;
  operands->used += (bytes + 15) / 16 * 16;
  return taken;
}

static bool needs_packing(const struct coll_loom_blocks* blocks, bool listed) {
  if (!listed && blocks->number > 0) {
    const struct coll_loom_side* side = blocks->side;
    return !is_contiguous(side->type, side->count * (size_t)blocks->number);
  }
  for (int block = 0; block < blocks->number; ++block)
    if (!coll_loom_piece_of(blocks, block).contiguous) return true;
  return false;
}

static void make_cursor(struct coll_loom_cursor* cursor, const struct coll_loom_piece* piece, bool packs) {
  cursor->address = piece->address;
  cursor->count = piece->bytes == 0 ? 0 : piece->count;
  cursor->type = piece->type;
  cursor->packs = packs;
  cursor->goes_by_pieces =
      COLL_LOOM_CONVERTORS_LOSE_THEIR_PLACE || (!packs && has_long_elements(piece->type));
}

void coll_loom_pack(const struct coll_loom_piece* piece, char* packed) {
  struct coll_loom_cursor cursor;
  struct coll_loom_packing packing = {.cursors = &cursor, .blocks = 1};
  make_cursor(&cursor, piece, true);
  coll_loom_cursors_begin(&packing);
  move(&packing, 0, packed, piece->bytes);
  coll_loom_cursors_end(&packing);
}

static void make_cursors(struct coll_loom_operands* operands, struct coll_loom_packing* packing,
                         const struct coll_loom_blocks* blocks, bool packs) {
  packing->blocks = blocks->number;
  packing->packer = (struct loom_packer){.move = move, .context = packing};
  packing->cursors = take_room(operands, sizeof *packing->cursors * (size_t)blocks->number);
  for (int block = 0; block < blocks->number; ++block) {
    const struct coll_loom_piece piece = coll_loom_piece_of(blocks, block);
    make_cursor(&packing->cursors[block], &piece, packs);
  }
}

/* Returns the bytes of all blocks. */
static uint64_t list_blocks(struct loom_block* list, const struct coll_loom_blocks* blocks) {
  uint64_t bytes = 0;
  for (int block = 0; block < blocks->number; ++block) {
    const struct coll_loom_piece piece = coll_loom_piece_of(blocks, block);
    list[block] = (struct loom_block){.data = data_of(&piece), .bytes = piece.bytes};
    bytes += piece.bytes;
  }
  return bytes;
}

bool coll_loom_find_blocks(const struct coll_loom_args* args, const struct loom_significance* row,
                           loom_role role, int rank, const int each[LOOM_SIDE_COUNT],
                           struct coll_loom_blocks blocks[LOOM_SIDE_COUNT]) {
  for (enum loom_side side = LOOM_IN; side < LOOM_SIDE_COUNT; ++side)
    blocks[side] = (struct coll_loom_blocks){coll_loom_side_of(args, side), 0,
                                             loom_blocks_of(row, side, role, each[side])};
  const enum loom_side side = row->in_place.side;
  if (blocks[side].number == 0 || blocks[side].side->buffer != MPI_IN_PLACE ||
      !loom_may_be_in_place(row, side, role))
    return false;
  blocks[side].side = coll_loom_side_of(args, side == LOOM_IN ? LOOM_OUT : LOOM_IN);
  if (row->in_place.source == LOOM_OWN_BLOCK) blocks[side].first = rank;
  return true;
}

/* Whether the core wants a list of blocks; device/call.h says of which collectives. */
static bool lists_blocks(enum loom_collective collective) {
  return collective >= LOOM_GATHER;
}

static int make_moving(struct coll_loom_operands* operands, const struct coll_loom_args* args, int rank,
                       int ranks, struct loom_call* call) {
  const bool listed = lists_blocks(args->collective);
  struct coll_loom_blocks sides[LOOM_SIDE_COUNT];
  call->owns_its_block =
      coll_loom_find_blocks(args, loom_significance_of(args->collective), loom_role_of(rank, args->root),
                            rank, (const int[]){ranks, ranks}, sides);
  const struct coll_loom_blocks in = sides[LOOM_IN], out = sides[LOOM_OUT];

  struct coll_loom_piece sent = {.bytes = 0}, received = {.bytes = 0};
  if (!listed) {
    sent = coll_loom_piece_of(in.number > 0 ? &in : &out, 0);
    received = coll_loom_piece_of(out.number > 0 ? &out : &in, 0);
  }
  /* If blocks of the two sides differ in size, an error of the program, the size of the sent ones counts:
   * that is what the other ranks see. The cursors know where blocks lie and end. */
  const bool uneven = sent.bytes != received.bytes;
  operands->cuts = uneven && sent.bytes > received.bytes;
  const bool in_packer = needs_packing(&in, listed), out_packer = uneven || needs_packing(&out, listed);
  const size_t all = (size_t)in.number + (size_t)out.number;
  const size_t cursors = (in_packer ? (size_t)in.number : 0) + (out_packer ? (size_t)out.number : 0);
  if (!make_room(operands, (listed ? all * sizeof(struct loom_block) : 0) +
                               cursors * sizeof(struct coll_loom_cursor) + 64))
    return LOOM_ERR_OUT_OF_MEMORY;
  if (in_packer) {
    make_cursors(operands, &operands->in, &in, true);
    call->in_packer = &operands->in.packer;
  }
  if (out_packer) {
    make_cursors(operands, &operands->out, &out, false);
    call->out_packer = &operands->out.packer;
  }
  if (listed) {
    struct loom_block* const in_list = take_room(operands, sizeof *in_list * (size_t)in.number);
    struct loom_block* const out_list = take_room(operands, sizeof *out_list * (size_t)out.number);
    call->count = list_blocks(in_list, &in);
    list_blocks(out_list, &out);
    call->in_blocks = in_list;
    call->out_blocks = out_list;
    return LOOM_SUCCESS;
  }
  call->in = data_of(&sent);
  call->out = data_of(&received);
  call->count = sent.bytes;
  return LOOM_SUCCESS;
}

static int make_reduction(struct coll_loom_operands* operands, const struct coll_loom_args* args, int ranks,
                          struct loom_call* call) {
  call->in = args->in.buffer == MPI_IN_PLACE ? args->out.buffer : args->in.buffer;
  call->out = args->out.buffer;
  call->count = args->in.count;
  if (loom_significance_of(args->collective)->sides[LOOM_IN].arrays == 0) return LOOM_SUCCESS;
  if (!make_room(operands, ((size_t)ranks + 1) * sizeof(uint64_t))) return LOOM_ERR_OUT_OF_MEMORY;
  uint64_t* const bounds = operands->memory;
  bounds[0] = 0;
  for (int part = 0; part < ranks; ++part)
    bounds[part + 1] = bounds[part] + coll_loom_count_at(args->in.counts, (size_t)part);
  call->bounds = bounds;
  call->count = bounds[ranks];
  return LOOM_SUCCESS;
}

int coll_loom_operands_make(struct coll_loom_operands* operands, ompi_communicator_t* communicator,
                            const struct coll_loom_args* args, enum loom_op op, enum loom_type type,
                            struct loom_call* call) {
  const int rank = ompi_comm_rank(communicator), ranks = ompi_comm_size(communicator);
  *call = (struct loom_call){.collective = args->collective, .type = type, .op = op, .root = args->root};
  operands->in.blocks = operands->out.blocks = 0;
  operands->cuts = false;
  if (args->collective == LOOM_BARRIER) return LOOM_SUCCESS;
  return loom_reduces(args->collective) ? make_reduction(operands, args, ranks, call)
                                        : make_moving(operands, args, rank, ranks, call);
}

void coll_loom_operands_free(struct coll_loom_operands* operands) {
  free(operands->memory);
  *operands = (struct coll_loom_operands){.memory = NULL};
}
