// mpi_revoked_test -- fault tolerance as Open MPI has it from 5.0 on (ULFM): communicators that loom carries
// are revoked while ranks wait in their calls, or lose a rank; the others shrink them, and go on.
// Exit code 1: wrong.
//
//   mpi_revoked_test revoked|killed
#include <mpi.h>
// Those of mpi.h come first.
#include <mpi-ext.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <vector>

#include "mpi_examples/support/loom_pvars.hpp"

namespace {

int rank, ranks;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "rank %d of %d: %s\n", rank, ranks, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

struct Situation {
  const char* name;
  int count;
  bool is_connected;  ///< by earlier calls
  /// A call, to its end. Returns its error code.
  int (*call)(int* in, int* out, int count, MPI_Comm comm);
};

int allreduce(int* in, int* out, int count, MPI_Comm comm) {
  return MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, comm);
}

int broadcast(int* in, int*, int count, MPI_Comm comm) {
  int size;
  MPI_Comm_size(comm, &size);
  return MPI_Bcast(in, count, MPI_INT, size - 1, comm);
}

int wait_in_barrier(int*, int*, int, MPI_Comm comm) {
  return MPI_Barrier(comm);
}

int start_and_wait(int* in, int* out, int count, MPI_Comm comm) {
  MPI_Request request;
  const int error = MPI_Iallreduce(in, out, count, MPI_INT, MPI_SUM, comm, &request);
  return error == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : error;
}

int start_and_test(int* in, int* out, int count, MPI_Comm comm) {
  MPI_Request request;
  int error = MPI_Iallreduce(in, out, count, MPI_INT, MPI_SUM, comm, &request);
  for (int done = 0; error == MPI_SUCCESS && !done;) error = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  return error;
}

MPI_Request persistent;
int persistent_in, persistent_out;

int start_persistent(int*, int*, int, MPI_Comm) {
  if (persistent == MPI_REQUEST_NULL) return MPIX_ERR_REVOKED;  // it is freed
  int error = MPI_Start(&persistent);
  if (error == MPI_SUCCESS) error = MPI_Wait(&persistent, MPI_STATUS_IGNORE);
  MPI_Request_free(&persistent);
  return error;
}

constexpr Situation kSituations[] = {
    {"the first call", 1, false, allreduce},
    {"the first call, which does not wait", 1, false, start_and_wait},
    {"a small allreduce", 1, true, allreduce},
    {"a large allreduce", 1 << 20, true, allreduce},
    {"a broadcast", 1 << 16, true, broadcast},
    {"a barrier", 0, true, wait_in_barrier},
    {"a nonblocking allreduce that is waited for", 1 << 16, true, start_and_wait},
    {"a nonblocking allreduce that is tested", 1, true, start_and_test},
    {"a persistent allreduce", 1, true, start_persistent},
};

int class_of(int error) {
  int error_class;
  MPI_Error_class(error, &error_class);
  return error_class;
}

const char* name_of(int error_class) {
  return error_class == MPIX_ERR_REVOKED       ? "MPIX_ERR_REVOKED"
         : error_class == MPIX_ERR_PROC_FAILED ? "MPIX_ERR_PROC_FAILED"
         : error_class == MPI_SUCCESS          ? "MPI_SUCCESS"
                                               : "another error";
}

/// Sums of ones. loom carries the long one, and inside a host the other, too.
void expect_works(MPI_Comm comm, loom::mpi::ToolInterface& tool) {
  int size;
  MPI_Comm_size(comm, &size);
  const auto carried = [&] { return tool.counter("coll_loom_calls", "allreduce"); };
  const auto before = carried();
  for (const int count : {1, 300000}) {
    std::vector<int> in(static_cast<std::size_t>(count), 1), out(in.size(), -1);
    require(allreduce(in.data(), out.data(), count, comm) == MPI_SUCCESS,
            "an allreduce on a communicator of the other ranks fails");
    for (const int value : out) require(value == size, "an allreduce on such a communicator is wrong");
  }
  require(size == 1 || carried().value() > before.value(), "loom does not carry such a communicator");
}

/// What this rank finds in a call without the last one. Returns the error class.
int meet_absence(const Situation& situation, MPI_Comm comm) {
  std::vector<int> in(static_cast<std::size_t>(situation.count) + 1), out(in.size());
  const auto began = std::chrono::steady_clock::now();
  const int found = class_of(situation.call(in.data(), out.data(), situation.count, comm));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  std::printf("rank %d: %s: %s after %.1f s\n", rank, situation.name, name_of(found), seconds);
  std::fflush(stdout);
  require(class_of(situation.call(in.data(), out.data(), situation.count, comm)) != MPI_SUCCESS,
          "a later call succeeds");
  return found;
}

MPI_Comm dup_for(const Situation& situation, MPI_Comm comm) {
  MPI_Comm dup;
  MPI_Comm_dup(comm, &dup);
  MPI_Comm_set_errhandler(dup, MPI_ERRORS_RETURN);
  std::vector<int> in(static_cast<std::size_t>(situation.count) + 1), out(in.size());
  if (situation.is_connected) {
    require(MPI_Barrier(dup) == MPI_SUCCESS, "a barrier fails");
    require(allreduce(in.data(), out.data(), situation.count, dup) == MPI_SUCCESS, "an allreduce fails");
  }
  if (situation.call == start_persistent)
    MPI_Allreduce_init(&persistent_in, &persistent_out, 1, MPI_INT, MPI_SUM, dup, MPI_INFO_NULL, &persistent);
  return dup;
}

/// The ranks that are left, who have agreed on something before.
MPI_Comm shrunk(MPI_Comm comm) {
  int flag = 1;
  MPIX_Comm_failure_ack(comm);
  MPIX_Comm_agree(comm, &flag);
  require(flag == 1, "what the ranks agree on is wrong");
  MPI_Comm left;
  require(MPIX_Comm_shrink(comm, &left) == MPI_SUCCESS, "a communicator cannot be shrunk");
  MPI_Comm_set_errhandler(left, MPI_ERRORS_RETURN);
  return left;
}

void revoke(loom::mpi::ToolInterface& tool) {
  for (const Situation& situation : kSituations) {
    MPI_Comm comm = dup_for(situation, MPI_COMM_WORLD);
    if (rank == ranks - 1) {
      usleep(300000);
      MPIX_Comm_revoke(comm);
      if (situation.call == start_persistent) MPI_Request_free(&persistent);
    } else {
      require(meet_absence(situation, comm) == MPIX_ERR_REVOKED, "a revoked communicator has another error");
    }
    MPI_Comm left = shrunk(comm);
    int size;
    MPI_Comm_size(left, &size);
    if (size != ranks) std::fprintf(stderr, "rank %d: %s: %d ranks are left\n", rank, situation.name, size);
    require(size == ranks, "a rank is missing, though none has failed");
    expect_works(left, tool);
    MPI_Comm_free(&left);
    MPI_Comm_free(&comm);
    expect_works(MPI_COMM_WORLD, tool);
  }
}

/// In each situation the last rank that is left.
void kill(loom::mpi::ToolInterface& tool) {
  MPI_Comm left;
  MPI_Comm_dup(MPI_COMM_WORLD, &left);
  MPI_Comm_set_errhandler(left, MPI_ERRORS_RETURN);
  for (const Situation& situation : kSituations) {
    int at, size;
    MPI_Comm_rank(left, &at);
    MPI_Comm_size(left, &size);
    if (size == 1) break;
    MPI_Comm comm = dup_for(situation, left);
    if (at == size - 1) {
      usleep(300000);
      std::raise(SIGKILL);
    }
    const int found = meet_absence(situation, comm);
    require(found == MPIX_ERR_PROC_FAILED || found == MPIX_ERR_REVOKED, "a lost rank has another error");
    MPIX_Comm_revoke(comm);
    MPI_Comm rest = shrunk(comm);
    MPI_Comm_free(&comm);
    MPI_Comm_free(&left);
    left = rest;
    MPI_Comm_size(left, &size);
    require(size > at, "more than one rank is gone");
    expect_works(left, tool);
  }
  MPI_Comm_free(&left);
}

/// Where processes have been killed, Open MPI (5.0.7, 6.0.0rc2) often never gets over its own fence in
/// MPI_Finalize.
void leave_open_mpi_behind() {
  constexpr unsigned kPatienceInSeconds = 20;
  std::signal(SIGALRM, [](int) { _exit(0); });
  alarm(kPatienceInSeconds);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  {
    loom::mpi::ToolInterface tool;
    require(argc == 2, "usage: mpi_revoked_test revoked|killed");
    std::strcmp(argv[1], "killed") == 0 ? kill(tool) : revoke(tool);
  }
  std::printf("rank %d: all right\n", rank);
  std::fflush(stdout);
  if (std::strcmp(argv[1], "killed") == 0) leave_open_mpi_behind();
  MPI_Finalize();
}
