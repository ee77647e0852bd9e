// mpi_large_device_test -- an in-place allreduce and a bcast of more than 2^31 bytes on a device, every
// element checked. On a GPU, or on tests/virtual_gpu.
//
//   mpi_large_device_test [COUNT]
//
// COUNT of MPI_INT (2^29 + 3). Exit code 77: there is no device, or not enough memory on the host for a
// simulated one with its staging buffers.
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "mpi_examples/support/device_memory.hpp"

namespace {

using loom::mpi::Driver;
using loom::mpi::MemoryKind;

int rank, ranks;

void require(bool condition, const char* what, std::size_t i) {
  if (condition) return;
  std::fprintf(stderr, "rank %d of %d: %s, element %zu\n", rank, ranks, what, i);
  std::exit(1);
}

std::uint64_t available_bytes() {
  std::string line;
  for (std::ifstream file("/proc/meminfo"); std::getline(file, line);)
    if (line.starts_with("MemAvailable:")) return std::stoull(line.substr(13)) * 1024;
  return 0;
}

/// Calls body(first, chunk) for one chunk of the ints after the other.
template <class Body>
void for_chunks(std::size_t count, Body&& body) {
  std::vector<int> chunk;
  for (std::size_t first = 0; first < count; first += chunk.size()) {
    chunk.resize(std::min<std::size_t>(count - first, std::size_t{4} << 20));
    body(first, chunk);
  }
}

/// Of 20 bits; each rank's is the largest about as often. Simple enough for vectors, since there are very
/// many.
int value(int of, std::size_t i) {
  return static_cast<int>(
      (static_cast<std::uint32_t>(i) * 2654435761U + static_cast<std::uint32_t>(of) * 0x9e3779b9U) >> 12);
}

/// expected(i) is what element i has to be.
template <class Expected>
void check(const std::vector<int>& chunk, std::size_t first, const char* what, Expected&& expected) {
  std::vector<int> right(chunk.size());
  for (std::size_t i = 0; i < right.size(); ++i) right[i] = expected(first + i);
  const auto wrong = std::mismatch(chunk.begin(), chunk.end(), right.begin()).first;
  require(wrong == chunk.end(), what, first + static_cast<std::size_t>(wrong - chunk.begin()));
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t count = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : (std::size_t{1} << 29) + 3;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  // The same on all ranks, although each may look at another moment.
  int can = Driver::is_there() && available_bytes() > static_cast<std::uint64_t>(ranks) * count * 9;
  MPI_Bcast(&can, 1, MPI_INT, 0, MPI_COMM_WORLD);
  if (!can) {
    if (rank == 0) std::puts("skipped: no CUDA device, or not enough memory on the host");
    MPI_Finalize();
    return 77;
  }
  Driver& driver = Driver::get();
  auto* const device = static_cast<std::byte*>(driver.allocate(MemoryKind::kDevice, count * sizeof(int)));
  for_chunks(count, [&](std::size_t first, std::vector<int>& chunk) {
    for (std::size_t i = 0; i < chunk.size(); ++i) chunk[i] = value(rank, first + i);
    driver.to_device(device + first * sizeof(int), chunk.data(), chunk.size() * sizeof(int));
  });
  MPI_Allreduce(MPI_IN_PLACE, device, static_cast<int>(count), MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  for_chunks(count, [&](std::size_t first, std::vector<int>& chunk) {
    driver.to_host(chunk.data(), device + first * sizeof(int), chunk.size() * sizeof(int));
    check(chunk, first, "the allreduce is wrong", [](std::size_t i) {
      int largest = 0;
      for (int of = 0; of < ranks; ++of) largest = std::max(largest, value(of, i));
      return largest;
    });
    for (std::size_t i = 0; i < chunk.size(); ++i) chunk[i] = value(rank + 50, first + i);
    driver.to_device(device + first * sizeof(int), chunk.data(), chunk.size() * sizeof(int));
  });
  MPI_Bcast(device, static_cast<int>(count), MPI_INT, ranks - 1, MPI_COMM_WORLD);
  for_chunks(count, [&](std::size_t first, std::vector<int>& chunk) {
    driver.to_host(chunk.data(), device + first * sizeof(int), chunk.size() * sizeof(int));
    check(chunk, first, "the bcast is wrong", [](std::size_t i) { return value(ranks - 1 + 50, i); });
  });
  driver.release(MemoryKind::kDevice, device);
  if (rank == 0) std::printf("%zu bytes on %d ranks: right\n", count * sizeof(int), ranks);
  MPI_Finalize();
}
