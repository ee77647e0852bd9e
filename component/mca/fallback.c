#include "component/mca/fallback.h"

/* The fallback component may put the next component into the table in its own place. Then that one is loom's
 * fallback component from now on, and loom's reference moves to it. */
#define FALLBACK(api, which)                                                                        \
  int coll_loom_fallback_##api(PARAMS_##api struct ompi_communicator_t* communicator,               \
                               struct coll_loom_module* self) {                                     \
    mca_coll_base_comm_coll_t* table = communicator->c_coll;                                        \
    const mca_coll_base_module_##api##_fn_t installed = table->coll_##api;                          \
    mca_coll_base_module_t* const module = table->coll_##api##_module;                              \
    table->coll_##api = self->fallback_##api;                                                       \
    table->coll_##api##_module = self->fallback_##api##_module;                                     \
    const int error = self->fallback_##api(ARGS_##api communicator, self->fallback_##api##_module); \
    COLL_LOOM_STEPPED_ASIDE(self->fallback_##api##_module, table->coll_##api##_module);             \
    self->fallback_##api = table->coll_##api;                                                       \
    self->fallback_##api##_module = table->coll_##api##_module;                                     \
    table->coll_##api = installed;                                                                  \
    table->coll_##api##_module = module;                                                            \
    return error;                                                                                   \
  }
COLL_LOOM_COLLECTIVES(FALLBACK)
