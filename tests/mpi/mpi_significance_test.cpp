// mpi_significance_test -- arguments that MPI calls significant at the root only, or ignored because of
// MPI_IN_PLACE, are read nowhere else: they are pointers that nobody can read, and negative counts. Every
// such collective in its three forms. Exit code 1: wrong; a crash: read.
//
//   mpi_significance_test [--connected]    not on communicators where a call that does not wait is the first
//
// Open MPI 4.1 itself reads the type of an all-to-all in place that does not wait, so this needs loom.
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

#include "tests/mpi/conformance/conformance.hpp"

namespace {

using loom::conformance::Form;

int rank, ranks;
MPI_Comm comm = MPI_COMM_WORLD;

/// Reading through any of these is a crash.
template <class T>
T unreadable() {
  return reinterpret_cast<T>(std::uintptr_t{0x10});
}
const auto kNoBuffer = unreadable<int*>();
const auto kNoArray = unreadable<const int*>();
const auto kNoType = unreadable<MPI_Datatype>();
const auto kNoTypes = unreadable<const MPI_Datatype*>();
constexpr int kNoCount = -12345;

void require(bool condition, const char* what, Form form, int count) {
  if (condition) return;
  std::fprintf(stderr, "rank %d of %d: %s, form %d, of %d elements is wrong\n", rank, ranks, what,
               static_cast<int>(form), count);
  std::exit(1);
}

/// Element i of the block from one rank to another.
int number(int from, int to, int i) {
  return from * 10'000 + to * 1000 + i % 997;
}

/// Equal blocks of `count` elements one behind the other, as plain and as v and w forms have them.
struct Blocks {
  explicit Blocks(int elements)
      : count(elements),
        all(static_cast<std::size_t>(count) * static_cast<std::size_t>(ranks)),
        counts(static_cast<std::size_t>(ranks), count),
        disps(counts.size()),
        byte_disps(counts.size()),
        types(counts.size(), MPI_INT) {
    for (std::size_t of = 0; of < counts.size(); ++of) {
      disps[of] = static_cast<int>(of) * count;
      byte_disps[of] = disps[of] * static_cast<int>(sizeof(int));
    }
  }
  /// Blocks with the values that `value` gives, by number and place.
  template <class Value>
  void fill(std::vector<int>& buffer, Value&& value) const {
    buffer.resize(all);
    for (int of = 0; of < ranks; ++of)
      for (int i = 0; i < count; ++i) buffer[static_cast<std::size_t>(of * count + i)] = value(of, i);
  }
  template <class Value>
  bool holds(const std::vector<int>& buffer, Value&& value) const {
    for (int of = 0; of < ranks; ++of)
      for (int i = 0; i < count; ++i)
        if (buffer[static_cast<std::size_t>(of * count + i)] != value(of, i)) return false;
    return true;
  }
  int count;
  std::size_t all;
  std::vector<int> counts, disps, byte_disps;
  std::vector<MPI_Datatype> types;
};

void reduce(Form form, int count, int root) {
  const auto n = static_cast<std::size_t>(count);
  const bool is_root = rank == root;
  for (const bool in_place : {false, true}) {
    std::vector<int> in(n + 1, rank), out(is_root ? n + 1 : 0);  // even of no elements two buffers
    const auto refill = [&] { std::fill(out.begin(), out.end(), rank); };
    LOOM_CALL(form, refill, Reduce, reduce, is_root && in_place ? MPI_IN_PLACE : in.data(),
              is_root ? out.data() : kNoBuffer, count, MPI_INT, MPI_SUM, root, comm);
    for (int i = 0; is_root && i < count; ++i)
      require(out[static_cast<std::size_t>(i)] == ranks * (ranks - 1) / 2, "a reduce", form, count);
  }
}

void gather(Form form, const Blocks& blocks, int root, bool v) {
  const auto value = [&](int of, int i) { return number(of, root, i); };
  const bool is_root = rank == root;
  for (const bool in_place : {false, true}) {
    const bool given = !(is_root && in_place);
    std::vector<int> all, in, out;
    blocks.fill(all, value);
    const auto mine = all.begin() + blocks.disps[static_cast<std::size_t>(rank)];
    in.assign(mine, mine + blocks.count);
    const auto refill = [&] {
      out.assign(is_root ? blocks.all : 0, -1);
      if (!given) std::copy(in.begin(), in.end(), out.begin() + (mine - all.begin()));
    };
    refill();
    const void* const send = given ? in.data() : MPI_IN_PLACE;
    const int send_count = given ? blocks.count : kNoCount;
    const MPI_Datatype send_type = given ? MPI_INT : kNoType, recv_type = is_root ? MPI_INT : kNoType;
    int* const recv = is_root ? out.data() : kNoBuffer;
    if (v)
      LOOM_CALL(form, refill, Gatherv, gatherv, send, send_count, send_type, recv,
                is_root ? blocks.counts.data() : kNoArray, is_root ? blocks.disps.data() : kNoArray,
                recv_type, root, comm);
    else
      LOOM_CALL(form, refill, Gather, gather, send, send_count, send_type, recv,
                is_root ? blocks.count : kNoCount, recv_type, root, comm);
    if (is_root) require(blocks.holds(out, value), v ? "a gatherv" : "a gather", form, blocks.count);
  }
}

void scatter(Form form, const Blocks& blocks, int root, bool v) {
  const bool is_root = rank == root;
  for (const bool in_place : {false, true}) {
    const bool given = !(is_root && in_place);
    std::vector<int> in, out;
    if (is_root) blocks.fill(in, [&](int of, int i) { return number(root, of, i); });
    const auto refill = [&] { out.assign(static_cast<std::size_t>(blocks.count), -1); };
    refill();
    const int* const send = is_root ? in.data() : kNoBuffer;
    const MPI_Datatype send_type = is_root ? MPI_INT : kNoType, recv_type = given ? MPI_INT : kNoType;
    void* const recv = given ? out.data() : MPI_IN_PLACE;
    const int recv_count = given ? blocks.count : kNoCount;
    if (v)
      LOOM_CALL(form, refill, Scatterv, scatterv, send, is_root ? blocks.counts.data() : kNoArray,
                is_root ? blocks.disps.data() : kNoArray, send_type, recv, recv_count, recv_type, root, comm);
    else
      LOOM_CALL(form, refill, Scatter, scatter, send, is_root ? blocks.count : kNoCount, send_type, recv,
                recv_count, recv_type, root, comm);
    for (int i = 0; given && i < blocks.count; ++i)
      require(out[static_cast<std::size_t>(i)] == number(root, rank, i), v ? "a scatterv" : "a scatter", form,
              blocks.count);
  }
}

void all_gather(Form form, const Blocks& blocks) {
  const auto value = [](int of, int i) { return number(of, 0, i); };
  std::vector<int> out;
  const auto refill = [&] {
    blocks.fill(out, [&](int of, int i) { return of == rank ? value(of, i) : -1; });
  };
  refill();
  LOOM_CALL(form, refill, Allgather, allgather, MPI_IN_PLACE, kNoCount, kNoType, out.data(), blocks.count,
            MPI_INT, comm);
  require(blocks.holds(out, value), "an all-gather", form, blocks.count);
  LOOM_CALL(form, refill, Allgatherv, allgatherv, MPI_IN_PLACE, kNoCount, kNoType, out.data(),
            blocks.counts.data(), blocks.disps.data(), MPI_INT, comm);
  require(blocks.holds(out, value), "an all-gatherv", form, blocks.count);
}

/// Of equal blocks, v and w, from `first` on.
void all_to_all(Form form, const Blocks& blocks, int first = 0) {
  const auto value = [](int from, int i) { return number(from, rank, i); };
  std::vector<int> out;
  const auto refill = [&] { blocks.fill(out, [](int to, int i) { return number(rank, to, i); }); };
  refill();
  for (int kind = first; kind < 3; ++kind) {
    if (kind == 0)
      LOOM_CALL(form, refill, Alltoall, alltoall, MPI_IN_PLACE, kNoCount, kNoType, out.data(), blocks.count,
                MPI_INT, comm);
    else if (kind == 1)
      LOOM_CALL(form, refill, Alltoallv, alltoallv, MPI_IN_PLACE, kNoArray, kNoArray, kNoType, out.data(),
                blocks.counts.data(), blocks.disps.data(), MPI_INT, comm);
    else
      LOOM_CALL(form, refill, Alltoallw, alltoallw, MPI_IN_PLACE, kNoArray, kNoArray, kNoTypes, out.data(),
                blocks.counts.data(), blocks.byte_disps.data(), blocks.types.data(), comm);
    require(blocks.holds(out, value), "an all-to-all in place", form, blocks.count);
  }
}

void run_connected() {
  for (const Form form : loom::conformance::kForms)
    for (const int count : {0, 1, 100, 3000, 100'000}) {
      if (count == 0 && form == Form::kPersistent) continue;  // falls back, see above
      const Blocks blocks(count);
      for (const int root : {0, ranks - 1}) {
        reduce(form, count, root);
        for (const bool v : {false, true}) {
          gather(form, blocks, root, v);
          scatter(form, blocks, root, v);
        }
      }
      all_gather(form, blocks);
      all_to_all(form, blocks);
    }
}

/// Each on a communicator that no call has connected yet, so that the call is deferred.
void run_unconnected() {
  const Blocks blocks(100);
  const auto on_a_fresh_one = [](const auto& call) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    call();
    MPI_Comm_free(&comm);
  };
  const Form form = Form::kNonblocking;
  const int root = ranks - 1;
  on_a_fresh_one([&] { reduce(form, 100, root); });
  for (const bool v : {false, true}) {
    on_a_fresh_one([&] { gather(form, blocks, root, v); });
    on_a_fresh_one([&] { scatter(form, blocks, root, v); });
  }
  on_a_fresh_one([&] { all_gather(form, blocks); });
  for (const int first : {0, 1, 2}) on_a_fresh_one([&] { all_to_all(form, blocks, first); });
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  run_connected();
  if (argc < 2 || std::strcmp(argv[1], "--connected") != 0) run_unconnected();
  MPI_Finalize();
}
