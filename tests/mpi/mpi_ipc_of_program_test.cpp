// mpi_ipc_of_program_test -- a program, or Open MPI for it, that shares memory of a GPU by CUDA's IPC, at
// addresses where a buffer of earlier collective calls has been. Exit code 1: it cannot, or the calls are
// wrong.
#include <array>

#include "device_ints.hpp"
#include "mpi_examples/support/loom_pvars.hpp"

namespace loom::mpi_test {
namespace {

constexpr int kCount = 1 << 20;
using Handle = std::array<std::byte, 64>;

void test() {
  Driver& driver = Driver::get();
  mpi::ToolInterface tools;
  const auto carried = [&] { return tools.counter("coll_loom_calls", "allreduce", "zero_copy").value_or(0); };
  const std::uint64_t carried_before = carried();
  Ints out(kCount, -1, MemoryKind::kDevice);
  const int* before = nullptr;
  {
    Ints in(kCount, rank + 1, MemoryKind::kDevice);
    before = in.at();
    for (int call = 0; call < 2; ++call)
      MPI_Allreduce(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    out.is([](int) { return ranks * (ranks + 1) / 2; }, "a call is wrong");
  }
  Ints anew(kCount, 0, MemoryKind::kDevice);
  require(anew.at() == before, "new memory is elsewhere");
  Handle handle;
  if (rank == 0)
    Driver::require(driver.function<int(Handle*, std::uint64_t)>("cuIpcGetMemHandle")(
                        &handle, reinterpret_cast<std::uint64_t>(anew.at())),
                    "cuIpcGetMemHandle");
  MPI_Bcast(&handle, sizeof(handle), MPI_BYTE, 0, MPI_COMM_WORLD);
  std::uint64_t opened = 0;
  const auto open = driver.function<int(std::uint64_t*, Handle, unsigned)>("cuIpcOpenMemHandle_v2");
  if (rank == 1) Driver::require(open(&opened, handle, 1), "cuIpcOpenMemHandle");
  MPI_Barrier(MPI_COMM_WORLD);
  require(carried() == carried_before + 2, "zero_copy does not carry the calls");
}

}  // namespace
}  // namespace loom::mpi_test

int main(int argc, char** argv) {
  loom::mpi_test::begin(argc, argv);
  loom::mpi_test::test();
  MPI_Finalize();
}
