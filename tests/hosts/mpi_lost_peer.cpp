// mpi_lost_peer -- the last rank goes missing in the middle of a loop of collectives across hosts, in the way
// that the first argument names: stop (SIGSTOP), kill (SIGKILL), down (its host's link goes down, and comes
// back later), launch (its virtual GPU takes no more kernels), fault (a kernel there fails). The second
// argument: how many numbers are summed; a third one, `device`: on GPUs; a fourth one, `alltoall`: they are
// exchanged, and not summed, or `ialltoallv`: by nonblocking calls. Every other rank must get an MPI error
// from the call, go on with a communicator without the missing host, and then end the job. check_lost_peer.sh
// runs it and looks at the messages.
#include <mpi.h>
#if OMPI_MAJOR_VERSION > 4
#include <mpi-ext.h>
#endif
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "mpi_examples/support/device_memory.hpp"

namespace {

using loom::mpi::Memory;

constexpr int kExitCode = 7;

void go_missing(const char* how) {
  if (std::strcmp(how, "stop") == 0) std::raise(SIGSTOP);
  if (std::strcmp(how, "kill") == 0) std::raise(SIGKILL);
  for (const auto& [fails, function] :
       {std::pair("launch", "cuLaunchKernel"), std::pair("fault", "cuStreamQuery")})
    if (std::strcmp(how, fails) == 0)
      loom::mpi::Driver::get().function<void(const char*, int, int)>("virtual_gpu_fail")(function, 0, 719);
  // The launcher needs the link, too, to end the processes on this host.
  if (std::strcmp(how, "down") == 0 &&
      std::system("ip link set eth0 down && (sleep 8; ip link set eth0 up) &") != 0)
    std::fprintf(stderr, "the link could not be taken down\n");
}

const char* called(int error_class) {
#ifdef MPIX_ERR_PROC_FAILED
  if (error_class == MPIX_ERR_PROC_FAILED) return " (MPIX_ERR_PROC_FAILED)";
#endif
  (void)error_class;
  return "";
}

bool exchanges = false, starts = false;

/// A nonblocking call.
int start_and_wait(Memory& operand, Memory& result, int block, int ranks, MPI_Comm comm) {
  std::vector<int> counts(static_cast<std::size_t>(ranks), block), places;
  for (int rank = 0; rank < ranks; ++rank) places.push_back(rank * block);
  MPI_Request request;
  const int error = MPI_Ialltoallv(operand.address(), counts.data(), places.data(), MPI_INT, result.address(),
                                   counts.data(), places.data(), MPI_INT, comm, &request);
  return error != MPI_SUCCESS ? error : MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/// Returns the error class of a call, or -1 where the result is wrong.
int perform(Memory& operand, Memory& result, int count, MPI_Comm comm) {
  int rank, ranks, error_class;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  const int block = count / ranks;
  int* const values = reinterpret_cast<int*>(operand.mirror.data());
  for (int i = 0; i < count; ++i) values[i] = exchanges ? rank : 1;
  operand.upload();
  const int error =
      starts      ? start_and_wait(operand, result, block, ranks, comm)
      : exchanges ? MPI_Alltoall(operand.address(), block, MPI_INT, result.address(), block, MPI_INT, comm)
                  : MPI_Allreduce(operand.address(), result.address(), count, MPI_INT, MPI_SUM, comm);
  MPI_Error_class(error, &error_class);
  if (error_class != MPI_SUCCESS) return error_class;
  result.download();
  const int* const results = reinterpret_cast<const int*>(result.mirror.data());
  for (int i = 0; i < (exchanges ? block * ranks : count); ++i)
    if (results[i] != (exchanges ? i / block : ranks)) return -1;
  return MPI_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks, length;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const char* how = argc > 1 ? argv[1] : "stop";
  char name[MPI_MAX_PROCESSOR_NAME], last_name[MPI_MAX_PROCESSOR_NAME];
  MPI_Get_processor_name(name, &length);
  std::memcpy(last_name, name, sizeof(name));
  MPI_Bcast(last_name, sizeof(last_name), MPI_CHAR, ranks - 1, MPI_COMM_WORLD);
  const bool stays = std::strcmp(name, last_name) != 0;
  MPI_Comm rest;
  MPI_Comm_split(MPI_COMM_WORLD, stays ? 1 : 2, rank, &rest);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(rest, MPI_ERRORS_RETURN);

  const int count = argc > 2 ? std::atoi(argv[2]) : 1 << 20;
  const bool device = argc > 3 && std::strcmp(argv[3], "device") == 0;
  exchanges = argc > 4 && std::strcmp(argv[4], "allreduce") != 0;
  const loom::mpi::MemoryKind kind = device ? loom::mpi::MemoryKind::kDevice : loom::mpi::MemoryKind::kHost;
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(int);
  Memory operand(bytes, kind), result(bytes, kind);
  // These make links while all ranks are well.
  for (const MPI_Comm comm : {rest, MPI_COMM_WORLD}) perform(operand, result, count, comm);
  starts = argc > 4 && std::strcmp(argv[4], "ialltoallv") == 0;
  for (const MPI_Comm comm : {rest, MPI_COMM_WORLD}) {
    if (!starts) break;
    perform(operand, result, count, comm);
    MPI_Barrier(comm);  // makes what it lacks
  }
  int error_class = MPI_SUCCESS;
  for (int call = 0; error_class == MPI_SUCCESS; ++call) {
    if (call == 20 && rank == ranks - 1) go_missing(how);
    error_class = perform(operand, result, count, MPI_COMM_WORLD);
  }
  std::printf("rank %d: error class %d%s, then %d\n", rank, error_class, called(error_class),
              perform(operand, result, count, MPI_COMM_WORLD));
  for (int call = 0; call < 3 && stays; ++call)
    if (const int of_rest = perform(operand, result, count, rest); of_rest != MPI_SUCCESS)
      std::printf("rank %d: the rest fails with %d\n", rank, of_rest);
  if (stays) {
    MPI_Barrier(rest);
    std::printf("rank %d: the rest goes on\n", rank);
  }
  std::fflush(stdout);
  if (rank == 0) {
    sleep(1);  // for the others' lines
    MPI_Abort(MPI_COMM_WORLD, kExitCode);
  }
  pause();
}
