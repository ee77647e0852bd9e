#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/mpi/on_device/on_device.hpp"

namespace loom::mpi_test {
namespace {

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

}  // namespace

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

}  // namespace loom::mpi_test
