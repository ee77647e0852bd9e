/* The types and the operation of a persistent call. Includes arrays.h downwards; request_base.h and
 * fallback_request.h include it. */
#ifndef LOOM_COMPONENT_MCA_HANDLES_H
#define LOOM_COMPONENT_MCA_HANDLES_H

#include "component/mca/arrays.h"

/* References. MPI has an object that a program frees live on for the operations that use it (MPI 4.1, section
 * 2.5.1), so also for a request that has yet to be started. Open MPI sees to that in nonblocking calls alone.
 * All zero: none. */
struct coll_loom_handles {
  struct ompi_op_t* op;
  struct ompi_datatype_t** types;
  size_t number; /* of types */
};

/* Those that are significant on this rank, without predefined ones. Where there is no memory none is kept, as
 * without loom. args->collective may be one of enum loom_staged_only. */
struct coll_loom_handles coll_loom_handles_keep(ompi_communicator_t* communicator,
                                                const struct coll_loom_args* args);
void coll_loom_handles_let_go(struct coll_loom_handles* handles);

/* Where a request or a held call ends. It may be the last reference, if the program has freed the
 * communicator already; then nothing waits for the work of a GPU. */
static inline void coll_loom_communicator_let_go(ompi_communicator_t* communicator) {
  const bool may_wait = loom_set_may_wait_for_gpus(false);
  OBJ_RELEASE(communicator);
  loom_set_may_wait_for_gpus(may_wait);
}

#endif
