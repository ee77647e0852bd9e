// loom_pvars.hpp -- what loom tells about itself through MPI's tool interface (MPI_T), for programs under
// mpirun. Nothing here needs loom: without it every counter is simply absent.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace loom::mpi {

/// One MPI_T session. Lives between MPI_Init and MPI_Finalize; used by one thread.
class ToolInterface {
 public:
  ToolInterface();
  ~ToolInterface();
  ToolInterface(const ToolInterface&) = delete;
  ToolInterface& operator=(const ToolInterface&) = delete;

  /// A performance variable: its element with this row and column name, or the sum of all elements that match
  /// the names given. counter("coll_loom_calls", "allreduce") is what all algorithms have carried. Empty when
  /// there is no such variable or name. Open MPI counts for each reader from its first request for the
  /// variable: only differences mean something.
  std::optional<std::uint64_t> counter(const std::string& name, std::string_view row = {},
                                       std::string_view column = {});

  /// Value of an MCA variable, as text; empty when there is none of that name or it is of another kind.
  std::optional<std::string> variable(const std::string& name);

 private:
  struct Counter {
    MPI_T_pvar_handle handle = MPI_T_PVAR_HANDLE_NULL;
    std::vector<std::string> rows, columns;  ///< names in order; one without a name where it is not divided
    std::vector<std::uint64_t> values;       ///< row by row, as last read
  };
  std::optional<Counter> find(const std::string& name) const;

  MPI_T_pvar_session session_ = MPI_T_PVAR_SESSION_NULL;
  std::map<std::string, std::optional<Counter>> counters_;
};

/// How many of a program's all-reduces loom carries from here on.
class CarriedAllreduces {
 public:
  /// on_gpus: those alone whose buffers stay on GPUs.
  explicit CarriedAllreduces(bool on_gpus);
  /// "carried by loom: 7 of 7 allreduces", and whether these are all.
  std::pair<std::string, bool> of(int calls);

 private:
  std::optional<std::uint64_t> count();
  bool on_gpus_;
  ToolInterface tool_;
  std::optional<std::uint64_t> before_;
};

/// Duplicates a communicator so that loom carries none of its collectives.
MPI_Comm dup_without_loom(MPI_Comm comm);
/// The same, with this component of Open MPI before all others; tuned, then the others carry what it does
/// not. The component must have a priority above 0 to be asked at all.
MPI_Comm dup_with_component(MPI_Comm comm, const std::string& component);
/// A duplicate that promises loom one order of starts on all ranks.
MPI_Comm dup_with_ordered_starts(MPI_Comm comm);

}  // namespace loom::mpi
