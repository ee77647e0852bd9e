#include "tests/mpi/on_device/on_device.hpp"

#include <cstdlib>

namespace loom::mpi_test {
namespace {

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

}  // namespace

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

}  // namespace loom::mpi_test
