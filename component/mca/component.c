/* The component itself: how it begins and ends. */
#include <string.h>

#include "component/mca/coll_loom.h"
#include "component/mca/cuda_aware.h"
#include "component/mca/kernels.h"

static bool initialized;

static bool memory_is(const char* word) {
  return coll_loom_variables.memory != NULL && strcmp(coll_loom_variables.memory, word) == 0;
}

static void progress(void) {
  opal_progress();
}
static bool yield_when_idle(void) {
  return opal_progress_yield_when_idle;
}
static void register_progress(int (*callback)(void), bool urgent) {
  urgent ? opal_progress_register(callback) : opal_progress_register_lp(callback);
}
static void unregister_progress(int (*callback)(void)) {
  opal_progress_unregister(callback);
}
static void log_line(const char* line) {
  opal_output(0, "coll:loom: %s", line);
}

static void show(enum loom_message message, const char* where, const char* cause) {
  /* One message for one cause: of GIVEN_UP the peer shows it. MPI's error handler reports a truncation. To
   * revoke a communicator is no failure. */
  if (message == LOOM_MESSAGE_GIVEN_UP || message == LOOM_MESSAGE_TRUNCATED ||
      message == LOOM_MESSAGE_REVOKED) {
    if (coll_loom_variables.verbose >= 1) opal_output(0, "coll:loom: %s: %s", where, cause);
    return;
  }
  static const char* const topics[] = {
      [LOOM_MESSAGE_DECLINED] = "declined",      [LOOM_MESSAGE_PEER_FAILED] = "peer-failed",
      [LOOM_MESSAGE_TIMEOUT] = "timeout",        [LOOM_MESSAGE_BOOTSTRAP] = "bootstrap",
      [LOOM_MESSAGE_RESOURCES] = "resources",    [LOOM_MESSAGE_DEVICE] = "device",
      [LOOM_MESSAGE_INTERNAL] = "internal",      [LOOM_MESSAGE_MISMATCH] = "different-calls",
      [LOOM_MESSAGE_UNFIT_GRAPH] = "unfit-graph"};
  coll_loom_help(topics[message], where, cause);
}

/* Called once per process, before the first communicator is queried. A disabled component stays open, so that
 * tools find its variables. */
static int init_query(bool progress_threads, bool mpi_threads) {
  (void)progress_threads, (void)mpi_threads;
  struct coll_loom_variables* variables = &coll_loom_variables;
  if (!variables->enable) return OMPI_SUCCESS;

  coll_loom_correct_variables();
  coll_loom_read_filter();
  coll_loom_find_help();
  coll_loom_kernels_init();
  loom_initialize(
      &(struct loom_runtime){.progress = progress,
                             .yield_when_idle = yield_when_idle,
                             .moves_device_memory = coll_loom_moves_device_memory,
                             .register_progress = register_progress,
                             .unregister_progress = unregister_progress,
                             .show = show,
                             .log = log_line,
                             .parameters = {.verbose = variables->verbose,
                                            .avoid_single_copy = !variables->single_copy,
                                            .progress_thread = variables->progress_thread,
                                            .net_devices = variables->net_devices,
                                            .rendezvous = (enum loom_rendezvous)variables->rendezvous,
                                            .reproducible = variables->reproducible,
                                            .only_host_memory = memory_is("host"),
                                            .lane_bytes = variables->lane_bytes,
                                            .staging_bytes = variables->memory_limit,
                                            .timeout_s = variables->timeout_s,
                                            .tune = variables->tune,
                                            .tune_file = variables->tune_file,
                                            .topo_file = variables->topo_file,
                                            .topo_dump_file = variables->topo_dump_file,
                                            .graph_file = variables->graph_file,
                                            .graph_dump_file = variables->graph_dump_file}});
  initialized = true;
  return OMPI_SUCCESS;
}

static int close_component(void) {
  if (initialized) loom_finalize();
  initialized = false;
  return OMPI_SUCCESS;
}

/* The one symbol that the plugin exports. */
__attribute__((visibility("default"))) mca_coll_base_component_t mca_coll_loom_component = {
    .collm_version = {COLL_LOOM_API_VERSION, .mca_component_name = "loom",
                      MCA_BASE_MAKE_VERSION(component, LOOM_VERSION_MAJOR, LOOM_VERSION_MINOR,
                                            LOOM_VERSION_PATCH),
                      .mca_close_component = close_component,
                      .mca_register_component_params = coll_loom_register},
    .collm_data = {MCA_BASE_METADATA_PARAM_NONE},
    .collm_init_query = init_query,
    .collm_comm_query = coll_loom_comm_query,
};
