/* Calls with buffers on devices: host memory stands in for each while a call goes on, whoever carries it, so
 * neither loom nor the fallback component ever meets a device buffer. Only where CUDA's driver is there does
 * anything of this stand before the other entry points. What is on a device differs from rank to rank, and
 * nothing is asked of the others.
 *
 * Includes coll_loom.h downwards; staged.c and staged_request.c are above it. */
#ifndef LOOM_COMPONENT_MCA_STAGING_H
#define LOOM_COMPONENT_MCA_STAGING_H

#include "component/mca/coll_loom.h"

/* The staging buffers of one call, and what is copied. */
struct coll_loom_staging;

/* Looks where the buffers of a call lie that matter on this rank. If one is on a device, args gets its
 * staging buffer, and *staging describes the copies; else *staging is NULL. `which`: enum loom_collective, or
 * of calls.h. Returns an MPI error class; then the communicator's peers have been told, as far as they can
 * be. */
int coll_loom_stage(struct coll_loom_module* self, int which, struct coll_loom_args* args,
                    struct coll_loom_staging** staging);

/* Before and after each time that the call is performed: copies operands to the staging buffers, and results
 * back unless `error` says that there are none. Return an MPI error class, the latter also `error`. */
int coll_loom_staging_begin(struct coll_loom_staging* staging);
/* Of a blocking call: may leave the copies to the call, which is next to come to coll_loom_perform. */
int coll_loom_staging_begin_blocking(struct coll_loom_staging* staging);
int coll_loom_staging_end(struct coll_loom_staging* staging, int error);
void coll_loom_staging_free(struct coll_loom_staging* staging);
/* Instead of the call, for lack of memory: frees it, and tells the peers. An MPI error class. */
int coll_loom_staging_give_up(struct coll_loom_staging* staging);

#endif
