// mpi_small_calls_on_some_devices_test -- many small calls that do not wait, several at once, some ranks with
// their buffers on GPUs and the others with theirs on the host: all have to come to the same algorithms,
// whose links between hosts are made once there have been some number of such calls. Exit code 1: a result is
// wrong.
#include <array>
#include <deque>

#include "tests/mpi/device_ints.hpp"

using namespace loom::mpi_test;

int main(int argc, char** argv) {
  begin(argc, argv);
  // Links are made by one of the first hundred calls.
  constexpr int kRounds = 50, kAtOnce = 4, kCount = 3;
  const MemoryKind kind = rank % 2 == 0 ? MemoryKind::kDevice : MemoryKind::kHost;
  Ints in(
      kCount, [](int i) { return 10 * i + rank; }, kind);
  for (int round = 0; round < kRounds; ++round) {
    std::deque<Ints> results;
    std::array<MPI_Request, kAtOnce> requests;
    for (MPI_Request& request : requests) {
      Ints& out = results.emplace_back(kCount, -1, kind);
      MPI_Iallreduce(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    }
    MPI_Waitall(kAtOnce, requests.data(), MPI_STATUSES_IGNORE);
    for (Ints& out : results)
      out.is([](int i) { return 10 * i * ranks + ranks * (ranks - 1) / 2; }, "an allreduce is wrong");
  }
  MPI_Finalize();
  return 0;
}
