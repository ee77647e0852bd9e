// report.hpp -- loom_bench's results, as a table for people and as JSON for programs.
#pragma once

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mpi_examples/bench/floor.hpp"
#include "mpi_examples/bench/measure.hpp"
#include "mpi_examples/bench/options.hpp"

namespace loom::bench {

/// Where the run took place; gathered by all ranks, complete on rank 0.
struct Environment {
  std::string mpi_library;
  std::string component_path;
  std::optional<bool> loom_enabled;  // empty: no such MCA variable, so not loaded
  int ranks = 0;
  std::vector<std::pair<std::string, int>> hosts;  // name, ranks on it

  bool loom_active() const { return loom_enabled.value_or(false); }
};
Environment gather_environment(MPI_Comm control, mpi::ToolInterface& tool);

/// Rank 0's output: the rows as they come, the JSON at the end.
class Report {
 public:
  Report(const Options& options, const Environment& environment, std::FILE* text)
      : options_(options), environment_(environment), text_(text) {}

  void begin(std::size_t rows);
  void add(const Case& one, const Measured& measured);
  void end();
  nlohmann::ordered_json json() const;

  std::uint64_t wrong() const { return wrong_; }
  /// loom carried every call of the communicator as the user has it, and none of the compared one.
  bool carried_as_expected() const;

 private:
  struct Carried {
    std::uint64_t calls = 0, at_least = 0, at_most = 0;
    bool known = true;
  };
  void print_carried(const std::string& whose, const Carried& carried) const;

  const Options& options_;
  const Environment& environment_;
  std::FILE* text_;
  std::vector<Carried> carried_;  // per communicator
  std::uint64_t wrong_ = 0;
  nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
};

}  // namespace loom::bench
