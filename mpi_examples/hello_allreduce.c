/* hello_allreduce -- the smallest complete use: add up the ranks' numbers, and see who did it.
 *
 *   mpirun -n 4 --mca coll_loom_enable 1 hello_allreduce
 *
 * Only main's first half is what a program needs; loom asks for no change. The rest shows how to read loom's
 * counters through MPI's tool interface, MPI_T. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A performance variable of MPI_T: an array of unsigned 64-bit counters, counting from when it was opened. */
struct counter {
  MPI_T_pvar_session session;
  MPI_T_pvar_handle handle; /* MPI_T_PVAR_HANDLE_NULL: there is none of that name */
  int elements;
};

static struct counter open_counter(const char* wanted) {
  struct counter counter = {.handle = MPI_T_PVAR_HANDLE_NULL};
  int level, variable_count = 0;
  MPI_Query_thread(&level);
  /* Open MPI takes the level asked for here as the new one of the whole library. */
  MPI_T_init_thread(level, &level);
  MPI_T_pvar_session_create(&counter.session);
  MPI_T_pvar_get_num(&variable_count);
  for (int index = 0; index < variable_count; ++index) {
    char name[256];
    int length = sizeof name, no_text = 0, verbosity, class, bind, readonly, continuous, atomic, bytes;
    MPI_Datatype type;
    if (MPI_T_pvar_get_info(index, name, &length, &verbosity, &class, &type, NULL, NULL, &no_text, &bind,
                            &readonly, &continuous, &atomic) != MPI_SUCCESS ||
        strcmp(name, wanted) != 0 || MPI_Type_size(type, &bytes) != MPI_SUCCESS ||
        bytes != (int)sizeof(uint64_t)) {
      continue;
    }
    if (MPI_T_pvar_handle_alloc(counter.session, index, NULL, &counter.handle, &counter.elements) ==
            MPI_SUCCESS &&
        !continuous) {
      MPI_T_pvar_start(counter.session, counter.handle);
    }
    break;
  }
  return counter;
}

static uint64_t read_counter(const struct counter* counter, int element) {
  uint64_t value = 0, *values = calloc((size_t)counter->elements, sizeof *values);
  if (values != NULL && MPI_T_pvar_read(counter->session, counter->handle, values) == MPI_SUCCESS)
    value = values[element];
  free(values);
  return value;
}

static void close_counter(struct counter* counter) {
  if (counter->handle != MPI_T_PVAR_HANDLE_NULL) MPI_T_pvar_handle_free(counter->session, &counter->handle);
  MPI_T_pvar_session_free(&counter->session);
  MPI_T_finalize();
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size, sum = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  /* Bytes of the calls that loom has carried, by collective: docs/parameters.md has their order. */
  enum { ALLREDUCE = 0 };
  struct counter carried = open_counter("coll_loom_bytes");
  struct counter declined = open_counter("coll_loom_declined"); /* communicators whose set-up failed */

  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);

  const int expected = size * (size - 1) / 2;
  if (sum != expected) fprintf(stderr, "rank %d: the sum is %d, expected %d\n", rank, sum, expected);
  if (rank == 0) {
    const char* carrier = carried.handle == MPI_T_PVAR_HANDLE_NULL ? "Open MPI alone: loom is not loaded"
                          : read_counter(&carried, ALLREDUCE) > 0  ? "loom"
                          : declined.handle != MPI_T_PVAR_HANDLE_NULL && read_counter(&declined, 0) > 0
                              ? "Open MPI's own component: loom could not be set up: see its message"
                              : "Open MPI's own component: loom is loaded, but off (coll_loom_enable) or "
                                "without a reason to take the call (coll_loom_verbose 2 says it)";
    printf("The sum of the numbers of %d ranks is %d, carried by %s.\n", size, sum, carrier);
  }
  close_counter(&declined);
  close_counter(&carried);
  MPI_Finalize();
  return sum == expected ? 0 : 1;
}
