/* Calls with buffers on devices: each has a staging buffer in host memory during a call, so neither loom nor
 * the fallback component ever gets a device buffer, unless that takes it as it is. This runs before the other
 * entry points, and only if CUDA's driver is loaded. Ranks may differ in what is on a device, and do not ask
 * each other.
 *
 * Includes cuda_aware.h and way.h downwards; staged.c and staged_request.c are above it. */
#ifndef LOOM_COMPONENT_MCA_STAGING_H
#define LOOM_COMPONENT_MCA_STAGING_H

#include "component/mca/coll_loom.h"

/* The staging buffers of one call, and the regions to copy. */
struct coll_loom_staging;

/* Finds out where the buffers lie that are significant on this rank. If one is on a device, its staging
 * buffer replaces it in args, and *staging describes the copies. *staging is NULL if none is, or if the
 * fallback component gets the call and takes its buffers as they are (cuda_aware.h). which: enum
 * loom_collective or loom_staged_only. fallback: the component's module for this form; all but the
 * nonblocking one may wait for the device. Returns an MPI error class; after an error the communicator's
 * peers have been told, if possible. */
int coll_loom_stage(struct coll_loom_module* self, int which, enum coll_loom_form form,
                    const mca_coll_base_module_t* fallback, struct coll_loom_args* args,
                    struct coll_loom_staging** staging);
/* Of a blocking call: if loom declines it, the fallback component takes the program's buffers as they are. So
 * the next function gets these. */
bool coll_loom_staging_is_for_loom(const struct coll_loom_staging* staging);

/* Before and after each time the call is performed: copies operands to the staging buffers, and results back
 * unless there is an `error`. Both return an MPI error class; the latter may return `error`. */
int coll_loom_staging_begin(struct coll_loom_staging* staging);
/* For a blocking call, which must be the next to reach coll_loom_perform: may leave the copies to it. args:
 * with the staging buffers. */
int coll_loom_staging_begin_blocking(struct coll_loom_staging* staging, const struct coll_loom_args* args);
int coll_loom_staging_end(struct coll_loom_staging* staging, int error);

/* The same for a call that does not wait, not even for the device. First coll_loom_staging_start, at the
 * start; then load, before the call is performed, and store, after it, again and again as long as they return
 * COLL_LOOM_GOES_ON. All return an MPI error class. */
int coll_loom_staging_start(struct coll_loom_staging* staging);
int coll_loom_staging_load(struct coll_loom_staging* staging);
int coll_loom_staging_store(struct coll_loom_staging* staging);

void coll_loom_staging_free(struct coll_loom_staging* staging);
/* For lack of memory, instead of the call: frees *staging, and tells the peers. Returns an MPI error class.
 */
int coll_loom_staging_give_up(struct coll_loom_staging* staging);

#endif
