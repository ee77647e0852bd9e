// Where and when allreduce is called: communicators of every making, threads, latecomers, long mixed
// sequences.
#include <chrono>
#include <random>
#include <thread>

#include "tests/mpi/harness.hpp"

namespace loom::mpi_test {
namespace {

using mpi::Op;
using mpi::Type;

void split(Check& check) {
  const Group& world = check.world;
  struct Way {
    int color, key;
  };
  const Way ways[] = {{world.rank % 2, world.rank},   // odd and even
                      {0, -world.rank},               // the same ranks in reversed order
                      {world.rank / 3, -world.rank},  // threes, reversed
                      {world.rank == 0 ? 0 : 1, 0}};  // one rank alone
  for (const Way& way : ways) {
    MPI_Comm part;
    MPI_Comm_split(world.comm, way.color, way.key, &part);
    const Group group(part);
    for (const Type type : {Type::kInt32, Type::kDouble}) {
      const Reduction reduction(group, type, Op::kSum);
      for (const std::size_t count : {1UL, 100UL, 70001UL}) reduction.run(check, count, {.shift = count});
    }
    MPI_Comm_free(&part);
  }
  MPI_Comm nobody_or_all_but_last;
  MPI_Comm_split(world.comm, world.rank == world.ranks - 1 ? MPI_UNDEFINED : 0, 0, &nobody_or_all_but_last);
  if (nobody_or_all_but_last == MPI_COMM_NULL) return;
  const Group group(nobody_or_all_but_last);
  Reduction(group, Type::kInt64, Op::kMax).run(check, 1000);
  MPI_Comm_free(&nobody_or_all_but_last);
}

void self(Check& check) {
  const Group group(MPI_COMM_SELF);
  const Reduction reduction(group, Type::kDouble, Op::kProd);
  for (const bool in_place : {false, true}) reduction.run(check, 1000, {.in_place = in_place});
}

/// Each side receives the reduction over the other side.
void between_groups(Check& check) {
  const Group& world = check.world;
  if (world.ranks < 2) return check.skip("needs two ranks");
  const int side = world.rank % 2;
  MPI_Comm half, both;
  MPI_Comm_split(world.comm, side, world.rank, &half);
  MPI_Intercomm_create(half, 0, world.comm, 1 - side, 7, &both);
  int sum_there = 0;
  for (int rank = 1 - side; rank < world.ranks; rank += 2) sum_there += rank;
  for (const int count : {1, 1000, 50000}) {
    std::vector<int> in(static_cast<std::size_t>(count), world.rank), out(in.size(), -1);
    MPI_Allreduce(in.data(), out.data(), count, MPI_INT, MPI_SUM, both);
    check.expect(out.front() == sum_there && out.back() == sum_there,
                 "{} elements: the sum is {}, expected {}", count, out.back(), sum_there);
  }
  MPI_Comm_free(&both);
  MPI_Comm_free(&half);
}

constexpr std::size_t kMixedCounts[] = {1, 2, 5, 8, 64, 100, 500, 1000, 3000, 9000, 40000, 200000};

/// Mostly small calls; the same sequence on every rank.
std::size_t draw_count(std::mt19937_64& random) {
  const std::uint64_t choice = random();
  return choice % 64 == 0 ? kMixedCounts[choice / 64 % std::size(kMixedCounts)]
                          : kMixedCounts[choice / 64 % 6];
}

void mixed_sequence(Check& check) {
  const Reduction integers(check.world, Type::kInt64, Op::kSum);
  const Reduction floats(check.world, Type::kFloat, Op::kMax);
  std::mt19937_64 random(check.settings.seed);
  for (std::uint64_t call = 0; call < 5000; ++call) {
    const std::size_t count = draw_count(random);
    (random() % 2 == 0 ? integers : floats).run(check, count, {.in_place = random() % 2 == 0, .shift = call});
  }
}

void interleaved(Check& check) {
  constexpr std::size_t kComms = 5;
  std::vector<MPI_Comm> comms(kComms);
  std::vector<Group> groups;
  std::vector<Reduction> reductions;
  groups.reserve(kComms);  // reductions refer to them
  for (MPI_Comm& comm : comms) {
    // Every other one has its ranks in reversed order.
    MPI_Comm_split(check.world.comm, 0, groups.size() % 2 == 0 ? 0 : -check.world.rank, &comm);
    groups.emplace_back(comm);
    reductions.emplace_back(groups.back(), Type::kInt32, Op::kSum);
  }
  std::mt19937_64 random(check.settings.seed + 1);
  for (std::uint64_t call = 0; call < 1000; ++call) {
    const std::size_t which = random() % kComms;
    reductions[which].run(check, draw_count(random), {.shift = call});
  }
  for (MPI_Comm& comm : comms) MPI_Comm_free(&comm);
}

void late_rank(Check& check) {
  for (const int late : {check.world.ranks - 1, 0}) {
    for (const std::size_t count : {4UL, 300000UL}) {
      const Reduction reduction(check.world, Type::kDouble, Op::kSum);
      reduction.run(check, count);
      if (check.world.rank == late) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      reduction.run(check, count, {.shift = 1});
    }
  }
}

/// One late rank on the very first call, while the communicator is being set up.
void late_for_set_up(Check& check) {
  MPI_Comm comm;
  MPI_Comm_dup(check.world.comm, &comm);
  if (check.world.rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const Group group(comm);
  Reduction(group, Type::kInt32, Op::kBxor).run(check, 1000);
  MPI_Comm_free(&comm);
}

void threads(Check& check) {
  const int thread_count = check.settings.threads;
  if (thread_count == 0) return check.skip("run with --threads");
  int provided;
  MPI_Query_thread(&provided);
  if (provided < MPI_THREAD_MULTIPLE)
    return check.skip("this MPI library does not provide MPI_THREAD_MULTIPLE");

  std::vector<MPI_Comm> comms(static_cast<std::size_t>(thread_count));
  for (MPI_Comm& comm : comms) MPI_Comm_dup(check.world.comm, &comm);
  {
    std::vector<std::jthread> running;
    for (std::size_t which = 0; which < comms.size(); ++which) {
      running.emplace_back([&check, comm = comms[which], which] {
        const Group group(comm);  // its first call, too, is made while the other threads make theirs
        const Reduction reduction(group, Type::kInt64, which % 2 == 0 ? Op::kSum : Op::kBor);
        std::mt19937_64 random(check.settings.seed + 10 * which);
        for (std::uint64_t call = 0; call < 300; ++call)
          reduction.run(check, draw_count(random), {.shift = call});
      });
    }
  }
  for (MPI_Comm& comm : comms) MPI_Comm_free(&comm);
}

}  // namespace

void add_communicator_checks(Suite& suite) {
  suite.add("Allreduce works on split and reordered communicators", split);
  suite.add("Allreduce works on MPI_COMM_SELF", self);
  suite.add("Allreduce works between two groups", between_groups);
  suite.add("Thousands of calls of mixed sizes on one communicator are right", mixed_sequence);
  suite.add("Calls on several communicators by turns are right", interleaved);
  suite.add("A rank that comes late is waited for", late_rank);
  suite.add("A rank that comes late to a new communicator is waited for", late_for_set_up);
  suite.add("Threads with a communicator each call at the same time", threads);
}

}  // namespace loom::mpi_test
