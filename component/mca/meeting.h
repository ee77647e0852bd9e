/* Meetings of all ranks of a communicator, before they exchange anything else. Unlike a collective of the
 * fallback component a meeting can be given up. Includes coll_loom.h downwards; exchange.h and setup.h
 * include it in their code. */
#ifndef LOOM_COMPONENT_MCA_MEETING_H
#define LOOM_COMPONENT_MCA_MEETING_H

#include "component/mca/coll_loom.h"

/* Collective, as the blocking collectives of the communicator: all ranks come in one order to these and to
 * meetings. LOOM_EXCHANGE_PENDING or LOOM_EXCHANGE_FAILED. */
enum loom_exchanged coll_loom_start_meeting(struct coll_loom_module* self);
/* LOOM_EXCHANGE_LEFT: another rank does not come, here or any more. An error of Open MPI's is in self->error.
 */
enum loom_exchanged coll_loom_test_meeting(struct coll_loom_module* self);
/* This rank comes neither to the meeting that is under way, if any, nor to later ones: the others learn that
 * there. Not from a thread of loom's own. */
void coll_loom_leave_meetings(struct coll_loom_module* self);

#endif
