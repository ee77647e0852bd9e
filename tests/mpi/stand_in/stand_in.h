/* What the stand-in has been given; the test finds these functions by dlsym. */
#ifndef LOOM_TESTS_MPI_STAND_IN_H
#define LOOM_TESTS_MPI_STAND_IN_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct StandInNote {
  int calls;
  const void *in, *out; /* the buffers of the last one */
  bool in_on_device, out_on_device;
};
/* Of the calls of a function ("allreduce", "ibcast", "neighbor_alltoall_init") since stand_in_watch(true). */
typedef struct StandInNote stand_in_noted_t(const char* function);
/* From true to false a rank makes one call, waits for it, and looks at its result only afterwards: there its
 * nonblocking calls, too, may have buffers on devices. */
typedef void stand_in_watch_t(bool yes);

#ifdef __cplusplus
}
#endif

#endif
