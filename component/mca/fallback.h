/* Blocking calls that the fallback component performs. Includes coll_loom.h downwards; every file that falls
 * back includes it. */
#ifndef LOOM_COMPONENT_MCA_FALLBACK_H
#define LOOM_COMPONENT_MCA_FALLBACK_H

#include "component/mca/coll_loom.h"

/* During the call the fallback component is in the communicator's table, as if there were no loom: up to 5.0,
 * coll/han passes calls that it cannot perform to the component that it finds there. */
#define COLL_LOOM_DECLARE_FALLBACK(api, which)                                        \
  int coll_loom_fallback_##api(PARAMS_##api struct ompi_communicator_t* communicator, \
                               struct coll_loom_module* self);
COLL_LOOM_COLLECTIVES(COLL_LOOM_DECLARE_FALLBACK)

#endif
