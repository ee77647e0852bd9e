/* The component itself: its MCA variables, its beginning and end. */
#include <stdatomic.h>
#include <string.h>

#include "component/mca/coll_loom.h"
#include "component/mca/kernels.h"

enum { DEFAULT_MEMORY_LIMIT = 256 * 1024 * 1024 };
/* An estimate, not measured: below, two copies to and from the host cost less than a round's launches. */
enum { DEFAULT_SMALL_BYTES = 64 * 1024 };
enum {
  DEFAULT_OVERLAP_BYTES = 1024 * 1024
}; /* hides what making two streams costs: an estimate, not measured */
enum { DEFAULT_TWO_LEVELS = 64 };
enum { DEFAULT_PRIORITY = 90 }; /* above all of Open MPI's own: the highest, coll/cuda, has 78 */

struct coll_loom_variables coll_loom_variables;
static struct coll_loom_variables as_set; /* by the user */
static atomic_bool complained;
static bool initialized;

static int register_variable(const char* name, const char* help, mca_base_var_type_t type,
                             mca_base_var_info_lvl_t level, void* storage) {
  return mca_base_component_var_register(&mca_coll_loom_component.collm_version, name, help, type, NULL, 0, 0,
                                         level, MCA_BASE_VAR_SCOPE_READONLY, storage);
}

/* One of several words, which Open MPI itself checks. */
static int register_choice(const char* name, const char* help, const mca_base_var_enum_value_t* values,
                           mca_base_var_info_lvl_t level, int* storage) {
  mca_base_var_enum_t* words;
  if (mca_base_var_enum_create(name, values, &words) != OPAL_SUCCESS) return OMPI_ERR_OUT_OF_RESOURCE;
  const int index = mca_base_component_var_register(&mca_coll_loom_component.collm_version, name, help,
                                                    MCA_BASE_VAR_TYPE_INT, words, 0, 0, level,
                                                    MCA_BASE_VAR_SCOPE_READONLY, storage);
  OBJ_RELEASE(words);
  return index;
}

/* One that a program may change while it runs, on all ranks at once. */
static int register_changeable(const char* name, const char* help, mca_base_var_type_t type, void* storage) {
  return mca_base_component_var_register(&mca_coll_loom_component.collm_version, name, help, type, NULL, 0,
                                         MCA_BASE_VAR_FLAG_SETTABLE, OPAL_INFO_LVL_3, MCA_BASE_VAR_SCOPE_ALL,
                                         storage);
}

static int register_variables(void) {
  static const mca_base_var_enum_value_t protocols[] = {
      {LOOM_INLINE, "inline"}, {LOOM_SIMPLE, "simple"}, {LOOM_LL, "ll"}, {LOOM_LL128, "ll128"}, {0, NULL}};
  static const mca_base_var_enum_value_t algorithms[] = {{LOOM_BEST, "auto"},
                                                         {LOOM_BOARDS, "boards"},
                                                         {LOOM_SINGLE_COPY, "single_copy"},
                                                         {LOOM_RINGS, "rings"},
                                                         {LOOM_TREES, "trees"},
                                                         {LOOM_STAR, "star"},
                                                         {LOOM_BY_SIZE, "by_size"},
                                                         {0, NULL}};
  static const mca_base_var_enum_value_t executors[] = {{LOOM_STAGED, "staged"},
                                                        {LOOM_HANDED_OVER, "handed_over"},
                                                        {LOOM_PERSISTENT, "persistent"},
                                                        {LOOM_EITHER, "auto"},
                                                        {0, NULL}};
  static const mca_base_var_enum_value_t rendezvous[] = {{LOOM_RENDEZVOUS_AUTO, "auto"},
                                                         {LOOM_RENDEZVOUS_NEVER, "never"},
                                                         {LOOM_RENDEZVOUS_ALWAYS, "always"},
                                                         {0, NULL}};
  struct coll_loom_variables* variables = &coll_loom_variables;
  *variables = (struct coll_loom_variables){.priority = DEFAULT_PRIORITY,
                                            .single_copy = true,
                                            .hier = DEFAULT_TWO_LEVELS,
                                            .memory = (char*)"auto",
                                            .memory_limit = DEFAULT_MEMORY_LIMIT,
                                            .small_bytes = DEFAULT_SMALL_BYTES,
                                            .overlap_bytes = DEFAULT_OVERLAP_BYTES};
  const int indices[] = {
      register_variable("enable", "Let loom carry collective operations; without it loom does nothing at all",
                        MCA_BASE_VAR_TYPE_BOOL, OPAL_INFO_LVL_1, &variables->enable),
      register_variable(
          "verbose",
          "How much loom tells about its work: 0 nothing, 1 a line per communicator and whenever the "
          "ranks of a host find the other of two ways faster, 2 also a line per kind of call",
          MCA_BASE_VAR_TYPE_INT, OPAL_INFO_LVL_3, &variables->verbose),
      register_variable(
          "timeout",
          "Longest time in seconds that a collective call waits for another process before it "
          "fails with a message that names who is missing; 0 waits forever. It does not cover the "
          "exchanges that set a communicator up",
          MCA_BASE_VAR_TYPE_DOUBLE, OPAL_INFO_LVL_3, &variables->timeout_s),
      register_variable(
          "progress_thread",
          "Nonblocking and persistent calls advance in a thread of each process while the program computes. "
          "The thread sleeps while there are none; it is not bound to the core of its process",
          MCA_BASE_VAR_TYPE_BOOL, OPAL_INFO_LVL_3, &variables->progress_thread),
      register_variable(
          "net_devices",
          "Network devices that loom uses between hosts, in the words of UCX_NET_DEVICES "
          "(mlx5_0:1,mlx5_1:1); "
          "of several each carries as much as the others, the first of a rank to the first of another and so "
          "on. "
          "Empty: what UCX_NET_DEVICES says, else InfiniBand ports near the rank, or what UCX finds best",
          MCA_BASE_VAR_TYPE_STRING, OPAL_INFO_LVL_3, &variables->net_devices),
      register_choice("rendezvous",
                      "Whether the receiver's network fetches what crosses between hosts straight into its "
                      "slot, rather than "
                      "that it is sent along and copied there: auto, above 16 KiB where the network is "
                      "neither TCP nor UD, from "
                      "the size on that UCX_RNDV_THRESH says; never; always, above 16 KiB. It may differ "
                      "from rank to rank",
                      rendezvous, OPAL_INFO_LVL_6, &variables->rendezvous),
      register_variable("topo_file",
                        "Topology file (NCCL's XML or hwloc's) of one host, which stands for every host in "
                        "place of what loom "
                        "finds there; the same on all ranks. See `loom topo`",
                        MCA_BASE_VAR_TYPE_STRING, OPAL_INFO_LVL_5, &variables->topo_file),
      register_variable(
          "topo_dump_file",
          "File to which rank 0 writes its host as loom sees it, ranks included, in hwloc's XML",
          MCA_BASE_VAR_TYPE_STRING, OPAL_INFO_LVL_5, &variables->topo_dump_file),
      register_variable(
          "graph_file",
          "Channel file (NCCL's graph XML) whose ring each host takes instead of searching one; the same "
          "on all ranks. Without ranks in it, it serves every host. See `loom search --graph-file`",
          MCA_BASE_VAR_TYPE_STRING, OPAL_INFO_LVL_5, &variables->graph_file),
      register_variable("graph_dump_file",
                        "File to which rank 0 writes the ring of its host, in NCCL's graph XML",
                        MCA_BASE_VAR_TYPE_STRING, OPAL_INFO_LVL_5, &variables->graph_dump_file),
      register_variable(
          "reproducible",
          "Sums and products of floating point numbers have the same bits for every size, number "
          "of hosts and placement of the same ranks; between hosts each rank then fetches every "
          "operand. Set it alike on all ranks",
          MCA_BASE_VAR_TYPE_BOOL, OPAL_INFO_LVL_3, &variables->reproducible),
      register_variable(
          "single_copy",
          "Ranks of one host read each other's buffers where the kernel permits it and where that is "
          "faster; 0 always copies through shared memory",
          MCA_BASE_VAR_TYPE_BOOL, OPAL_INFO_LVL_6, &variables->single_copy),
      register_choice("protocol",
                      "How small messages cross between the ranks of a host: in the cache line of their flag "
                      "as far as they fit, "
                      "or by one of the protocols that GPUs use. Takes effect where all ranks set the same",
                      protocols, OPAL_INFO_LVL_6, &variables->protocol),
      register_choice("algorithm",
                      "Who carries what several algorithms could, for tests and comparisons: auto, the one "
                      "that is best at "
                      "the size, or of two the one that has been faster; by_size, without timing any; inside "
                      "a host boards or "
                      "single_copy; between hosts rings or trees, for small messages too, which the "
                      "component below is better at, or star, of the two ways of coll_loom_two_levels. "
                      "Takes effect where all ranks set the same",
                      algorithms, OPAL_INFO_LVL_6, &variables->algorithm),
      register_variable(
          "two_levels",
          "Between up to 16 hosts, some with several ranks, small allreduces, reduces, "
          "reduce_scatter_blocks, "
          "broadcasts, allgathers and barriers (of one rank each: small allreduces and "
          "reduce_scatter_blocks) go inside the "
          "hosts first and then between one rank of each: from so many of them on a communicator on, for "
          "that "
          "takes links that few calls are not worth; 1: at once; 0 leaves them to the fallback component",
          MCA_BASE_VAR_TYPE_INT, OPAL_INFO_LVL_6, &variables->hier),
      register_variable(
          "include",
          "Collectives that loom may carry, by name and separated by commas, in all their forms; "
          "after a ^ those that it may not. Empty: all. Set it alike on all ranks",
          MCA_BASE_VAR_TYPE_STRING, OPAL_INFO_LVL_3, &variables->include),
      register_variable(
          "exclude",
          "Collectives that loom may not carry, by name and separated by commas, in all their forms; "
          "after a ^ the only ones that it may. Set it alike on all ranks",
          MCA_BASE_VAR_TYPE_STRING, OPAL_INFO_LVL_3, &variables->exclude),
      register_variable(
          "memory",
          "Where the program's buffers lie: auto, anywhere, and loom looks; host, none is on a GPU, which "
          "spares the look where there is one. May differ between ranks",
          MCA_BASE_VAR_TYPE_STRING, OPAL_INFO_LVL_5, &variables->memory),
      register_variable(
          "memory_limit",
          "The most bytes of host memory, with its pages locked, that a process keeps for copies of buffers "
          "on GPUs. What needs more goes through memory that is not locked, which is slower",
          MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, OPAL_INFO_LVL_5, &variables->memory_limit),
      register_choice(
          "cuda_executor",
          "What carries blocking calls whose buffers lie on GPUs on all ranks, which are on one host: "
          "staged, "
          "copies through host memory; handed_over, copies and kernels on the GPUs, step by step; "
          "persistent, "
          "one kernel for a call, where each rank has its own GPU or MPS serves all who share one; auto, "
          "persistent where each rank has its own and the collective has that way, and else handed_over. "
          "Experimental: it has never run on a GPU. Takes effect where all ranks set the same and can",
          executors, OPAL_INFO_LVL_5, &variables->cuda_executor),
      register_variable("small_bytes",
                        "Calls on GPU buffers whose message, or block, is smaller go through host memory all "
                        "the same. Takes "
                        "effect with coll_loom_cuda_executor; set it alike on all ranks",
                        MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, OPAL_INFO_LVL_5, &variables->small_bytes),
      register_variable("overlap_bytes",
                        "Blocking allreduces, reduces, reduce_scatters, bcasts, allgathers and alltoalls "
                        "that copy a GPU buffer of at "
                        "least so many bytes through host memory copy it part by part while the call goes "
                        "on, if it goes over "
                        "loom's boards, rings or trees; 0: none. May differ between ranks",
                        MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, OPAL_INFO_LVL_5, &variables->overlap_bytes),
      register_changeable(
          "check",
          "Before each collective the ranks compare what they are about to call, and report who "
          "differs instead of hanging or mixing data up. Every call then costs at least an allgather, "
          "and nonblocking ones wait for it. Set it alike on all ranks",
          MCA_BASE_VAR_TYPE_BOOL, &variables->check),
      register_variable("priority",
                        "Priority of loom among the coll components, 0 to 100: the highest one that can "
                        "carry an operation does",
                        MCA_BASE_VAR_TYPE_INT, OPAL_INFO_LVL_6, &variables->priority)};
  for (size_t i = 0; i < sizeof indices / sizeof *indices; ++i) {
    if (indices[i] < 0) return indices[i];
  }
  return OMPI_SUCCESS;
}

static int register_component(void) {
  const int error = register_variables();
  return error != OMPI_SUCCESS ? error : coll_loom_register_counters();
}

/* Open MPI makes a huge number of a negative one where the variable is unsigned and so long. A component with
 * a shorter one it would not load then: hence coll_loom_two_levels is an int. */
static bool is_negative(unsigned long long value) {
  return value > INT64_MAX;
}
static void put_right(unsigned long long* value, unsigned long long otherwise) {
  if (is_negative(*value)) *value = otherwise;
}
static void complain_of_bytes(const char* topic, const char* name, unsigned long long value, int otherwise) {
  char setting[64], standard[16];
  if (!is_negative(value)) return;
  snprintf(setting, sizeof setting, "%s = %lld", name, (long long)value);
  snprintf(standard, sizeof standard, "%d", otherwise);
  coll_loom_help(topic, setting, standard);
}

static bool memory_is(const char* word) {
  return coll_loom_variables.memory != NULL && strcmp(coll_loom_variables.memory, word) == 0;
}

/* One topic each: of several messages with one topic, Open MPI shows the first. */
void coll_loom_complain(bool show) {
  char setting[64];
  if (atomic_load_explicit(&complained, memory_order_relaxed) || atomic_exchange(&complained, true)) return;
  if (show && as_set.priority != coll_loom_variables.priority) {
    snprintf(setting, sizeof setting, "coll_loom_priority = %d", as_set.priority);
    coll_loom_help("bad-priority", setting, "90");
  }
  if (show && as_set.timeout_s != coll_loom_variables.timeout_s) {
    snprintf(setting, sizeof setting, "coll_loom_timeout = %g", as_set.timeout_s);
    coll_loom_help("bad-timeout", setting, "0");
  }
  if (show && as_set.hier != coll_loom_variables.hier) {
    snprintf(setting, sizeof setting, "coll_loom_two_levels = %d", as_set.hier);
    coll_loom_help("bad-two-levels", setting, "64");
  }
  if (show) {
    complain_of_bytes("bad-memory-limit", "coll_loom_memory_limit", as_set.memory_limit,
                      DEFAULT_MEMORY_LIMIT);
    complain_of_bytes("bad-small-bytes", "coll_loom_small_bytes", as_set.small_bytes, DEFAULT_SMALL_BYTES);
    complain_of_bytes("bad-overlap-bytes", "coll_loom_overlap_bytes", as_set.overlap_bytes,
                      DEFAULT_OVERLAP_BYTES);
  }
  if (show && !memory_is("host") && !memory_is("auto"))
    coll_loom_help("bad-memory", coll_loom_variables.memory != NULL ? coll_loom_variables.memory : "",
                   "auto");
  const char *variable, *name = coll_loom_bad_filter(&variable);
  if (show && name != NULL) coll_loom_help("bad-switch", variable, name);
}

static void progress(void) {
  opal_progress();
}
static bool yield_when_idle(void) {
  return opal_progress_yield_when_idle;
}
static void register_progress(int (*callback)(void)) {
  opal_progress_register_lp(callback);
}
static void unregister_progress(int (*callback)(void)) {
  opal_progress_unregister(callback);
}
static void log_line(const char* line) {
  opal_output(0, "coll:loom: %s", line);
}

static void show(enum loom_message message, const char* where, const char* cause) {
  /* One message for one cause; and of what does not fit MPI's error handler speaks. */
  if (message == LOOM_MESSAGE_GIVEN_UP || message == LOOM_MESSAGE_TRUNCATED) {
    if (coll_loom_variables.verbose >= 1) opal_output(0, "coll:loom: %s: %s", where, cause);
    return;
  }
  static const char* const topics[] = {
      [LOOM_MESSAGE_DECLINED] = "declined",   [LOOM_MESSAGE_PEER_FAILED] = "peer-failed",
      [LOOM_MESSAGE_TIMEOUT] = "timeout",     [LOOM_MESSAGE_BOOTSTRAP] = "bootstrap",
      [LOOM_MESSAGE_RESOURCES] = "resources", [LOOM_MESSAGE_DEVICE] = "device",
      [LOOM_MESSAGE_INTERNAL] = "internal",   [LOOM_MESSAGE_MISMATCH] = "different-calls"};
  coll_loom_help(topics[message], where, cause);
}

/* Rings of persistent kernels do not go in order of rank. */
static enum loom_cuda_executor cuda_executor(const struct coll_loom_variables* variables) {
  const enum loom_cuda_executor wanted = (enum loom_cuda_executor)variables->cuda_executor;
  if (!variables->reproducible) return wanted;
  return wanted == LOOM_PERSISTENT ? LOOM_STAGED : wanted == LOOM_EITHER ? LOOM_HANDED_OVER : wanted;
}

/* Once per process, before the first communicator is queried. A disabled component stays open, so that tools
 * find its variables. */
static int init_query(bool progress_threads, bool mpi_threads) {
  (void)progress_threads, (void)mpi_threads;
  struct coll_loom_variables* variables = &coll_loom_variables;
  if (!variables->enable) return OMPI_SUCCESS;

  as_set = *variables;
  if (variables->priority < 0 || variables->priority > 100) variables->priority = DEFAULT_PRIORITY;
  if (!(variables->timeout_s >= 0)) variables->timeout_s = 0;
  if (variables->hier < 0) variables->hier = DEFAULT_TWO_LEVELS;
  put_right(&variables->memory_limit, DEFAULT_MEMORY_LIMIT);
  put_right(&variables->small_bytes, DEFAULT_SMALL_BYTES);
  put_right(&variables->overlap_bytes, DEFAULT_OVERLAP_BYTES);

  coll_loom_read_filter();
  coll_loom_find_help();
  coll_loom_kernels_init();
  loom_initialize(
      &(struct loom_runtime){.progress = progress,
                             .yield_when_idle = yield_when_idle,
                             .register_progress = register_progress,
                             .unregister_progress = unregister_progress,
                             .show = show,
                             .log = log_line,
                             .parameters = {.verbose = variables->verbose,
                                            .hier = (unsigned)variables->hier,
                                            .avoid_single_copy = !variables->single_copy,
                                            .progress_thread = variables->progress_thread,
                                            .net_devices = variables->net_devices,
                                            .rendezvous = (enum loom_rendezvous)variables->rendezvous,
                                            .protocol = (enum loom_protocol)variables->protocol,
                                            .preference = (enum loom_preference)variables->algorithm,
                                            .only_host_memory = memory_is("host"),
                                            .staging_bytes = variables->memory_limit,
                                            .cuda_executor = cuda_executor(variables),
                                            .small_bytes = variables->small_bytes,
                                            .timeout_s = variables->timeout_s,
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
                      .mca_register_component_params = register_component},
    .collm_data = {MCA_BASE_METADATA_PARAM_NONE},
    .collm_init_query = init_query,
    .collm_comm_query = coll_loom_comm_query,
};
