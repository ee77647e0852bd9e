#include "component/mca/cuda_aware.h"

#include <pthread.h>
#include <stdatomic.h>

/* ---- Open MPI */

/* What this process has found: the messages that move device memory, and how to say so. */
static struct {
  enum loom_messages messages;
  const char* because;
} found;

/* The transports under other names (pml/cm) move device memory over some networks alone. */
static void find(void) {
  found.messages = LOOM_NO_MESSAGES;
  if (!coll_loom_open_mpi_uses_cuda()) {
    found.because = "it does not use CUDA";
  } else if (strcmp(coll_loom_messages_by(), "ob1") == 0) {
    found.messages = LOOM_ANY_MESSAGES;
    found.because = "by pml/ob1";
  } else if (strcmp(coll_loom_messages_by(), "ucx") != 0) {
    found.because = "its messages go neither by pml/ob1 nor by pml/ucx";
  } else if (loom_ucx_moves_device_memory()) {
    found.messages = LOOM_UCX_MESSAGES;
    found.because = "by pml/ucx";
  } else {
    found.because = "its messages go by UCX, which does not use CUDA here";
  }
}

/* Once per process. */
static enum loom_messages messages_on_devices(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, find);
  return found.messages;
}

bool coll_loom_moves_device_memory(void) {
  return messages_on_devices() != LOOM_NO_MESSAGES;
}

void coll_loom_tell_cuda_aware(const struct coll_loom_module* self) {
  static atomic_bool told;
  if (coll_loom_variables.verbose < 1 || atomic_load_explicit(&told, memory_order_relaxed)) return;
  if (atomic_exchange(&told, true) || ompi_comm_rank(self->communicator) != 0) return;
  const bool moves = coll_loom_moves_device_memory();
  opal_output(0, "coll:loom: Open MPI %s memory of GPUs (%s): calls that fall back get such buffers %s",
              moves ? "moves" : "does not move", found.because,
              moves ? "as they are, where its documentation has them work" : "copied to the host");
}

/* ---- Its components */

/* Those that move blocks by plain messages, and those that also copy the buffers of reductions: on device
 * memory the others would reduce by the CPU. coll/han is made of nonblocking collectives, and coll/ucc and
 * coll/hcoll may choose an algorithm by where a rank's buffer lies. */
static const struct component {
  const char* module; /* the name of its class */
  bool reduces;
} components[] = {{"mca_coll_cuda_module_t", true},   {"mca_coll_accelerator_module_t", true},
                  {"mca_coll_tuned_module_t", false}, {"mca_coll_basic_module_t", false},
                  {"mca_coll_self_module_t", false},  {"ompi_coll_libnbc_module_t", false}};

static bool is_trusted(const mca_coll_base_module_t* module, bool reduces) {
  const char* const name = ((const opal_object_t*)module)->obj_class->cls_name;
  for (size_t i = 0; i < sizeof components / sizeof *components; ++i)
    if (strcmp(name, components[i].module) == 0) return components[i].reduces || !reduces;
  return false;
}

_Static_assert(COLL_LOOM_BLOCKING_FORM == 0 && COLL_LOOM_NONBLOCKING_FORM == 1 &&
                   COLL_LOOM_PERSISTENT_FORM == 2,
               "the order of loom_significance.on_devices");

bool coll_loom_falls_back_on_devices(const struct coll_loom_module* self, int which, enum coll_loom_form form,
                                     const mca_coll_base_module_t* fallback) {
  const enum loom_messages needed = loom_significance_of(which)->on_devices[form];
  if (needed == LOOM_NO_MESSAGES) return false;
  const enum loom_messages has = messages_on_devices();
  if (has == LOOM_NO_MESSAGES || (needed == LOOM_UCX_MESSAGES && has != LOOM_UCX_MESSAGES)) return false;
  return !OMPI_COMM_IS_INTER(self->communicator) && is_trusted(fallback, loom_reduces(which));
}
