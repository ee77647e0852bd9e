/* Set-up for programs whose calls do not wait. Starting such a call may not wait for other ranks, and the
 * set-up does: so it goes on in Open MPI's progress loop, while the calls made meanwhile are deferred. Then
 * they are made again, in their order.
 *
 * That keeps what MPI asks of the fallback component, that all ranks start its collectives in one order:
 * until the set-up is over, which began at the same call on all ranks, nothing but its exchanges falls back,
 * and afterwards everything goes as the program made it. So this needs all collectives of the communicator to
 * come by loom.
 *
 * Includes deferred.h and setup.h downwards; way.c, perform.c, device.c and make_request.c ask it. */
#ifndef LOOM_COMPONENT_MCA_CONNECTING_H
#define LOOM_COMPONENT_MCA_CONNECTING_H

#include "component/mca/deferred.h"

/* The module's state as calls in this thread have to see it. */
enum coll_loom_state coll_loom_state_of(const struct coll_loom_module* self);
/* In this thread: calls are made again, from inside the progress loop. */
bool coll_loom_is_releasing(void);

/* False: this communicator waits for a call that may wait. Else a set-up is under way, or over. */
bool coll_loom_start_connecting(struct coll_loom_module* self);
/* True: the call is deferred until the set-up is over, with *request and *error, and `maker` makes it then.
 * Not the exchanges of a set-up, nor what is called from inside one, unless from_anywhere. */
bool coll_loom_defer(struct coll_loom_module* self, const struct coll_loom_args* args, bool from_anywhere,
                     coll_loom_maker_t maker, ompi_request_t** request, int* error);
/* Waits for the end of the set-up. For calls that may. */
void coll_loom_finish_connecting(struct coll_loom_module* self);

#endif
