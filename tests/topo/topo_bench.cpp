// topo_bench.cpp -- how long topology files take to read, and their paths to compute: a line per file, the
// best of several runs. Exit code 1 unless there are files and all can be read.
//   topo_bench [FILE or FOLDER]...
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "topo/hwloc_xml.hpp"
#include "topo/paths.hpp"

using namespace loom;
using namespace loom::topo;

namespace {

template <class Body>
double best_ms(Body&& body) {
  double best = 1e9;
  for (int run = 0; run < 5; ++run) {
    const auto began = std::chrono::steady_clock::now();
    body();
    best = std::min(
        best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count());
  }
  return best;
}

long peak_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

/// False: the file cannot be read.
bool measure(const std::filesystem::path& path) {
  try {
    const System system = read_system(path).system;
    const double read_ms = best_ms([&] { read_system(path); });
    const double paths_ms = best_ms([&] { Paths paths(system); });
    loom::print("{:<40} {:>6} {:>6} {:>6} {:>9.2f} {:>9.2f} {:>9.2f} {:>6}\n", path.filename().string(),
                system.size(), system.links().size(), system.gpus().size(), read_ms, paths_ms,
                read_ms + paths_ms, peak_mb());
    return true;
  } catch (const Error& error) {
    loom::print("{:<40} {}\n", path.filename().string(), error.what());
    return false;
  }
}

}  // namespace

int main(int argc, char** argv) {
  loom::print("{:<40} {:>6} {:>6} {:>6} {:>9} {:>9} {:>9} {:>6}\n", "file", "nodes", "links", "GPUs",
              "read ms", "paths ms", "sum ms", "MB");
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i]))
      files.emplace_back(argv[i]);
    else
      for (const auto& entry : std::filesystem::directory_iterator(argv[i]))
        if (entry.path().extension() == ".xml") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  bool all_read = !files.empty();
  for (const auto& file : files) all_read &= measure(file);
  return all_read ? 0 : 1;
}
