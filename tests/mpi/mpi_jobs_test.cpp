// mpi_jobs_test -- communicators of three jobs. Open MPI tells processes of two jobs that have met through a
// third one different things of who is on whose host. Collectives of each form as the first calls of
// such communicators. Exit code 1: wrong. Nothing is disconnected: with three jobs that hangs in Open
// MPI 4.1.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "tests/mpi/conformance/conformance.hpp"

namespace {

enum class Meeting {
  kByCreate,     ///< the first job starts two others, and MPI_Intercomm_create joins these
  kBySpawnOfTwo  ///< two jobs together start a third one
};

char* program;
std::vector<MPI_Comm> joined;  ///< communicators of several jobs, in the order in which they came

/// The first call of a communicator is one of these, which loom carries on one host alone.
void begin_by(const char* collective, loom::conformance::Form form, MPI_Comm all) {
  MPI_Comm copy;
  MPI_Comm_dup(all, &copy);
  loom::conformance::Settings few;
  few.only = {collective};
  few.forms = {form};
  few.share = 0.1;
  few.ordered_starts = false;
  loom::conformance::Run run(copy, few);
  run_moving(run);
  run_reducing(run);
  if (run.wrong > 0 || run.cases.empty()) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Comm_free(&copy);
}

void use(MPI_Comm all) {
  int rank, ranks;
  MPI_Comm_rank(all, &rank);
  MPI_Comm_size(all, &ranks);
  int mine = rank + 1, sum = 0;
  MPI_Scan(&mine, &sum, 1, MPI_INT, MPI_SUM, all);
  if (sum != (rank + 1) * (rank + 2) / 2) {
    std::fprintf(stderr, "rank %d of %d: the sum of a scan is %d\n", rank, ranks, sum);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  for (const char* collective : {"scan", "gatherv", "allgatherv", "alltoallv"})
    for (const auto form : loom::conformance::kForms) begin_by(collective, form, all);
}

MPI_Comm keep(MPI_Comm communicator) {
  joined.push_back(communicator);
  return communicator;
}

MPI_Comm merge(MPI_Comm between, bool last) {
  MPI_Comm merged;
  MPI_Intercomm_merge(between, last, &merged);
  return keep(merged);
}

/// Starts `count` processes as job `job`; all of `old` together, the new ones behind.
MPI_Comm start(MPI_Comm old, int count, Meeting meeting, const char* job) {
  char meetings[][2] = {"0", "1"};
  char name[] = {*job, '\0'};
  char* arguments[] = {meetings[static_cast<int>(meeting)], name, nullptr};
  MPI_Comm between;
  MPI_Comm_spawn(program, arguments, count, MPI_INFO_NULL, 0, old, &between, MPI_ERRCODES_IGNORE);
  return merge(keep(between), false);
}

MPI_Comm join(MPI_Comm mine, MPI_Comm bridge, int leader_there, bool last) {
  MPI_Comm between;
  MPI_Intercomm_create(mine, 0, bridge, leader_there, 7, &between);
  return merge(keep(between), last);
}

void be_first(Meeting meeting) {
  const MPI_Comm second = start(MPI_COMM_WORLD, 2, meeting, "b");
  if (meeting == Meeting::kBySpawnOfTwo) return use(start(second, 1, meeting, "c"));
  const MPI_Comm third = start(MPI_COMM_WORLD, 1, meeting, "c");
  int ranks;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  use(join(second, third, ranks, false));
}

void be_started(Meeting meeting, char job, MPI_Comm parent) {
  const MPI_Comm merged = merge(keep(parent), true);
  if (meeting == Meeting::kBySpawnOfTwo) return use(job == 'b' ? start(merged, 1, meeting, "c") : merged);
  // The leaders reach each other over the third job's communicator.
  if (job == 'b') return use(join(merged, MPI_COMM_NULL, 0, false));
  use(join(MPI_COMM_WORLD, merged, 0, true));
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  program = argv[0];
  if (argc < 2) return EXIT_FAILURE;
  const Meeting meeting = std::string_view(argv[1]) == "0" ? Meeting::kByCreate : Meeting::kBySpawnOfTwo;
  MPI_Comm parent;
  MPI_Comm_get_parent(&parent);
  if (parent == MPI_COMM_NULL)
    be_first(meeting);
  else
    be_started(meeting, argv[2][0], parent);
  for (; !joined.empty(); joined.pop_back()) MPI_Comm_free(&joined.back());
  MPI_Finalize();
}
