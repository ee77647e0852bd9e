/// late_caller -- collectives of two ranks in which rank 0 does not wait, so that its instructions can be
/// counted: it sleeps before each call until the other rank is in it, and runs under a tool that makes it the
/// slower one. scripts/bench/instructions and gpu-calls run it. ELEMENTS are of 8 bytes, in a message or
/// block.
///
///   mpirun -n 2 --mca coll_loom_enable 1 late_caller COLLECTIVE CALLS [ELEMENTS [device]]
///
/// device: buffers on a GPU.
#include <mpi.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_START_INSTRUMENTATION
#endif

#include "mpi_examples/support/device_memory.hpp"

namespace {

int call(const char* name, const void* in, void* out, int n) {
  const std::string_view collective = name;
  if (collective == "allreduce") return MPI_Allreduce(in, out, n, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  if (collective == "reduce") return MPI_Reduce(in, out, n, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  if (collective == "bcast") return MPI_Bcast(out, n, MPI_INT64_T, 1, MPI_COMM_WORLD);
  if (collective == "allgather")
    return MPI_Allgather(in, n, MPI_INT64_T, out, n, MPI_INT64_T, MPI_COMM_WORLD);
  if (collective == "alltoall") return MPI_Alltoall(in, n, MPI_INT64_T, out, n, MPI_INT64_T, MPI_COMM_WORLD);
  if (collective == "reduce_scatter_block")
    return MPI_Reduce_scatter_block(in, out, n, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  if (collective == "barrier") return MPI_Barrier(MPI_COMM_WORLD);
  std::fprintf(stderr, "late_caller: unknown collective '%s'\n", name);
  return MPI_ERR_ARG;
}

}  // namespace

/// All calls but the first ones, which set up: for tools that begin to count at a function.
extern "C" [[gnu::noinline]] int counted_call(const char* collective, const void* in, void* out, int n) {
  const int result = call(collective, in, out, n);
  asm volatile("" ::: "memory");  // no tail call, so that the function ends with it
  return result;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, result = MPI_SUCCESS;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int elements = argc >= 4 ? std::atoi(argv[3]) : 1;
  constexpr int kFirst = 5;
  const bool device = argc == 5 && std::string_view(argv[4]) == "device";
  if (argc < 3 || argc > 5 || (argc == 5 && !device) || std::atoi(argv[2]) < 1 || elements < 1) {
    if (rank == 0) std::fprintf(stderr, "usage: late_caller COLLECTIVE CALLS [ELEMENTS [device]]\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  {
    using namespace loom::mpi;
    const MemoryKind kind = device ? MemoryKind::kDevice : MemoryKind::kHost;
    const std::size_t bytes = 2 * static_cast<std::size_t>(elements) * sizeof(std::int64_t);
    Memory in(bytes, kind), out(bytes, kind);
    in.upload();
    for (int i = 0; i < std::atoi(argv[2]) && result == MPI_SUCCESS; ++i) {
      if (rank == 0) ::usleep(2000);
      if (i == kFirst) {
        CALLGRIND_START_INSTRUMENTATION;  // where that has not begun at once
      }
      result = (i < kFirst ? call : counted_call)(argv[1], in.address(), out.address(), elements);
    }
    if (result != MPI_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return MPI_Finalize();
}
