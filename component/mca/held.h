/* Calls that cannot start yet because their operands are still on their way from a device, and the calls of
 * their communicator after them: all ranks start the collectives of a communicator in one order, and ranks
 * differ in what is on a device. They start from Open MPI's progress loop, in the order of the program.
 *
 * Includes coll_loom.h downwards; core_request.c, staged_request.c and staged.c include it. */
#ifndef LOOM_COMPONENT_MCA_HELD_H
#define LOOM_COMPONENT_MCA_HELD_H

#include "component/mca/coll_loom.h"

struct coll_loom_held {
  /* Whether it can start. Never waits. NULL: as soon as those before it have started. */
  bool (*may_start)(struct coll_loom_held* self);
  void (*start)(struct coll_loom_held* self); /* never waits either; the call may be gone on return */
  struct coll_loom_held* next;
};

/* Whether a call that starts now has to be held. Not so for calls from inside the start of a held one: they
 * belong to it. */
bool coll_loom_holds(const struct coll_loom_module* self);
/* Appends a call. */
void coll_loom_hold(struct coll_loom_module* self, struct coll_loom_held* held);
/* For calls that may wait: returns when no call is held. */
void coll_loom_wait_for_held(struct coll_loom_module* self);

#endif
