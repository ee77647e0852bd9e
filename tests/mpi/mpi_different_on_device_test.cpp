// mpi_different_on_device_test -- broadcasts, allgathervs and alltoallvs on GPUs for which a rank has less
// room than another one sends: an error of that rank alone, and later calls are right. On tests/virtual_gpu.
// Exit code 1: wrong.
#include <mpi.h>

#include <utility>
#include <vector>

#include "tests/mpi/device_ints.hpp"

namespace {

using namespace loom::mpi_test;

constexpr int kSent = 3000, kRoom = 1000;

void bcast(int value, bool cuts) {
  const bool is_cut = cuts && rank != 0;
  Ints buffer(kSent, rank == 0 ? value : -1, MemoryKind::kDevice);
  const int error = MPI_Bcast(buffer.at(), is_cut ? kRoom : kSent, MPI_INT, 0, MPI_COMM_WORLD);
  if (!is_cut) {
    require(error == MPI_SUCCESS, "a bcast fails");
    buffer.is([&](int) { return value; }, "a bcast is wrong");
    return;
  }
  int kind = MPI_SUCCESS;
  MPI_Error_class(error, &kind);
  require(kind == MPI_ERR_TRUNCATE, "a message that does not fit is no error");
}

/// All ranks know of blocks with as many bytes in total, but the first one has two of them the other way
/// round.
void allgatherv(int value, bool swaps) {
  std::vector<int> counts, places;
  for (int r = 0; r < ranks; ++r) {
    counts.push_back(kRoom + 100 * r);
    places.push_back(2 * kSent * r);
  }
  const int own = counts[static_cast<std::size_t>(rank)];
  const bool is_cut = swaps && rank == 0;
  if (is_cut) std::swap(counts[1], counts[2]);
  Ints in(own, value + rank, MemoryKind::kDevice), out(2 * kSent * ranks, -1, MemoryKind::kDevice);
  const int error =
      MPI_Allgatherv(in.at(), own, MPI_INT, out.at(), counts.data(), places.data(), MPI_INT, MPI_COMM_WORLD);
  if (!is_cut) {
    require(error == MPI_SUCCESS, "an allgatherv fails");
    out.is(
        [&](int i) {
          const int r = i / (2 * kSent);
          return i % (2 * kSent) < counts[static_cast<std::size_t>(r)] ? value + r : -1;
        },
        "an allgatherv is wrong");
    return;
  }
  int kind = MPI_SUCCESS;
  MPI_Error_class(error, &kind);
  require(kind == MPI_ERR_TRUNCATE, "a block that does not fit is no error");
}

/// Rank 0 has so many elements for the last rank, which has room for kRoom.
void alltoallv(int value, int for_last) {
  std::vector<int> counts(static_cast<std::size_t>(ranks), kRoom), places;
  for (int r = 0; r < ranks; ++r) places.push_back(kSent * r);
  std::vector<int> sent = counts;
  if (rank == 0) sent.back() = for_last;
  Ints in(kSent * ranks, value + rank, MemoryKind::kDevice), out(kSent * ranks, -1, MemoryKind::kDevice);
  const int error = MPI_Alltoallv(in.at(), sent.data(), places.data(), MPI_INT, out.at(), counts.data(),
                                  places.data(), MPI_INT, MPI_COMM_WORLD);
  int kind = MPI_SUCCESS;
  MPI_Error_class(error, &kind);
  if (rank == ranks - 1 && for_last > kRoom) {
    require(kind == MPI_ERR_TRUNCATE, "a block that does not fit is no error");
    return;
  }
  require(kind == MPI_SUCCESS, "an alltoallv fails");
  out.is([&](int i) { return i % kSent < kRoom ? value + i / kSent : -1; }, "an alltoallv is wrong");
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (!between_hosts()) {  // there such calls fail on all ranks
    for (int i = 0; i < 8; ++i) bcast(100 + i, i % 3 == 1);
    for (int i = 0; i < 8 && ranks > 2; ++i) allgatherv(200 + 10 * i, i % 3 == 1);
  }
  for (int i = 0; i < 12; ++i) alltoallv(300 + 10 * i, i % 3 == 1 ? kSent : kRoom);
  MPI_Finalize();
  return 0;
}
