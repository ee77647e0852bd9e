/* The counters as a table of MPI_T performance variables. Some have an element for each collective, or for
 * each collective and algorithm or reason. register.c makes them known to Open MPI, and docs/parameters.md
 * shows them (parameters_page.c): so nothing here includes Open MPI. */
#ifndef LOOM_COMPONENT_MCA_COUNTERS_H
#define LOOM_COMPONENT_MCA_COUNTERS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The dimensions of the elements; each place of a dimension has a name. */
enum coll_loom_dimension {
  COLL_LOOM_NO_DIMENSION,
  COLL_LOOM_COLLECTIVE,
  COLL_LOOM_ALGORITHM,
  COLL_LOOM_REASON
};
int coll_loom_dimension_length(enum coll_loom_dimension dimension); /* at least 1 */
const char* coll_loom_dimension_name(enum coll_loom_dimension dimension);
const char* coll_loom_place_name(enum coll_loom_dimension dimension, int place);
/* What a reason means. */
const char* coll_loom_reason_help(int reason);

struct coll_loom_counter {
  const char* name; /* without coll_loom_ */
  const char* help;
  enum coll_loom_dimension rows, columns;
  size_t at; /* of the first element in struct loom_counters */
};

/* The last one has no name. */
extern const struct coll_loom_counter coll_loom_counter_table[];

/* Elements lie row by row. */
int coll_loom_counter_elements(const struct coll_loom_counter* counter);
void coll_loom_read_counter(const struct coll_loom_counter* counter, uint64_t* elements);

/* The help text, and the layout for programs:
 *   Help; element [collective][reason]; collective: allreduce reduce ...; reason: no_kernel ...
 * Returns the length without the final zero, as snprintf. */
size_t coll_loom_describe_counter(const struct coll_loom_counter* counter, char* text, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
