/* stand_in.c -- a coll component that stands for those of a CUDA-aware Open MPI, below loom: it notes which
 * buffers it is given, takes those on tests/virtual_gpu as they are by copying them to the host, as coll/cuda
 * does, and passes the call on. Preloaded, it also answers the questions by which loom recognises such an
 * Open MPI.
 *
 *   STAND_IN_FOR=NAME        the class of its modules, by which loom knows components
 *   STAND_IN_CUDA=1          Open MPI has been built with CUDA, and
 *   STAND_IN_CUDA_OFF=1      does not use it (Open MPI 4.1: opal_cuda_support)
 *   STAND_IN_UCX_CUDA=1      UCX moves memory of CUDA's devices */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif

#include "tests/mpi/stand_in/stand_in.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <ucp/api/ucp.h>

#include "component/mca/calls.h"

#define EXPORT __attribute__((visibility("default")))

static bool is_set(const char* variable) {
  const char* const value = getenv(variable);
  return value != NULL && strcmp(value, "1") == 0;
}

/* ---- The questions */

EXPORT int MPIX_Query_cuda_support(void) {
  return is_set("STAND_IN_CUDA");
}

EXPORT ucs_status_t ucp_context_query(ucp_context_h context, ucp_context_attr_t* attributes) {
  ucs_status_t (*const query)(ucp_context_h, ucp_context_attr_t*) =
      (ucs_status_t(*)(ucp_context_h, ucp_context_attr_t*))dlsym(RTLD_NEXT, "ucp_context_query");
  const ucs_status_t status = query(context, attributes);
  if ((attributes->field_mask & UCP_ATTR_FIELD_MEMORY_TYPES) && is_set("STAND_IN_UCX_CUDA"))
    attributes->memory_types |= UCS_BIT(UCS_MEMORY_TYPE_CUDA);
  return status;
}

/* ---- Notes */

#define NAME_OF(api, which) COUNT_##api,
#define NAME_OF_NEIGHBOR(api) COUNT_##api,
enum { COLL_LOOM_APIS(NAME_OF) COLL_LOOM_NEIGHBORHOOD_APIS(NAME_OF_NEIGHBOR) FUNCTIONS };
#undef NAME_OF
#undef NAME_OF_NEIGHBOR
#define NAME_OF(api, which) #api,
#define NAME_OF_NEIGHBOR(api) #api,
static const char* const names[FUNCTIONS] = {COLL_LOOM_APIS(NAME_OF)
                                                 COLL_LOOM_NEIGHBORHOOD_APIS(NAME_OF_NEIGHBOR)};
static struct StandInNote notes[FUNCTIONS];
static bool watching;

EXPORT struct StandInNote stand_in_noted(const char* function) {
  for (int i = 0; i < FUNCTIONS; ++i)
    if (strcmp(names[i], function) == 0) return notes[i];
  abort();
}

static void* cuda(const char* function) {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  return driver != NULL ? dlsym(driver, function) : NULL;
}

static bool is_on_device(const void* buffer) {
  int (*const ask)(void*, int, uintptr_t) = (int (*)(void*, int, uintptr_t))cuda("cuPointerGetAttribute");
  enum { MEMORY_TYPE = 2, DEVICE = 2 };
  unsigned type = 0;
  return ask != NULL && buffer != NULL && buffer != MPI_IN_PLACE &&
         ask(&type, MEMORY_TYPE, (uintptr_t)buffer) == 0 && type == DEVICE;
}

static void note(int function, const struct coll_loom_args* call) {
  const struct StandInNote noted = {notes[function].calls + 1, call->in.buffer, call->out.buffer,
                                    is_on_device(call->in.buffer), is_on_device(call->out.buffer)};
  if (watching) notes[function] = noted;
}

/* ---- Copies of whole allocations */

struct copy {
  char* host; /* NULL: there is none */
  uintptr_t device;
  size_t bytes;
};
struct copies {
  struct copy in, out;
  bool in_one; /* one buffer has both */
};
static struct copies copies_under_way; /* of a call that does not wait */

static void copy_one_to_host(struct coll_loom_side* side, struct copy* copy) {
  copy->host = NULL;
  if (!is_on_device(side->buffer)) return;
  int (*const range)(uintptr_t*, size_t*, uintptr_t) =
      (int (*)(uintptr_t*, size_t*, uintptr_t))cuda("cuMemGetAddressRange_v2");
  int (*const to_host)(void*, uintptr_t, size_t) = (int (*)(void*, uintptr_t, size_t))cuda("cuMemcpyDtoH_v2");
  if (range(&copy->device, &copy->bytes, (uintptr_t)side->buffer) != 0) abort();
  copy->host = malloc(copy->bytes);
  if (copy->host == NULL || to_host(copy->host, copy->device, copy->bytes) != 0) abort();
  side->buffer = copy->host + ((uintptr_t)side->buffer - copy->device);
}

static void copy_to_host(struct coll_loom_args* args, struct copies* copies) {
  copies->in_one = args->in.buffer == args->out.buffer;
  copy_one_to_host(&args->in, &copies->in);
  copy_one_to_host(&args->out, &copies->out);
}

static void end_copy(struct copy* copy, bool is_result) {
  if (copy->host == NULL) return;
  int (*const to_device)(uintptr_t, const void*, size_t) =
      (int (*)(uintptr_t, const void*, size_t))cuda("cuMemcpyHtoD_v2");
  if (is_result && to_device(copy->device, copy->host, copy->bytes) != 0) abort();
  free(copy->host);
  copy->host = NULL;
}

/* AGAIN_bcast has the buffer of `in`. */
static void end_copies(struct copies* copies) {
  end_copy(&copies->in, copies->in_one);
  end_copy(&copies->out, !copies->in_one);
}

EXPORT void stand_in_watch(bool yes) {
  if (yes) memset(notes, 0, sizeof notes);
  watching = yes;
  if (!yes) end_copies(&copies_under_way);
}

/* ---- The component */

typedef struct {
  mca_coll_base_module_t super;
#define MEMBER_OF(api)                              \
  mca_coll_base_module_##api##_fn_t previous_##api; \
  mca_coll_base_module_t* previous_##api##_module;
#define MEMBER(api, which) MEMBER_OF(api)
  COLL_LOOM_APIS(MEMBER)
  COLL_LOOM_NEIGHBORHOOD_APIS(MEMBER_OF)
} stand_in_module_t;
OBJ_CLASS_DECLARATION(stand_in_module_t);

#define BLOCKING(api, which)                                                                            \
  static int do_##api(PARAMS_##api struct ompi_communicator_t* communicator,                            \
                      mca_coll_base_module_t* module) {                                                 \
    stand_in_module_t* const self = (stand_in_module_t*)module;                                         \
    struct coll_loom_args args = {.collective = which, CALL_##api};                                     \
    const struct coll_loom_args* const call = &args;                                                    \
    struct copies copies;                                                                               \
    (void)call; /* of a barrier */                                                                      \
    note(COUNT_##api, &args);                                                                           \
    copy_to_host(&args, &copies);                                                                       \
    const int error = self->previous_##api(AGAIN_##api communicator, self->previous_##api##_module);    \
    end_copies(&copies);                                                                                \
    return error;                                                                                       \
  }                                                                                                     \
  static int do_i##api(PARAMS_##api struct ompi_communicator_t* communicator, ompi_request_t** request, \
                       mca_coll_base_module_t* module) {                                                \
    stand_in_module_t* const self = (stand_in_module_t*)module;                                         \
    struct coll_loom_args args = {.collective = which, CALL_##api};                                     \
    const struct coll_loom_args* const call = &args;                                                    \
    (void)call;                                                                                         \
    note(COUNT_i##api, &args);                                                                          \
    if (watching) copy_to_host(&args, &copies_under_way);                                               \
    return self->previous_i##api(AGAIN_##api communicator, request, self->previous_i##api##_module);    \
  }                                                                                                     \
  PERSISTENT(api)
/* Passed on with the buffers that they have: never on a device. */
#define PERSISTENT(api)                                                             \
  static int do_##api##_init(PARAMS_##api struct ompi_communicator_t* communicator, \
                             struct ompi_info_t* info, ompi_request_t** request,    \
                             mca_coll_base_module_t* module) {                      \
    stand_in_module_t* const self = (stand_in_module_t*)module;                     \
    const struct coll_loom_args args = {CALL_##api};                                \
    note(COUNT_##api##_init, &args);                                                \
    return self->previous_##api##_init(ARGS_##api communicator, info, request,      \
                                       self->previous_##api##_init_module);         \
  }
#define NEIGHBOR(api)                                                                                   \
  static int do_##api(PARAMS_##api struct ompi_communicator_t* communicator,                            \
                      mca_coll_base_module_t* module) {                                                 \
    stand_in_module_t* const self = (stand_in_module_t*)module;                                         \
    const struct coll_loom_args args = {CALL_##api};                                                    \
    note(COUNT_##api, &args);                                                                           \
    return self->previous_##api(ARGS_##api communicator, self->previous_##api##_module);                \
  }                                                                                                     \
  static int do_i##api(PARAMS_##api struct ompi_communicator_t* communicator, ompi_request_t** request, \
                       mca_coll_base_module_t* module) {                                                \
    stand_in_module_t* const self = (stand_in_module_t*)module;                                         \
    const struct coll_loom_args args = {CALL_##api};                                                    \
    note(COUNT_i##api, &args);                                                                          \
    return self->previous_i##api(ARGS_##api communicator, request, self->previous_i##api##_module);     \
  }                                                                                                     \
  PERSISTENT(api)
COLL_LOOM_COLLECTIVES(BLOCKING)
COLL_LOOM_NEIGHBORHOODS(NEIGHBOR)

static int enable(mca_coll_base_module_t* module, ompi_communicator_t* communicator) {
  stand_in_module_t* const self = (stand_in_module_t*)module;
  const mca_coll_base_comm_coll_t* const previous = communicator->c_coll;
  if (previous->coll_allreduce == NULL) return OMPI_ERR_NOT_AVAILABLE;
#define INSTALL_ONE(api)                                           \
  if (previous->coll_##api != NULL) {                              \
    self->previous_##api = previous->coll_##api;                   \
    self->previous_##api##_module = previous->coll_##api##_module; \
    OBJ_RETAIN(self->previous_##api##_module);                     \
    COLL_LOOM_INSTALL(communicator, api, do_##api, module);        \
  }
#define INSTALL(api, which) INSTALL_ONE(api)
  COLL_LOOM_APIS(INSTALL)
  COLL_LOOM_NEIGHBORHOOD_APIS(INSTALL_ONE)
  return OMPI_SUCCESS;
}

static void destruct(stand_in_module_t* self) {
#define RELEASE_ONE(api) \
  if (self->previous_##api##_module != NULL) OBJ_RELEASE(self->previous_##api##_module);
#define RELEASE(api, which) RELEASE_ONE(api)
  COLL_LOOM_APIS(RELEASE)
  COLL_LOOM_NEIGHBORHOOD_APIS(RELEASE_ONE)
}

static int disable(mca_coll_base_module_t* module, ompi_communicator_t* communicator) {
  stand_in_module_t* const self = (stand_in_module_t*)module;
#define GIVE_BACK_ONE(api)                   \
  if (self->previous_##api##_module != NULL) \
    COLL_LOOM_UNINSTALL(communicator, api, module, self->previous_##api, self->previous_##api##_module);
#define GIVE_BACK(api, which) GIVE_BACK_ONE(api)
  COLL_LOOM_APIS(GIVE_BACK)
  COLL_LOOM_NEIGHBORHOOD_APIS(GIVE_BACK_ONE)
  (void)self;
  return OMPI_SUCCESS;
}

static void construct(stand_in_module_t* self) {
  memset((char*)self + sizeof self->super, 0, sizeof *self - sizeof self->super);
  self->super.coll_module_enable = enable;
  self->super.coll_module_disable = disable;
}
OBJ_CLASS_INSTANCE(stand_in_module_t, mca_coll_base_module_t, construct, destruct);

static int init_query(bool progress_threads, bool mpi_threads) {
  (void)progress_threads, (void)mpi_threads;
#if OMPI_MAJOR_VERSION == 4
  opal_built_with_cuda_support = is_set("STAND_IN_CUDA"); /* MPI_T_init_thread() looks whether they fit */
  opal_cuda_support = opal_built_with_cuda_support && !is_set("STAND_IN_CUDA_OFF");
#endif
  const char* const name = getenv("STAND_IN_FOR");
  if (name != NULL) OBJ_CLASS(stand_in_module_t)->cls_name = name;
  return OMPI_SUCCESS;
}

static mca_coll_base_module_t* comm_query(ompi_communicator_t* communicator, int* priority) {
  (void)communicator;
  *priority = 78; /* that of coll/cuda and coll/accelerator */
  return &OBJ_NEW(stand_in_module_t)->super;
}

EXPORT mca_coll_base_component_t mca_coll_stand_in_component = {
    .collm_version = {COLL_LOOM_API_VERSION, .mca_component_name = "stand_in",
                      MCA_BASE_MAKE_VERSION(component, 1, 0, 0)},
    .collm_data = {MCA_BASE_METADATA_PARAM_NONE},
    .collm_init_query = init_query,
    .collm_comm_query = comm_query,
};
