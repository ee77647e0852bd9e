/* mpi_held_calls_test -- the queues of component/mca/held.c alone: a call that starts may hold a call of
 * another communicator, as the fallback component's calls on communicators of its own do. Exit code 1: a call
 * never starts. */
#include <mpi.h>
#include <stdio.h>

#include "component/mca/held.h"
#include "component/mca/setup.h"

static struct coll_loom_module outer, inner, last;
static int started;

static void count(struct coll_loom_held* held) {
  (void)held;
  ++started;
}
static struct coll_loom_held of_outer, of_inner = {.start = count}, of_last = {.start = count};

static void start_and_hold(struct coll_loom_held* held) {
  count(held);
  coll_loom_hold(&inner, &of_inner);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  outer.communicator = inner.communicator = last.communicator = &ompi_mpi_comm_world.comm;
  of_outer.start = start_and_hold;
  coll_loom_hold(&last, &of_last);
  coll_loom_hold(&outer, &of_outer);
  for (int i = 0; i < 1000 && started < 3; ++i) opal_progress();
  if (started < 3) fprintf(stderr, "%d of 3 calls have started\n", started);
  const bool none = !coll_loom_holds(&outer) && !coll_loom_holds(&inner) && !coll_loom_holds(&last);
  if (!none) fprintf(stderr, "a module holds calls although all have started\n");
  MPI_Finalize();
  return started == 3 && none ? 0 : 1;
}
