#include <dirent.h>

#include <chrono>
#include <thread>

#include "tests/mpi/on_device/on_device.hpp"

namespace loom::mpi_test {
namespace {

/// What the process has of the driver, without what it has open of others, and files that are not the
/// driver's.
struct Holdings {
  std::uint64_t allocations, reservations, handles, files;
  bool operator==(const Holdings&) const = default;
};
Holdings holdings_now() {
  const VirtualGpuCounts counts = loom::mpi_test::counts();
  std::uint64_t files = 0;
  DIR* const folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++files;
  ::closedir(folder);
  // Zero copy keeps so many of another rank's buffers open, and of those that it has freed.
  constexpr std::uint64_t kMostShared = 64;
  require(counts.peers <= (2 + kMostShared) * static_cast<std::uint64_t>(ranks - 1),
          "too much memory of other processes is open");
  return {counts.allocations - counts.peers, counts.reservations, counts.handles,
          files - counts.allocations - counts.handles};
}

/// What stays the same for a while: loom closes others' memory on a thread of its own, and what that does
/// between the count of the driver and the one of files would be in one of them alone.
Holdings holdings() {
  Holdings last = holdings_now();
  for (int same = 0; same < 5;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const Holdings now = holdings_now();
    same = now == last ? same + 1 : 0;
    last = now;
  }
  return last;
}

}  // namespace

void leaves_nothing(const char* what, const std::function<void()>& body) {
  const auto settle = [] {
    for (int i = 0; i < 2; ++i) {
      MPI_Comm copy;
      MPI_Comm_dup(MPI_COMM_WORLD, &copy);
      allreduce(expected, MemoryKind::kDevice, copy);
      MPI_Comm_free(&copy);
      MPI_Barrier(MPI_COMM_WORLD);
    }
  };
  body();
  settle();
  const Holdings before = holdings();
  for (int i = 0; i < 4; ++i) body();
  settle();
  const Holdings after = holdings();
  // Some ranks may not know yet that all have left the last ones.
  const bool nothing = after.allocations <= before.allocations + 2 &&
                       after.reservations <= before.reservations + 2 && after.handles == before.handles &&
                       after.files <= before.files;
  if (!nothing)
    std::fprintf(stderr, "rank %d, %s: %ld allocations, %ld reservations, %ld handles, %ld files more\n",
                 rank, what, static_cast<long>(after.allocations - before.allocations),
                 static_cast<long>(after.reservations - before.reservations),
                 static_cast<long>(after.handles - before.handles),
                 static_cast<long>(after.files - before.files));
  require(nothing, "communicators that have gone leave something behind");
}

void free_what_communicators_had() {
  leaves_nothing("calls", [] {
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    allreduce(expected, MemoryKind::kDevice, copy);
    MPI_Comm_free(&copy);
    MPI_Barrier(MPI_COMM_WORLD);
  });
}

}  // namespace loom::mpi_test
