/* What Open MPI calls: the three forms of each collective. Above all files that perform a call; only module.c
 * and staged.c, which looks for buffers on devices first, include it. */
#ifndef LOOM_COMPONENT_MCA_ENTRIES_H
#define LOOM_COMPONENT_MCA_ENTRIES_H

#include "component/mca/coll_loom.h"

/* One function for each function of the framework: entries.c and allgatherv.c. */
#define COLL_LOOM_DECLARE_BLOCKING(api, which) \
  int coll_loom_##api(PARAMS_##api struct ompi_communicator_t* communicator, mca_coll_base_module_t* module);
#define COLL_LOOM_DECLARE_NOT_WAITING(api, which)                                                       \
  int coll_loom_i##api(PARAMS_##api struct ompi_communicator_t* communicator, ompi_request_t** request, \
                       mca_coll_base_module_t* module);                                                 \
  int coll_loom_##api##_init(PARAMS_##api struct ompi_communicator_t* communicator,                     \
                             struct ompi_info_t* info, ompi_request_t** request,                        \
                             mca_coll_base_module_t* module);
COLL_LOOM_COLLECTIVES(COLL_LOOM_DECLARE_BLOCKING)
COLL_LOOM_COLLECTIVES(COLL_LOOM_DECLARE_NOT_WAITING)

/* A blocking call that does not try the fast path of small calls. */
#define COLL_LOOM_DECLARE_SLOW_PATH(api, which)                                        \
  int coll_loom_slow_path_##api(PARAMS_##api struct ompi_communicator_t* communicator, \
                                struct coll_loom_module* self);
COLL_LOOM_COLLECTIVES(COLL_LOOM_DECLARE_SLOW_PATH)

#endif
