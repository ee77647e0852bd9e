#include "tools/doctor/open_mpi.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/format.hpp"
#include "tools/doctor/subprocess.hpp"

namespace loom::tools {
namespace {

constexpr std::chrono::seconds kLimit{30};

/// ompi_info quotes what has a colon in it.
std::string without_quotes(const std::string& value) {
  if (value.size() < 2 || value.front() != '"' || value.back() != '"') return value;
  return value.substr(1, value.size() - 2);
}

/// Of "key:value" lines, as `ompi_info --parsable` prints them, the value of the first with this key.
std::optional<std::string> value_of(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key + ":")) continue;
    return without_quotes(line.substr(key.size() + 1));
  }
  return std::nullopt;
}

/// "4.1" of "4.1.4".
std::string series_of(const std::string& version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

/// The first line that has this in it.
std::string line_with(const std::string& text, const std::string& part) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.find(part) != std::string::npos) return line;
  return "";
}

/// What Open MPI says of a plugin that the loader refuses. The name of its core library counts up with its
/// series.
struct NotLoaded {
  std::string why;
  bool other_series = false;

  explicit NotLoaded(const std::string& told) : why(told) {
    const std::size_t begin = told.find("libopen-pal.so");
    if (begin == std::string::npos || told.find("cannot open shared object") == std::string::npos) return;
    other_series = true;
    why = loom::format("built for another series of Open MPI, with {}",
                       told.substr(begin, told.find(':', begin) - begin));
  }
};

struct Parameter {
  std::string value, source;
};
/// All of `ompi_info --param coll loom`, by name.
std::map<std::string, Parameter> parameters_in(const std::string& text) {
  const std::string prefix = "mca:coll:loom:param:";
  std::map<std::string, Parameter> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(prefix)) continue;
    const std::size_t begin = prefix.size(), end = line.find(':', begin);
    if (end == std::string::npos) continue;
    const std::string name = line.substr(begin, end - begin), rest = line.substr(end + 1);
    if (rest.starts_with("value:")) found[name].value = without_quotes(rest.substr(6));
    if (rest.starts_with("source:")) found[name].source = rest.substr(7);
  }
  return found;
}

class OpenMpiCheck {
 public:
  OpenMpiCheck(const OpenMpiSources& sources, Findings& findings) : sources_(sources), findings_(findings) {}

  OpenMpi look() {
    look_at_names();
    if (!look_at_component_path() || !look_at_version()) return found_;
    look_at_plugin();
    if (found_.has_plugin) look_at_parameters();
    look_at_mpirun();
    look_at_root();
    return found_;
  }

 private:
  Ended ask(std::vector<std::string> arguments, const std::vector<std::string>& environment = {}) const {
    arguments.insert(arguments.begin(), {sources_.ompi_info, "--parsable"});
    return run(arguments, kLimit, environment);
  }

  /// Open MPI takes variables that it does not know without a word, from the environment and from its files.
  void look_at_names() {
    const std::string prefix = "OMPI_MCA_";
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
      const std::string set(*entry), name = set.substr(0, set.find('='));
      if (name.starts_with(prefix) && name.find("loom") != std::string::npos)
        unknown_.push_back({name.substr(prefix.size()), name + " is set"});
    }
    const char* const home = std::getenv("HOME");
    const std::string etc = value_of(ask({"--path", "sysconfdir"}).out, "path:sysconfdir").value_or("");
    for (const std::string& path : {std::string(home == nullptr ? "" : home) + "/.openmpi/mca-params.conf",
                                    etc + "/openmpi-mca-params.conf"}) {
      std::ifstream file(path);
      for (std::string line; std::getline(file, line);) {
        std::istringstream words(line.substr(0, line.find('=')));
        std::string name;
        if (words >> name && !name.starts_with('#') && name.find("loom") != std::string::npos)
          unknown_.push_back({name, loom::format("{} sets {}", path, name)});
      }
    }
  }
  /// Once the known ones are known.
  void tell_unknown_names() {
    for (const auto& [name, how] : unknown_)
      if (!parameters_.contains(name))
        findings_.warn("parameters", how + ", and loom has no such variable",
                       "docs/parameters.md has the names");
  }

  /// Where a folder is not there, Open MPI 4.1 finds none of its own components either.
  bool look_at_component_path() {
    const char* const path = std::getenv("OMPI_MCA_mca_base_component_path");
    std::istringstream folders(path == nullptr ? "" : path);
    for (std::string folder; std::getline(folders, folder, ':');) {
      std::error_code error;
      // The words that stand for Open MPI's own folders.
      static const std::vector<std::string> kWords{"USER_DEFAULT", "USR_DEFAULT", "SYS_DEFAULT",
                                                   "SYSTEM_DEFAULT"};
      if (folder.empty() || std::ranges::find(kWords, folder) != kWords.end() ||
          std::filesystem::is_directory(folder, error))
        continue;
      findings_.fails("component path",
                      loom::format("OMPI_MCA_mca_base_component_path names {}, which is not there", folder),
                      "correct it, or unset it");
      return false;
    }
    return true;
  }

  /// A value of an enumeration that Open MPI does not take.
  bool look_at_values(const std::string& errors) {
    if (errors.find("invalid value was supplied") == std::string::npos) return true;
    const auto after = [&](const std::string& what) {
      const std::string line = line_with(errors, what);
      const std::size_t begin = line.find(':');
      return begin == std::string::npos ? line : line.substr(std::min(line.size(), begin + 2));
    };
    findings_.fails("parameters",
                    loom::format("{} is \"{}\", which is none of {}", after("Variable "), after("Value "),
                                 after("Valid values")),
                    "correct it where it is set: the environment, mca-params.conf, or mpirun --mca");
    return false;
  }

  bool look_at_version() {
    const Ended info = ask({});
    if (info.exit_code == Ended::kNotStarted) {
      findings_.fails("Open MPI", "there is no ompi_info on PATH",
                      "install Open MPI (Debian: openmpi-bin), or put its bin folder first on PATH");
      return false;
    }
    const auto version = value_of(info.out, "ompi:version:full");
    if (!version) {
      findings_.fails("Open MPI", loom::format("{} says no version of Open MPI", sources_.ompi_info),
                      "is it another MPI's? Put Open MPI's bin folder first on PATH");
      return false;
    }
    found_.version = *version;
    const std::string series = series_of(*version), built_for = series_of(sources_.built_for);
    if (sources_.built_for.empty()) {
      findings_.fails(
          "Open MPI", loom::format("{}, but this loom was built without a plugin", *version),
          "install Open MPI's headers (Debian: libopenmpi-dev), and configure and build loom again");
      return false;
    }
    if (series == built_for) {
      findings_.fine("Open MPI",
                     loom::format("{}; this loom was built for {}", *version, sources_.built_for));
    } else {
      findings_.fails("Open MPI",
                      loom::format("{}, but this loom was built for {}", *version, sources_.built_for),
                      "build loom again with this Open MPI's mpicc first on PATH, or use the other mpirun");
    }
    return true;
  }

  void look_at_plugin() {
    Ended info = ask({"--param", "coll", "loom", "--level", "9"});
    if (!look_at_values(info.err) && !has_plugin(info.out)) return;
    if (!has_plugin(info.out) && !sources_.plugin_folder.empty()) {
      const std::string why = line_with(info.err, "mca_coll_loom");
      const std::string path = path_with(sources_.plugin_folder);
      Ended told =
          ask({"--param", "coll", "loom", "--level", "9"}, {"OMPI_MCA_mca_base_component_path=" + path});
      if (has_plugin(told.out)) {
        found_.path = path;
        found_.has_plugin = true;
        findings_.warn("plugin",
                       why.empty() ? "Open MPI does not look where it is"
                                   : loom::format("another one does not load: {}", NotLoaded(why).why),
                       loom::format("mpirun {}, or install it", component_path_option(path)));
        findings_.need_options(component_path_option(path));
        parameters_ = parameters_in(told.out);
        return;
      }
      if (!look_at_values(told.err)) return;
      if (why.empty()) info.err = told.err;
    }
    if (!has_plugin(info.out)) {
      const NotLoaded refused(line_with(info.err, "mca_coll_loom"));
      findings_.fails("plugin",
                      refused.why.empty() ? loom::format("Open MPI finds none in {}", path_with(""))
                                          : "it does not load: " + refused.why,
                      refused.why.empty() ? "install it: cmake --install, or the package"
                      : refused.other_series
                          ? "build and install loom for this Open MPI, or use the other's mpirun"
                          : "build it again on this machine; a library that it needs may be missing here");
      return;
    }
    found_.has_plugin = true;
    const std::string its = line_with(info.out, "component:");
    if (its.find(":" + sources_.version + "\"") == std::string::npos)
      findings_.warn("plugin",
                     loom::format("Open MPI loads another version than {}: {}", sources_.version, its),
                     "remove the older one: docs/troubleshooting.md, \"Where the plugin lies\"");
    else
      findings_.fine("plugin", loom::format("Open MPI loads version {}", sources_.version));
    parameters_ = parameters_in(info.out);
  }

  static bool has_plugin(const std::string& text) {
    return text.find("mca:coll:loom:version") != std::string::npos;
  }

  /// mca_base_component_path as it would be with this folder first. Up to 4.1 Open MPI's own components are
  /// in its own folder, and not in the library.
  std::string path_with(const std::string& folder) const {
    const std::string own = value_of(ask({"--path", "pkglibdir"}).out, "path:pkglibdir").value_or("");
    if (folder.empty()) return own;
    return found_.version.starts_with("4.") ? folder + ":" + own : folder;
  }

  void look_at_parameters() {
    const Parameter& enable = parameters_["coll_loom_enable"];
    const bool is_on = enable.value == "true" || enable.value == "1";
    if (is_on)
      findings_.fine(kEnabledTopic, loom::format("coll_loom_enable is 1 ({})", enable.source));
    else
      findings_.warn(kEnabledTopic, loom::format("coll_loom_enable is 0 ({})", enable.source),
                     "mpirun --mca coll_loom_enable 1, or a line \"coll_loom_enable = 1\" in "
                     "~/.openmpi/mca-params.conf on all hosts");
    const Ended info = ask({"--param", "coll", "all", "--level", "9"});
    const std::string only = value_of(info.out, "mca:coll:base:param:coll:value").value_or("");
    const bool names_loom = ("," + only + ",").find(",loom,") != std::string::npos ||
                            ("," + only + ",").find("^loom,") != std::string::npos;
    const bool excludes = only.starts_with("^");
    if (!only.empty() && excludes == names_loom)
      findings_.fails("components",
                      loom::format("the MCA parameter coll is \"{}\", which leaves loom out", only),
                      excludes ? "take loom off the list" : "add loom to the list");
    tell_unknown_names();
    if (const auto tune = parameters_.find("coll_loom_tune"); tune != parameters_.end())
      found_.rules = tune->second.value;
    std::vector<std::string> set;
    for (const auto& [name, parameter] : parameters_)
      if (name != "coll_loom_enable" && !parameter.source.starts_with("default"))
        set.push_back(loom::format("{} = {} ({})", name, parameter.value, parameter.source));
    if (!set.empty()) findings_.fine("parameters", loom::join(set, ", "));
  }

  /// mpirun refuses root unless it is told twice.
  void look_at_root() {
    if (::geteuid() != 0) return;
    for (const char* variable : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"}) {
      const char* const value = std::getenv(variable);
      if (value != nullptr && std::string(value) == "1") continue;
      findings_.warn(
          "root", "mpirun refuses to run as root",
          "mpirun --allow-run-as-root, or OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1");
      return;
    }
  }

  /// ompi_info and mpirun come from one installation, mostly.
  void look_at_mpirun() {
    const Ended asked = run({sources_.mpirun, "--version"}, kLimit);
    if (asked.exit_code == Ended::kNotStarted)
      findings_.fails("mpirun", "there is none on PATH", "put Open MPI's bin folder first on PATH");
    else if (asked.exit_code == Ended::kTookTooLong)
      findings_.fails("mpirun", loom::format("mpirun --version does not end within {} s", kLimit.count()),
                      "it has to work first");
    else if (asked.exit_code != 0)
      findings_.fails("mpirun", "it does not start: " + line_with(asked.err + asked.out, ""),
                      "mpirun --version has to work first");
    else if (asked.out.find("Open MPI) " + found_.version) == std::string::npos)
      findings_.fails("mpirun",
                      loom::format("it is another one than ompi_info's {}: {}", found_.version,
                                   asked.out.substr(0, asked.out.find('\n'))),
                      "put Open MPI's bin folder first on PATH");
  }

  const OpenMpiSources& sources_;
  Findings& findings_;
  OpenMpi found_;
  std::map<std::string, Parameter> parameters_;
  /// Variables that are set and may be loom's: the name, and how it is set.
  std::vector<std::pair<std::string, std::string>> unknown_;
};

}  // namespace

OpenMpi look_at_open_mpi(const OpenMpiSources& sources, Findings& findings) {
  return OpenMpiCheck(sources, findings).look();
}

}  // namespace loom::tools
