// options.hpp -- what the user of loom_bench asked for.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mpi_examples/bench/collectives.hpp"

namespace loom::bench {

enum class AcrossRanks { kAverage, kMax };
enum class Form { kBlocking, kNonblocking, kPersistent };
inline constexpr std::array<std::string_view, 3> kForms{"blocking", "nonblocking", "persistent"};
constexpr std::string_view name_of(Form form) {
  return kForms[static_cast<std::size_t>(form)];
}

struct Options {
  const Collective* collective = nullptr;
  std::vector<mpi::Type> types;
  std::vector<mpi::Op> ops;
  std::uint64_t min_bytes = 8;
  std::uint64_t max_bytes = 64 << 20;
  double factor = 2;
  std::uint64_t step_bytes = 0;   // 0: grow by factor
  std::optional<int> iterations;  // empty: as many as fit into seconds_per_size
  std::optional<int> warmup;      // calls; empty: by size
  double seconds_per_size = 0.3;
  AcrossRanks across_ranks = AcrossRanks::kAverage;
  Form form = Form::kBlocking;
  bool ordered_starts = false;  // what the communicator asserts; of persistent calls
  int root = 0;
  bool in_place = false;
  bool check = true;
  bool compare = false;
  std::vector<std::string> peers;  // components of Open MPI to compare with; empty: the fallback
  bool rotate_root = false;        // the root of each call is the rank after the one before's
  bool require_loom = false;
  bool floor = false;
  bool cpu = false;
  std::string memory = "host";  // a word of mpi::set_memory_kinds
  int on_host = 0;              // ranks, the last ones, whose buffers lie on the host all the same
  std::string json_path;        // empty: none; "-": standard output

  /// The sizes to measure, ascending.
  std::vector<std::uint64_t> sizes() const;
};

/// Either options, or the text to show and the exit code. Depends on the arguments and `ranks` alone, so all
/// ranks agree.
struct ParsedOptions {
  std::optional<Options> options;
  std::string text;
  int exit_code = 0;
};
ParsedOptions parse_options(int argc, char** argv, int ranks);

}  // namespace loom::bench
