// device_memory.hpp -- buffers for MPI calls that may lie on a GPU, real or the one of tests/virtual_gpu.
// CUDA's driver is opened when the first of them is made.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace loom::mpi {

enum class MemoryKind { kHost, kDevice, kManaged, kPool, kRegistered };

/// CUDA's driver as a program uses it. A failure ends the program.
class Driver {
 public:
  /// Whether there is a driver with a device.
  static bool is_there();
  /// Opened, initialised, and with device 0's context current in this thread.
  static Driver& get();
  /// Ends the program if a function has failed.
  static void require(int result, const char* function);
  /// Makes the context of a device current in this thread, on top of the one before.
  void use(int device);
  void leave();
  void reset(int device);

  void* allocate(MemoryKind kind, std::size_t bytes);
  void release(MemoryKind kind, void* memory);
  void to_device(void* device, const void* host, std::size_t bytes);
  void to_host(void* host, const void* device, std::size_t bytes);

  /// Any function of the driver, or nullptr.
  template <class Function>
  Function* function(const char* name) {
    return reinterpret_cast<Function*>(find(name));
  }

 private:
  Driver();
  void* find(const char* name);
  void* library_;
};

/// Collective. Why a rank that needs a GPU has none, the same on all; empty: all have one.
std::string why_no_gpu(bool needs, MPI_Comm comm);

/// Bytes that a program fills and reads through a mirror on the host, which is the memory itself for kHost:
/// it may not be resized.
class Memory {
 public:
  /// Of the kind that set_memory_kinds says; never of no bytes.
  explicit Memory(std::size_t bytes);
  Memory(std::size_t bytes, MemoryKind kind);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::vector<std::byte> mirror;
  void upload();
  void download();
  std::byte* address() const { return address_; }

 private:
  MemoryKind kind_;
  std::byte* address_;
};

/// "host" (the default), "device", "managed", "pool", "registered", or "mixed": each buffer of any kind,
/// drawn by `seed`. Returns false for another word.
bool set_memory_kinds(const std::string& kinds, std::uint64_t seed);

}  // namespace loom::mpi
