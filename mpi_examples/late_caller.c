/* late_caller -- collectives of two ranks in which rank 0 does not wait, so that its instructions can be counted: it
 * sleeps before each call until the other rank is in it, and runs under a tool that makes it the slower one.
 * scripts/bench/instructions runs it. ELEMENTS are of 8 bytes, in a message or block.
 *
 *   mpirun -n 2 --mca coll_loom_enable 1 late_caller COLLECTIVE CALLS [ELEMENTS] */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int call(const char* collective, const int64_t* in, int64_t* out, int n) {
  if (strcmp(collective, "allreduce") == 0)
    return MPI_Allreduce(in, out, n, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  if (strcmp(collective, "reduce") == 0)
    return MPI_Reduce(in, out, n, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  if (strcmp(collective, "bcast") == 0) return MPI_Bcast(out, n, MPI_INT64_T, 1, MPI_COMM_WORLD);
  if (strcmp(collective, "allgather") == 0)
    return MPI_Allgather(in, n, MPI_INT64_T, out, n, MPI_INT64_T, MPI_COMM_WORLD);
  if (strcmp(collective, "alltoall") == 0)
    return MPI_Alltoall(in, n, MPI_INT64_T, out, n, MPI_INT64_T, MPI_COMM_WORLD);
  if (strcmp(collective, "reduce_scatter_block") == 0)
    return MPI_Reduce_scatter_block(in, out, n, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  if (strcmp(collective, "barrier") == 0) return MPI_Barrier(MPI_COMM_WORLD);
  fprintf(stderr, "late_caller: unknown collective '%s'\n", collective);
  return MPI_ERR_ARG;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, result = MPI_SUCCESS;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int elements = argc == 4 ? atoi(argv[3]) : 1;
  if (argc < 3 || argc > 4 || atoi(argv[2]) < 1 || elements < 1) {
    if (rank == 0) fprintf(stderr, "usage: late_caller COLLECTIVE CALLS [ELEMENTS]\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  int64_t* const in = calloc(2 * (size_t)elements, sizeof(int64_t));
  int64_t* const out = calloc(2 * (size_t)elements, sizeof(int64_t));
  if (in == NULL || out == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  for (int i = 0; i < atoi(argv[2]) && result == MPI_SUCCESS; ++i) {
    if (rank == 0) usleep(2000);
    result = call(argv[1], in, out, elements);
  }
  if (result != MPI_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 1);
  free(in);
  free(out);
  return MPI_Finalize();
}
