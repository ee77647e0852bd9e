/* The types and the operation of a persistent call. Includes arrays.h downwards; request_base.h and
 * fallback_request.h include it. */
#ifndef LOOM_COMPONENT_MCA_HANDLES_H
#define LOOM_COMPONENT_MCA_HANDLES_H

#include "component/mca/arrays.h"

/* References. A program may free its types and its operation once a request is made (MPI 4.1, section 3.9 of
 * requests, 6.9 of operations). Open MPI itself keeps them for nonblocking calls alone. All zero: none. */
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

#endif
