// mpi_faulted -- a fault strikes the last rank (the victim), or its host, in a situation of the program. Each
// rank checks every result, and then does what a careful program does: where a call fails, it goes on without
// the victim, on a communicator that never had it. scripts/faults runs it, judges what the ranks wrote down,
// and strikes itself where the fault lies outside the process.
//
//   mpi_faulted FAULT SITUATION DIRECTORY [MICROSECONDS]
//
// FAULT: killed, stopped, exits, aborts, memory, allocation-N, descriptors, ptrace, ptrace_later, clock,
// none; and by scripts/faults itself: shm, down, loss, host. SITUATION: idle, set-up (a first blocking call),
// deferred (first calls that are nonblocking), blocking, nonblocking, persistent, thread (as nonblocking),
// finalize, comm_free. DIRECTORY: where each rank writes what happens to it, rank.R, and the victim the time
// of the fault. MICROSECONDS, for killed and stopped: the fault strikes so long after the victim has entered
// the call. Else the victim never enters a blocking call, and has started its part of others.
#include <mpi.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "tests/faults/fault.hpp"
#include "tests/faults/rounds.hpp"

namespace faults {
namespace {

/// The ranks of the other hosts; on one host all but the victim.
MPI_Comm without_victim() {
  char name[MPI_MAX_PROCESSOR_NAME] = {}, its_name[MPI_MAX_PROCESSOR_NAME],
       first_name[MPI_MAX_PROCESSOR_NAME];
  int length;
  MPI_Get_processor_name(name, &length);
  std::memcpy(its_name, name, sizeof(name));
  std::memcpy(first_name, name, sizeof(name));
  MPI_Bcast(its_name, sizeof(its_name), MPI_CHAR, run.ranks - 1, MPI_COMM_WORLD);
  MPI_Bcast(first_name, sizeof(first_name), MPI_CHAR, 0, MPI_COMM_WORLD);
  const bool one_host = std::strcmp(its_name, first_name) == 0;
  const bool stays = one_host ? !run.is_victim() : std::strcmp(name, its_name) != 0;
  MPI_Comm rest;
  MPI_Comm_split(MPI_COMM_WORLD, stays ? 1 : MPI_UNDEFINED, run.rank, &rest);
  return rest;
}

/// All ranks call it; where the victim is no more, so do all others.
void finish() {
  if (victim_goes()) {
    record("ends");
    // With recovery, mpirun of 4.1 lets MPI_Abort end its caller alone.
    std::signal(SIGALRM, [](int) {
      record("alarm");
      std::_Exit(kExitCode);
    });
    alarm(4);
    if (run.rank == 0) {
      sleep(1);  // for the others' lines
      record("abort");
      MPI_Abort(MPI_COMM_WORLD, kExitCode);
    }
    for (;;) pause();
  }
  record("finalize");
  MPI_Finalize();
  record("finished");
}

/// As all, whose persistent calls loom carries between hosts, too.
MPI_Comm everybody() {
  MPI_Info info;
  MPI_Info_create(&info);
  MPI_Info_set(info, "coll_loom_ordered_starts", "true");
  MPI_Comm all;
  MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &all);
  MPI_Info_free(&info);
  MPI_Comm_set_errhandler(all, MPI_ERRORS_RETURN);
  return all;
}

void strike_later() {
  if (!run.is_victim()) return;
  usleep(300'000);
  strike();
}

/// The calls in which the fault comes, and those after it. MPI_SUCCESS, or how the first one went that
/// failed.
int call_on(Rounds& of_all) {
  const bool idle = run.situation == "idle", victim = run.is_victim();
  if (idle) {
    strike_later();
    usleep(1'200'000);
  }
  int error = MPI_SUCCESS;
  for (int round = kCallsBefore; round < kCallsBefore + kCallsAfter && error == MPI_SUCCESS; ++round) {
    error = of_all.perform(round, victim && round == kCallsBefore && !idle);
    // Wants of resources last for some calls.
    if (victim && is_of_resources() && (round == kCallsBefore + 5 || error != MPI_SUCCESS)) relieve();
    if (error != MPI_SUCCESS) record("call: round %d class %d", round, error);
  }
  if (error == MPI_SUCCESS) record("calls done");
  return error;
}

void free_all(Rounds& of_all, MPI_Comm& all) {
  of_all.end();
  const int error = class_of(MPI_Comm_free(&all));
  if (run.situation == "comm_free" && run.is_victim()) relieve();
  record("free: class %d", error);
}

/// Of the ranks without the victim's host. MPI_SUCCESS, or how the first call went that failed.
int call_on_rest(Rounds& of_rest) {
  int error = MPI_SUCCESS;
  for (int round = 0; round < kCallsBefore && error == MPI_SUCCESS; ++round)
    error = of_rest.perform(round, false);
  return error;
}

bool begin(int argc, char** argv) {
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  const char* const ranks = std::getenv("OMPI_COMM_WORLD_SIZE");
  if (argc < 4 || rank == nullptr || ranks == nullptr) return false;
  run = {argv[1], argv[2], argv[3], std::atoi(rank), std::atoi(ranks), argc > 4 ? std::atol(argv[4]) : -1};
  if (!open_record()) return false;
  record("pid %d", static_cast<int>(getpid()));
  if (run.is_victim()) strike_before_init();
  return true;
}

}  // namespace
}  // namespace faults

int main(int argc, char** argv) {
  using namespace faults;
  if (!begin(argc, argv)) {
    std::fprintf(
        stderr,
        "mpi_faulted: run it by scripts/faults, or under mpirun: FAULT SITUATION DIRECTORY [MICROSECONDS]\n");
    return 2;
  }
  MPI_Init(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const MPI_Comm rest = without_victim();
  MPI_Comm all = everybody();
  prepare();

  std::unique_ptr<Rounds> of_rest;
  if (rest != MPI_COMM_NULL) {
    MPI_Comm_set_errhandler(rest, MPI_ERRORS_RETURN);
    of_rest = std::make_unique<Rounds>(rest, Form::kBlocking);
    if (const int error = call_on_rest(*of_rest); error != MPI_SUCCESS)
      record("rest before: class %d", error);
  }
  const Form form = is_one_of(run.situation, {"nonblocking", "thread", "deferred"}) ? Form::kNonblocking
                    : run.situation == "persistent"                                 ? Form::kPersistent
                                                                                    : Form::kBlocking;
  Rounds of_all(all, form), blocking_of_all(all, Form::kBlocking);
  const bool connects = is_one_of(run.situation, {"set-up", "deferred"});
  for (int round = 0; round < kCallsBefore && !connects; ++round)
    if (const int error = of_all.perform(round, false); error != MPI_SUCCESS)
      record("before: class %d", error);
  MPI_Barrier(MPI_COMM_WORLD);  // none is in a call from before the fault when it comes
  record("ready");

  const bool frees = run.situation == "comm_free";
  if (frees || run.situation == "finalize") strike_later();
  if (run.situation == "finalize") {
    record("finalize");
    MPI_Finalize();
    record("finished");
    return 0;
  }
  if (frees) {
    free_all(of_all, all);
  } else if (call_on(of_all) > MPI_SUCCESS) {
    record("again: class %d", blocking_of_all.perform(kCallsBefore + kCallsAfter, false));
  }
  if (of_rest) record("rest: class %d", call_on_rest(*of_rest));
  if (!frees) free_all(of_all, all);
  finish();
  return 0;
}
