/* Reductions in order of rank that do not wait, between hosts or persistent: a request around an all-gather
 * of the fallback component, which fetches all operands in one piece, n S bytes. They are reduced when the
 * all-gather is complete. */
#include "component/mca/in_order.h"
#include "component/mca/wrapper_request.h"

struct coll_loom_in_order_request {
  struct coll_loom_wrapper super;
  struct coll_loom_part part;
  struct ompi_datatype_t* operand; /* one element of it is the whole operand */
  char* operands;
  void* out;
  size_t elem;
  enum loom_op op;
  enum loom_type type;
};
typedef struct coll_loom_in_order_request coll_loom_in_order_request_t;
OBJ_CLASS_DECLARATION(coll_loom_in_order_request_t);

static int end(struct coll_loom_wrapper* wrapper, int error) {
  struct coll_loom_in_order_request* self = (struct coll_loom_in_order_request*)wrapper;
  const struct coll_loom_part* part = &self->part;
  const size_t bytes = part->count * self->elem;
  if (part->count == 0 || error != MPI_SUCCESS) return error;
  for (int of = 0; part->count < part->total && of < part->operands; ++of)
    memmove(self->operands + (size_t)of * bytes,
            self->operands + ((size_t)of * part->total + part->first) * self->elem, bytes);
  coll_loom_reduce_operands(self->operands, part->operands, part->count, self->elem, self->op, self->type,
                            self->out);
  return MPI_SUCCESS;
}

static void construct(coll_loom_in_order_request_t* self) {
  COLL_LOOM_CLEAR(self);
  self->super.end = end;
}
static void destruct(coll_loom_in_order_request_t* self) {
  coll_loom_wrapper_let_go(&self->super);
  if (self->operand != NULL) ompi_datatype_destroy(&self->operand);
  free(self->operands);
}
OBJ_CLASS_INSTANCE(coll_loom_in_order_request_t, coll_loom_wrapper_t, construct, destruct);

/* `total` elements as one: counts are int up to 5.0, and components multiply counts by the communicator's
 * size. By tiles, for a type counts the elements of a block in 32 bits. */
static int make_operand_type(size_t total, struct ompi_datatype_t* element, struct ompi_datatype_t** made) {
  enum { TILE = 1 << 16 };
  const size_t bytes = coll_loom_element_bytes(element), tiles = total / TILE, rest = total % TILE;
  struct ompi_datatype_t* tile = NULL;
  int error = ompi_datatype_create_contiguous(TILE, element, &tile);
  if (error != OMPI_SUCCESS) return error;
  /* Room for the elements of both, with a loop around each. Where Open MPI 4.1 has to make more room itself,
   * it may write behind its end. */
  enum { LOOPS = 2 * 2 };
  *made = ompi_datatype_create((int32_t)(tile->super.desc.used + element->super.desc.used + LOOPS));
  error = *made == NULL ? MPI_ERR_NO_MEM : OMPI_SUCCESS;
  if (error == OMPI_SUCCESS && tiles > 0)
    error = ompi_datatype_add(*made, tile, tiles, 0, (ptrdiff_t)(TILE * bytes));
  if (error == OMPI_SUCCESS && rest > 0)
    error = ompi_datatype_add(*made, element, rest, (ptrdiff_t)(tiles * TILE * bytes), (ptrdiff_t)bytes);
  ompi_datatype_destroy(&tile);
  return error == OMPI_SUCCESS ? ompi_datatype_commit(made) : error;
}

int coll_loom_make_in_order_request(struct coll_loom_module* self, const struct coll_loom_args* args,
                                    enum loom_op op, enum loom_type type, bool persistent,
                                    ompi_request_t** request) {
  const size_t ranks = (size_t)ompi_comm_size(self->communicator);
  coll_loom_in_order_request_t* made = OBJ_NEW(coll_loom_in_order_request_t);
  if (made == NULL) return MPI_ERR_NO_MEM;
  made->part = coll_loom_part_of(self, args);
  made->elem = coll_loom_element_bytes(args->in.type);
  made->op = op;
  made->type = type;
  made->out = args->out.buffer;
  made->operands = malloc(ranks * made->part.total * made->elem);
  int error = MPI_ERR_NO_MEM;
  ompi_request_t* inner = NULL;
  if (made->operands != NULL) error = make_operand_type(made->part.total, args->in.type, &made->operand);
  if (error == OMPI_SUCCESS) {
    /* In place the operand stays where it is until all have been fetched. */
    const void* const in = args->in.buffer == MPI_IN_PLACE ? args->out.buffer : args->in.buffer;
    if (persistent)
      error = self->fallback_allgather_init(in, 1, made->operand, made->operands, 1, made->operand,
                                            self->communicator, MPI_INFO_NULL, &inner,
                                            self->fallback_allgather_init_module);
    else
      error = self->fallback_iallgather(in, 1, made->operand, made->operands, 1, made->operand,
                                        self->communicator, &inner, self->fallback_iallgather_module);
  }
  if (error != OMPI_SUCCESS) {
    coll_loom_request_drop(&made->super.super);
    return error;
  }
  coll_loom_request_open(&made->super.super, persistent, self->communicator);
  coll_loom_wrapper_take(&made->super, inner, request);
  return OMPI_SUCCESS;
}
