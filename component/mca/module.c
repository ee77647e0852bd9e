/* One module per communicator: chosen, enabled and disabled by Open MPI's coll framework. */
#include "component/mca/entries.h"
#include "component/mca/staged.h"

/* Processes that have met by MPI_Comm_spawn, MPI_Comm_connect or MPI_Comm_join. */
static bool are_of_several_jobs(ompi_group_t* group) {
  const int ranks = ompi_group_size(group);
  if (ranks < 2) return false;
  const opal_process_name_t first = ompi_group_get_proc_name(group, 0);
  for (int rank = 1; rank < ranks; ++rank)
    if (ompi_group_get_proc_name(group, rank).jobid != first.jobid) return true;
  return false;
}

/* Remembers the fallback component, and takes its place. This runs for every communicator of the program, so
 * nothing is set up before the first collective. */
static int enable(mca_coll_base_module_t* module, ompi_communicator_t* communicator) {
  struct coll_loom_module* self = (struct coll_loom_module*)module;
  const mca_coll_base_comm_coll_t* fallback = communicator->c_coll;
  if (fallback->coll_allreduce == NULL || fallback->coll_allgather == NULL) return OMPI_ERR_NOT_AVAILABLE;

  self->communicator = communicator;
  self->of_jobs = are_of_several_jobs(communicator->c_local_group);
  self->one_host = !self->of_jobs && !ompi_group_have_remote_peers(communicator->c_local_group);
  const bool stages = self->stages = loom_may_have_device_memory();
  self->wants_devices = stages && loom_wants_devices();
  /* loom does not take over an operation that no other component has: there would be no fallback. */
#define REMEMBER(api)                                            \
  self->fallback_##api = fallback->coll_##api;                   \
  self->fallback_##api##_module = fallback->coll_##api##_module; \
  OBJ_RETAIN(self->fallback_##api##_module);
#define TAKE_OVER(api, which)                                                           \
  if (fallback->coll_##api != NULL) {                                                   \
    REMEMBER(api)                                                                       \
    self->carries[which] = coll_loom_takes(which) && !OMPI_COMM_IS_INTER(communicator); \
    self->carries_all = self->carries_all && self->carries[which];                      \
    if (stages)                                                                         \
      COLL_LOOM_INSTALL(communicator, api, coll_loom_staged_##api, module);             \
    else if (self->carries[which])                                                      \
      COLL_LOOM_INSTALL(communicator, api, coll_loom_##api, module);                    \
  }
#define INTERCEPT(api)                                                    \
  if (stages && fallback->coll_##api != NULL) {                           \
    REMEMBER(api)                                                         \
    COLL_LOOM_INSTALL(communicator, api, coll_loom_staged_##api, module); \
  }
  self->carries_all = true;
  COLL_LOOM_APIS(TAKE_OVER)
  COLL_LOOM_NEIGHBORHOOD_APIS(INTERCEPT)
  INTERCEPT(reduce_local)
#undef INTERCEPT
#undef TAKE_OVER
#undef REMEMBER
  return OMPI_SUCCESS;
}

/* May be called several times: up to 5.0 once per slot that the module has, and by the destructor. */
static void release(struct coll_loom_module* self) {
  if (self->comm != NULL) loom_comm_destroy(self->comm);
  self->comm = NULL;
  coll_loom_operands_free(&self->operands);
  self->state = COLL_LOOM_DECLINED;
#define LET_GO_OF(api)                                                                   \
  if (self->fallback_##api##_module != NULL) OBJ_RELEASE(self->fallback_##api##_module); \
  self->fallback_##api##_module = NULL;
#define LET_GO(api, which) LET_GO_OF(api)
  COLL_LOOM_APIS(LET_GO)
  COLL_LOOM_NEIGHBORHOOD_APIS(LET_GO_OF)
  LET_GO_OF(reduce_local)
#undef LET_GO
#undef LET_GO_OF
}

static int disable(mca_coll_base_module_t* module, ompi_communicator_t* communicator) {
  struct coll_loom_module* self = (struct coll_loom_module*)module;
#define GIVE_BACK_ONE(api)                                                                               \
  if (self->fallback_##api##_module != NULL) {                                                           \
    COLL_LOOM_UNINSTALL(communicator, api, module, self->fallback_##api, self->fallback_##api##_module); \
  }
#define GIVE_BACK(api, which) GIVE_BACK_ONE(api)
  COLL_LOOM_APIS(GIVE_BACK)
  COLL_LOOM_NEIGHBORHOOD_APIS(GIVE_BACK_ONE)
  GIVE_BACK_ONE(reduce_local)
#undef GIVE_BACK
#undef GIVE_BACK_ONE
  release(self);
  return OMPI_SUCCESS;
}

static void construct(coll_loom_module_t* self) {
  memset((char*)self + sizeof self->super, 0, sizeof *self - sizeof self->super);
  self->super.coll_module_enable = enable;
  self->super.coll_module_disable = disable;
}
OBJ_CLASS_INSTANCE(coll_loom_module_t, mca_coll_base_module_t, construct, release);

/* The set-up needs ranks that all reduce together. Those of an inter-communicator do not: there loom only
 * replaces device buffers by staging buffers. */
mca_coll_base_module_t* coll_loom_comm_query(ompi_communicator_t* communicator, int* priority) {
  if (!coll_loom_variables.enable) {
    /* Who asks for lines, and misspells what enables loom, would see nothing at all. */
    if (coll_loom_variables.verbose >= 1 && communicator == MPI_COMM_WORLD &&
        ompi_comm_rank(communicator) == 0)
      opal_output(0, "coll:loom: off: coll_loom_enable is 0");
    return NULL;
  }
  if (OMPI_COMM_IS_INTER(communicator) && !loom_may_have_device_memory()) return NULL;
  coll_loom_module_t* self = OBJ_NEW(coll_loom_module_t);
  if (self == NULL) return NULL;

  coll_loom_complain(ompi_comm_rank(communicator) == 0);
  *priority = coll_loom_variables.priority;
  return &self->super;
}
