/* Blocking calls whose buffers lie on GPUs on all ranks: performed there, without staging buffers. Includes
 * coll_loom.h downwards; staged.c includes it. */
#ifndef LOOM_COMPONENT_MCA_DEVICE_H
#define LOOM_COMPONENT_MCA_DEVICE_H

#include "component/mca/coll_loom.h"

/* Whether the call has been performed on the GPUs, with *error; alike on all ranks. */
bool coll_loom_carry_on_device(struct coll_loom_module* self, int which, const struct coll_loom_args* args,
                               int* error);
/* After a blocking call with staging buffers. */
void coll_loom_staged_call_ended(struct coll_loom_module* self);

#endif
