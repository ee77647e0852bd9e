#include "mpi_examples/support/device_memory.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

namespace loom::mpi {
namespace {

// Of the thread that has set them.
thread_local std::vector<MemoryKind> kinds{MemoryKind::kHost};
thread_local std::mt19937_64 random_kind;

std::uint64_t number(const void* address) {
  return reinterpret_cast<std::uint64_t>(address);
}

/// Without the destructors of what may be in use. mpirun ends the other ranks.
[[noreturn]] void end_program() {
  std::fflush(nullptr);
  std::_Exit(2);
}

}  // namespace

bool Driver::is_there() {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return false;
  const auto init = reinterpret_cast<int (*)(unsigned)>(::dlsym(library, "cuInit"));
  const auto get = reinterpret_cast<int (*)(int*, int)>(::dlsym(library, "cuDeviceGet"));
  int device;
  return init != nullptr && get != nullptr && init(0) == 0 && get(&device, 0) == 0;
}

void Driver::require(int result, const char* function) {
  if (result == 0) return;
  std::fprintf(stderr, "%s of CUDA's driver fails with error %d\n", function, result);
  end_program();
}

Driver& Driver::get() {
  static Driver driver;
  return driver;
}

Driver::Driver() : library_(::dlopen("libcuda.so.1", RTLD_NOW)) {
  if (library_ == nullptr) {
    std::fprintf(stderr, "no libcuda.so.1: %s\n", ::dlerror());
    end_program();
  }
  require(function<int(unsigned)>("cuInit")(0), "cuInit");
  use(0);
}

void* Driver::find(const char* name) {
  return ::dlsym(library_, name);
}

void Driver::use(int device) {
  void* context;
  require(function<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, device),
          "cuDevicePrimaryCtxRetain");
  require(function<int(void*)>("cuCtxPushCurrent_v2")(context), "cuCtxPushCurrent");
}

void Driver::leave() {
  void* context;
  require(function<int(void**)>("cuCtxPopCurrent_v2")(&context), "cuCtxPopCurrent");
}

void Driver::reset(int device) {
  require(function<int(int)>("cuDevicePrimaryCtxReset_v2")(device), "cuDevicePrimaryCtxReset");
}

void* Driver::allocate(MemoryKind kind, std::size_t bytes) {
  void* memory = nullptr;
  switch (kind) {
    case MemoryKind::kHost:
      break;
    case MemoryKind::kDevice:
      require(function<int(void**, std::size_t)>("cuMemAlloc_v2")(&memory, bytes), "cuMemAlloc");
      break;
    case MemoryKind::kManaged:  // 1: CU_MEM_ATTACH_GLOBAL
      require(function<int(void**, std::size_t, unsigned)>("cuMemAllocManaged")(&memory, bytes, 1),
              "cuMemAllocManaged");
      break;
    case MemoryKind::kPool:
      require(function<int(void**, std::size_t, void*)>("cuMemAllocAsync")(&memory, bytes, nullptr),
              "cuMemAllocAsync");
      break;
    case MemoryKind::kRegistered:
      require(function<int(void**, std::size_t, unsigned)>("cuMemHostAlloc")(&memory, bytes, 0),
              "cuMemHostAlloc");
      break;
  }
  return memory;
}

void Driver::release(MemoryKind kind, void* memory) {
  if (kind == MemoryKind::kRegistered)
    require(function<int(void*)>("cuMemFreeHost")(memory), "cuMemFreeHost");
  else
    require(function<int(std::uint64_t)>("cuMemFree_v2")(number(memory)), "cuMemFree");
}

void Driver::to_device(void* device, const void* host, std::size_t bytes) {
  require(
      function<int(std::uint64_t, const void*, std::size_t)>("cuMemcpyHtoD_v2")(number(device), host, bytes),
      "cuMemcpyHtoD");
}
void Driver::to_host(void* host, const void* device, std::size_t bytes) {
  require(function<int(void*, std::uint64_t, std::size_t)>("cuMemcpyDtoH_v2")(host, number(device), bytes),
          "cuMemcpyDtoH");
}

std::string why_no_gpu(bool needs, MPI_Comm comm) {
  int rank, ranks;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  int without = needs && !Driver::is_there() ? rank : ranks;
  MPI_Allreduce(MPI_IN_PLACE, &without, 1, MPI_INT, MPI_MIN, comm);
  if (without == ranks) return "";
  return "rank " + std::to_string(without) +
         " sees no GPU. There is no libcuda.so.1, or no GPU is left for it: see nvidia-smi and "
         "CUDA_VISIBLE_DEVICES";
}

Memory::Memory(std::size_t bytes) : Memory(bytes, kinds[random_kind() % kinds.size()]) {}

Memory::Memory(std::size_t bytes, MemoryKind kind) : mirror(bytes == 0 ? 1 : bytes), kind_(kind) {
  address_ = kind == MemoryKind::kHost ? mirror.data()
                                       : static_cast<std::byte*>(Driver::get().allocate(kind, mirror.size()));
}

Memory::~Memory() {
  if (kind_ != MemoryKind::kHost) Driver::get().release(kind_, address_);
}

void Memory::upload() {
  if (kind_ != MemoryKind::kHost) Driver::get().to_device(address_, mirror.data(), mirror.size());
}

void Memory::download() {
  if (kind_ != MemoryKind::kHost) Driver::get().to_host(mirror.data(), address_, mirror.size());
}

bool set_memory_kinds(const std::string& word, std::uint64_t seed) {
  using enum MemoryKind;
  random_kind.seed(seed);
  if (word == "host")
    kinds = {kHost};
  else if (word == "device")
    kinds = {kDevice};
  else if (word == "managed")
    kinds = {kManaged};
  else if (word == "pool")
    kinds = {kPool};
  else if (word == "registered")
    kinds = {kRegistered};
  else if (word == "mixed")
    kinds = {kHost, kHost, kDevice, kDevice, kManaged, kPool, kRegistered};
  else
    return false;
  return true;
}

}  // namespace loom::mpi
