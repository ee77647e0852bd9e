// mpi_ends_test at_exit | first_thread -- programs that end, in part, before their calls do. Exit code 1:
// wrong.
//
//   at_exit       the last calls, on a communicator that has made none, and MPI_Finalize, are made while the
//                 program exits: after the destructors of what the library has made late
//   first_thread  main's thread ends while another one makes the calls, in which ranks wait for each other
#include <mpi.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

void check_sum(MPI_Comm comm, std::size_t count) {
  int ranks;
  MPI_Comm_size(comm, &ranks);
  const std::vector<double> ones(count, 1);
  std::vector<double> sums(count);
  const int error =
      MPI_Allreduce(ones.data(), sums.data(), static_cast<int>(count), MPI_DOUBLE, MPI_SUM, comm);
  for (const double sum : sums)
    if (error != MPI_SUCCESS || sum != ranks) {
      std::fprintf(stderr, "a sum over %d ranks is %g, error %d\n", ranks, sum, error);
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

void check_all_sums(MPI_Comm comm) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{300'000}})
    check_sum(comm, count);
}

void make_last_calls() {
  check_all_sums(MPI_COMM_WORLD);
  MPI_Finalize();
  std::puts("the last calls were right");
}

void* work(void* first) {
  pthread_join(*static_cast<pthread_t*>(first), nullptr);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int call = 0; call < 3; ++call) {
    if (rank == 1) ::usleep(700'000);  // long enough for the others to look whether it lives
    check_all_sums(MPI_COMM_WORLD);
  }
  MPI_Finalize();
  std::puts("the last calls were right");
  std::exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "at_exit") == 0) {
    std::atexit(make_last_calls);
    MPI_Init(&argc, &argv);
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    check_all_sums(copy);  // and is never freed
    return 0;
  }
  int provided;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  check_sum(MPI_COMM_WORLD, 300'000);
  static pthread_t first = pthread_self();
  pthread_t other;
  if (pthread_create(&other, nullptr, work, &first) != 0) return 1;
  pthread_exit(nullptr);
}
