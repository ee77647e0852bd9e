// mpi_different_on_device_test -- broadcasts on GPUs for which a rank has less room than the root sends: an
// error of that rank alone, and later calls are right. On tests/virtual_gpu. Exit code 1: wrong.
#include <mpi.h>

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

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  for (int i = 0; i < 8; ++i) bcast(100 + i, i % 3 == 1);
  MPI_Finalize();
  return 0;
}
