/* Stand-in, see ../../../../README.md: Open MPI's thread-specific data is that of pthreads. */
#ifndef LOOM_STANDIN_THREADS_PTHREADS_TSD_H
#define LOOM_STANDIN_THREADS_PTHREADS_TSD_H

#include <pthread.h>

typedef pthread_key_t opal_tsd_key_t;

static inline int opal_tsd_key_delete(opal_tsd_key_t key) {
  return pthread_key_delete(key);
}
static inline int opal_tsd_set(opal_tsd_key_t key, void* value) {
  return pthread_setspecific(key, value);
}
static inline int opal_tsd_get(opal_tsd_key_t key, void** value) {
  *value = pthread_getspecific(key);
  return 0;
}

#endif
