/* Calls with buffers on devices: host memory stands in for each while a call goes on, whoever carries it, so
 * neither loom nor the fallback component ever meets a device buffer. Only where CUDA's driver is there does
 * anything of this stand before the other entry points. What is on a device differs from rank to rank, and
 * nothing is asked of the others. */
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

/* device.c: whether the call has been carried where its buffers lie, with *error. Only with
 * coll_loom_cuda_executor, and then on all ranks or on none. */
bool coll_loom_carry_on_device(struct coll_loom_module* self, int which, const struct coll_loom_args* args,
                               int* error);

/* staged_request.c: a call that does not wait, around the request of whoever carries it. _make
 * comes before that one's is made, so that nothing can fail after; *made is NULL where nothing is on a
 * device. _finish takes what that returned and replaces its request. */
struct coll_loom_staged_request;
int coll_loom_staged_request_make(struct coll_loom_module* self, int which, struct coll_loom_args* args,
                                  bool persistent, struct coll_loom_staged_request** made);
int coll_loom_staged_request_finish(struct coll_loom_staged_request* made, int error,
                                    ompi_request_t** request);

/* This rank cannot take part: its communicator's peers are told, and later calls fail. An MPI error class. */
int coll_loom_fail_alone(struct coll_loom_module* self, int result);

/* entries.c and allgatherv.c: a blocking call, without a look whether it is small. */
#define COLL_LOOM_DECLARE_LONGER_WAY(api, which)                                        \
  int coll_loom_longer_way_##api(PARAMS_##api struct ompi_communicator_t* communicator, \
                                 struct coll_loom_module* self);
COLL_LOOM_COLLECTIVES(COLL_LOOM_DECLARE_LONGER_WAY)

/* staged.c: the entry points that look first. */
#define COLL_LOOM_DECLARE_STAGED(api)                                                      \
  int coll_loom_staged_##api(PARAMS_##api struct ompi_communicator_t* communicator,        \
                             mca_coll_base_module_t* module);                              \
  int coll_loom_staged_i##api(PARAMS_##api struct ompi_communicator_t* communicator,       \
                              ompi_request_t** request, mca_coll_base_module_t* module);   \
  int coll_loom_staged_##api##_init(PARAMS_##api struct ompi_communicator_t* communicator, \
                                    struct ompi_info_t* info, ompi_request_t** request,    \
                                    mca_coll_base_module_t* module);
#define COLL_LOOM_DECLARE_STAGED_COLLECTIVE(api, which) COLL_LOOM_DECLARE_STAGED(api)
COLL_LOOM_COLLECTIVES(COLL_LOOM_DECLARE_STAGED_COLLECTIVE)
COLL_LOOM_NEIGHBORHOODS(COLL_LOOM_DECLARE_STAGED)
int coll_loom_staged_reduce_local(const void* in, void* inout, coll_loom_count_t count,
                                  struct ompi_datatype_t* type, struct ompi_op_t* op,
                                  mca_coll_base_module_t* module);

#endif
