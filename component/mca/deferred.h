/* A call that does not wait, made while its communicator is being set up: a request whose inner one comes
 * when the set-up is over and the call is made again. Includes wrapper_request.h downwards; connecting.c
 * decides which calls are deferred, and when they are made again. */
#ifndef LOOM_COMPONENT_MCA_DEFERRED_H
#define LOOM_COMPONENT_MCA_DEFERRED_H

#include "component/mca/coll_loom.h"

struct coll_loom_deferred;

/* Makes a call that does not wait, as if the program did. An MPI error class. */
typedef int (*coll_loom_maker_t)(struct coll_loom_module* self, const struct coll_loom_args* args,
                                 ompi_request_t** request);

/* NULL: there is no memory for it. */
struct coll_loom_deferred* coll_loom_deferred_create(struct coll_loom_module* self,
                                                     const struct coll_loom_args* args,
                                                     coll_loom_maker_t maker);
/* The program has not seen it. */
void coll_loom_deferred_drop(struct coll_loom_deferred* deferred);
/* Behind those that were deferred before. Returns what the program gets. */
ompi_request_t* coll_loom_deferred_append(struct coll_loom_deferred_queue* queue,
                                          struct coll_loom_deferred* deferred);

/* Makes all calls of the queue again, in their order. What is deferred meanwhile stays in the queue. Returns
 * them in a list, before whose head `made` comes. */
struct coll_loom_deferred* coll_loom_make_again(struct coll_loom_module* self,
                                                struct coll_loom_deferred_queue* queue,
                                                struct coll_loom_deferred* made);
/* Each request of the list goes with its call from now on. It, the communicator and the module may be gone on
 * return: programs free a request as soon as it is complete. */
void coll_loom_deferred_follow(struct coll_loom_deferred* made);

#endif
