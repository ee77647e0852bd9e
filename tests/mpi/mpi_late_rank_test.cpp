// mpi_late_rank_test -- the last rank comes to the first call of a communicator long after coll_loom_timeout,
// which it does not have itself. All ranks get an error, the late one too, and other communicators go on.
// Exit code 1: wrong.
//
//   mpi_late_rank_test LAST-RANK
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "tests/mpi/device_ints.hpp"

namespace {

using namespace loom::mpi_test;

/// In one form or the other.
int sum(bool blocks, int* result, MPI_Comm comm) {
  if (blocks) return MPI_Allreduce(&rank, result, 1, MPI_INT, MPI_SUM, comm);
  MPI_Request request;
  const int error = MPI_Iallreduce(&rank, result, 1, MPI_INT, MPI_SUM, comm, &request);
  return error == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : error;
}

/// Made by Open MPI's own calls, which take no part in loom's.
void go_on_with_others(bool blocks) {
  MPI_Comm other;
  MPI_Comm_dup(MPI_COMM_WORLD, &other);
  int result = -1;
  require(sum(blocks, &result, other) == MPI_SUCCESS && result == ranks * (ranks - 1) / 2,
          "a communicator made after a failure of another one is wrong");
  MPI_Comm_free(&other);
}

void come_late(bool blocks) {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  if (rank == ranks - 1) sleep(3);
  int result = -1;
  require(sum(blocks, &result, comm) != MPI_SUCCESS, "a rank that comes too late is no error");
  require(sum(!blocks, &result, comm) != MPI_SUCCESS, "a call after that is no error");
  MPI_Comm_free(&comm);
  go_on_with_others(blocks);
}

/// Communicators are made while the first calls of another one connect it.
void make_others_beside() {
  for (const bool blocks : {false, true}) {
    MPI_Comm comm, beside;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Request request;
    MPI_Comm_idup(comm, &beside, &request);
    int result = -1;
    require(sum(blocks, &result, comm) == MPI_SUCCESS && result == ranks * (ranks - 1) / 2,
            "a first call beside MPI_Comm_idup is wrong");
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    require(sum(blocks, &result, beside) == MPI_SUCCESS && result == ranks * (ranks - 1) / 2,
            "a communicator that MPI_Comm_idup has made is wrong");
    MPI_Comm_free(&beside);
    MPI_Comm_free(&comm);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const char *const number = std::getenv("OMPI_COMM_WORLD_RANK"), *const last = argc > 1 ? argv[1] : "";
  if (number == nullptr || *last == '\0') return 2;
  if (std::strcmp(number, last) == 0) setenv("OMPI_MCA_coll_loom_timeout", "0", 1);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);  // which MPI_Wait asks
  require(std::atoi(last) == ranks - 1, "the argument is not the last rank");
  make_others_beside();
  come_late(true);
  come_late(false);
  make_others_beside();
  MPI_Finalize();
}
