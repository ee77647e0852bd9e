// device_ints.hpp -- what tests of calls on device buffers have in common: numbers on a device, and what they
// ask of tests/virtual_gpu.
#pragma once

#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "mpi_examples/support/device_memory.hpp"
#include "tests/mpi/init_forms.hpp"
#include "tests/virtual_gpu/driver/virtual_gpu.hpp"

namespace loom::mpi_test {

using mpi::Driver;
using mpi::Memory;
using mpi::MemoryKind;

inline int rank, ranks;

/// Calls may come from any thread, one at a time.
inline void begin(int& argc, char**& argv) {
  int provided;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  Driver::get();
}

inline void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "rank %d of %d: %s\n", rank, ranks, what);
  std::exit(1);
}

/// The ranks are on several hosts, as Open MPI's launcher says.
inline bool between_hosts() {
  const char* const here = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  return here != nullptr && std::atoi(here) < ranks;
}

/// No call keeps its buffers on GPUs.
inline bool all_are_staged() {
  const char* const rules = std::getenv("OMPI_MCA_coll_loom_tune");
  return rules != nullptr && std::strcmp(rules, "all:staged") == 0;
}

inline VirtualGpuCounts counts() {
  VirtualGpuCounts result;
  Driver::get().function<decltype(virtual_gpu_read)>("virtual_gpu_read")(&result);
  return result;
}
/// A program that has freed its memory has only that of MPI_COMM_WORLD's links left on its GPU, and has
/// mapped the others' and some buffers that they have shared.
inline bool has_only_links() {
  constexpr std::uint64_t kOfLinks = 8, kMostShared = 64;
  if (all_are_staged()) return counts().allocations == 0;
  return counts().allocations - counts().peers <= kOfLinks &&
         counts().peers <= (1 + kMostShared) * static_cast<std::uint64_t>(ranks - 1);
}
inline void fail(const char* function, int after, int error) {
  Driver::get().function<decltype(virtual_gpu_fail)>("virtual_gpu_fail")(function, after, error);
}

/// Numbers on a device, or on every third rank on the host.
class Ints {
 public:
  explicit Ints(int n, int value = -1)
      : Ints(n, value, rank % 3 == 2 ? MemoryKind::kHost : MemoryKind::kDevice) {}
  Ints(int n, int value, MemoryKind kind)
      : size_(n),
        is_on_device_(kind != MemoryKind::kHost),
        memory_(static_cast<std::size_t>(n) * sizeof(int), kind) {
    fill([value](int) { return value; });
  }
  Ints(int n, const std::function<int(int)>& value, MemoryKind kind = MemoryKind::kDevice)
      : size_(n),
        is_on_device_(kind != MemoryKind::kHost),
        memory_(static_cast<std::size_t>(n) * sizeof(int), kind) {
    fill(value);
  }
  bool is_on_device() const { return is_on_device_; }
  int* at() { return reinterpret_cast<int*>(memory_.address()); }
  void set(int i, int value) { std::memcpy(memory_.mirror.data() + i * 4, &value, 4); }
  void fill(const std::function<int(int)>& value) {
    for (int i = 0; i < size_; ++i) set(i, value(i));
    memory_.upload();
  }
  void is(const std::function<int(int)>& value, const char* what) {
    memory_.download();
    for (int i = 0; i < size_; ++i) {
      int found;
      std::memcpy(&found, memory_.mirror.data() + i * 4, 4);
      if (found != value(i))
        std::fprintf(stderr, "rank %d: element %d is %d and not %d\n", rank, i, found, value(i));
      require(found == value(i), what);
    }
  }

 private:
  int size_;
  bool is_on_device_;
  Memory memory_;
};

}  // namespace loom::mpi_test
