// open_mpi.hpp -- which Open MPI a job would get, whether that finds loom's plugin, and how loom is set.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/doctor/finding.hpp"

namespace loom::tools {

struct OpenMpiSources {
  std::string ompi_info = "ompi_info", mpirun = "mpirun";
  std::string built_for;      ///< "4.1.4": the Open MPI of this build; empty: it has no plugin
  std::string version;        ///< of this build
  std::string plugin_folder;  ///< of this build's or installation's plugin; empty: there is none
  std::string own_folder{};   ///< in which Open MPI's own components lie, should ompi_info not tell
};

/// What the other parts need of it.
struct OpenMpi {
  std::string version;                ///< empty: there is none
  bool has_plugin = false;            ///< it loads
  std::optional<std::string> path{};  ///< that mpirun must be told for that: mca_base_component_path
  std::string plugin_path{};          ///< such a path for where the plugin lies, needed or not
};

/// ~/.openmpi/components; empty: there is no HOME.
std::string home_plugin_folder();
/// Where components are looked for: as the environment says, which mpirun may have written, or else in these.
std::vector<std::string> component_folders(const std::string& home_folder, const std::string& own_folder);
/// mca_base_component_path with the plugin's folder. Up to 4.1 Open MPI's own components are in its own
/// folder, and not in the library.
std::string component_path(const std::string& version, const std::string& folder,
                           const std::string& own_folder);
/// Of mpirun, for this path: words of a command line, and as text for a shell.
std::vector<std::string> component_path_words(const std::string& version, const std::string& path);
std::string component_path_options(const std::string& version, const std::string& path);

OpenMpi look_at_open_mpi(const OpenMpiSources& sources, Findings& findings);

}  // namespace loom::tools
