// loom_pvars.hpp -- what loom tells about itself through MPI's tool interface (MPI_T), for programs under
// mpirun. Nothing here needs loom: without it every counter is simply absent.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace loom::mpi {

/// One MPI_T session. Lives between MPI_Init and MPI_Finalize; used by one thread.
class ToolInterface {
 public:
  ToolInterface();
  ~ToolInterface();
  ToolInterface(const ToolInterface&) = delete;
  ToolInterface& operator=(const ToolInterface&) = delete;

  /// Value of a performance variable, e.g. "coll_loom_allreduce_calls"; empty when there is none of that
  /// name. Open MPI counts for each reader from when it first asked: only differences mean something.
  std::optional<std::uint64_t> counter(const std::string& name);

  /// Value of an MCA variable, as text; empty when there is none of that name or it is of another kind.
  std::optional<std::string> variable(const std::string& name);

 private:
  std::optional<MPI_T_pvar_handle> handle_of(const std::string& name);

  MPI_T_pvar_session session_ = MPI_T_PVAR_SESSION_NULL;
  std::map<std::string, std::optional<MPI_T_pvar_handle>> handles_;
};

/// Duplicates a communicator in such a way that loom carries none of its collectives.
MPI_Comm dup_without_loom(MPI_Comm comm);
/// The same, with this component of Open MPI before all others; for what it does not carry, tuned and then
/// the others. The component must have a priority above 0 to be asked at all.
MPI_Comm dup_with_component(MPI_Comm comm, const std::string& component);

}  // namespace loom::mpi
