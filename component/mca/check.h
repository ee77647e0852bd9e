/* coll_loom_check: before a call the ranks tell each other which call they are about to make. Includes
 * coll_loom.h downwards. */
#ifndef LOOM_COMPONENT_MCA_CHECK_H
#define LOOM_COMPONENT_MCA_CHECK_H

#include "component/mca/coll_loom.h"

/* Whether all ranks make the same call. If not, the user has been told, and *error is the same error class on
 * all ranks. Collective. */
bool coll_loom_check(struct coll_loom_module* self, const struct coll_loom_args* args,
                     enum coll_loom_form form, int* error);

#endif
