/* What Open MPI calls if a buffer may be on a device. Above all other files; only module.c includes it. */
#ifndef LOOM_COMPONENT_MCA_STAGED_H
#define LOOM_COMPONENT_MCA_STAGED_H

#include "component/mca/coll_loom.h"

#define COLL_LOOM_DECLARE_STAGED(api)                                                      \
  int coll_loom_staged_##api(PARAMS_##api struct ompi_communicator_t* communicator,        \
                             mca_coll_base_module_t* module);                              \
  int coll_loom_staged_i##api(PARAMS_##api struct ompi_communicator_t* communicator,       \
                              ompi_request_t** request, mca_coll_base_module_t* module);   \
  int coll_loom_staged_##api##_init(PARAMS_##api struct ompi_communicator_t* communicator, \
                                    struct ompi_info_t* info, ompi_request_t** request,    \
                                    mca_coll_base_module_t* module);
#define COLL_LOOM_DECLARE_STAGED_COLLECTIVE(api, which) COLL_LOOM_DECLARE_STAGED(api)
COLL_LOOM_COLLECTIVES(COLL_LOOM_DECLARE_STAGED_COLLECTIVE)
COLL_LOOM_NEIGHBORHOODS(COLL_LOOM_DECLARE_STAGED)
int coll_loom_staged_reduce_local(const void* in, void* inout, coll_loom_count_t count,
                                  struct ompi_datatype_t* type, struct ompi_op_t* op,
                                  mca_coll_base_module_t* module);

#endif
