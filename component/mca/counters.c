/* The counters as MPI_T performance variables. */
#include "component/mca/coll_loom.h"

_Static_assert(sizeof(uint64_t) == sizeof(unsigned long long), "MPI_T reads the counters as they are");

static int read_counter(const mca_base_pvar_t* variable, void* value, void* object) {
  (void)object;
  struct loom_counters now;
  loom_read_counters(&now);
  memcpy(value, (const char*)&now + (size_t)variable->ctx, sizeof(uint64_t));
  return OMPI_SUCCESS;
}

/* The counter at `offset` of struct loom_counters. Open MPI copies the texts. */
static int add(const char* name, const char* description, size_t offset) {
  return mca_base_component_pvar_register(
      &mca_coll_loom_component.collm_version, name, description, OPAL_INFO_LVL_4, MCA_BASE_PVAR_CLASS_COUNTER,
      MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, NULL, MCA_BASE_VAR_BIND_NO_OBJECT,
      MCA_BASE_PVAR_FLAG_READONLY | MCA_BASE_PVAR_FLAG_CONTINUOUS, read_counter, NULL, NULL, (void*)offset);
}

#define ADD(offset, description, ...)                 \
  do {                                                \
    char name[64];                                    \
    snprintf(name, sizeof name, __VA_ARGS__);         \
    const int index = add(name, description, offset); \
    if (index < 0) return index;                      \
  } while (0)

static int add_of(enum loom_collective collective) {
  const size_t base =
      offsetof(struct loom_counters, of) + (size_t)collective * sizeof(struct loom_collective_counters);
  const char* const which = loom_collective_name(collective);
  ADD(base + offsetof(struct loom_collective_counters, calls),
      "Such calls, of any form, that loom has carried", "%s_calls", which);
  ADD(base + offsetof(struct loom_collective_counters, bytes),
      "Bytes of these calls on this process: the message's, a block's, or in v forms what is sent",
      "%s_bytes", which);
  ADD(base + offsetof(struct loom_collective_counters, fallbacks),
      "Such calls that loom handed to the fallback component", "%s_fallbacks", which);
  for (int algorithm = 0; algorithm < LOOM_ALGORITHM_COUNT; ++algorithm) {
    if (!loom_algorithm_carries(algorithm, collective)) continue;
    ADD(base + offsetof(struct loom_collective_counters, by) + (size_t)algorithm * sizeof(uint64_t),
        "Such calls that this algorithm has carried", "%s_by_%s", which, loom_algorithm_name(algorithm));
  }
  static const char* const because[] = {
      [LOOM_NO_KERNEL] = "Such calls handed to the fallback component: loom has no such operation",
      [LOOM_NOT_CONNECTED] = "Such calls handed to the fallback component: the ranks are not connected",
      [LOOM_NOT_BETTER] = "Such calls handed to the fallback component: it is at least as good at them",
      [LOOM_NOT_ORDERED] =
          "Such calls handed to the fallback component: Open MPI's own, made in MPI_Comm_dup and the like, "
          "or "
          "of their form",
      [LOOM_ANY_START_ORDER] =
          "Such persistent calls handed to the fallback component: ranks may start them in any order"};
  for (int reason = 0; reason < LOOM_FALLBACK_COUNT; ++reason)
    ADD(base + offsetof(struct loom_collective_counters, fallbacks_by) + (size_t)reason * sizeof(uint64_t),
        because[reason], "%s_fallbacks_%s", which, loom_fallback_name((enum loom_fallback)reason));
  return OMPI_SUCCESS;
}

int coll_loom_register_counters(void) {
  ADD(offsetof(struct loom_counters, communicators),
      "Communicators that loom has connected; one with ordered persistent requests counts again for these",
      "communicators");
  ADD(offsetof(struct loom_counters, declined),
      "Communicators that loom stepped aside from, because connecting them failed", "declined");
  ADD(offsetof(struct loom_counters, net_bytes_sent),
      "Bytes that this process has sent to other hosts through loom", "net_bytes_sent");
  ADD(offsetof(struct loom_counters, staged_bytes),
      "Bytes that this process has copied from GPUs to the host and back", "staged_bytes");
  for (int collective = 0; collective < LOOM_COLLECTIVE_COUNT; ++collective) {
    const int error = add_of((enum loom_collective)collective);
    if (error != OMPI_SUCCESS) return error;
  }
  return OMPI_SUCCESS;
}
