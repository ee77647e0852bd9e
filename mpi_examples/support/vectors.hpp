// vectors.hpp -- numbers in the memory of the host or of a GPU, and what is computed there.
//
// Kernels run in the legacy default stream. So a program needs no synchronisation beside MPI calls: loom's
// begin when the kernels launched before have ended, and have ended when they return or their request is
// complete.
#pragma once

#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

#include "mpi_examples/kernels.hpp"
#include "mpi_examples/support/device_memory.hpp"

namespace loom::mpi {

/// For an option --memory: why a program cannot compute in "host" or "device" memory, or in that of another
/// word; empty where it can.
std::string why_not_in(const std::string& memory);
MemoryKind memory_named(const std::string& word);

class Vector {
 public:
  Vector(const std::vector<double>& values, MemoryKind where);
  /// Of zeros.
  Vector(int size, MemoryKind where) : Vector(std::vector<double>(static_cast<std::size_t>(size)), where) {}
  /// A copy.
  Vector(const Vector& other, MemoryKind where) : Vector(other.read(), where) {}

  /// For kernels and MPI calls; the host can reach it if it is of the host.
  double* data() const { return memory_.get(); }
  int size() const { return size_; }
  MemoryKind where() const { return memory_.get_deleter().where; }
  std::vector<double> read() const;
  void write(const std::vector<double>& values);

 private:
  struct Release {
    MemoryKind where;
    void operator()(double* memory) const;
  };
  int size_;
  std::unique_ptr<double, Release> memory_;
};

/// Starts a kernel of kernels.cu.
void launch(const char* kernel, int blocks, const void* work, int n);
/// Enough for n elements, or to fill a GPU.
int blocks_for(int n);

/// work(i) for each i below n.
template <class Work>
void for_each(MemoryKind where, int n, const Work& work) {
  if (where == MemoryKind::kHost)
    for (int i = 0; i < n; ++i) work(i);
  else if (n > 0)
    launch(Work::kName, blocks_for(n), &work, n);
}

/// Of vectors that are spread over ranks.
class DotProduct {
 public:
  DotProduct(MemoryKind where, MPI_Comm comm);
  double operator()(const double* x, const double* y, int n);

 private:
  MPI_Comm comm_;
  Vector sums_;
};

}  // namespace loom::mpi
