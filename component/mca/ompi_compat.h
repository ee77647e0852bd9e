/* All differences between Open MPI 4.1, 5.0 and 6.0; every other file of the glue is the same for all three.
 */
#ifndef LOOM_COMPONENT_MCA_OMPI_COMPAT_H
#define LOOM_COMPONENT_MCA_OMPI_COMPAT_H

#include "ompi_config.h"

#include "mpi.h"
#include "ompi/communicator/communicator.h"
#include "ompi/constants.h"
#include "ompi/datatype/ompi_datatype.h"
#include "ompi/mca/coll/base/base.h"
#include "ompi/mca/coll/coll.h"
#include "ompi/mca/pml/base/base.h"
#include "ompi/op/op.h"
#include "opal/mca/base/mca_base_pvar.h"
#include "opal/mca/base/mca_base_var.h"
#include "opal/runtime/opal_progress.h"
#include "opal/util/output.h"
#include "opal/util/show_help.h"
#if defined(OPAL_ENABLE_FT_MPI) && OPAL_ENABLE_FT_MPI
#include "ompi/runtime/params.h" /* ompi_ftmpi_enabled */
#endif
#if OMPI_MAJOR_VERSION == 4
#include "opal/runtime/opal_params.h" /* opal_cuda_support */
#endif

/* The component must state exactly the library's version. */
#if OMPI_MAJOR_VERSION == 4
#define COLL_LOOM_API_VERSION MCA_COLL_BASE_VERSION_2_0_0
#elif OMPI_MAJOR_VERSION == 5
#define COLL_LOOM_API_VERSION MCA_COLL_BASE_VERSION_2_4_0
#elif OMPI_MAJOR_VERSION == 6
#define COLL_LOOM_API_VERSION MCA_COLL_BASE_VERSION_3_0_0
#else
#error "loom knows Open MPI 4.1, 5.0 and 6.0"
#endif

/* A convertor that goes on after a part may do so at the wrong place, where the blocks of a type lie at no
 * multiples of its elements (seen in 5.0.7). Where the pieces of memory are, it says rightly. */
#define COLL_LOOM_CONVERTORS_LOSE_THEIR_PLACE (OMPI_MAJOR_VERSION == 5)

/* What Open MPI's Fortran bindings put around a request's req_free reads the request afterwards: its own are
 * in a list, and keep their memory (seen in 6.0.0rc2). */
#define COLL_LOOM_FREED_REQUESTS_ARE_READ (OMPI_MAJOR_VERSION == 6)

/* Counts in the signatures of collectives. */
#if OMPI_MAJOR_VERSION < 6
typedef int coll_loom_count_t;
typedef const int* coll_loom_counts_t;
typedef const int* coll_loom_disps_t;
typedef const MPI_Aint* coll_loom_byte_disps_t; /* of neighbor_alltoallw */
#define COLL_LOOM_NO_COUNTS NULL
#define COLL_LOOM_NO_DISPS NULL
#define COLL_LOOM_NO_BYTE_DISPS NULL
static inline size_t coll_loom_count_at(coll_loom_counts_t counts, size_t i) {
  return (size_t)counts[i];
}
static inline ptrdiff_t coll_loom_disp_at(coll_loom_disps_t disps, size_t i) {
  return disps[i];
}
static inline ptrdiff_t coll_loom_byte_disp_at(coll_loom_byte_disps_t disps, size_t i) {
  return disps[i];
}
/* Copies n elements into `room`, which has 8 bytes for each. */
static inline coll_loom_counts_t coll_loom_copy_counts(void* room, coll_loom_counts_t counts, size_t n) {
  return (coll_loom_counts_t)memcpy(room, counts, n * sizeof *counts);
}
static inline coll_loom_disps_t coll_loom_copy_disps(void* room, coll_loom_disps_t disps, size_t n) {
  return (coll_loom_disps_t)memcpy(room, disps, n * sizeof *disps);
}
static inline coll_loom_byte_disps_t coll_loom_copy_byte_disps(void* room, coll_loom_byte_disps_t disps,
                                                               size_t n) {
  return (coll_loom_byte_disps_t)memcpy(room, disps, n * sizeof *disps);
}
#else
typedef size_t coll_loom_count_t;
typedef ompi_count_array_t coll_loom_counts_t;
typedef ompi_disp_array_t coll_loom_disps_t, coll_loom_byte_disps_t;
#define COLL_LOOM_NO_COUNTS OMPI_COUNT_ARRAY_NULL
#define COLL_LOOM_NO_DISPS OMPI_DISP_ARRAY_NULL
#define COLL_LOOM_NO_BYTE_DISPS OMPI_DISP_ARRAY_NULL
static inline size_t coll_loom_count_at(coll_loom_counts_t counts, size_t i) {
  return ompi_count_array_get(counts, i);
}
static inline ptrdiff_t coll_loom_disp_at(coll_loom_disps_t disps, size_t i) {
  return ompi_disp_array_get(disps, i);
}
static inline ptrdiff_t coll_loom_byte_disp_at(coll_loom_byte_disps_t disps, size_t i) {
  return ompi_disp_array_get(disps, i);
}
static inline coll_loom_counts_t coll_loom_copy_counts(void* room, coll_loom_counts_t counts, size_t n) {
  size_t* const copy = room;
  coll_loom_counts_t copied;
  for (size_t i = 0; i < n; ++i) copy[i] = ompi_count_array_get(counts, i);
  OMPI_COUNT_ARRAY_INIT(&copied, copy);
  return copied;
}
static inline coll_loom_disps_t coll_loom_copy_disps(void* room, coll_loom_disps_t disps, size_t n) {
  ptrdiff_t* const copy = room;
  coll_loom_disps_t copied;
  for (size_t i = 0; i < n; ++i) copy[i] = ompi_disp_array_get(disps, i);
  OMPI_DISP_ARRAY_INIT(&copied, copy);
  return copied;
}
static inline coll_loom_byte_disps_t coll_loom_copy_byte_disps(void* room, coll_loom_byte_disps_t disps,
                                                               size_t n) {
  return coll_loom_copy_disps(room, disps, n);
}
#endif

/* Neighbourhood collectives have the signatures of the others, except neighbor_alltoallw. */
typedef mca_coll_base_module_allgather_fn_t mca_coll_base_module_neighbor_allgather_fn_t;
typedef mca_coll_base_module_allgatherv_fn_t mca_coll_base_module_neighbor_allgatherv_fn_t;
typedef mca_coll_base_module_alltoall_fn_t mca_coll_base_module_neighbor_alltoall_fn_t;
typedef mca_coll_base_module_alltoallv_fn_t mca_coll_base_module_neighbor_alltoallv_fn_t;
typedef mca_coll_base_module_iallgather_fn_t mca_coll_base_module_ineighbor_allgather_fn_t;
typedef mca_coll_base_module_iallgatherv_fn_t mca_coll_base_module_ineighbor_allgatherv_fn_t;
typedef mca_coll_base_module_ialltoall_fn_t mca_coll_base_module_ineighbor_alltoall_fn_t;
typedef mca_coll_base_module_ialltoallv_fn_t mca_coll_base_module_ineighbor_alltoallv_fn_t;
typedef mca_coll_base_module_allgather_init_fn_t mca_coll_base_module_neighbor_allgather_init_fn_t;
typedef mca_coll_base_module_allgatherv_init_fn_t mca_coll_base_module_neighbor_allgatherv_init_fn_t;
typedef mca_coll_base_module_alltoall_init_fn_t mca_coll_base_module_neighbor_alltoall_init_fn_t;
typedef mca_coll_base_module_alltoallv_init_fn_t mca_coll_base_module_neighbor_alltoallv_init_fn_t;

/* For the module's enable: puts function into the communicator's slot. Up to 5.0 the base does that after
 * enable, from the module's own fields. In 6.0 the module does it, and puts the fallback's function back in
 * disable (unless a component of higher priority still has the slot). Up to 5.0 a module that puts another in
 * its place also moves the slot's reference to it; in 6.0 slots hold no reference. */
#if OMPI_MAJOR_VERSION < 6
#define COLL_LOOM_INSTALL(communicator, api, function, module) \
  ((void)(communicator), (module)->coll_##api = (function))
#define COLL_LOOM_UNINSTALL(communicator, api, module, previous, fallback_module) ((void)(communicator))
#define COLL_LOOM_STEPPED_ASIDE(module, other) ((void)0)
#else
#define COLL_LOOM_INSTALL(communicator, api, function, module) \
  MCA_COLL_INSTALL_API(communicator, api, function, module, "loom")
#define COLL_LOOM_UNINSTALL(communicator, api, module, previous, fallback_module) \
  do {                                                                            \
    if ((communicator)->c_coll->coll_##api##_module == (module))                  \
      MCA_COLL_INSTALL_API(communicator, api, previous, fallback_module, "loom"); \
  } while (0)
#define COLL_LOOM_STEPPED_ASIDE(module, other) \
  do {                                         \
    if ((module) != (other)) {                 \
      OBJ_RETAIN(other);                       \
      OBJ_RELEASE(module);                     \
    }                                          \
  } while (0)
#endif

/* Never NULL. */
static inline const char* coll_loom_name(const ompi_communicator_t* communicator) {
#if OMPI_MAJOR_VERSION >= 5
  if (communicator->c_name == NULL) return "";
#endif
  return communicator->c_name;
}

/* The error class of a dead peer; 4.1 and builds without fault tolerance have none. */
#if defined(OPAL_ENABLE_FT_MPI) && OPAL_ENABLE_FT_MPI
#define COLL_LOOM_PROC_FAILED MPI_ERR_PROC_FAILED
#define COLL_LOOM_REVOKED MPI_ERR_REVOKED
#else
#define COLL_LOOM_PROC_FAILED MPI_ERR_OTHER
#define COLL_LOOM_REVOKED MPI_ERR_OTHER
#endif
/* Whether Open MPI hears of failed ranks and of communicators that the program revokes (ULFM). */
static inline bool coll_loom_hears_of_failures(void) {
#if defined(OPAL_ENABLE_FT_MPI) && OPAL_ENABLE_FT_MPI
  return ompi_ftmpi_enabled;
#else
  return false;
#endif
}
static inline bool coll_loom_is_revoked(ompi_communicator_t* communicator) {
#if defined(OPAL_ENABLE_FT_MPI) && OPAL_ENABLE_FT_MPI
  return ompi_comm_is_revoked(communicator);
#else
  (void)communicator;
  return false;
#endif
}
/* It has heard of a failed rank, and refuses collective calls. */
static inline bool coll_loom_has_failed_rank(ompi_communicator_t* communicator) {
#if defined(OPAL_ENABLE_FT_MPI) && OPAL_ENABLE_FT_MPI
  return ompi_comm_coll_revoked(communicator);
#else
  (void)communicator;
  return false;
#endif
}
/* One of those; -1: it does not know one to which it has never sent. */
static inline int coll_loom_failed_rank(ompi_communicator_t* communicator) {
#if defined(OPAL_ENABLE_FT_MPI) && OPAL_ENABLE_FT_MPI
  for (int rank = 0; rank < ompi_comm_size(communicator); ++rank)
    if (!ompi_comm_is_proc_active(communicator, rank, false)) return rank;
#else
  (void)communicator;
#endif
  return -1;
}

/* Acquire: what the request's end has written may be read then. REQUEST_COMPLETE leaves that to who calls it.
 */
static inline bool coll_loom_is_complete(const ompi_request_t* request) {
  return __atomic_load_n((void* const*)&request->req_complete, __ATOMIC_ACQUIRE) == REQUEST_COMPLETED;
}

/* Whether Open MPI has been built with CUDA, and uses it in this process. Up to 4.1 MPIX_Query_cuda_support
 * tells the first alone. It is an extension, which a build may lack. */
__attribute__((weak)) int MPIX_Query_cuda_support(void);
#if OMPI_MAJOR_VERSION == 4
#define COLL_LOOM_CUDA_IS_ON opal_cuda_support
#else
#define COLL_LOOM_CUDA_IS_ON true
#endif
static inline bool coll_loom_open_mpi_uses_cuda(void) {
  return MPIX_Query_cuda_support != NULL && MPIX_Query_cuda_support() == 1 && COLL_LOOM_CUDA_IS_ON;
}
/* What carries its messages: "ob1", "ucx". */
static inline const char* coll_loom_messages_by(void) {
  return mca_pml_base_selected_component.pmlm_version.mca_component_name;
}

/* Whether messages can go through opal_show_help, which shows a message of many ranks only once. In 6.0 it
 * knows only the texts that were compiled into Open MPI, although its header promises more. In 4.1 with PMIx
 * 4 (Debian's 4.1.4) it loses about every third message, Open MPI's own included: mpirun then prints
 * "ORTE_ERROR_LOG: Data unpack ... show_help.c". */
#define COLL_LOOM_HAVE_SHOW_HELP (OMPI_MAJOR_VERSION == 5)

#endif
