/* Exchanges of a set-up, through the fallback component; and meetings (meeting.h). Includes coll_loom.h
 * downwards, fallback.h and meeting.h in its code. */
#ifndef LOOM_COMPONENT_MCA_EXCHANGE_H
#define LOOM_COMPONENT_MCA_EXCHANGE_H

#include "component/mca/coll_loom.h"

/* For loom_bootstrap.exchange; context: the module. Waits. Keeps an error of Open MPI's in self->error. */
enum loom_exchanged coll_loom_exchange(void* context, const struct loom_exchange* exchange,
                                       const struct loom_watch* watch);

/* For a set-up that does not wait: one exchange of a module at a time. Only while its calls are deferred
 * (connecting.h), for these exchanges must keep their place among those of Open MPI's that do not wait
 * either. Whether the fallback component has what it takes: */
bool coll_loom_may_start_exchange(const struct coll_loom_module* self);
/* LOOM_EXCHANGE_PENDING or LOOM_EXCHANGE_FAILED. */
enum loom_exchanged coll_loom_start_exchange(struct coll_loom_module* self,
                                             const struct loom_exchange* exchange);
/* What has become of it. Once it is not pending it is over. */
enum loom_exchanged coll_loom_test_exchange(struct coll_loom_module* self);
/* As coll_loom_exchange, by the same collectives as these: where some ranks of a set-up wait and some do not.
 */
enum loom_exchanged coll_loom_exchange_with_them(void* context, const struct loom_exchange* exchange,
                                                 const struct loom_watch* watch);

/* Gathers bytes of all ranks, and waits. Returns an MPI error class. */
int coll_loom_gather_bytes(struct coll_loom_module* self, const void* in, void* out, size_t bytes_per_rank);

/* Whether this thread is in an exchange, so that its calls are the fallback component's own. */
bool coll_loom_is_gathering(void);
/* Sets this, and returns the former value. */
bool coll_loom_set_gathering(bool yes);

#endif
