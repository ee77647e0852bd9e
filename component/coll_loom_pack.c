/* Buffers of any datatype as contiguous bytes: derived types with gaps go through a copy. Which it is differs
 * from rank to rank, so nothing but the number of packed bytes may be seen from outside. */
#include "component/coll_loom.h"
#include "opal/datatype/opal_convertor.h"

static void convert(struct coll_loom_bytes* self, bool pack) {
  struct iovec piece = {.iov_base = self->copy, .iov_len = self->bytes};
  uint32_t pieces = 1;
  size_t converted = self->bytes;
  opal_convertor_t convertor;
  OBJ_CONSTRUCT(&convertor, opal_convertor_t);
  if (pack) {
    opal_convertor_copy_and_prepare_for_send(ompi_mpi_local_convertor, &self->datatype->super, self->count,
                                             self->buffer, 0, &convertor);
    opal_convertor_pack(&convertor, &piece, &pieces, &converted);
  } else {
    opal_convertor_copy_and_prepare_for_recv(ompi_mpi_local_convertor, &self->datatype->super, self->count,
                                             self->buffer, 0, &convertor);
    opal_convertor_unpack(&convertor, &piece, &pieces, &converted);
  }
  OBJ_DESTRUCT(&convertor);
}

int coll_loom_bytes_of(struct coll_loom_bytes* self, const void* buffer, size_t count,
                       struct ompi_datatype_t* datatype, bool load) {
  size_t size;
  ompi_datatype_type_size(datatype, &size);
  *self = (struct coll_loom_bytes){
      .bytes = size * count, .buffer = (void*)buffer, .count = count, .datatype = datatype};
  if (self->bytes == 0) return MPI_SUCCESS;
  if (ompi_datatype_is_contiguous_memory_layout(datatype, count > 1 ? 2 : 1)) {
    self->data = (char*)buffer + datatype->super.true_lb;
    return MPI_SUCCESS;
  }
  self->data = self->copy = malloc(self->bytes);
  if (self->copy == NULL) return MPI_ERR_NO_MEM;
  if (load) convert(self, true);
  return MPI_SUCCESS;
}

void coll_loom_bytes_end(struct coll_loom_bytes* self, bool store) {
  if (self->copy == NULL) return;
  if (store) convert(self, false);
  free(self->copy);
}
