// settings.hpp -- what people have set of loom's MCA variables. Open MPI takes names that it does not know,
// and what it can read of a number, without a word; loom ignores values that it does not take.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/doctor/finding.hpp"

namespace loom::tools {

struct Setting {
  std::string name, text;
  std::string where;  ///< a file; empty: the environment, to which mpirun --mca adds, too
};

/// All with "loom" in their names, of the environment, then of these files: the first of a name counts.
std::vector<Setting> settings_of_loom(const std::vector<std::string>& files);
/// Of the value of mca_base_param_files.
std::vector<std::string> files_in(const std::string& list);

/// taken: the value of the variable as Open MPI has it; nothing: it has no such variable.
/// Returns the names of those that are not taken as they are written: by Open MPI, or by loom.
std::vector<std::string> look_at_settings(
    const std::vector<Setting>& settings,
    const std::function<std::optional<std::string>(const std::string& name)>& taken, Findings& findings);

}  // namespace loom::tools
