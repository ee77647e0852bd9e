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
#include <dirent.h>
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mpi_examples/support/loom_pvars.hpp"
#include "tests/mpi/device_ints.hpp"

namespace {

using namespace loom::mpi_test;

constexpr int kCount = 300'000;  // more than the rules of coll_loom_tune begin with
std::string executor;
std::optional<loom::mpi::ToolInterface> tools;
bool expected = true;  ///< that calls stay on the device
bool repeats = false;

int mine(int i) {
  return i % 1000 + rank * 10'000;
}
int sum(int i) {
  return ranks * (i % 1000) + ranks * (ranks - 1) / 2 * 10'000;
}

/// Calls of a collective that have stayed on the device, and bytes that have been staged.
struct Counts {
  std::uint64_t stayed, staged;
};
Counts counts_of(const std::string& collective) {
  const bool of_kernels = collective.starts_with("all")
                              ? collective != "alltoall" && collective != "alltoallv"
                              : collective.starts_with("reduce") || collective == "bcast";
  const std::string of_both = of_kernels ? "kernel" : "zero_copy";
  const std::string& carries = executor == "both" ? of_both : executor;
  return {tools->counter("coll_loom_calls", collective, carries).value_or(0),
          tools->counter("coll_loom_staged_bytes").value_or(0)};
}

/// Checks that the call stays on the device, or does not. The body checks its result.
void check(const std::string& collective, bool stays, const std::function<void()>& body) {
  counts_of(collective);
  const Counts before = counts_of(collective);
  body();
  const Counts after = counts_of(collective);
  if (stays) {
    require(after.stayed == before.stayed + 1, (collective + " does not stay on the device").c_str());
    require(after.staged == before.staged, (collective + " is staged all the same").c_str());
  } else {
    require(after.stayed == before.stayed, (collective + " stays on the device").c_str());
  }
}

void allreduce(bool stays, MemoryKind kind, MPI_Comm comm = MPI_COMM_WORLD, int count = kCount) {
  check("allreduce", stays, [&] {
    Ints in(count, mine, kind), out(
                                    count, [](int) { return -1; }, kind);
    MPI_Allreduce(in.at(), out.at(), count, MPI_INT, MPI_SUM, comm);
    out.is(sum, "an allreduce is wrong");
    in.is(mine, "an allreduce changes its operand");
  });
}

/// Rank r has so many elements; rank 1 has none.
int length_of(int r) {
  return r == 1 ? 0 : 20'000 + 7 * r;
}
int first_of(int r) {
  int first = 0;
  for (int other = 0; other < r; ++other) first += length_of(other);
  return first;
}

void blocks_of_different_lengths(bool stays) {
  std::vector<int> counts, places;
  for (int r = 0; r < ranks; ++r) {
    counts.push_back(length_of(r));
    places.push_back(first_of(ranks) - first_of(r + 1) + 3 * (ranks - r));  // the last first, with gaps
  }
  const int own = length_of(rank), all = first_of(ranks);
  const auto nothing = [](int) { return -1; };
  const auto my_sum = [](int i) { return sum(first_of(rank) + i); };
  check("reduce_scatter", stays, [&] {
    Ints in(all, mine), out(own + 1, nothing);
    MPI_Reduce_scatter(in.at(), out.at(), counts.data(), MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    out.is([&](int i) { return i < own ? my_sum(i) : -1; }, "a reduce_scatter is wrong");
    in.is(mine, "a reduce_scatter changes its operand");
  });
  check("reduce_scatter", stays, [&] {
    Ints both(all, mine);
    MPI_Reduce_scatter(MPI_IN_PLACE, both.at(), counts.data(), MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    both.is([&](int i) { return i < own ? my_sum(i) : mine(i); }, "a reduce_scatter in place is wrong");
  });
  for (const bool in_place : {false, true})
    check("allgatherv", stays, [&] {
      const auto owner = [&](int i) {
        for (int r = 0; r < ranks; ++r)
          if (i >= places[r] && i < places[r] + counts[r]) return r;
        return -1;
      };
      const auto value = [](int r, int i) { return i % 1000 + r * 10'000; };
      Ints in(own + 1, mine), out(all + 4 * ranks, [&](int i) {
        return in_place && owner(i) == rank ? value(rank, i - places[rank]) : -1;
      });
      MPI_Allgatherv(in_place ? MPI_IN_PLACE : in.at(), own, MPI_INT, out.at(), counts.data(), places.data(),
                     MPI_INT, MPI_COMM_WORLD);
      out.is([&](int i) { return owner(i) < 0 ? -1 : value(owner(i), i - places[owner(i)]); },
             "an allgatherv is wrong");
    });
}

/// What rank r sends to rank q has length_of(r + q) elements, modulo the ranks; its values tell both.
void exchange_lists(bool stays) {
  const auto nothing = [](int) { return -1; };
  const auto length = [](int r, int q) { return length_of((r + q) % ranks); };
  const auto pair = [](int from, int to, int i) { return (i % 100 + from * 100 + to) * 7; };
  std::vector<int> lengths, begins{0};
  for (int q = 0; q < ranks; ++q) {
    lengths.push_back(length(rank, q));
    begins.push_back(begins.back() + lengths.back() + 1);
  }
  const auto peer_at = [&](int i) {
    return static_cast<int>(std::upper_bound(begins.begin(), begins.end(), i) - begins.begin()) - 1;
  };
  for (const bool in_place : {false, true})
    check("alltoallv", stays && !(in_place && between_hosts()), [&] {
      const auto sent = [&](int i) {
        const int q = peer_at(i), at = i - begins[static_cast<std::size_t>(q)];
        return at < lengths[static_cast<std::size_t>(q)] ? pair(rank, q, at) : -1;
      };
      Ints in(begins.back(), sent), out(begins.back(), in_place ? std::function<int(int)>(sent) : nothing);
      MPI_Alltoallv(in_place ? MPI_IN_PLACE : in.at(), lengths.data(), begins.data(), MPI_INT, out.at(),
                    lengths.data(), begins.data(), MPI_INT, MPI_COMM_WORLD);
      out.is(
          [&](int i) {
            const int q = peer_at(i), at = i - begins[static_cast<std::size_t>(q)];
            return at < lengths[static_cast<std::size_t>(q)] ? pair(q, rank, at) : -1;
          },
          "an alltoallv is wrong");
    });
}

void every_collective() {
  const auto nothing = [](int) { return -1; };
  const int root = ranks - 1;
  allreduce(expected, MemoryKind::kDevice);
  allreduce(expected, MemoryKind::kManaged);
  allreduce(expected, MemoryKind::kDevice);
  check("bcast", expected && ranks > 1, [&] {  // Open MPI itself ends that of one rank
    Ints buffer(kCount, mine);
    MPI_Bcast(buffer.at(), kCount, MPI_INT, root, MPI_COMM_WORLD);
    buffer.is([&](int i) { return i % 1000 + root * 10'000; }, "a bcast is wrong");
  });
  check("allgather", expected, [&] {
    Ints in(kCount, mine), out(kCount * ranks, nothing);
    MPI_Allgather(in.at(), kCount, MPI_INT, out.at(), kCount, MPI_INT, MPI_COMM_WORLD);
    out.is([](int i) { return i % kCount % 1000 + i / kCount * 10'000; }, "an allgather is wrong");
  });
  check("reduce_scatter_block", expected, [&] {
    Ints in(kCount * ranks, mine), out(kCount, nothing);
    MPI_Reduce_scatter_block(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    out.is([](int i) { return sum(rank * kCount + i); }, "a reduce_scatter_block is wrong");
  });
  blocks_of_different_lengths(expected);
  check("reduce", expected, [&] {
    Ints in(kCount, mine), out(kCount, nothing);
    // Only the root's result counts.
    MPI_Reduce(in.at(), rank == root ? out.at() : nullptr, kCount, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
    if (rank == root) out.is(sum, "a reduce is wrong");
  });
  for (const bool in_place : {false, true})
    check("alltoall", expected && (between_hosts() ? !in_place : executor != "kernel"), [&] {
      const auto sent = [](int i) { return i / kCount + rank * 10'000; };
      Ints in(kCount * ranks, sent), out(kCount * ranks, in_place ? std::function<int(int)>(sent) : nothing);
      MPI_Alltoall(in_place ? MPI_IN_PLACE : in.at(), kCount, MPI_INT, out.at(), kCount, MPI_INT,
                   MPI_COMM_WORLD);
      out.is([](int i) { return rank + i / kCount * 10'000; }, "an alltoall is wrong");
    });
  const char* const rules = std::getenv("OMPI_MCA_coll_loom_tune");
  const bool for_long_calls = rules != nullptr && std::strstr(rules, "64k-inf") != nullptr;
  // How long it is, only each rank knows for itself.
  if (between_hosts()) exchange_lists(expected && !for_long_calls);
}

/// Those that no kernel carries over links inside a host.
void collectives_without_links() {
  const bool stays = expected && executor != "kernel";
  const auto nothing = [](int) { return -1; };
  const int root = ranks - 1;
  const auto value = [](int r, int i) { return i % 1000 + r * 10'000; };
  for (const bool exclusive : {false, true})
    check(exclusive ? "exscan" : "scan", stays, [&] {
      Ints in(kCount, mine), out(kCount, nothing);
      (exclusive ? MPI_Exscan : MPI_Scan)(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
      const int of = exclusive ? rank : rank + 1;
      out.is([&](int i) { return of == 0 ? -1 : of * (i % 1000) + of * (of - 1) / 2 * 10'000; },
             "a scan is wrong");
    });
  // Block r has a length of its own, and lies where the rank likes it.
  std::vector<int> counts, places;
  for (int r = 0; r < ranks; ++r) {
    counts.push_back(length_of(r));
    places.push_back(first_of(ranks) - first_of(r + 1) + 3 * (ranks - r));
  }
  const int own = length_of(rank), all = first_of(ranks) + 4 * ranks;
  const auto block_at = [&](int i) {
    for (int r = 0; r < ranks; ++r)
      if (i >= places[static_cast<std::size_t>(r)] &&
          i < places[static_cast<std::size_t>(r)] + counts[static_cast<std::size_t>(r)])
        return r;
    return -1;
  };
  const auto from_block = [&](int i, const std::function<int(int, int)>& element) {
    const int r = block_at(i);
    return r < 0 ? -1 : element(r, i - places[static_cast<std::size_t>(r)]);
  };
  for (const bool in_place : {false, true}) {
    check("gatherv", stays, [&] {
      const bool mine_is_there = in_place && rank == root;
      Ints in(own + 1, mine), out(all, [&](int i) {
        return mine_is_there && block_at(i) == rank ? value(rank, i - places[static_cast<std::size_t>(rank)])
                                                    : -1;
      });
      MPI_Gatherv(mine_is_there ? MPI_IN_PLACE : in.at(), own, MPI_INT, rank == root ? out.at() : nullptr,
                  counts.data(), places.data(), MPI_INT, root, MPI_COMM_WORLD);
      if (rank == root) out.is([&](int i) { return from_block(i, value); }, "a gatherv is wrong");
    });
    check("scatterv", stays, [&] {
      Ints in(all, [&](int i) { return from_block(i, value); }), out(own + 1, nothing);
      const bool stays_there = in_place && rank == root;
      MPI_Scatterv(rank == root ? in.at() : nullptr, counts.data(), places.data(), MPI_INT,
                   stays_there ? MPI_IN_PLACE : out.at(), own, MPI_INT, root, MPI_COMM_WORLD);
      if (!stays_there) out.is([&](int i) { return i < own ? mine(i) : -1; }, "a scatterv is wrong");
    });
  }
  check("gather", stays, [&] {
    Ints in(kCount, mine), out(kCount * ranks, nothing);
    MPI_Gather(in.at(), kCount, MPI_INT, rank == root ? out.at() : nullptr, kCount, MPI_INT, root,
               MPI_COMM_WORLD);
    if (rank == root) out.is([&](int i) { return value(i / kCount, i % kCount); }, "a gather is wrong");
  });
  check("scatter", stays, [&] {
    Ints in(kCount * ranks, [&](int i) { return value(i / kCount, i % kCount); }), out(kCount, nothing);
    MPI_Scatter(rank == root ? in.at() : nullptr, kCount, MPI_INT, out.at(), kCount, MPI_INT, root,
                MPI_COMM_WORLD);
    out.is(mine, "a scatter is wrong");
  });
  exchange_lists(stays);
}

/// Neither operand is staged.
void reduce_locally() {
  const auto staged = [] { return tools->counter("coll_loom_staged_bytes").value_or(0); };
  const std::uint64_t before = staged();
  Ints in(kCount, mine), inout(kCount, [](int i) { return 3 * i; });
  MPI_Reduce_local(in.at(), inout.at(), kCount, MPI_INT, MPI_SUM);
  inout.is([](int i) { return mine(i) + 3 * i; }, "a reduce_local is wrong");
  MPI_Reduce_local(in.at() + 1, inout.at() + 1, (kCount - 1) / 2, MPI_2INT, MPI_MAXLOC);
  inout.is(
      [](int i) {
        const int first = i % 2 == 1 ? i : i - 1;  // of the pair
        if (i == 0 || first + 1 >= kCount) return mine(i) + 3 * i;
        return mine(first) > mine(first) + 3 * first ? mine(i) : mine(i) + 3 * i;
      },
      "a reduce_local of pairs is wrong");
  in.is(mine, "a reduce_local changes its operand");
  require(staged() == before, "a reduce_local is staged");
}

/// Whether a buffer is on the device is one rank's own fact, and yet all have to do the same.
void step_together() {
  const bool few_are_copied = expected && ranks > 2 && executor == "zero_copy";
  if (executor != "both") allreduce(few_are_copied, rank == 0 ? MemoryKind::kHost : MemoryKind::kDevice);
  allreduce(false, rank == 0 ? MemoryKind::kDevice : MemoryKind::kHost);
  allreduce(expected, MemoryKind::kDevice);
  check("reduce_scatter_block", few_are_copied, [] {  // operands here, results there
    Ints in(kCount * ranks, mine, rank == 0 ? MemoryKind::kHost : MemoryKind::kDevice);
    Ints out(kCount, -1, MemoryKind::kDevice);
    MPI_Reduce_scatter_block(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    out.is([](int i) { return sum(rank * kCount + i); }, "a reduce_scatter_block is wrong");
  });
  check("bcast", false, [] {
    Ints buffer(kCount, mine, rank == 0 ? MemoryKind::kHost : MemoryKind::kDevice);
    MPI_Bcast(buffer.at(), kCount, MPI_INT, 0, MPI_COMM_WORLD);
    buffer.is([](int i) { return i % 1000; }, "a bcast from the host is wrong");
  });
  check("bcast", expected, [] {  // gaps, on the last rank alone
    MPI_Datatype pairs;
    MPI_Type_vector(kCount / 2, 2, 3, MPI_INT, &pairs);
    MPI_Type_commit(&pairs);
    const bool gaps = rank == ranks - 1;
    Ints buffer(kCount / 2 * 3, mine);
    MPI_Bcast(buffer.at(), gaps ? 1 : kCount, gaps ? pairs : MPI_INT, 0, MPI_COMM_WORLD);
    buffer.is(
        [&](int i) {
          if (rank == 0) return mine(i);
          if (gaps) return i % 3 < 2 ? (i / 3 * 2 + i % 3) % 1000 : mine(i);
          return i < kCount ? i % 1000 : mine(i);
        },
        "a bcast to a type with gaps is wrong");
    MPI_Type_free(&pairs);
  });
  check("allreduce", false, [] {  // no kernel on a GPU
    Memory memory(16 * 10'000, MemoryKind::kDevice);
    for (int i = 0; i < 10'000; ++i) {
      const long double one = 1;
      std::memcpy(memory.mirror.data() + i * 16, &one, 16);
    }
    memory.upload();
    MPI_Allreduce(MPI_IN_PLACE, memory.address(), 10'000, MPI_LONG_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    memory.download();
    long double last;
    std::memcpy(&last, memory.mirror.data() + 9'999 * 16, 16);
    require(last == ranks, "an allreduce of long double is wrong");
  });
}

/// Where memory cannot be shared in one way on one rank, all share it in another way.
void do_in_another_way(const char* function) {
  MPI_Comm copy;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  if (rank == 0) fail(function, 0, 801);
  allreduce(expected, MemoryKind::kDevice, copy);
  if (rank == 0) fail(function, 0, 0);
  allreduce(expected, MemoryKind::kDevice, copy);
  MPI_Comm_free(&copy);
  allreduce(expected, MemoryKind::kDevice);
}

/// Links that cannot be made on one rank are made on none, and calls are staged.
void do_without_links(const char* function) {
  MPI_Comm copy;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  if (rank == 0) fail(function, 0, 801);
  allreduce(false, MemoryKind::kDevice, copy);
  if (rank == 0) fail(function, 0, 0);
  allreduce(false, MemoryKind::kDevice, copy);
  MPI_Comm_free(&copy);
  allreduce(expected, MemoryKind::kDevice);
}

/// A kernel that cannot be loaded on one rank at its first call is used on none; others are.
void do_without_a_kernel() {
  MPI_Comm copy;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  allreduce(expected, MemoryKind::kDevice, copy);
  const auto in_all = [&](bool stays) {
    check("allreduce", stays, [&] {
      Ints in(kCount, [](int i) { return i | 1 << (rank + 20); }), out(kCount, mine);
      MPI_Allreduce(in.at(), out.at(), kCount, MPI_INT, MPI_BXOR, copy);
      out.is([](int i) { return ((1 << ranks) - 1) << 20 | (ranks % 2 == 1 ? i : 0); },
             "a bitwise one is wrong");
    });
  };
  if (rank == 0) fail("machine code", 0, 209), fail("PTX", 0, 222);
  in_all(false);
  if (rank == 0) fail("machine code", 0, 0), fail("PTX", 0, 0);
  in_all(false);
  allreduce(expected, MemoryKind::kDevice, copy);
  MPI_Comm_free(&copy);
}

/// A kernel that cannot be launched on one rank ends the call on all, on this communicator alone.
void fail_in_a_call() {
  MPI_Comm copy;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
  allreduce(expected, MemoryKind::kDevice, copy);
  if (rank == 0) fail("cuLaunchKernel", 0, 719);
  Ints in(kCount, mine), out(kCount, mine);
  const int error = MPI_Allreduce(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, copy);
  require(error != MPI_SUCCESS, "a failed kernel is no error");
  if (rank == 0) fail("cuLaunchKernel", 0, 0);
  MPI_Comm_free(&copy);
  MPI_Barrier(MPI_COMM_WORLD);
  allreduce(expected, MemoryKind::kDevice);
}

/// What the process has of the driver, without what it has open of others, and files that are not the
/// driver's.
struct Holdings {
  std::uint64_t allocations, reservations, handles, files;
};
Holdings holdings() {
  const VirtualGpuCounts counts = loom::mpi_test::counts();
  std::uint64_t files = 0;
  DIR* const folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++files;
  ::closedir(folder);
  // Zero copy keeps so many of another rank's buffers open, and of those that it has freed.
  constexpr std::uint64_t kMostShared = 64;
  require(counts.peers <= (2 + kMostShared) * static_cast<std::uint64_t>(ranks - 1),
          "too much memory of other processes is open");
  return {counts.allocations - counts.peers, counts.reservations, counts.handles,
          files - counts.allocations - counts.handles};
}

/// Checks that the body leaves nothing behind when it is repeated, once all ranks have left the freed
/// communicators.
void leaves_nothing(const char* what, const std::function<void()>& body) {
  const auto settle = [] {
    for (int i = 0; i < 2; ++i) {
      MPI_Comm copy;
      MPI_Comm_dup(MPI_COMM_WORLD, &copy);
      allreduce(expected, MemoryKind::kDevice, copy);
      MPI_Comm_free(&copy);
      MPI_Barrier(MPI_COMM_WORLD);
    }
  };
  body();
  settle();
  const Holdings before = holdings();
  for (int i = 0; i < 4; ++i) body();
  settle();
  const Holdings after = holdings();
  // Some ranks may not know yet that all have left the last ones.
  const bool nothing = after.allocations <= before.allocations + 2 &&
                       after.reservations <= before.reservations + 2 && after.handles == before.handles &&
                       after.files <= before.files;
  if (!nothing)
    std::fprintf(stderr, "rank %d, %s: %ld allocations, %ld reservations, %ld handles, %ld files more\n",
                 rank, what, static_cast<long>(after.allocations - before.allocations),
                 static_cast<long>(after.reservations - before.reservations),
                 static_cast<long>(after.handles - before.handles),
                 static_cast<long>(after.files - before.files));
  require(nothing, "communicators that have gone leave something behind");
}

/// Memory for links of freed communicators is freed once all ranks have left them.
void free_what_communicators_had() {
  leaves_nothing("calls", [] {
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    allreduce(expected, MemoryKind::kDevice, copy);
    MPI_Comm_free(&copy);
    MPI_Barrier(MPI_COMM_WORLD);
  });
}

/// Whatever fails on one rank while memory is shared: all use another way, or no call stays on the device.
void share_otherwise_or_not_at_all() {
  const auto is_set = [](const char* variable) { return std::getenv(variable) != nullptr; };
  const bool ipc = !is_set("VIRTUAL_GPU_NO_IPC"), virtual_memory = is_set("VIRTUAL_GPU_VIRTUAL_MEMORY");
  const char* const of_ipc[] = {"cuIpcGetMemHandle", "cuIpcOpenMemHandle"};
  const char* const of_virtual_memory[] = {
      "cuMemCreate",    "cuMemAddressReserve",          "cuMemMap",
      "cuMemSetAccess", "cuMemExportToShareableHandle", "cuMemImportFromShareableHandle"};
  do_without_links("cuMemsetD8Async");
  do_without_links("cuLaunchKernel");
  for (const char* function : of_ipc) {
    if (virtual_memory && ipc) do_in_another_way(function);
    if (!virtual_memory) do_without_links(function);
  }
  for (const char* function : of_virtual_memory) {
    if (virtual_memory && ipc) do_in_another_way(function);
    if (virtual_memory && !ipc) do_without_links(function);
  }
}

/// A rank alone whose driver refuses what its copies take does not try again.
void ask_once() {
  Ints in(kCount, mine, MemoryKind::kDevice), out(kCount, -1, MemoryKind::kDevice);
  const auto allreduce = [&] {
    const auto staged = [] { return tools->counter("coll_loom_staged_bytes").value_or(0); };
    const std::uint64_t before = staged();
    MPI_Allreduce(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    out.is(sum, "a staged allreduce is wrong");
    require(staged() > before, "an allreduce stays on the device");
  };
  fail("cuMemAlloc", 0, 2);
  allreduce();
  fail("cuMemAlloc", 0, 0);
  allreduce();
}

}  // namespace

int main(int argc, char** argv) {
  executor = argc > 1 ? argv[1] : "";
  const char* const number = std::getenv("OMPI_COMM_WORLD_RANK");
  bool apart = false, refused = false, brief = false, shares = false, others = false;
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
