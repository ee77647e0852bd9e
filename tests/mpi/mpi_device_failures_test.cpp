// mpi_device_failures_test -- calls on device buffers where the driver fails, memory is short or a context
// ends. On tests/virtual_gpu. Exit code 1: wrong.
//
//   mpi_device_failures_test [coll_loom_memory_limit, if it is set]
#include <cstdint>
#include <string>
#include <vector>

#include "device_ints.hpp"

namespace loom::mpi_test {
namespace {

std::uint64_t limit = 0;  ///< coll_loom_memory_limit, if it is set

/// Memory whose pages cannot be locked is as good.
void do_without_locked_pages() {
  fail("cuMemHostRegister", 0, 2);
  Ints in(700'000, rank), out(700'000);
  MPI_Allreduce(in.at(), out.at(), 700'000, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  out.is([](int) { return ranks * (ranks - 1) / 2; }, "an allreduce without locked pages is wrong");
  fail("cuMemHostRegister", 0, 0);
}

/// A result that cannot be copied back is an error of this call alone.
void fail_after_the_call() {
  Ints in(100, rank, MemoryKind::kHost), out(100, -1, MemoryKind::kDevice);
  fail("cuMemcpyAsync", 0, 700);
  int error = MPI_Allreduce(in.at(), out.at(), 100, MPI_INT, MPI_SUM, MPI_COMM_WORLD), error_class;
  MPI_Error_class(error, &error_class);
  require(error_class == MPI_ERR_OTHER, "a failed copy back is no error");
  MPI_Request request;
  MPI_Iallreduce(in.at(), out.at(), 100, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
  error = MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Error_class(error, &error_class);
  require(error_class == MPI_ERR_OTHER, "a failed copy back is no error of MPI_Wait");
  fail("cuMemcpyAsync", 0, 2);
  error = MPI_Allreduce(in.at(), out.at(), 100, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Error_class(error, &error_class);
  require(error_class == MPI_ERR_NO_MEM, "a device without memory is another error");
  fail("cuMemcpyAsync", 0, 0);
  MPI_Allreduce(in.at(), out.at(), 100, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  out.is([](int) { return ranks * (ranks - 1) / 2; }, "an allreduce after a failed one is wrong");
}

/// An operand that one rank cannot fetch: all ranks get an error, in each form, on this communicator only.
/// (Of a persistent request that falls back, the others would not learn.)
void fail_before_the_call() {
  MPI_Info ordered;
  MPI_Info_create(&ordered);
  MPI_Info_set(ordered, "coll_loom_ordered_starts", "true");
  for (int form = 0; form < 3; ++form) {
    MPI_Comm copy;
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, ordered, &copy);
    MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
    MPI_Barrier(copy);
    Ints in(100, rank, MemoryKind::kDevice), out(100, -1, MemoryKind::kDevice);
    MPI_Request request = MPI_REQUEST_NULL;
    if (form == 2) INIT(Allreduce)(in.at(), out.at(), 100, MPI_INT, MPI_SUM, copy, MPI_INFO_NULL, &request);
    for (const char* function : {"cuStreamSynchronize", "cuEventQuery"})
      if (rank == 0) fail(function, 0, 700);
    int error = MPI_SUCCESS;
    if (form == 0)
      error = MPI_Allreduce(in.at(), out.at(), 100, MPI_INT, MPI_SUM, copy);
    else if (form == 1)
      error = MPI_Iallreduce(in.at(), out.at(), 100, MPI_INT, MPI_SUM, copy, &request);
    else
      error = MPI_Start(&request);
    if (error == MPI_SUCCESS && form > 0) error = MPI_Wait(&request, MPI_STATUS_IGNORE);
    require(error != MPI_SUCCESS, "an operand that cannot be fetched is no error");
    for (const char* function : {"cuStreamSynchronize", "cuEventQuery"}) fail(function, 0, 0);
    out.is([](int) { return -1; }, "a failed call has changed the result");
    if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    MPI_Comm_free(&copy);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Info_free(&ordered);
}

/// The same at the first call of a communicator, whose ranks have no links yet.
void fail_before_the_first_call() {
  MPI_Comm copy;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
  Ints in(100, rank, MemoryKind::kDevice), out(100, -1, MemoryKind::kDevice);
  if (rank == 0) fail("cuPointerGetAttributes", 0, 719);
  const int error = MPI_Allreduce(in.at(), out.at(), 100, MPI_INT, MPI_SUM, copy);
  if (rank == 0) fail("cuPointerGetAttributes", 0, 0);
  require(error != MPI_SUCCESS, "a first call that one rank cannot make is no error");
  require(ranks == 1 || MPI_Barrier(copy) != MPI_SUCCESS, "a call after that is no error");
  MPI_Comm_free(&copy);
  MPI_Barrier(MPI_COMM_WORLD);
}

/// The same where the operand is fetched while the call goes on; then some of the result may have changed.
void fail_during_the_call() {
  MPI_Comm copy;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
  MPI_Barrier(copy);
  constexpr int kCount = 1'000'003;
  const std::uint64_t before = counts().streams;  // of links that the world has; the copy's go with it
  Ints in(kCount, rank, MemoryKind::kDevice), out(kCount, -1, MemoryKind::kDevice);
  for (const char* function : {"cuEventSynchronize", "cuStreamSynchronize"})
    if (rank == 0) fail(function, 0, 700);
  const int error = MPI_Allreduce(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, copy);
  require(error != MPI_SUCCESS, "an operand that cannot be fetched during the call is no error");
  for (const char* function : {"cuEventSynchronize", "cuStreamSynchronize"}) fail(function, 0, 0);
  MPI_Comm_free(&copy);
  MPI_Barrier(MPI_COMM_WORLD);
  require(counts().streams == before, "a failed call leaves streams or events");
  MPI_Allreduce(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  out.is([](int) { return ranks * (ranks - 1) / 2; }, "a long allreduce after a failed one is wrong");
}

/// A kernel of the program has failed, and the driver answers no question any more: calls on the host's
/// buffers go on, those on a device's end with an error.
void go_on_without_the_driver() {
  MPI_Comm copy;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
  MPI_Barrier(copy);
  constexpr int kCount = 100'000;
  Ints on_device(kCount, rank, MemoryKind::kDevice);
  std::vector<int> in(kCount, rank), out(kCount, -1);
  fail("cuPointerGetAttributes", 0, 719);
  MPI_Allreduce(in.data(), out.data(), kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  require(out[0] == ranks * (ranks - 1) / 2 && out[kCount - 1] == out[0],
          "an allreduce on the host after an error of a kernel is wrong");
  const int error = MPI_Allreduce(MPI_IN_PLACE, on_device.at(), kCount, MPI_INT, MPI_SUM, copy);
  require(error != MPI_SUCCESS, "a buffer on a device is no error where the driver does not answer");
  fail("cuPointerGetAttributes", 0, 0);
  MPI_Comm_free(&copy);
  MPI_Barrier(MPI_COMM_WORLD);
}

/// The context ends with a persistent call and staging buffers alive; the host's buffers go on, and so do a
/// new context's.
void outlive_a_context() {
  Driver& driver = Driver::get();
  auto* const device = static_cast<int*>(driver.allocate(MemoryKind::kDevice, 4000));
  MPI_Request request;
  INIT(Allreduce)(MPI_IN_PLACE, device, 1000, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  MPI_Start(&request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  driver.reset(0);
  int sum = 1;
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  require(sum == ranks, "an allreduce on the host after a context has ended is wrong");
  MPI_Request_free(&request);
  driver.leave();
  driver.use(0);
  {
    Ints in(1000, rank, MemoryKind::kDevice), out(1000, -1, MemoryKind::kDevice);
    MPI_Allreduce(in.at(), out.at(), 1000, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    out.is([](int) { return ranks * (ranks - 1) / 2; }, "an allreduce in a new context is wrong");
  }
  driver.reset(0);  // and MPI_Finalize runs without a context
}

/// loom never keeps more memory on the host than the limit.
void keep_to_the_limit() {
  for (const int n : {1000, 100'000, 300'000, 50, 2'000'000}) {
    Ints in(n, rank, MemoryKind::kDevice), out(n, -1, MemoryKind::kDevice);
    MPI_Allreduce(in.at(), out.at(), n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    out.is([](int) { return ranks * (ranks - 1) / 2; }, "an allreduce with little memory is wrong");
  }
  const VirtualGpuCounts now = counts();
  if (limit > 0)
    require(now.most_registered <= limit, "more memory is locked than coll_loom_memory_limit allows");
  require(limit == 1 || now.most_registered > 0, "no memory is locked");
}

}  // namespace
}  // namespace loom::mpi_test

int main(int argc, char** argv) {
  using namespace loom::mpi_test;
  begin(argc, argv);
  if (argc > 1) limit = std::stoull(argv[1]);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Barrier(MPI_COMM_WORLD);
  for (const auto scenario : {do_without_locked_pages, fail_after_the_call, fail_before_the_call,
                              fail_before_the_first_call, fail_during_the_call, go_on_without_the_driver, keep_to_the_limit})
    scenario();
  require(has_only_links(), "the test has left allocations");
  outlive_a_context();
  MPI_Finalize();
}
