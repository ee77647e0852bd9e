/* A call that does not wait, made while its communicator is being set up: a request that gets its inner
 * request when the set-up is over and the call is made again. Includes wrapper_request.h downwards;
 * connecting.c decides which calls are deferred, and when they are made again. */
#ifndef LOOM_COMPONENT_MCA_DEFERRED_H
#define LOOM_COMPONENT_MCA_DEFERRED_H

#include "component/mca/coll_loom.h"

struct coll_loom_deferred;

/* Makes a call that does not wait, as the program would. Returns an MPI error class. */
typedef int (*coll_loom_maker_t)(struct coll_loom_module* self, const struct coll_loom_args* args,
                                 ompi_request_t** request);

/* NULL: there is no memory for it. */
struct coll_loom_deferred* coll_loom_deferred_create(struct coll_loom_module* self,
                                                     const struct coll_loom_args* args,
                                                     coll_loom_maker_t maker);
/* Frees a request that the program has not seen. */
void coll_loom_deferred_drop(struct coll_loom_deferred* deferred);
/* Appends it to the calls that were deferred before. Returns the request for the program. */
ompi_request_t* coll_loom_deferred_append(struct coll_loom_deferred_queue* queue,
                                          struct coll_loom_deferred* deferred);

/* Makes all calls of the queue again, in their order. Calls deferred meanwhile stay in the queue. Returns the
 * calls in a list that ends in the list `made`. */
struct coll_loom_deferred* coll_loom_make_again(struct coll_loom_module* self,
                                                struct coll_loom_deferred_queue* queue,
                                                struct coll_loom_deferred* made);
/* From now on each request of the list completes with its call. The request, the communicator and the module
 * may be gone on return: programs free a request as soon as it is complete. */
void coll_loom_deferred_follow(struct coll_loom_deferred* made);

#endif
