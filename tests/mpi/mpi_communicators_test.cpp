// mpi_communicators_test -- collectives on communicators of every making: split, duplicated at once and in
// the background, of one host, from groups, with topologies, between groups, merged, and nested in one
// another.
//
//   mpi_communicators_test [--expect-loom]
//
// Exit code 1: wrong, or not carried by whom they should.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "mpi_examples/support/loom_pvars.hpp"
#include "tests/mpi/between_groups.hpp"
#include "tests/mpi/conformance/conformance.hpp"

namespace {

int rank, ranks;
std::uint64_t round_number;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "rank %d of %d: %s\n", rank, ranks, what);
  std::exit(1);
}

/// A few cases of the conformance tests, and frees the communicator.
void use_up(MPI_Comm comm, const char* what, bool wait_first = true) {
  if (comm == MPI_COMM_NULL) return;
  if (wait_first) MPI_Barrier(comm);
  loom::conformance::Settings few, more;
  few.share = 0.0003;
  more.share = 0.005;
  few.seed = more.seed = std::hash<std::string>()(what) + round_number;  // alike on its ranks
  loom::conformance::Run reducing(comm, few), moving(comm, more);
  run_reducing(reducing);
  run_moving(moving);
  require(reducing.wrong + moving.wrong == 0, what);
  MPI_Comm_free(&comm);
}

void split() {
  MPI_Comm part;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &part);
  use_up(part, "odd and even ranks in reversed order");
  MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 1, 0, &part);
  use_up(part, "all but rank 0", false);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &part);
  use_up(part, "the ranks of a host");
}

/// Open MPI goes on with it from the progress loop: on some ranks at once, on others in their next call.
MPI_Request begin_duplicate(MPI_Comm of, MPI_Comm& copy) {
  MPI_Request request;
  MPI_Comm_idup(of, &copy, &request);
  int flag;
  for (int look = 0; look < 100 && rank % 2 == 1; ++look)
    MPI_Iprobe(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
  return request;
}

void duplicate() {
  MPI_Comm copy, copy_of_copy;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  MPI_Comm_dup(copy, &copy_of_copy);
  use_up(copy, "a duplicate");
  use_up(copy_of_copy, "a duplicate of a freed duplicate");
  MPI_Info info;
  MPI_Info_create(&info);
  MPI_Info_set(info, "unknown_key", "value");
  MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &copy);
  MPI_Info_free(&info);
  use_up(copy, "a duplicate with info", false);
  // Open MPI starts its part of this from the progress loop, here on some ranks before the sum and on others
  // in it.
  for (const std::size_t count : {1UL, 1000UL, 50'000UL, 400'000UL}) {
    MPI_Request request = begin_duplicate(MPI_COMM_WORLD, copy);
    std::vector<int> sum(count, 1);
    MPI_Allreduce(MPI_IN_PLACE, sum.data(), static_cast<int>(count), MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    require(sum == std::vector<int>(count, ranks), "a sum while a duplicate is being made");
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    use_up(copy, "a duplicate made in the background");
  }
}

void from_groups() {
  MPI_Group world, reversed;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  int range[1][3] = {{ranks - 1, 0, -1}};
  MPI_Group_range_incl(world, 1, range, &reversed);
  MPI_Comm comm;
  MPI_Comm_create(MPI_COMM_WORLD, reversed, &comm);
  use_up(comm, "all ranks in reversed order");
  MPI_Group_free(&reversed);
  if (rank % 2 == 0) {  // called by these alone
    int even[1][3] = {{0, (ranks - 1) / 2 * 2, 2}};
    MPI_Group_range_incl(world, 1, even, &reversed);
    MPI_Comm_create_group(MPI_COMM_WORLD, reversed, 3, &comm);
    use_up(comm, "even ranks, created by these alone");
    MPI_Group_free(&reversed);
  }
  MPI_Group_free(&world);
}

/// The ranks in a circle: neighbourhood collectives fall back, all others are as on any communicator.
void with_topology() {
  const int periodic = 1;
  MPI_Comm circle;
  MPI_Cart_create(MPI_COMM_WORLD, 1, &ranks, &periodic, 0, &circle);
  int left, right;
  MPI_Cart_shift(circle, 0, 1, &left, &right);
  for (int round = 0; round < 3; ++round) {
    const int mine[2] = {rank, rank};
    int got[2] = {-1, -1};
    MPI_Request request;
    int sum = 1;
    MPI_Ineighbor_alltoall(mine, 1, MPI_INT, got, 1, MPI_INT, circle, &request);
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, circle);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    require(got[0] == left && got[1] == right && sum == ranks, "neighbours in a circle");
    got[0] = got[1] = -1;
    MPI_Neighbor_allgather(&rank, 1, MPI_INT, got, 1, MPI_INT, circle);
    require(got[0] == left && got[1] == right, "an all-gather of neighbours in a circle");
  }
  use_up(circle, "a circle");
  MPI_Comm graph;
  const int ahead = (rank + 1) % ranks, behind = (rank + ranks - 1) % ranks;
  MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &behind, MPI_UNWEIGHTED, 1, &ahead, MPI_UNWEIGHTED,
                                 MPI_INFO_NULL, 0, &graph);
  int got = -1;
  MPI_Neighbor_alltoall(&rank, 1, MPI_INT, &got, 1, MPI_INT, graph);
  require(got == behind, "a message along a graph");
  use_up(graph, "a graph", false);
}

void between_groups() {
  if (ranks < 2) return;
  for (const int first_ranks : {1, ranks / 2, ranks - 1}) {
    const bool first = rank < first_ranks;
    MPI_Comm side, both, again, merged;
    MPI_Comm_split(MPI_COMM_WORLD, first, 0, &side);
    MPI_Intercomm_create(side, 0, MPI_COMM_WORLD, first ? first_ranks : 0, 4, &both);
    const char* wrong = loom::mpi_test::wrong_between_groups(both, first);
    require(wrong == nullptr, wrong);
    // Together with what Open MPI does on the groups' own communicators.
    for (const std::size_t count : {1UL, 50'000UL}) {
      MPI_Request request = begin_duplicate(both, again);
      std::vector<int> sum(count, 1);
      const std::vector<int> others(count, first ? ranks - first_ranks : first_ranks);
      std::vector<int> got(count);
      MPI_Allreduce(sum.data(), got.data(), static_cast<int>(count), MPI_INT, MPI_SUM, both);
      require(got == others, "a sum between groups while a duplicate is being made");
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      MPI_Comm_free(&again);
    }
    MPI_Comm_dup(both, &again);
    MPI_Comm_free(&both);
    wrong = loom::mpi_test::wrong_between_groups(again, first);
    require(wrong == nullptr, wrong);
    MPI_Intercomm_merge(again, first, &merged);
    MPI_Comm_free(&again);
    use_up(merged, "two groups merged, the first behind");
    use_up(side, "one of two groups");
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const bool expect_loom = argc > 1 && std::strcmp(argv[1], "--expect-loom") == 0;
  {
    loom::mpi::ToolInterface tools;
    const auto carried = [&] { return tools.counter("coll_loom_calls", "reduce").value_or(0); };
    carried();  // a counter counts from when it is first asked for
    for (const auto kind : {split, duplicate, from_groups, with_topology, between_groups}) {
      const std::uint64_t before = carried();
      for (round_number = 0; round_number < 2; ++round_number) kind();
      if (expect_loom && (ranks > 1 || kind != between_groups))
        require(carried() > before, "loom has carried no reduce");
    }
  }
  MPI_Finalize();
}
