// Broadcast, all-gather and all-to-all with types that differ from rank to rank: the same numbers, one after
// another on even ranks and with gaps on odd ones. Nothing may be written into a gap.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr int kGap = -7;
int rank, ranks;

/// `count` numbers as this rank lays them out.
struct Layout {
  explicit Layout(int count) : stride(rank % 2 == 0 ? 1 : 3), elements(count) {
    MPI_Type_vector(count, 1, stride, MPI_INT, &vector);
    MPI_Type_create_resized(
        vector, 0, static_cast<MPI_Aint>(stride * count) * static_cast<MPI_Aint>(sizeof(int)), &type);
    MPI_Type_commit(&type);
  }
  ~Layout() {
    MPI_Type_free(&type);
    MPI_Type_free(&vector);
  }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;

  std::vector<int> buffer(int blocks) const {
    return std::vector<int>(static_cast<std::size_t>(blocks) * static_cast<std::size_t>(elements * stride),
                            kGap);
  }
  int& at(std::vector<int>& buffer, int block, int i) const {
    return buffer[static_cast<std::size_t>((block * elements + i) * stride)];
  }
  int stride, elements;
  MPI_Datatype vector = MPI_DATATYPE_NULL, type = MPI_DATATYPE_NULL;
};

void require(bool condition, const char* what, int count) {
  if (condition) return;
  std::fprintf(stderr, "rank %d of %d: %s of %d elements is wrong\n", rank, ranks, what, count);
  std::exit(1);
}

int number(int from, int to, int i) {
  return from * 1000 + to * 100 + i % 97;
}

void check_gaps(const Layout& layout, const std::vector<int>& buffer, const char* what) {
  for (std::size_t i = 0; i < buffer.size(); ++i)
    if (i % static_cast<std::size_t>(layout.stride) != 0) require(buffer[i] == kGap, what, layout.elements);
}

void broadcast(const Layout& layout, int root) {
  auto buffer = layout.buffer(1);
  for (int i = 0; i < layout.elements; ++i) layout.at(buffer, 0, i) = rank == root ? number(root, 0, i) : -1;
  MPI_Bcast(buffer.data(), 1, layout.type, root, MPI_COMM_WORLD);
  for (int i = 0; i < layout.elements; ++i)
    require(layout.at(buffer, 0, i) == number(root, 0, i), "broadcast", layout.elements);
  check_gaps(layout, buffer, "a gap after broadcast");
}

void all_gather(const Layout& layout, bool in_place) {
  auto in = layout.buffer(1), out = layout.buffer(ranks);
  for (int i = 0; i < layout.elements; ++i)
    (in_place ? layout.at(out, rank, i) : layout.at(in, 0, i)) = number(rank, 0, i);
  MPI_Allgather(in_place ? MPI_IN_PLACE : in.data(), 1, layout.type, out.data(), 1, layout.type,
                MPI_COMM_WORLD);
  for (int from = 0; from < ranks; ++from)
    for (int i = 0; i < layout.elements; ++i)
      require(layout.at(out, from, i) == number(from, 0, i), "all-gather", layout.elements);
  check_gaps(layout, out, "a gap after all-gather");
}

void all_to_all(const Layout& layout, bool in_place) {
  auto in = layout.buffer(ranks), out = layout.buffer(ranks);
  for (int to = 0; to < ranks; ++to)
    for (int i = 0; i < layout.elements; ++i) layout.at(in_place ? out : in, to, i) = number(rank, to, i);
  MPI_Alltoall(in_place ? MPI_IN_PLACE : in.data(), 1, layout.type, out.data(), 1, layout.type,
               MPI_COMM_WORLD);
  for (int from = 0; from < ranks; ++from)
    for (int i = 0; i < layout.elements; ++i)
      require(layout.at(out, from, i) == number(from, rank, i), "all-to-all", layout.elements);
  check_gaps(layout, out, "a gap after all-to-all");
}

/// 1e17 - 1e17 + 1 + 1 + ...: any other order loses the ones.
void reduce_in_order(int count) {
  const auto n = static_cast<std::size_t>(count), all = n * static_cast<std::size_t>(ranks);
  const double mine = rank == 0 ? 1e17 : rank == 1 ? -1e17 : 1.0, expected = ranks == 1 ? 1e17 : ranks - 2.0;
  const std::vector<double> in(all, mine);
  std::vector<double> out(n);
  const auto require_sum = [&](const char* what) {
    for (const double each : out) require(each == expected, what, count);
  };
  MPI_Allreduce(in.data(), out.data(), count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  require_sum("all-reduce in order");
  MPI_Reduce_scatter_block(in.data(), out.data(), count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  require_sum("reduce-scatter in order");
  MPI_Reduce(in.data(), rank == 0 ? out.data() : nullptr, count, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) require_sum("reduce in order");
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (const int count : {1, 10, 1000, 20000, 300000}) {
    const Layout layout(count);
    for (int root = 0; root < ranks; ++root) broadcast(layout, root);
    for (const bool in_place : {false, true}) {
      all_gather(layout, in_place);
      all_to_all(layout, in_place);
    }
  }
  if (argc > 1 && std::strcmp(argv[1], "--in-order") == 0)
    for (const int count : {1, 1000, 30000, 300000}) reduce_in_order(count);
  // No elements.
  MPI_Bcast(nullptr, 0, MPI_INT, 0, MPI_COMM_WORLD);
  MPI_Allgather(nullptr, 0, MPI_INT, nullptr, 0, MPI_INT, MPI_COMM_WORLD);
  MPI_Alltoall(nullptr, 0, MPI_INT, nullptr, 0, MPI_INT, MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
}
