// traffic_main.cpp -- virtual_gpu_traffic FOLDER: what has moved in the run whose VIRTUAL_GPU_STATE the
// folder is, link by link. The variables of the machine must be those of the run.
#include <cstdio>

#include "base/format.hpp"
#include "tests/virtual_gpu/machine/traffic.hpp"

int main(int argc, char** argv) {
  using namespace virtual_gpu::machine;
  if (argc != 2) {
    loom::print(stderr, "usage: virtual_gpu_traffic FOLDER\n");
    return 2;
  }
  try {
    const Machine machine = Machine::from_environment();
    const SharedState state(machine, std::string(argv[1]));
    loom::print("{}", to_string(Traffic(machine, state).report(), machine));
    return 0;
  } catch (const Error& error) {
    loom::print(stderr, "virtual_gpu_traffic: {}\n", error.what());
    return 1;
  }
}
