// mpi_sessions_test -- collectives of programs that never call MPI_Init: communicators from the groups of MPI
// sessions. Exit code 1: wrong.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>

#include "tests/mpi/conformance/conformance.hpp"

namespace {

int rank, ranks;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "rank %d of %d: %s\n", rank, ranks, what);
  std::exit(1);
}

MPI_Comm communicator_of(MPI_Session session, const char* set, const char* tag) {
  MPI_Group group;
  MPI_Group_from_session_pset(session, set, &group);
  MPI_Comm comm;
  MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
  MPI_Group_free(&group);
  return comm;
}

/// What nobody waits in first, and a few cases of the conformance tests.
void use(MPI_Comm comm, const char* what) {
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  int sum = 1;
  MPI_Request request;
  MPI_Iallreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, comm, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  require(sum == ranks, what);
  loom::conformance::Settings few;
  few.share = 0.001;
  loom::conformance::Run run(comm, few);
  run_moving(run);
  run_reducing(run);
  require(run.wrong == 0, what);
}

void once() {
  MPI_Session session, another;
  MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
  MPI_Comm world = communicator_of(session, "mpi://WORLD", "loom.test.world");
  MPI_Comm self = communicator_of(session, "mpi://SELF", "loom.test.self");
  use(self, "collectives of a process of a session alone");
  use(world, "collectives of a session");
  MPI_Comm copy;
  MPI_Comm_dup(world, &copy);
  use(copy, "collectives on a duplicate of a session's communicator");
  // Of another session, at the same time.
  MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &another);
  MPI_Comm beside = communicator_of(another, "mpi://WORLD", "loom.test.beside");
  use(beside, "collectives of a second session");
  use(world, "collectives of the first session beside a second");
  MPI_Comm_free(&world);
  MPI_Comm_free(&self);
  MPI_Comm_free(&copy);
  MPI_Session_finalize(&session);
  use(beside, "collectives of the second session after the first");
  MPI_Comm_free(&beside);
  MPI_Session_finalize(&another);
}

}  // namespace

int main() {
  once();
  once();  // after MPI has ended
}
