// mpi_on_device_test -- calls whose buffers stay on a device, by coll_loom_tune: which calls those are, that
// all ranks decide alike, and what happens when it does not work. On tests/virtual_gpu. Exit code 1: wrong.
//
//   mpi_on_device_test EXECUTOR [staged | differ | repeat | brief | others | refused] [apart] [without
//   VARIABLE]
//       EXECUTOR  which algorithm carries the calls: zero_copy, kernel, both (kernel where it can), or copy
//       staged    the algorithm cannot be used here, and all calls are staged
//       differ    the same, because one rank sets another algorithm
//       repeat    what fails does so again and again, and leaves nothing behind
//       brief     a few all-reduces alone, shorter ones
//       others    the collectives that no kernel carries over links inside a host
//       refused   a rank alone whose driver has no memory for its copies at first
//       apart     each rank takes a GPU of its own, by its rank
//       without   rank 0 does not have that variable in its environment
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/mpi/on_device/on_device.hpp"

using namespace loom::mpi_test;

int main(int argc, char** argv) {
  executor = argc > 1 ? argv[1] : "";
  const char* const number = std::getenv("OMPI_COMM_WORLD_RANK");
  bool repeats = false, apart = false, refused = false, brief = false, shares = false, others = false;
  const bool first = number != nullptr && std::atoi(number) == 0;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "without" && ++i < argc) {
      if (first) ::unsetenv(argv[i]);
      continue;
    }
    apart |= word == "apart";
    refused |= word == "refused";
    brief |= word == "brief";
    others |= word == "others";
    shares |= word == "shares";
    repeats |= word == "repeat";
    expected &= word != "staged" && word != "differ";
  }
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (apart) Driver::get().use(rank);
  tools.emplace();
  if (refused)
    ask_once();
  else if (brief)
    for (int i = 0; i < 3; ++i) allreduce(expected, MemoryKind::kDevice, MPI_COMM_WORLD, 20'000 + i);
  else if (others) {
    collectives_without_links();
    reduce_locally();
  } else
    every_collective();
  if (shares) share_otherwise_or_not_at_all();
  if (expected && !brief && !others && ranks > 1) {
    const char* const rules = std::getenv("OMPI_MCA_coll_loom_tune");
    const bool are_for_long_calls = std::strstr(rules, "64k-inf") != nullptr;
    check("allreduce", !are_for_long_calls, [] {
      Ints in(100, mine), out(100, mine);
      MPI_Allreduce(in.at(), out.at(), 100, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
      out.is(sum, "a small allreduce is wrong");
    });
    step_together();
    if (repeats)
      leaves_nothing("memory that is not shared", share_otherwise_or_not_at_all);
    else
      share_otherwise_or_not_at_all();
    do_without_a_kernel();
    fail_in_a_call();
    free_what_communicators_had();
  }
  if (rank == 0) std::printf("all right\n");
  tools.reset();
  MPI_Finalize();
  return 0;
}
