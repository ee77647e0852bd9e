/* All-to-alls in place that do not wait and fall back. Open MPI's own (coll/libnbc, 4.1 to 6.0) gives wrong
 * results for the v and w forms, and with 4.1 may never end; and 4.1 reads the send type of MPI_Ialltoall,
 * which means nothing there. So on all ranks the blocks to be sent are packed before each start, and the call
 * is made out of place: with the program's counts and displacements, and types of the packed elements that
 * move each block to where it is. So the memory that this takes does not depend on how far apart the blocks
 * of the w form lie, and for the v form on no more than their displacements. */
#include "component/mca/alltoall_in_place.h"

#include "component/mca/fallback_request.h"
#include "component/mca/setup.h"
#include "component/mca/wrapper_request.h"

struct coll_loom_packed_block {
  struct coll_loom_piece piece; /* a program may drop its arrays of counts meanwhile */
  char* packed;
  struct ompi_datatype_t* type; /* of a packed element; NULL: of no block, or in the v form of a later one */
};

struct coll_loom_packed_request {
  struct coll_loom_wrapper super;
  struct coll_loom_packed_block* packed;
  int blocks;
  char *memory, *buffer;          /* buffer: what the call sends from */
  struct ompi_datatype_t** types; /* of the blocks; what is not sent has the program's */
};
typedef struct coll_loom_packed_request coll_loom_packed_request_t;
OBJ_CLASS_DECLARATION(coll_loom_packed_request_t);

static int pack_blocks(struct coll_loom_wrapper* wrapper) {
  struct coll_loom_packed_request* self = (struct coll_loom_packed_request*)wrapper;
  for (int block = 0; block < self->blocks; ++block)
    if (self->packed[block].piece.bytes > 0)
      coll_loom_pack(&self->packed[block].piece, self->packed[block].packed);
  return OMPI_SUCCESS;
}

/* An element of `bytes` bytes in a row, that far behind its address. NULL: there is no memory. */
static struct ompi_datatype_t* make_type(size_t bytes, ptrdiff_t behind) {
  enum { CHUNK = 1 << 20 }; /* counts may be of 32 bits */
  struct ompi_datatype_t *chunk = NULL, *type = ompi_datatype_create(2);
  const size_t chunks = bytes / CHUNK, rest = bytes % CHUNK;
  int error = type != NULL ? OMPI_SUCCESS : OMPI_ERR_OUT_OF_RESOURCE;
  if (error == OMPI_SUCCESS && chunks > 0) {
    error = ompi_datatype_create_contiguous(CHUNK, &ompi_mpi_byte.dt, &chunk);
    if (error == OMPI_SUCCESS) error = ompi_datatype_add(type, chunk, chunks, behind, CHUNK);
  }
  if (error == OMPI_SUCCESS && rest > 0)
    error = ompi_datatype_add(type, &ompi_mpi_byte.dt, rest, behind + (ptrdiff_t)(chunks * CHUNK), 1);
  if (error == OMPI_SUCCESS) error = ompi_datatype_commit(&type);
  if (chunk != NULL) ompi_datatype_destroy(&chunk);
  if (error != OMPI_SUCCESS && type != NULL) ompi_datatype_destroy(&type);
  return type;
}

static size_t packed_element(const struct coll_loom_piece* piece) {
  return piece->bytes / piece->count;
}

/* Packed blocks lie one after the other. */
static bool place_by_types(struct coll_loom_packed_request* self, const struct coll_loom_side* side) {
  size_t bytes = 0;
  for (int block = 0; block < self->blocks; ++block) bytes += self->packed[block].piece.bytes;
  self->types = malloc((size_t)self->blocks * sizeof *self->types + 1);
  self->buffer = self->memory = malloc(bytes + 1);
  if (self->types == NULL || self->memory == NULL) return false;
  char* to = self->memory;
  for (int block = 0; block < self->blocks; ++block) {
    struct coll_loom_packed_block* const at = &self->packed[block];
    self->types[block] = at->piece.type;
    if (at->piece.bytes == 0) continue;
    const ptrdiff_t there = at->piece.address - (char*)side->buffer; /* as the call's displacement has it */
    at->packed = to;
    at->type = self->types[block] = make_type(packed_element(&at->piece), to - self->memory - there);
    if (at->type == NULL) return false;
    to += at->piece.bytes;
  }
  return true;
}

/* Packed elements lie as the elements do that are packed, without the gaps that these may have. */
static bool place_by_displacements(struct coll_loom_packed_request* self, const struct coll_loom_side* side) {
  size_t element = 0;
  ptrdiff_t first = PTRDIFF_MAX, end = PTRDIFF_MIN;
  for (int block = 0; block < self->blocks; ++block) {
    const struct coll_loom_piece* const piece = &self->packed[block].piece;
    if (piece->bytes == 0) continue;
    const ptrdiff_t place = coll_loom_disp_at(side->disps, (size_t)block);
    element = packed_element(piece);
    if (place < first) first = place;
    if (place + (ptrdiff_t)piece->count > end) end = place + (ptrdiff_t)piece->count;
  }
  if (first > end) first = end = 0;
  self->memory = malloc((size_t)(end - first) * element + 1);
  self->types = malloc(sizeof *self->types);
  if (self->types == NULL || self->memory == NULL) return false;
  self->buffer = self->memory - first * (ptrdiff_t)element;
  self->types[0] = side->type;
  for (int block = 0; block < self->blocks; ++block)
    self->packed[block].packed =
        self->buffer + coll_loom_disp_at(side->disps, (size_t)block) * (ptrdiff_t)element;
  if (element == 0) return true;
  self->packed[0].type = self->types[0] = make_type(element, 0);
  return self->types[0] != NULL;
}

static bool make_room(struct coll_loom_packed_request* self, const struct coll_loom_side* side) {
  self->packed = calloc((size_t)self->blocks, sizeof *self->packed);
  if (self->packed == NULL) return false;
  for (int block = 0; block < self->blocks; ++block)
    self->packed[block].piece = coll_loom_piece_of(&(struct coll_loom_blocks){side, 0, self->blocks}, block);
  return side->types != NULL ? place_by_types(self, side) : place_by_displacements(self, side);
}

static void construct(coll_loom_packed_request_t* self) {
  COLL_LOOM_CLEAR(self);
  self->super.begin = pack_blocks;
}
static void destruct(coll_loom_packed_request_t* self) {
  coll_loom_wrapper_let_go(&self->super);
  for (int block = 0; self->packed != NULL && block < self->blocks; ++block)
    if (self->packed[block].type != NULL) ompi_datatype_destroy(&self->packed[block].type);
  free(self->memory);
  free(self->packed);
  free(self->types);
}
OBJ_CLASS_INSTANCE(coll_loom_packed_request_t, coll_loom_wrapper_t, construct, destruct);

/* Has the fallback component make the call, with these arguments. */
#define FALL_BACK(api, ...)                                                          \
  (persistent ? self->fallback_##api##_init(__VA_ARGS__, communicator, info, &inner, \
                                            self->fallback_##api##_init_module)      \
              : self->fallback_i##api(__VA_ARGS__, communicator, &inner, self->fallback_i##api##_module))

int coll_loom_fall_back_in_place(struct coll_loom_module* self, const struct coll_loom_args* call,
                                 bool persistent, struct ompi_info_t* info, ompi_request_t** request) {
  ompi_communicator_t* const communicator = self->communicator;
  const struct coll_loom_side* const out = &call->out;
  ompi_request_t* inner = NULL;
  if (call->collective == LOOM_ALLTOALL) {
    const coll_loom_count_t count = (coll_loom_count_t)out->count;
    const int error = FALL_BACK(alltoall, MPI_IN_PLACE, count, out->type, out->buffer, count, out->type);
    *request = inner;
    return coll_loom_keep_for_request(communicator, call, inner, error);
  }
  coll_loom_packed_request_t* made = OBJ_NEW(coll_loom_packed_request_t);
  if (made == NULL) return coll_loom_fail_alone(self, LOOM_ERR_OUT_OF_MEMORY);
  made->blocks = ompi_comm_size(communicator);
  if (!make_room(made, out)) {
    coll_loom_request_drop(&made->super.super);
    return coll_loom_fail_alone(self, LOOM_ERR_OUT_OF_MEMORY);
  }
  int error = persistent ? OMPI_SUCCESS : pack_blocks(&made->super);
  if (error == OMPI_SUCCESS && call->collective == LOOM_ALLTOALLV)
    error = FALL_BACK(alltoallv, made->buffer, out->counts, out->disps, made->types[0], out->buffer,
                      out->counts, out->disps, out->type);
  else if (error == OMPI_SUCCESS)
    error = FALL_BACK(alltoallw, made->buffer, out->counts, out->disps, made->types, out->buffer, out->counts,
                      out->disps, out->types);
  if (error != OMPI_SUCCESS) {
    coll_loom_request_drop(&made->super.super);
    return error;
  }
  coll_loom_request_open_for(&made->super.super, call, persistent, communicator);
  coll_loom_wrapper_take(&made->super, inner, request);
  return OMPI_SUCCESS;
}
