/* Stand-in, see ../../../../README.md. loom never calls opal_thread_yield itself. */
#ifndef LOOM_STANDIN_THREADS_PTHREADS_THREADS_H
#define LOOM_STANDIN_THREADS_PTHREADS_THREADS_H

#include <sched.h>

#define OPAL_THREAD_YIELD_WHEN_IDLE_DEFAULT false

static inline void opal_thread_yield(void) {
  sched_yield();
}

#endif
