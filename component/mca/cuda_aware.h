/* Calls that fall back with their buffers on devices as they are, without staging buffers: where Open MPI is
 * CUDA-aware, and the fallback component takes such buffers for this call. What is not known for sure is
 * staged.
 *
 * Each rank answers for itself, and others may have another answer, or their buffers on the host. That is
 * safe: who carries the call is decided without it, and the answer only says which address this rank's
 * fallback component gets. The components that are trusted here choose their algorithms by sizes alone, and a
 * message joins device memory here and host memory there: programs may have their buffers so without loom. */
#ifndef LOOM_COMPONENT_MCA_CUDA_AWARE_H
#define LOOM_COMPONENT_MCA_CUDA_AWARE_H

#include "component/mca/coll_loom.h"

/* fallback: the component's module for this form of the collective. which: enum loom_collective or
 * loom_staged_only. */
bool coll_loom_falls_back_on_devices(const struct coll_loom_module* self, int which, enum coll_loom_form form,
                                     const mca_coll_base_module_t* fallback);
/* Whether messages of Open MPI's move device memory. For loom_runtime. */
bool coll_loom_moves_device_memory(void);
/* A buffer of this process lies on a device: says once, at coll_loom_verbose 1, what was found. */
void coll_loom_tell_cuda_aware(const struct coll_loom_module* self);

#endif
