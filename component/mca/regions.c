#include "component/mca/regions.h"

#include "component/mca/arrays.h"

/* ---- What is read and written? Reads only arguments that are significant on this rank. */

/* Elements of the operand. */
static size_t operand_count(const struct loom_significance* row, const struct coll_loom_side* in,
                            size_t ranks) {
  if (row->sides[LOOM_IN].blocks == LOOM_ONE_BLOCK) return in->count;
  if (row->sides[LOOM_IN].arrays == 0) return ranks * in->count;
  size_t count = 0;
  for (size_t part = 0; part < ranks; ++part) count += coll_loom_count_at(in->counts, part);
  return count;
}

static void significant_of_reduction(ompi_communicator_t* communicator, const struct loom_significance* row,
                                     const struct coll_loom_args* args, loom_role role,
                                     struct coll_loom_significant* of) {
  const struct coll_loom_side* const in = &args->in;
  const bool in_place = in->buffer == MPI_IN_PLACE;
  const size_t result = row->sides[LOOM_IN].arrays == 0
                            ? in->count
                            : coll_loom_count_at(in->counts, (size_t)ompi_comm_rank(communicator));
  of->operand = (struct coll_loom_side){.buffer = in_place ? args->out.buffer : in->buffer,
                                        .count = operand_count(row, in, (size_t)ompi_comm_size(communicator)),
                                        .type = in->type};
  of->result = (struct coll_loom_side){.buffer = args->out.buffer, .count = result, .type = in->type};
  of->load[in_place ? LOOM_OUT : LOOM_IN] =
      (struct coll_loom_blocks){&of->operand, 0, loom_is_significant(row, LOOM_IN, role)};
  of->store[LOOM_OUT] = (struct coll_loom_blocks){&of->result, 0, loom_is_significant(row, LOOM_OUT, role)};
  if (row->traits & LOOM_UPDATES_RESULT) of->load[LOOM_OUT] = of->store[LOOM_OUT];
}

static void significant_of_move(ompi_communicator_t* communicator, const struct loom_significance* row,
                                const struct coll_loom_args* args, loom_role role,
                                struct coll_loom_significant* of) {
  int each[LOOM_SIDE_COUNT];
  coll_loom_peers_of(communicator, row->collective, each);
  struct coll_loom_blocks blocks[LOOM_SIDE_COUNT];
  const bool in_place = coll_loom_find_blocks(args, row, role, ompi_comm_rank(communicator), each, blocks);
  const bool reads_out =
      (in_place && row->in_place.side == LOOM_IN) || (row->traits & LOOM_SHARES_BUFFER) != 0;
  of->load[reads_out ? LOOM_OUT : LOOM_IN] = blocks[LOOM_IN];
  if (!in_place || row->in_place.side != LOOM_OUT) of->store[LOOM_OUT] = blocks[LOOM_OUT];
}

void coll_loom_find_significant(ompi_communicator_t* communicator, int which,
                                const struct coll_loom_args* args, struct coll_loom_significant* of) {
  const struct loom_significance* const row = loom_significance_of(which);
  const loom_role role = coll_loom_role_of(communicator, args->root);
  memset(of, 0, sizeof *of);
  if (loom_reduces(which))
    significant_of_reduction(communicator, row, args, role, of);
  else
    significant_of_move(communicator, row, args, role, of);
  /* What a neighbour would send that is MPI_PROC_NULL stays as it is: beyond the edges of a grid. */
  if (coll_loom_is_of_neighbours(which) && OMPI_COMM_IS_CART(communicator))
    of->load[LOOM_OUT] = of->store[LOOM_OUT];
}

/* ---- Which bytes are they? */

static void add(struct coll_loom_regions* regions, char* device, size_t row_bytes, size_t rows,
                size_t pitch) {
  if (regions->failed) return;
  if (regions->number == regions->room) {
    const size_t room = regions->room == 0 ? 4 : 2 * regions->room;
    struct loom_strided_region* const list = realloc(regions->list, room * sizeof *list);
    if (list == NULL) {
      regions->failed = true;
      return;
    }
    regions->list = list;
    regions->room = room;
  }
  regions->list[regions->number++] =
      (struct loom_strided_region){.device = device, .row_bytes = row_bytes, .rows = rows, .pitch = pitch};
}

/* Adds rows as one region, if they do not overlap. */
static void add_rows(struct coll_loom_regions* regions, char* device, size_t row_bytes, size_t rows,
                     ptrdiff_t pitch) {
  if (rows == 1 || (pitch > 0 && (size_t)pitch >= row_bytes)) {
    add(regions, device, row_bytes, rows, rows == 1 ? 0 : (size_t)pitch);
    return;
  }
  for (size_t row = 0; row < rows; ++row) add(regions, device + (ptrdiff_t)row * pitch, row_bytes, 1, 0);
}

/* Rows that are no nearer to each other may lie in several buffers, of which one is on a device and another
 * is not: allocations on a device begin at multiples of 256 bytes. */
enum { APART = 256 };

/* Adds the bytes of one element. Rows that follow each other at equal distances become one region. */
static void add_element(struct coll_loom_regions* regions, struct ompi_datatype_t* type, char* address,
                        bool of_one_buffer) {
  const size_t first = regions->number;
  opal_convertor_t convertor;
  OBJ_CONSTRUCT(&convertor, opal_convertor_t);
  opal_convertor_copy_and_prepare_for_send(ompi_mpi_local_convertor, &type->super, 1, address, 0, &convertor);
  for (bool done = false; !done && !regions->failed;) {
    struct iovec pieces[32];
    uint32_t number = sizeof pieces / sizeof *pieces;
    size_t bytes = SIZE_MAX;
    done = opal_convertor_raw(&convertor, pieces, &number, &bytes) != 0 || number == 0;
    for (uint32_t i = 0; i < number; ++i) {
      char* const at = pieces[i].iov_base;
      const size_t length = pieces[i].iov_len;
      struct loom_strided_region* const last =
          regions->number > first ? &regions->list[regions->number - 1] : NULL;
      if (last != NULL && last->row_bytes == length) {
        const char* const end = (char*)last->device + (last->rows - 1) * last->pitch;
        const ptrdiff_t pitch = at - end;
        if ((of_one_buffer || pitch < APART) && pitch >= (ptrdiff_t)length &&
            (last->rows == 1 || (size_t)pitch == last->pitch)) {
          last->pitch = (size_t)pitch;
          ++last->rows;
          continue;
        }
      }
      add(regions, at, length, 1, 0);
    }
  }
  OBJ_DESTRUCT(&convertor);
}

/* Adds a contiguous block; joins it with the block before, if that ends where this one begins and both are of
 * one buffer. */
static void add_whole(struct coll_loom_regions* regions, char* device, size_t bytes, bool of_one_buffer) {
  struct loom_strided_region* const last = regions->number > 0 ? &regions->list[regions->number - 1] : NULL;
  if (of_one_buffer && last != NULL && last->rows == 1 && (char*)last->device + last->row_bytes == device)
    last->row_bytes += bytes;
  else
    add(regions, device, bytes, 1, 0);
}

/* Adds the bytes of a non-contiguous block. For several elements, each row of the first one begins a column
 * of `count` rows, unless repeating its regions gives fewer regions. */
static void add_block(struct coll_loom_regions* regions, const struct coll_loom_piece* block,
                      bool of_one_buffer) {
  struct coll_loom_regions element = {.list = NULL};
  add_element(&element, block->type, block->address, of_one_buffer);
  const ptrdiff_t extent = block->type->super.ub - block->type->super.lb;
  size_t rows = 0;
  for (size_t i = 0; i < element.number; ++i) rows += element.list[i].rows;
  for (size_t i = 0; i < element.number; ++i) {
    const struct loom_strided_region* const region = &element.list[i];
    if (element.number * block->count <= rows || (!of_one_buffer && extent >= APART)) {
      for (size_t k = 0; k < block->count; ++k)
        add(regions, (char*)region->device + (ptrdiff_t)k * extent, region->row_bytes, region->rows,
            region->pitch);
    } else {
      for (size_t row = 0; row < region->rows; ++row)
        add_rows(regions, (char*)region->device + row * region->pitch, region->row_bytes, block->count,
                 extent);
    }
  }
  regions->failed |= element.failed;
  free(element.list);
}

void coll_loom_add_blocks(struct coll_loom_regions* regions, const struct coll_loom_blocks* blocks) {
  for (int i = 0; i < blocks->number; ++i) {
    const struct coll_loom_piece block = coll_loom_piece_of(blocks, i);
    if (block.bytes == 0) continue;
    const bool of_one_buffer = blocks->side->buffer != MPI_BOTTOM && blocks->side->types == NULL;
    if (block.contiguous)
      add_whole(regions, block.address + block.type->super.true_lb, block.bytes, of_one_buffer);
    else
      add_block(regions, &block, of_one_buffer);
  }
}

const char* coll_loom_first_byte(const struct coll_loom_blocks* blocks) {
  for (int i = 0; i < blocks->number; ++i) {
    const struct coll_loom_piece block = coll_loom_piece_of(blocks, i);
    if (block.bytes > 0) return block.address + block.type->super.true_lb;
  }
  return NULL;
}

/* ---- Where are they in a packed buffer? */

struct rows {
  struct loom_packed_rows* list;
  size_t number, room, most;
};

static bool add_packed(struct rows* rows, struct loom_packed_rows one) {
  if (rows->number == rows->most) return false;
  if (rows->number == rows->room) {
    const size_t room = rows->room == 0 ? 16 : 2 * rows->room;
    struct loom_packed_rows* const list = realloc(rows->list, room * sizeof *list);
    if (list == NULL) return false;
    rows->list = list;
    rows->room = room;
  }
  rows->list[rows->number++] = one;
  return true;
}

/* Elements of a type with gaps, from packed byte `at` on: those of each row of the first one, or, where that
 * gives fewer, the rows of each element. */
static bool add_elements(struct rows* rows, const struct coll_loom_cursor* block, size_t at) {
  struct coll_loom_regions element = {.list = NULL};
  add_element(&element, block->type, block->address, true);
  bool added = !element.failed;
  const ptrdiff_t extent = block->type->super.ub - block->type->super.lb;
  const size_t size = block->type->super.size;
  size_t element_rows = 0;
  for (size_t i = 0; i < element.number; ++i) element_rows += element.list[i].rows;
  const bool by_element = element.number * block->count <= element_rows;
  const size_t elements = by_element ? block->count : 1;
  for (size_t k = 0; k < elements && added; ++k) {
    size_t packed = at + k * size;
    for (size_t i = 0; i < element.number && added; ++i) {
      const struct loom_strided_region* const region = &element.list[i];
      char* const first = (char*)region->device + (ptrdiff_t)k * extent;
      if (by_element)
        added =
            add_packed(rows, (struct loom_packed_rows){first, (ptrdiff_t)region->pitch, packed,
                                                       region->row_bytes, region->row_bytes, region->rows});
      for (size_t row = 0; row < region->rows && !by_element && added; ++row)
        added = add_packed(rows, (struct loom_packed_rows){first + row * region->pitch, extent,
                                                           packed + row * region->row_bytes, size,
                                                           region->row_bytes, block->count});
      packed += region->rows * region->row_bytes;
    }
  }
  free(element.list);
  return added;
}

bool coll_loom_list_rows(void* context, size_t most, struct loom_packed_rows** list, size_t* number) {
  const struct coll_loom_packing* const packing = context;
  struct rows rows = {.most = most};
  size_t at = 0;
  bool added = true;
  for (int i = 0; i < packing->blocks && added; ++i) {
    const struct coll_loom_cursor* const block = &packing->cursors[i];
    const size_t bytes = block->count * block->type->super.size;
    if (bytes == 0) continue;
    added = ompi_datatype_is_contiguous_memory_layout(block->type, block->count > 1 ? 2 : 1)
                ? add_packed(&rows, (struct loom_packed_rows){block->address + block->type->super.true_lb, 0,
                                                              at, bytes, bytes, 1})
                : add_elements(&rows, block, at);
    at += bytes;
  }
  if (!added) {
    free(rows.list);
    return false;
  }
  *list = rows.list;
  *number = rows.number;
  return true;
}
