/* MPI_Allgatherv falls back where it is small and between hosts. coll/tuned then chooses an algorithm by the
 * size of a rank's own send type times the sum of all counts, though the counts are of the receive type (seen
 * in Open MPI 4.1.4). Ranks that describe one message by different types choose different algorithms and wait
 * for ever. In place coll/tuned uses only the receive type, and finds the bytes of the whole message. */
#include "component/mca/entries.h"
#include "component/mca/fallback.h"
#include "component/mca/perform.h"

int coll_loom_allgatherv(PARAMS_allgatherv struct ompi_communicator_t* communicator,
                         mca_coll_base_module_t* module) {
  return coll_loom_slow_path_allgatherv(ARGS_allgatherv communicator, (struct coll_loom_module*)module);
}

int coll_loom_slow_path_allgatherv(PARAMS_allgatherv struct ompi_communicator_t* communicator,
                                   struct coll_loom_module* self) {
  const struct coll_loom_args args = {.collective = LOOM_ALLGATHERV, CALL_allgatherv};
  int error;
  if (OPAL_LIKELY(coll_loom_perform(self, &args, &error))) return error;
  if (sendbuf != MPI_IN_PLACE && sendtype->super.size != recvtype->super.size) {
    const size_t rank = (size_t)ompi_comm_rank(communicator);
    ptrdiff_t lb, extent;
    ompi_datatype_get_extent(recvtype, &lb, &extent);
    error = ompi_datatype_sndrcv(sendbuf, sendcount, sendtype,
                                 (char*)recvbuf + coll_loom_disp_at(disps, rank) * extent,
                                 (coll_loom_count_t)coll_loom_count_at(recvcounts, rank), recvtype);
    if (error != OMPI_SUCCESS) return error;
    sendbuf = MPI_IN_PLACE;
  }
  return coll_loom_fallback_allgatherv(ARGS_allgatherv communicator, self);
}
