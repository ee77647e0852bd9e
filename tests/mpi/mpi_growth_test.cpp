// mpi_growth_test -- communicators that come and go leave nothing behind: open files, shared mappings, names
// in /dev/shm and resident memory stay where they are, whatever the communicators were used for, in whatever
// order they are freed.
//
//   mpi_growth_test NUMBER [THREADS]
//
// NUMBER communicators, after a fifth as many that let caches grow; in each of several threads at the same
// time.
//
// Exit code 1: something grows, or a result is wrong.
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "held.hpp"

namespace {

using loom::test::Held;

int rank, ranks;

void require(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "rank %d of %d: %s\n", rank, ranks, what.c_str());
  std::exit(1);
}

/// A first call that waits or does not, of few bytes or many, and a second beside it.
void use(MPI_Comm comm, int which) {
  std::vector<int> numbers(which % 2 == 0 ? 10 : 20'000, 1), copy(numbers.size(), -1);
  const std::vector<int> ones(static_cast<std::size_t>(ranks), 1);
  const int count = static_cast<int>(numbers.size());
  MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  switch (which % 6) {
    case 0:
    case 1:
      MPI_Allreduce(MPI_IN_PLACE, numbers.data(), count, MPI_INT, MPI_SUM, comm);
      break;
    case 2:
    case 3:
      MPI_Iallreduce(MPI_IN_PLACE, numbers.data(), count, MPI_INT, MPI_SUM, comm, &requests[0]);
      MPI_Ibarrier(comm, &requests[1]);
      break;
    case 4:
      MPI_Barrier(comm);
      [[fallthrough]];
    default:
      MPI_Ireduce_scatter_block(ones.data(), copy.data(), 1, MPI_INT, MPI_SUM, comm, &requests[1]);
      MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
      require(copy.front() == ranks, "a reduce-scatter is wrong");
      MPI_Allreduce(MPI_IN_PLACE, numbers.data(), count, MPI_INT, MPI_SUM, comm);
  }
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  for (const int number : numbers) require(number == ranks, "a sum is wrong");
}

/// Up to five at the same time, freed in another order than they were made.
void come_and_go(int number, MPI_Comm parent) {
  constexpr std::size_t kTogether = 5;
  MPI_Comm comms[kTogether];
  for (MPI_Comm& comm : comms) comm = MPI_COMM_NULL;
  for (int i = 0; i < number; ++i) {
    MPI_Comm& comm = comms[static_cast<std::size_t>(i) * 7 % 11 % kTogether];
    if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
    if (i % 4 == 3)
      MPI_Comm_split(parent, 0, -rank, &comm);
    else
      MPI_Comm_dup(parent, &comm);
    if (i % 10 != 9) use(comm, i);
  }
  for (MPI_Comm& comm : comms)
    if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
  MPI_Barrier(parent);
}

/// In threads, each with communicators of its own, if there are any.
void come_and_go_in(int threads, int number) {
  if (threads == 0) return come_and_go(number, MPI_COMM_WORLD);
  std::vector<MPI_Comm> parents(static_cast<std::size_t>(threads));
  for (MPI_Comm& parent : parents) MPI_Comm_dup(MPI_COMM_WORLD, &parent);
  {
    std::vector<std::jthread> working;
    for (MPI_Comm parent : parents) working.emplace_back([=] { come_and_go(number, parent); });
  }
  for (MPI_Comm& parent : parents) MPI_Comm_free(&parent);
}

}  // namespace

int main(int argc, char** argv) {
  const int number = argc > 1 ? std::atoi(argv[1]) : 1000, threads = argc > 2 ? std::atoi(argv[2]) : 0;
  int provided;
  MPI_Init_thread(&argc, &argv, threads > 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  require(threads == 0 || provided == MPI_THREAD_MULTIPLE, "MPI_THREAD_MULTIPLE is not provided");
  MPI_Barrier(MPI_COMM_WORLD);  // has links from now on
  // Until all links have been written to, everywhere: threads decide which ones are taken over, and by whom.
  come_and_go_in(threads, threads > 0 ? number : number / 5 + 100);
  const Held before = Held::now();
  MPI_Barrier(MPI_COMM_WORLD);
  come_and_go_in(threads, number);
  const Held after = Held::now();
  if (rank == 0)
    std::printf("%d communicators: files %zu -> %zu, mappings %zu -> %zu, names %zu -> %zu, %zu -> %zu KiB\n",
                number, before.files, after.files, before.mappings, after.mappings, before.names, after.names,
                before.resident_kib, after.resident_kib);
  require(after.files <= before.files, "open files grow");
  require(after.mappings <= before.mappings, "shared mappings grow");
  require(after.names <= before.names, "names in /dev/shm grow");
  // Heaps settle; a segment or a kilobyte for each communicator would be more. Those of threads, and the
  // links that they have at the same time, settle later (at the same size for 60 communicators as for 1200).
  require(after.resident_kib <= before.resident_kib + (threads > 0 ? 4096 : 1024), "resident memory grows");
  MPI_Finalize();
}
