/* Performs blocking calls, in the way that way.h chooses. Includes coll_loom.h downwards; entries.h,
 * allgatherv.c and device.c are above it. */
#ifndef LOOM_COMPONENT_MCA_PERFORM_H
#define LOOM_COMPONENT_MCA_PERFORM_H

#include "component/mca/coll_loom.h"

/* False: the call falls back. Else it has ended, with *error. */
bool coll_loom_perform(struct coll_loom_module* self, const struct coll_loom_args* args, int* error);
/* The same answer for the result of the core. */
bool coll_loom_has_ended(struct coll_loom_module* self, int result, int* error);

#endif
