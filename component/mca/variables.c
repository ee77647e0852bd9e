/* The table of MCA variables. */
#include "component/mca/variables.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "component/core.h"

static const struct coll_loom_word memories[] = {{0, "auto"}, {1, "host"}, {0, NULL}};
static const struct coll_loom_word rendezvous[] = {{LOOM_RENDEZVOUS_AUTO, "auto"},
                                                   {LOOM_RENDEZVOUS_NEVER, "never"},
                                                   {LOOM_RENDEZVOUS_ALWAYS, "always"},
                                                   {0, NULL}};
#define AT(member) offsetof(struct coll_loom_variables, member)
#define KIB 1024.0
#define MIB (1024 * KIB)

const struct coll_loom_variable coll_loom_variable_table[] = {
    /* For users: what a program or a job may need. */
    {.name = "enable",
     .type = COLL_LOOM_BOOL,
     .level = 1,
     .at = AT(enable),
     .same_on_all_ranks = true,
     .help = "1: loom carries collective operations. 0: it does nothing at all"},
    {.name = "verbose",
     .type = COLL_LOOM_INT,
     .level = 2,
     .at = AT(verbose),
     .highest = INFINITY,
     .help = "What loom reports. 0: errors only. 1: also a line for each communicator that it connects, with "
             "the time and bytes of each part, lines for the links between its GPUs, for each setting that "
             "has no effect there, and whenever the ranks of a host find the other of two algorithms "
             "faster. 2: also a line for the first call of each collective by each algorithm"},
    {.name = "timeout",
     .type = COLL_LOOM_SECONDS,
     .level = 2,
     .at = AT(timeout_s),
     .highest = INFINITY,
     .help =
         "Seconds that a call waits for another process without progress. Then it fails with a message "
         "that names the missing process, or, while ranks are being connected, maybe one that waits for it. "
         "0: no limit"},
    {.name = "reproducible",
     .type = COLL_LOOM_BOOL,
     .level = 2,
     .at = AT(reproducible),
     .same_on_all_ranks = true,
     .help = "1: reductions of floating-point numbers by the same ranks give the same bits for every message "
             "size, number of hosts and placement. Between hosts each rank then fetches every operand, and "
             "on one host none add up in groups, which is slower"},
    {.name = "net_devices",
     .type = COLL_LOOM_STRING,
     .level = 3,
     .at = AT(net_devices),
     .help =
         "Network devices between hosts, as in UCX_NET_DEVICES: mlx5_0:1,mlx5_1:1. Each device carries an "
         "equal share, and the first of a host sends to the first of another and so on: so name equally "
         "fast devices, in the same order on all hosts. Empty: UCX chooses among those in UCX_NET_DEVICES; "
         "if that is empty too, loom takes those of several InfiniBand ports that are nearest to the rank, "
         "of the fastest fabric; if there are fewer than two, UCX_TLS leaves them out, or links over them "
         "fail, UCX chooses. Channels of GPUs go through the port beside each GPU, of those that are named, "
         "or else of the fastest fabric. coll_loom_verbose 2 tells which are used"},
    {.name = "progress_thread",
     .type = COLL_LOOM_BOOL,
     .level = 3,
     .at = AT(progress_thread),
     .help = "1: nonblocking and persistent calls advance in a thread of each process while the program "
             "computes. The thread sleeps while there are none, and is not bound to the core of its process. "
             "Worth it where a core is free"},
    {.name = "tune",
     .type = COLL_LOOM_STRING,
     .level = 3,
     .at = AT(tune),
     .same_on_all_ranks = true,
     .help =
         "Rules that replace loom's own choice of algorithms: COLLECTIVE:ALGORITHM or "
         "COLLECTIVE:FROM-TO:ALGORITHM, separated by commas, such as allreduce:0-8k:hier,bcast:ring. "
         "COLLECTIVE may be all. Sizes are bytes of the whole message, FROM included and TO not; 8k, 1m "
         "and inf are sizes. ALGORITHM is {algorithms}, staged (copies through the host), fallback, or table "
         "(loom's choice without timing calls). The last rule counts that fits the call and whose "
         "algorithm can run it"},
    {.name = "memory",
     .type = COLL_LOOM_STRING,
     .level = 4,
     .at = AT(memory),
     .words = memories,
     .help = "Where the program's buffers are. auto: anywhere, so loom asks CUDA's driver, if there is one, "
             "about each buffer. host: none is on a GPU, so loom need not ask"},
    {.name = "check",
     .type = COLL_LOOM_BOOL,
     .level = 4,
     .at = AT(check),
     .same_on_all_ranks = true,
     .settable = true,
     .help = "1: before each call the ranks compare what they are about to call, and report who differs "
             "instead of hanging or mixing up data. Each call then costs a message from each rank to "
             "the first one and back, and nonblocking ones wait for that. A program may set it while it runs "
             "(MPI_T control variable), on "
             "all ranks between the same two calls"},

    /* For tuning and administration. */
    {.name = "tune_file",
     .type = COLL_LOOM_STRING,
     .level = 4,
     .at = AT(tune_file),
     .same_on_all_ranks = true,
     .help = "File with rules as in coll_loom_tune, separated by commas or line ends; # begins a comment. "
             "The rules of coll_loom_tune override these"},
    {.name = "include",
     .type = COLL_LOOM_STRING,
     .level = 4,
     .at = AT(include),
     .lists_collectives = true,
     .same_on_all_ranks = true,
     .help = "Collectives that loom may carry, by name, such as allreduce,bcast; after a ^ those that it may "
             "not. Empty: all. A name stands for the blocking, the nonblocking and the persistent form"},
    {.name = "exclude",
     .type = COLL_LOOM_STRING,
     .level = 4,
     .at = AT(exclude),
     .lists_collectives = true,
     .same_on_all_ranks = true,
     .help = "Collectives that loom may not carry, by name, such as allreduce,bcast; after a ^ the only ones "
             "that it may. Empty: none. A name stands for the blocking, the nonblocking and the persistent "
             "form"},
    {.name = "single_copy",
     .type = COLL_LOOM_BOOL,
     .level = 5,
     .at = AT(single_copy),
     .initial = true,
     .help =
         "1: ranks of one host read each other's buffers where the kernel permits it and where that is "
         "faster. 0: they always copy through shared memory. Programs need 0 if the kernel lets no other "
         "process read their memory: mapped device registers, or a process that drops privileges after it "
         "has begun"},
    /* An int: with a negative number in a shorter unsigned variable, Open MPI would not load the component.
     */
    {.name = "rendezvous",
     .type = COLL_LOOM_ENUM,
     .level = 5,
     .at = AT(rendezvous),
     .initial = LOOM_RENDEZVOUS_AUTO,
     .words = rendezvous,
     .help = "Whether the receiver's network card fetches what crosses between hosts straight into its slot, "
             "which saves a copy. auto: above 16 KiB, from the size in UCX_RNDV_THRESH on, unless the "
             "network is TCP or UD. never: no, and none into memory of GPUs. always: above 16 KiB. "
             "What node leaders send each other (hier) is never fetched"},
    {.name = "memory_limit",
     .type = COLL_LOOM_SIZE,
     .level = 5,
     .at = AT(memory_limit),
     .initial = LOOM_STAGING_BYTES,
     .highest = INFINITY,
     .help =
         "Bytes of page-locked host memory that a process keeps for copies of buffers on GPUs. Calls that "
         "need more use memory that is not locked, which is slower; long blocking ones copy through 2 MiB "
         "of it. It is also the most memory of each GPU that loom takes: the calls of communicators whose "
         "links get none go through the host, and buffers with gaps are packed in a quarter of what is left"},
    /* An estimate, not measured: at this size the overlap saves as much as two streams cost to make. */
    {.name = "overlap_bytes",
     .type = COLL_LOOM_SIZE,
     .level = 5,
     .at = AT(overlap_bytes),
     .initial = 1 * MIB,
     .highest = INFINITY,
     .help =
         "From this size on, blocking allreduces, reduces, reduce_scatters, bcasts, allgathers, alltoalls "
         "and, between hosts, allgathervs copy a GPU buffer through host memory part by part while the call "
         "goes on. The buffer has to be contiguous and fit page-locked memory, and cico, ring, dbt or "
         "pairwise "
         "have to carry the call. Such a call that fails may have changed part of its result. 0: never"},
    {.name = "lane_bytes",
     .type = COLL_LOOM_SIZE,
     .level = 5,
     .at = AT(lane_bytes),
     .initial = 64 * MIB,
     .highest = INFINITY,
     .help = "Most memory of a process for the persistent requests of one communicator on one host, which "
             "have room of their own there: 0.4 to 520 KiB each, by size. The least of all ranks counts. "
             "Requests that find no room fall back, unless the program promises one order of starts"},
    {.name = "priority",
     .type = COLL_LOOM_INT,
     .level = 6,
     .at = AT(priority),
     .initial = 90, /* above all of Open MPI's own: the highest, coll/cuda and coll/accelerator, have 78 */
     .highest = 100,
     .same_on_all_ranks = true,
     .help =
         "Priority of loom among Open MPI's coll components: of those that can carry an operation, the one "
         "with the highest does"},
    {.name = "topo_file",
     .type = COLL_LOOM_STRING,
     .level = 6,
     .at = AT(topo_file),
     .same_on_all_ranks = true,
     .help = "Topology file of one host, in NCCL's XML or hwloc's, which stands for every host in place of "
             "what loom finds there. See: loom topo"},
    {.name = "topo_dump_file",
     .type = COLL_LOOM_STRING,
     .level = 6,
     .at = AT(topo_dump_file),
     .help = "File to which rank 0 writes its host as loom sees it, ranks included, in hwloc's XML"},
    {.name = "graph_file",
     .type = COLL_LOOM_STRING,
     .level = 6,
     .at = AT(graph_file),
     .same_on_all_ranks = true,
     .help =
         "Channel file, in NCCL's graph XML, whose channels the kernels of GPUs run instead of those that "
         "loom searches; host buffers do not use it. With ranks in it, it serves the communicators that "
         "have these ranks; without, any whose ranks have these GPUs. See: loom search --graph-file"},
    {.name = "graph_dump_file",
     .type = COLL_LOOM_STRING,
     .level = 6,
     .at = AT(graph_dump_file),
     .help = "File to which rank 0 writes the channels that the kernels of its host's GPUs run, in NCCL's "
             "graph XML"},
    {.name = NULL}};

/* The value of a variable as a number, whatever its type. */
static double number_at(const struct coll_loom_variable* variable, const void* at) {
  switch (variable->type) {
    case COLL_LOOM_BOOL:
      return *(const bool*)at;
    case COLL_LOOM_INT:
    case COLL_LOOM_ENUM:
      return *(const int*)at;
    case COLL_LOOM_SECONDS:
      return *(const double*)at;
    /* Open MPI turns a negative number into a huge one. */
    case COLL_LOOM_SIZE:
      return (double)*(const long long*)at;
    case COLL_LOOM_STRING:
      break;
  }
  return 0;
}

static bool is_word(const struct coll_loom_word* words, const char* name) {
  for (; words->name != NULL; ++words)
    if (name != NULL && strcmp(words->name, name) == 0) return true;
  return false;
}

static const char* word_of(const struct coll_loom_word* words, int value) {
  while (words->name != NULL && words->value != value) ++words;
  return words->name;
}

void coll_loom_set_default(const struct coll_loom_variable* variable, struct coll_loom_variables* values) {
  void* const at = (char*)values + variable->at;
  switch (variable->type) {
    case COLL_LOOM_BOOL:
      *(bool*)at = variable->initial != 0;
      break;
    case COLL_LOOM_INT:
    case COLL_LOOM_ENUM:
      *(int*)at = (int)variable->initial;
      break;
    case COLL_LOOM_SECONDS:
      *(double*)at = variable->initial;
      break;
    case COLL_LOOM_SIZE:
      *(unsigned long long*)at = (unsigned long long)variable->initial;
      break;
    case COLL_LOOM_STRING:
      *(const char**)at = variable->words == NULL ? NULL : word_of(variable->words, (int)variable->initial);
      break;
  }
}

static bool is_number_in_range(const struct coll_loom_variable* variable, double number) {
  return number >= variable->lowest && number <= variable->highest; /* not NaN */
}

static bool is_in_range(const struct coll_loom_variable* variable, const void* at) {
  switch (variable->type) {
    case COLL_LOOM_BOOL:
    case COLL_LOOM_ENUM:
      return true; /* Open MPI has seen to that */
    case COLL_LOOM_STRING:
      return variable->words == NULL || is_word(variable->words, *(char* const*)at);
    default:
      return is_number_in_range(variable, number_at(variable, at));
  }
}

static void write_value(const struct coll_loom_variable* variable, const void* at, char* text, size_t bytes) {
  if (variable->type == COLL_LOOM_STRING) {
    const char* const string = *(char* const*)at;
    snprintf(text, bytes, "%s", string == NULL ? "" : string);
  } else if (variable->type == COLL_LOOM_SIZE) {
    snprintf(text, bytes, "%lld", *(const long long*)at);
  } else {
    snprintf(text, bytes, "%.15g", number_at(variable, at));
  }
}

static bool is_number(const struct coll_loom_variable* variable) {
  return variable->type == COLL_LOOM_INT || variable->type == COLL_LOOM_SIZE ||
         variable->type == COLL_LOOM_SECONDS;
}

/* Of the text of a number Open MPI takes what it can read, and a unit of one letter; the rest it drops. */
bool coll_loom_reads_whole(const struct coll_loom_variable* variable, const char* text) {
  char* rest;
  if (!is_number(variable)) return true;
  if (variable->type == COLL_LOOM_SECONDS)
    (void)strtod(text, &rest);
  else
    (void)strtoull(text, &rest, 0);
  if (rest == text) return *text == '\0';
  if (variable->type == COLL_LOOM_SECONDS) return strcmp(rest, "") == 0 || strcmp(rest, "s") == 0;
  if (*rest != '\0' && strchr("kKmMgG", *rest) != NULL) ++rest;
  return strcmp(rest, "") == 0 || strcasecmp(rest, "b") == 0 || strcasecmp(rest, "ib") == 0;
}

static int collective_named(const char* name, size_t length) {
  for (int collective = 0; collective < LOOM_COLLECTIVE_COUNT; ++collective) {
    const char* const known = loom_collective_name((enum loom_collective)collective);
    if (strlen(known) == length && strncmp(known, name, length) == 0) return collective;
  }
  return -1;
}

bool coll_loom_read_list(const char* list, bool* named, char* bad, size_t bad_bytes) {
  const bool opposite = *list == '^';
  for (int i = 0; i < LOOM_COLLECTIVE_COUNT; ++i) named[i] = opposite;
  for (const char* name = list + opposite; *name != '\0';) {
    name += strspn(name, ", ");
    const size_t length = strcspn(name, ", ");
    if (length == 0) break;
    const int collective = collective_named(name, length);
    if (collective < 0) {
      snprintf(bad, bad_bytes, "%.*s", (int)length, name);
      return false;
    }
    named[collective] = !opposite;
    name += length;
  }
  return true;
}

bool coll_loom_takes_text(const struct coll_loom_variable* variable, const char* text) {
  if (variable->lists_collectives) {
    bool named[LOOM_COLLECTIVE_COUNT];
    return coll_loom_read_list(text, named, NULL, 0);
  }
  if (variable->words != NULL && variable->type == COLL_LOOM_STRING) return is_word(variable->words, text);
  if (!is_number(variable)) return true;
  if (variable->type == COLL_LOOM_SECONDS) return is_number_in_range(variable, strtod(text, NULL));
  char* rest;
  const long long number = (long long)strtoull(text, &rest, 0); /* signed as in number_at() */
  const int power = *rest == 'k' || *rest == 'K'   ? 10
                    : *rest == 'm' || *rest == 'M' ? 20
                    : *rest == 'g' || *rest == 'G' ? 30
                                                   : 0;
  return is_number_in_range(variable, ldexp((double)number, power));
}

/* A variable's text where it can be known: mpirun puts what --mca says into the environment; texts of
 * parameter files are Open MPI's own. */
static const char* text_of(const struct coll_loom_variable* variable) {
  char name[64];
  snprintf(name, sizeof name, "OMPI_MCA_coll_loom_%s", variable->name);
  return getenv(name);
}

static void add_line(char* report, size_t report_bytes, const char* line) {
  const size_t used = strlen(report);
  snprintf(report + used, report_bytes - used, "%s", line);
}

void coll_loom_correct(struct coll_loom_variables* values, char* report, size_t report_bytes) {
  *report = '\0';
  for (const struct coll_loom_variable* variable = coll_loom_variable_table; variable->name; ++variable) {
    void* const at = (char*)values + variable->at;
    char line[512], value[128], range[128], otherwise[32];
    write_value(variable, at, value, sizeof value);
    if (is_in_range(variable, at)) {
      const char* const text = text_of(variable);
      if (text == NULL || coll_loom_reads_whole(variable, text)) continue;
      snprintf(line, sizeof line, "  coll_loom_%s = %.128s is not a number; Open MPI takes it as %s\n",
               variable->name, text, value);
      add_line(report, report_bytes, line);
      continue;
    }
    coll_loom_write_range(variable, range, sizeof range);
    coll_loom_write_default(variable, otherwise, sizeof otherwise);
    snprintf(line, sizeof line, "  coll_loom_%s = %s is out of range (%s); loom takes %s\n", variable->name,
             value, range, otherwise);
    add_line(report, report_bytes, line);

    char** const string = variable->type == COLL_LOOM_STRING ? at : NULL;
    if (string != NULL) free(*string);
    coll_loom_set_default(variable, values);
    if (string != NULL && *string != NULL) *string = strdup(*string);
  }
}

void coll_loom_write_help(const struct coll_loom_variable* variable, char* text, size_t bytes) {
  static const char mark[] = "{algorithms}";
  const char* const names = strstr(variable->help, mark);
  snprintf(text, bytes, "%s", variable->help);
  if (names == NULL) return;
  size_t used = (size_t)(names - variable->help);
  for (int i = 0; i < LOOM_ALGORITHM_COUNT && used < bytes; ++i)
    used += (size_t)snprintf(text + used, bytes - used, "%s%s", i > 0 ? ", " : "", loom_algorithm_name(i));
  if (used < bytes) snprintf(text + used, bytes - used, "%s", names + sizeof mark - 1);
}

void coll_loom_write_default(const struct coll_loom_variable* variable, char* text, size_t bytes) {
  static const char* const units[] = {"", " KiB", " MiB", " GiB"};
  double number = variable->initial;
  size_t unit = 0;
  if (variable->words != NULL) {
    snprintf(text, bytes, "%s", word_of(variable->words, (int)number));
  } else if (variable->type == COLL_LOOM_STRING) {
    snprintf(text, bytes, "%s", "");
  } else {
    if (variable->type == COLL_LOOM_SIZE)
      for (; number >= 1024 && fmod(number, 1024) == 0 && unit < 3; ++unit) number /= 1024;
    snprintf(text, bytes, "%.15g%s", number, units[unit]);
  }
}

void coll_loom_write_range(const struct coll_loom_variable* variable, char* text, size_t bytes) {
  *text = '\0';
  if (variable->words != NULL) {
    size_t used = 0;
    for (const struct coll_loom_word* word = variable->words; word->name != NULL && used < bytes; ++word)
      used += (size_t)snprintf(text + used, bytes - used, "%s%s", used > 0 ? ", " : "", word->name);
  } else if (variable->type == COLL_LOOM_BOOL) {
    snprintf(text, bytes, "0, 1");
  } else if (variable->type == COLL_LOOM_STRING) {
    snprintf(text, bytes, "text");
  } else if (isinf(variable->highest)) {
    snprintf(text, bytes, "%.15g or more", variable->lowest);
  } else {
    snprintf(text, bytes, "%.15g to %.15g", variable->lowest, variable->highest);
  }
}
