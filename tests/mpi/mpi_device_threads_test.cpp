// mpi_device_threads_test -- calls by kernels from several threads at once (MPI_THREAD_MULTIPLE). On
// tests/virtual_gpu. Exit code 1: wrong.
//
//   mpi_device_threads_test opposite_orders | free_beside_work
//       opposite_orders    two threads, each with a communicator of its own; ranks begin their calls in
//                          opposite orders
//       free_beside_work   links of a communicator that has gone are freed while work of the program goes on:
//                          other threads do not wait for that
#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "mpi_examples/support/loom_pvars.hpp"
#include "tests/mpi/device_ints.hpp"

namespace loom::mpi_test {
namespace {

using namespace std::chrono_literals;

/// A device's context is each thread's own affair.
class InThread {
 public:
  InThread() { Driver::get().use(0); }
  ~InThread() { Driver::get().leave(); }
  InThread(const InThread&) = delete;
  InThread& operator=(const InThread&) = delete;
};

std::uint64_t by_kernel(mpi::ToolInterface& tools) {
  return tools.counter("coll_loom_calls", "allreduce", "kernel").value_or(0);
}

void opposite_orders() {
  mpi::ToolInterface tools;
  constexpr int kRounds = 12, kMost = 200'000;
  std::array<MPI_Comm, 2> comms;
  for (MPI_Comm& comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  const std::uint64_t before = by_kernel(tools);
  // The thread of communicator `rank` begins a round, and the other one once it is about to call.
  std::atomic<int> begun = 0;
  const auto calls_of = [&](int which) {
    const InThread in_thread;
    Ints in(kMost, rank, MemoryKind::kDevice), out(kMost, -1, MemoryKind::kDevice);
    for (int round = 0; round < kRounds; ++round) {
      const int count = round % 2 == 0 ? 1000 : kMost;
      in.fill([&](int) { return rank + round; });
      out.fill([](int) { return -1; });
      if (which == rank % 2) {
        begun = round + 1;
      } else {
        while (begun <= round) std::this_thread::yield();
        std::this_thread::sleep_for(20ms);
      }
      MPI_Allreduce(in.at(), out.at(), count, MPI_INT, MPI_SUM, comms[static_cast<std::size_t>(which)]);
      out.is([&](int i) { return i < count ? ranks * round + ranks * (ranks - 1) / 2 : -1; },
             "an allreduce is wrong");
    }
  };
  {
    const std::jthread other([&] { calls_of(1); });
    calls_of(0);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  require(by_kernel(tools) == before + 2 * kRounds, "kernels do not carry the calls");
  for (MPI_Comm& comm : comms) MPI_Comm_free(&comm);
}

void allreduce_on(MPI_Comm comm) {
  constexpr int kCount = 1000;
  Ints in(kCount, rank, MemoryKind::kDevice), out(kCount, -1, MemoryKind::kDevice);
  MPI_Allreduce(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, comm);
  out.is([](int) { return ranks * (ranks - 1) / 2; }, "an allreduce is wrong");
}

void free_beside_work() {
  mpi::ToolInterface tools;
  MPI_Comm earlier, later;
  MPI_Comm_dup(MPI_COMM_WORLD, &earlier);
  MPI_Comm_dup(MPI_COMM_WORLD, &later);
  allreduce_on(earlier);
  // Rank 0 lets go first, so that its memory waits for the others, and for its next links.
  if (rank == 0) MPI_Comm_free(&earlier);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank != 0) MPI_Comm_free(&earlier);
  MPI_Barrier(MPI_COMM_WORLD);
  std::atomic<bool> may_end = false;
  if (rank == 0) {
    void* const default_stream = nullptr;
    const auto launch = Driver::get().function<int(void*, void (*)(void*), void*)>("cuLaunchHostFunc");
    const auto work = [](void* until) { static_cast<std::atomic<bool>*>(until)->wait(false); };
    Ints in(1000, rank, MemoryKind::kDevice), out(1000, -1, MemoryKind::kDevice);
    require(launch(default_stream, work, &may_end) == 0, "the program cannot wait in a stream");
    std::atomic<bool> is_read = false;
    const std::jthread watch([&] {
      for (int tenths = 0; tenths < 100 && !is_read; ++tenths) std::this_thread::sleep_for(100ms);
      require(is_read, "a thread waits for another one that frees memory of a GPU");
    });
    const std::jthread call([&] {
      const InThread in_thread;
      MPI_Allreduce(in.at(), out.at(), 1000, MPI_INT, MPI_SUM, later);
    });
    std::this_thread::sleep_for(500ms);  // it waits for the work by now
    by_kernel(tools);
    is_read = true;
    may_end = true;
    may_end.notify_all();
  } else {
    allreduce_on(later);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  allreduce_on(later);
  MPI_Comm_free(&later);
}

}  // namespace
}  // namespace loom::mpi_test

int main(int argc, char** argv) {
  using namespace loom::mpi_test;
  int provided;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  require(provided == MPI_THREAD_MULTIPLE, "this Open MPI is not for several threads");
  require(argc == 2, "usage: mpi_device_threads_test opposite_orders | free_beside_work");
  Driver::get();
  std::string(argv[1]) == "opposite_orders" ? opposite_orders() : free_beside_work();
  MPI_Finalize();
}
