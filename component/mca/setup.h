/* Sets a communicator up at its first collective, and handles failures of calls. Includes coll_loom.h
 * downwards, exchange.h in its code. */
#ifndef LOOM_COMPONENT_MCA_SETUP_H
#define LOOM_COMPONENT_MCA_SETUP_H

#include "component/mca/coll_loom.h"

/* Takes a cold module to its next state. Collective. */
void coll_loom_set_up(struct coll_loom_module* self);
/* For the same set-up by a caller that may not wait. */
struct loom_bootstrap coll_loom_bootstrap_of(struct coll_loom_module* self);
/* The module's state after the core's result. */
enum coll_loom_state coll_loom_state_after(struct coll_loom_module* self, int result);

/* An MPI error class for LOOM_TRUNCATED, LOOM_NOT_COPIED, or a negative result of the core. */
int coll_loom_error_class(int result);
/* The module fails from now on, because of a negative result of the core. */
void coll_loom_break(struct coll_loom_module* self, int result);
/* Of a peer that has left, or been seen dead, Open MPI may hear a little later why (ULFM): the program may
 * ask it, and is to be told if the communicator was revoked. False once it has, or so long `since` then
 * (PMPI_Wtime) that the peer must have left for another reason. */
bool coll_loom_may_hear_more(struct coll_loom_module* self, double since);
/* The MPI error of a call with this result. A negative result breaks the module, the others do not. */
int coll_loom_failed(struct coll_loom_module* self, int result);
/* The same for a call that may wait. */
int coll_loom_failed_waiting(struct coll_loom_module* self, int result);
/* What such a call returns on a communicator that has failed. */
int coll_loom_settled_error(struct coll_loom_module* self);
/* This rank cannot go on, and has told the user. Its peers learn that by their links, or in an exchange if
 * they have none. */
void coll_loom_leave(struct coll_loom_module* self);
/* Tells the user that the glue got no memory. LOOM_ERR_OUT_OF_MEMORY. */
int coll_loom_no_memory(const struct coll_loom_module* self);
/* For want of memory in the glue: tells the user, and leaves. */
void coll_loom_abandon(struct coll_loom_module* self);
/* This rank cannot take part in a call, and has told the user: tells its peers, and later calls fail. Returns
 * an MPI error class. */
int coll_loom_fail_alone(struct coll_loom_module* self, int result);

#endif
