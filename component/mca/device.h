/* Calls whose buffers lie on GPUs on all ranks: performed there, without staging buffers. Includes
 * core_request.h and perform.h downwards; staged.c includes it. */
#ifndef LOOM_COMPONENT_MCA_DEVICE_H
#define LOOM_COMPONENT_MCA_DEVICE_H

#include "component/mca/coll_loom.h"

/* Whether the call has been performed on the GPUs, with *error; alike on all ranks. */
bool coll_loom_carry_on_device(struct coll_loom_module* self, int which, const struct coll_loom_args* args,
                               int* error);
/* The same for a call that does not wait. Whether it has been started, or has failed, with *request and
 * *error: a fact of this rank. False: its buffers are staged, and the same call goes on. It must not be held.
 */
bool coll_loom_start_on_device(struct coll_loom_module* self, int which, const struct coll_loom_args* args,
                               ompi_request_t** request, int* error);
/* The same for a persistent call, as it is made; alike on all ranks. */
bool coll_loom_make_on_device(struct coll_loom_module* self, int which, const struct coll_loom_args* args,
                              ompi_request_t** request, int* error);
/* After a blocking call with staging buffers. */
void coll_loom_staged_call_ended(struct coll_loom_module* self);

#endif
