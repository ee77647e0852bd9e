// open_mpi.hpp -- which Open MPI a job would get, whether that finds loom's plugin, and how loom is set.
#pragma once

#include <optional>
#include <string>

#include "tools/doctor/finding.hpp"

namespace loom::tools {

struct OpenMpiSources {
  std::string ompi_info = "ompi_info", mpirun = "mpirun";
  std::string built_for;      ///< "4.1.4": the Open MPI of this build; empty: it has no plugin
  std::string version;        ///< of this build
  std::string plugin_folder;  ///< of this build's or installation's plugin; empty: there is none
};

/// What the other parts need of it.
struct OpenMpi {
  std::string version;              ///< empty: there is none
  bool has_plugin = false;          ///< it loads
  std::string rules{};              ///< coll_loom_tune
  std::optional<std::string> path;  ///< that mpirun must be told for that: mca_base_component_path
};

/// Of mpirun.
inline std::string component_path_option(const std::string& path) {
  return "--mca mca_base_component_path " + path;
}

OpenMpi look_at_open_mpi(const OpenMpiSources& sources, Findings& findings);

}  // namespace loom::tools
