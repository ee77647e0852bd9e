// mpi_cuda_init_test -- loom does not initialise CUDA for a program that does not, whatever it has to find
// out: links, the machine's topology. On tests/virtual_gpu. Exit code 1: it does.
//
//   mpi_cuda_init_test [FILE]   that loom has written, as coll_loom_topo_dump_file
#include <dlfcn.h>
#include <mpi.h>

#include <cstdio>
#include <vector>

int main(int argc, char** argv) {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
  const auto count =
      library == nullptr ? nullptr : reinterpret_cast<int (*)(int*)>(::dlsym(library, "cuDeviceGetCount"));
  if (count == nullptr) {
    std::fprintf(stderr, "no libcuda.so.1: %s\n", ::dlerror());
    return 1;
  }
  MPI_Init(&argc, &argv);
  std::vector<int> in(1 << 18, 1), out(in.size());
  for (const int elements : {1, static_cast<int>(in.size())})
    MPI_Allreduce(in.data(), out.data(), elements, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  int devices = 0;
  const int error = count(&devices);
  constexpr int kNotInitialised = 3;
  if (error != kNotInitialised) std::fprintf(stderr, "CUDA is initialised: %d, %d devices\n", error, devices);
  MPI_Finalize();
  std::FILE* const written = argc > 1 ? std::fopen(argv[1], "r") : nullptr;
  if (argc > 1 && written == nullptr) std::fprintf(stderr, "%s has not been written\n", argv[1]);
  if (written != nullptr) std::fclose(written);
  return error == kNotInitialised && (argc < 2 || written != nullptr) ? 0 : 1;
}
