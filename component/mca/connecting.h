/* Set-up for programs whose calls do not wait. Starting such a call may not wait for other ranks, but the
 * set-up has to. So the set-up advances in Open MPI's progress loop, and the calls made meanwhile are
 * deferred. When it is over they are made again, in their order.
 *
 * MPI asks that all ranks start the collectives of the fallback component in one order. The set-up keeps that
 * order: it begins at the same call on all ranks; until it is over no call falls back; and
 * afterwards all calls go in the order of the program. So all collectives of the communicator must come to
 * loom.
 *
 * Includes deferred.h and setup.h downwards; way.c, perform.c, device.c and make_request.c ask it. */
#ifndef LOOM_COMPONENT_MCA_CONNECTING_H
#define LOOM_COMPONENT_MCA_CONNECTING_H

#include "component/mca/deferred.h"

/* The module's state as calls in this thread must see it. */
enum coll_loom_state coll_loom_state_of(const struct coll_loom_module* self);
/* Whether this thread makes calls again, inside the progress loop. */
bool coll_loom_is_releasing(void);

/* False: only a call that may wait can set this communicator up. Else a set-up is under way, or over. */
bool coll_loom_start_connecting(struct coll_loom_module* self);
/* True: the call is deferred, with *request and *error, and `maker` makes it when the set-up is over. */
bool coll_loom_defer(struct coll_loom_module* self, const struct coll_loom_args* args,
                     coll_loom_maker_t maker, ompi_request_t** request, int* error);
/* Waits for the end of the set-up. For calls that may wait. */
void coll_loom_finish_connecting(struct coll_loom_module* self);

#endif
