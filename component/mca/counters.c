/* The table of counters. */
#include "component/mca/counters.h"

#include <stdio.h>
#include <string.h>

#include "component/core.h"

#define AT(member) offsetof(struct loom_counters, member)

const struct coll_loom_counter coll_loom_counter_table[] = {
    {.name = "calls",
     .help = "Calls, of any form, that loom has carried",
     .rows = COLL_LOOM_COLLECTIVE,
     .columns = COLL_LOOM_ALGORITHM,
     .at = AT(of[0].by)},
    {.name = "bytes",
     .help = "Bytes of the calls that loom has carried, on this process (the message's, a block's, or in v "
             "forms what is sent)",
     .rows = COLL_LOOM_COLLECTIVE,
     .at = AT(of[0].bytes)},
    {.name = "fallbacks",
     .help = "Calls that loom left to the fallback component",
     .rows = COLL_LOOM_COLLECTIVE,
     .columns = COLL_LOOM_REASON,
     .at = AT(of[0].fallbacks_by)},
    {.name = "communicators",
     .help = "Communicators that loom has connected; one with persistent requests that share a queue counts "
             "again for these",
     .at = AT(communicators)},
    {.name = "declined",
     .help = "Communicators that use the fallback component, because their set-up failed",
     .at = AT(declined)},
    {.name = "net_bytes_sent",
     .help = "Bytes that this process has sent to other hosts through loom",
     .at = AT(net_bytes_sent)},
    {.name = "staged_bytes",
     .help = "Bytes that this process has copied from GPUs to the host and back",
     .at = AT(staged_bytes)},
    {.name = NULL}};

int coll_loom_dimension_length(enum coll_loom_dimension dimension) {
  static const int lengths[] = {[COLL_LOOM_NO_DIMENSION] = 1,
                                [COLL_LOOM_COLLECTIVE] = LOOM_COLLECTIVE_COUNT,
                                [COLL_LOOM_ALGORITHM] = LOOM_ALGORITHM_COUNT,
                                [COLL_LOOM_REASON] = LOOM_FALLBACK_COUNT};
  return lengths[dimension];
}

const char* coll_loom_dimension_name(enum coll_loom_dimension dimension) {
  static const char* const names[] = {[COLL_LOOM_NO_DIMENSION] = "",
                                      [COLL_LOOM_COLLECTIVE] = "collective",
                                      [COLL_LOOM_ALGORITHM] = "algorithm",
                                      [COLL_LOOM_REASON] = "reason"};
  return names[dimension];
}

const char* coll_loom_place_name(enum coll_loom_dimension dimension, int place) {
  switch (dimension) {
    case COLL_LOOM_COLLECTIVE:
      return loom_collective_name((enum loom_collective)place);
    case COLL_LOOM_ALGORITHM:
      return loom_algorithm_name(place);
    case COLL_LOOM_REASON:
      return loom_fallback_name((enum loom_fallback)place);
    case COLL_LOOM_NO_DIMENSION:
      break;
  }
  return "";
}

const char* coll_loom_reason_help(int reason) {
  static const char* const helps[] = {
      [LOOM_NO_KERNEL] = "loom has no such operation",
      [LOOM_NOT_CONNECTED] = "the ranks are not connected",
      [LOOM_NOT_BETTER] = "the fallback component is at least as good at them",
      [LOOM_NOT_ORDERED] = "Open MPI's own calls, in MPI_Comm_dup and the like, or calls of the same form",
      [LOOM_ANY_START_ORDER] = "persistent requests, which ranks may start in any order"};
  _Static_assert(sizeof helps / sizeof *helps == LOOM_FALLBACK_COUNT, "a text for each reason");
  return helps[reason];
}

int coll_loom_counter_elements(const struct coll_loom_counter* counter) {
  return coll_loom_dimension_length(counter->rows) * coll_loom_dimension_length(counter->columns);
}

void coll_loom_read_counter(const struct coll_loom_counter* counter, uint64_t* elements) {
  struct loom_counters now;
  loom_read_counters(&now);
  const size_t row_bytes = (size_t)coll_loom_dimension_length(counter->columns) * sizeof *elements;
  const char* row = (const char*)&now + counter->at;
  for (int r = 0; r < coll_loom_dimension_length(counter->rows); ++r) {
    memcpy(elements, row, row_bytes);
    elements += row_bytes / sizeof *elements;
    row += sizeof *now.of;
  }
}

/* snprintf at the end of a text that may be longer than its room. */
#define APPEND(...)                                                                                      \
  length += (size_t)snprintf(length < bytes ? text + length : NULL, length < bytes ? bytes - length : 0, \
                             __VA_ARGS__)

size_t coll_loom_describe_counter(const struct coll_loom_counter* counter, char* text, size_t bytes) {
  const enum coll_loom_dimension dimensions[] = {counter->rows, counter->columns};
  size_t length = 0;
  APPEND("%s", counter->help);
  for (int d = 0; d < 2 && dimensions[d] != COLL_LOOM_NO_DIMENSION; ++d)
    APPEND("%s[%s]", d == 0 ? "; element " : "", coll_loom_dimension_name(dimensions[d]));
  for (int d = 0; d < 2 && dimensions[d] != COLL_LOOM_NO_DIMENSION; ++d) {
    APPEND("; %s:", coll_loom_dimension_name(dimensions[d]));
    for (int place = 0; place < coll_loom_dimension_length(dimensions[d]); ++place)
      APPEND(" %s", coll_loom_place_name(dimensions[d], place));
  }
  return length;
}
