#include "mpi_examples/support/vectors.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "device/cuda/image_bytes.hpp"

namespace loom::mpi {
namespace {

constexpr int kMostBlocks = 1024;

/// nvcc's first: the driver need not compile it, but one that is older than nvcc may refuse it.
const char* const kImages[] = {
#ifdef LOOM_IMAGES
#define LOOM_IMAGE(name, file) loom_kernels_##name,
#include LOOM_IMAGES
#endif
    nullptr};

/// All kernels, by the first image that the driver takes.
void* load_module() {
  auto* const load = Driver::get().function<int(void**, const void*)>("cuModuleLoadData");
  int result = 0;
  void* module = nullptr;
  for (const char* const* image = kImages; *image != nullptr; ++image)
    if (result = load(&module, *image); result == 0) break;
  Driver::require(result, "cuModuleLoadData");
  return module;
}

void* find_kernel(const char* name) {
  static void* const module = load_module();
  static std::map<std::string, void*> known;
  void*& kernel = known[name];
  if (kernel == nullptr)
    Driver::require(
        Driver::get().function<int(void**, void*, const char*)>("cuModuleGetFunction")(&kernel, module, name),
        "cuModuleGetFunction");
  return kernel;
}

}  // namespace

std::string why_not_in(const std::string& memory) {
  if (memory != "host" && memory != "device") return "'" + memory + "' is neither host nor device";
  if (memory == "device" && kImages[0] == nullptr)
    return "this program was built without kernels: there was neither nvcc nor clang, or LOOM_CUDA was OFF";
  return "";
}

MemoryKind memory_named(const std::string& word) {
  return word == "device" ? MemoryKind::kDevice : MemoryKind::kHost;
}

Vector::Vector(const std::vector<double>& values, MemoryKind where)
    : size_(static_cast<int>(values.size())), memory_(nullptr, Release{where}) {
  const std::size_t count = std::max<std::size_t>(values.size(), 1);  // CUDA allocates no empty memory
  memory_.reset(where == MemoryKind::kHost
                    ? new double[count]
                    : static_cast<double*>(Driver::get().allocate(where, count * sizeof(double))));
  write(values);
}

void Vector::Release::operator()(double* memory) const {
  if (where == MemoryKind::kHost)
    delete[] memory;
  else
    Driver::get().release(where, memory);
}

std::vector<double> Vector::read() const {
  std::vector<double> values(static_cast<std::size_t>(size_));
  if (where() == MemoryKind::kHost)
    std::copy_n(data(), values.size(), values.data());
  else
    Driver::get().to_host(values.data(), data(), values.size() * sizeof(double));
  return values;
}

void Vector::write(const std::vector<double>& values) {
  if (where() == MemoryKind::kHost)
    std::copy_n(values.data(), values.size(), data());
  else
    Driver::get().to_device(data(), values.data(), values.size() * sizeof(double));
}

void launch(const char* kernel, int blocks, const void* work, int n) {
  using Launch =
      int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
  static auto* const launch_kernel = Driver::get().function<Launch>("cuLaunchKernel");
  void* arguments[] = {const_cast<void*>(work), &n};  // which it copies
  Driver::require(launch_kernel(find_kernel(kernel), static_cast<unsigned>(blocks), 1, 1, kernels::kThreads,
                                1, 1, 0, nullptr, arguments, nullptr),
                  kernel);
}

int blocks_for(int n) {
  return std::min((n - 1) / kernels::kThreads + 1, kMostBlocks);
}

DotProduct::DotProduct(MemoryKind where, MPI_Comm comm)
    : comm_(comm), sums_(where == MemoryKind::kHost ? 1 : kernels::Dot::kBlocks, where) {}

/// On a GPU each block has a sum. These are added up over the ranks as they are, and the host adds up what is
/// left, so that one kernel does.
double DotProduct::operator()(const double* x, const double* y, int n) {
  if (sums_.where() == MemoryKind::kHost) {
    *sums_.data() = std::inner_product(x, x + n, y, 0.0);
  } else {
    const kernels::Dot work{x, y, sums_.data()};
    launch(work.kName, work.kBlocks, &work, n);
  }
  MPI_Allreduce(MPI_IN_PLACE, sums_.data(), sums_.size(), MPI_DOUBLE, MPI_SUM, comm_);
  const std::vector<double> sums = sums_.read();
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace loom::mpi
