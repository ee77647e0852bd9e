/* All-to-alls in place that do not wait and fall back. Open MPI's own (coll/libnbc, 4.1 to 6.0) gives wrong
 * results for the v and w forms, and with 4.1 may never end; and 4.1 reads the send type of MPI_Ialltoall,
 * which means nothing there. So on all ranks the blocks to be sent are copied before each start, and the call
 * is made out of place. */
#include "component/mca/alltoall_in_place.h"

#include "component/mca/fallback_request.h"
#include "component/mca/wrapper_request.h"

struct coll_loom_copied_request {
  struct coll_loom_wrapper super;
  struct coll_loom_piece* pieces; /* the blocks; a program may drop its arrays of counts meanwhile */
  int blocks;
  char *memory, *copy; /* copy: where the program's buffer begins in it */
  char* buffer;
};
typedef struct coll_loom_copied_request coll_loom_copied_request_t;
OBJ_CLASS_DECLARATION(coll_loom_copied_request_t);

static int copy_blocks(struct coll_loom_wrapper* wrapper) {
  struct coll_loom_copied_request* self = (struct coll_loom_copied_request*)wrapper;
  for (int block = 0; block < self->blocks; ++block) {
    const struct coll_loom_piece* piece = &self->pieces[block];
    if (piece->bytes == 0) continue;
    const int error = ompi_datatype_copy_content_same_ddt(
        piece->type, piece->count, self->copy + (piece->address - self->buffer), piece->address);
    if (error != OMPI_SUCCESS) return error;
  }
  return OMPI_SUCCESS;
}

/* Makes room for all blocks, from the first byte of any to the last one. */
static bool make_room(struct coll_loom_copied_request* self, const struct coll_loom_side* side) {
  ptrdiff_t first = PTRDIFF_MAX, end = PTRDIFF_MIN;
  self->buffer = side->buffer;
  self->pieces = malloc((size_t)self->blocks * sizeof *self->pieces);
  if (self->pieces == NULL) return false;
  for (int block = 0; block < self->blocks; ++block) {
    const struct coll_loom_piece piece = self->pieces[block] =
        coll_loom_piece_of(&(struct coll_loom_blocks){side, 0, self->blocks}, block);
    if (piece.bytes == 0) continue;
    ptrdiff_t lb, extent;
    ompi_datatype_get_extent(piece.type, &lb, &extent);
    const ptrdiff_t at = piece.address - self->buffer, more = (ptrdiff_t)(piece.count - 1) * extent;
    const ptrdiff_t least = at + (more < 0 ? more : 0) + piece.type->super.true_lb,
                    most = at + (more > 0 ? more : 0) + piece.type->super.true_ub;
    if (least < first) first = least;
    if (most > end) end = most;
  }
  if (first > end) first = end = 0;
  self->memory = malloc((size_t)(end - first) + 1);
  self->copy = self->memory - first;
  return self->memory != NULL;
}

static void construct(coll_loom_copied_request_t* self) {
  COLL_LOOM_CLEAR(self);
  self->super.begin = copy_blocks;
}
static void destruct(coll_loom_copied_request_t* self) {
  coll_loom_wrapper_let_go(&self->super);
  free(self->memory);
  free(self->pieces);
}
OBJ_CLASS_INSTANCE(coll_loom_copied_request_t, coll_loom_wrapper_t, construct, destruct);

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
  coll_loom_copied_request_t* made = OBJ_NEW(coll_loom_copied_request_t);
  if (made == NULL) return MPI_ERR_NO_MEM;
  made->blocks = ompi_comm_size(communicator);
  int error = make_room(made, out) ? OMPI_SUCCESS : MPI_ERR_NO_MEM;
  if (error == OMPI_SUCCESS && !persistent) error = copy_blocks(&made->super);
  if (error == OMPI_SUCCESS && call->collective == LOOM_ALLTOALLV)
    error = FALL_BACK(alltoallv, made->copy, out->counts, out->disps, out->type, out->buffer, out->counts,
                      out->disps, out->type);
  else if (error == OMPI_SUCCESS)
    error = FALL_BACK(alltoallw, made->copy, out->counts, out->disps, out->types, out->buffer, out->counts,
                      out->disps, out->types);
  if (error != OMPI_SUCCESS) {
    coll_loom_request_drop(&made->super.super);
    return error;
  }
  coll_loom_request_open_for(&made->super.super, call, persistent, communicator);
  coll_loom_wrapper_take(&made->super, inner, request);
  return OMPI_SUCCESS;
}
