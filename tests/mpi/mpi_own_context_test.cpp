// mpi_own_context_test -- a program with a context of its own, whose buffers are in none: memory of a pool.
// What it has put into the default stream of its context comes before its calls. Exit code 1: wrong.
//
//   mpi_own_context_test alone|beside
//
// beside: the primary context is there, too, and empty.
#include <thread>

#include "device_ints.hpp"
#include "waiting.hpp"

namespace loom::mpi_test {
namespace {

constexpr int kCount = 1 << 16, kRounds = 3;
constexpr auto kTime = std::chrono::milliseconds(100);

/// The program writes, in the default stream, long after this returns.
void write_later(Ints& in, unsigned char byte) {
  const auto sleep = [](void*) { std::this_thread::sleep_for(kTime); };
  const auto launch = Driver::get().function<int(void*, void (*)(void*), void*)>("cuLaunchHostFunc");
  const auto fill =
      Driver::get().function<int(std::uint64_t, unsigned char, std::size_t, void*)>("cuMemsetD8Async");
  Driver::require(launch(nullptr, sleep, nullptr), "cuLaunchHostFunc");
  Driver::require(fill(reinterpret_cast<std::uint64_t>(in.at()), byte, kCount * sizeof(int), nullptr),
                  "cuMemsetD8Async");
}

void wait_elsewhere(MPI_Request& request) {
  std::thread([&] { MPI_Wait(&request, MPI_STATUS_IGNORE); }).join();
}

void run(Ints& in, Ints& out, const char* what, const std::function<void()>& call) {
  for (int round = 1; round <= kRounds; ++round) {
    out.fill([](int) { return -1; });
    write_later(in, static_cast<unsigned char>(round));
    call();
    out.is([&](int) { return ranks * round * 0x01010101; }, what);
  }
}

void test() {
  Ints in(kCount, 0, MemoryKind::kPool), out(kCount, 0, MemoryKind::kPool);
  MPI_Request request;
  const auto call_and_wait_elsewhere = [&] {
    MPI_Iallreduce(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    wait_elsewhere(request);
  };
  run(in, out, "a first call that another thread waits for is wrong", call_and_wait_elsewhere);
  run(in, out, "a blocking call is wrong",
      [&] { MPI_Allreduce(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD); });
  run(in, out, "a nonblocking call that another thread waits for is wrong", call_and_wait_elsewhere);
  INIT(Allreduce)(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  run(in, out, "a persistent call that another thread waits for is wrong", [&] {
    MPI_Start(&request);
    wait_elsewhere(request);
  });
  MPI_Request_free(&request);
}

}  // namespace
}  // namespace loom::mpi_test

int main(int argc, char** argv) {
  using namespace loom::mpi_test;
  begin(argc, argv);
  require(argc == 2, "usage: mpi_own_context_test alone|beside");
  Driver& driver = Driver::get();
  if (std::strcmp(argv[1], "alone") == 0) {
    driver.leave();
    driver.reset(0);
  }
  void* context;
  Driver::require(driver.function<int(void**, unsigned, int)>("cuCtxCreate_v2")(&context, 0, 0),
                  "cuCtxCreate");
  test();
  MPI_Finalize();
}
