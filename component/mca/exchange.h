/* Exchanges between the ranks of a communicator before loom has connected them: by messages of Open MPI's,
 * since a rank can give these up, and collectives not. Includes coll_loom.h downwards. */
#ifndef LOOM_COMPONENT_MCA_EXCHANGE_H
#define LOOM_COMPONENT_MCA_EXCHANGE_H

#include "component/mca/coll_loom.h"

/* Among the tags of collectives none is free in 4.1. pml/ucx has 24 bits for tags, and mtl/ofi down to 20:
 * those of this one are not a program's tag either. Nonblocking collectives of the fallback component count
 * down through it: one of four million would have to be under way at the same time. The next four are loom's,
 * too. */
enum { COLL_LOOM_TAG = -(1 << 22) - (1 << 18) };

/* For loom_bootstrap.exchange; context: the module. Waits. Keeps an error of Open MPI's in self->error. */
enum loom_exchanged coll_loom_exchange(void* context, const struct loom_exchange* exchange,
                                       const struct loom_watch* watch);

/* The same without waiting, one exchange of a module at a time; ranks that wait and ranks that do not may
 * take part in the same. LOOM_EXCHANGE_PENDING, or what coll_loom_test_exchange returns. */
enum loom_exchanged coll_loom_start_exchange(struct coll_loom_module* self,
                                             const struct loom_exchange* exchange);
/* What has become of it. Once it is not pending it is over. */
enum loom_exchanged coll_loom_test_exchange(struct coll_loom_module* self);
/* For loom_bootstrap.standing; context: the module. While it is pending. */
struct loom_standing coll_loom_exchange_standing(void* context);
/* This rank waits for it no longer. LOOM_EXCHANGE_GIVEN_UP. */
enum loom_exchanged coll_loom_give_exchange_up(struct coll_loom_module* self);

/* This rank takes part in no exchange any more, and leaves the one that is under way when it is next tested:
 * there the others learn of it. tell: also where none is under way; from a thread that may call Open MPI.
 * Else from any thread. */
void coll_loom_leave_exchanges(struct coll_loom_module* self, bool tell);
bool coll_loom_has_left_exchanges(const struct coll_loom_module* self);

#endif
