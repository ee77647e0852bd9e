/* Blocking calls: has the core carry them, or whoever else way.h says. Includes coll_loom.h downwards;
 * entries.h, allgatherv.c and device.c are above it. */
#ifndef LOOM_COMPONENT_MCA_PERFORM_H
#define LOOM_COMPONENT_MCA_PERFORM_H

#include "component/mca/coll_loom.h"

/* False: the fallback component has to carry the call. Else it has ended, with *error. */
bool coll_loom_perform(struct coll_loom_module* self, const struct coll_loom_args* args, int* error);
/* The same answer, from what the core has returned. */
bool coll_loom_has_ended(struct coll_loom_module* self, int result, int* error);

#endif
