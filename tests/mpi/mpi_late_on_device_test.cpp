// mpi_late_on_device_test -- a call by kernels for which the last rank is late, under coll_loom_timeout: the
// call fails on all ranks, and the others say whom they have waited for. On tests/virtual_gpu. Exit code 1:
// wrong.
//
//   mpi_late_on_device_test late | busy
//       late   it does not come to the call
//       busy   it does, but its program has put work on its GPU before, which does not end
#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "tests/mpi/device_ints.hpp"

using namespace loom::mpi_test;
using namespace std::chrono_literals;

int main(int argc, char** argv) {
  begin(argc, argv);
  require(argc == 2, "usage: mpi_late_on_device_test late | busy");
  const std::string how = argv[1];
  constexpr int kCount = 1000;
  MPI_Comm copy;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
  Ints in(kCount, rank, MemoryKind::kDevice), out(kCount, -1, MemoryKind::kDevice);
  const auto allreduce = [&] { return MPI_Allreduce(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, copy); };
  require(allreduce() == MPI_SUCCESS, "the first call fails");
  const bool is_late = rank == ranks - 1;
  std::jthread end;
  if (is_late && how == "late") std::this_thread::sleep_for(9s);
  std::atomic<bool> may_end = false;
  if (is_late && how == "busy") {
    const auto launch = Driver::get().function<int(void*, void (*)(void*), void*)>("cuLaunchHostFunc");
    void* const default_stream = nullptr;
    const auto work = [](void* until) { static_cast<std::atomic<bool>*>(until)->wait(false); };
    require(launch(default_stream, work, &may_end) == 0, "the program cannot wait in a stream");
    end = std::jthread([&] {
      std::this_thread::sleep_for(9s);
      may_end = true;
      may_end.notify_all();
    });
  }
  require(allreduce() != MPI_SUCCESS, "a call that has no end is no error");
  if (end.joinable()) end.join();
  MPI_Comm_free(&copy);
  MPI_Finalize();
}
