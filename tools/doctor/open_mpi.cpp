#include "tools/doctor/open_mpi.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <sstream>

#include "base/error.hpp"
#include "base/format.hpp"
#include "component/select/tune.hpp"
#include "tools/doctor/elf_file.hpp"
#include "tools/doctor/settings.hpp"
#include "tools/doctor/subprocess.hpp"
#include "tools/words.hpp"

namespace loom::tools {
namespace {

constexpr std::chrono::seconds kLimit{30};
constexpr const char* kPluginFile = "mca_coll_loom.so";
constexpr const char* kPathVariable = "OMPI_MCA_mca_base_component_path";
constexpr const char* kRules = "coll_loom_tune";
constexpr const char* kInstallAgain = "the file is damaged: cmake --install, or install the package again";

std::vector<std::string> folders_in(const std::string& path) {
  std::vector<std::string> all;
  std::istringstream folders(path);
  for (std::string folder; std::getline(folders, folder, ':');)
    if (!folder.empty()) all.push_back(folder);
  return all;
}

/// The first that has the plugin; empty: none.
std::string folder_with_plugin(const std::vector<std::string>& folders) {
  std::error_code error;
  for (const std::string& folder : folders)
    if (std::filesystem::exists(folder + "/" + kPluginFile, error)) return folder;
  return "";
}

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
  std::string why, cure = "build it again on this machine; a library that it needs may be missing here";

  explicit NotLoaded(const std::string& told) : why(told) {
    const auto says = [&](const char* words) { return told.find(words) != std::string::npos; };
    if (const std::size_t begin = told.find("libopen-pal.so");
        begin != std::string::npos && says("cannot open shared object")) {
      why = loom::format("built for another series of Open MPI, with {}",
                         told.substr(begin, told.find(':', begin) - begin));
      cure = "build and install loom for this Open MPI, or use the other's mpirun";
    } else if (says("Permission denied")) {
      cure = "all users must be able to read it: chmod a+r, and a+x for its folders";
    } else if (says("file too short") || says("invalid ELF header")) {
      cure = kInstallAgain;
    }
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

  /// ompi_info loads all components, so a damaged one takes it with it.
  static bool has_died(const Ended& info) { return info.exit_code > 128; }
  void tell_death(const Ended& info, const std::vector<std::string>& folders) {
    const int signal = info.exit_code - 128;
    const std::string death = loom::format("ompi_info dies of signal {} ({})", signal, ::strsignal(signal));
    for (const std::string& folder : folders) {
      const std::string file = folder + "/" + kPluginFile;
      std::error_code error;
      if (!std::filesystem::exists(file, error)) continue;
      if (const std::string damage = damage_of(file); !damage.empty())
        return findings_.fails(kPluginTopic, loom::format("{} as it loads {}: {}", death, file, damage),
                               kInstallAgain);
    }
    if (ask({}, {"OMPI_MCA_coll=^loom"}).exit_code == 0)
      findings_.fails(kPluginTopic, loom::format("{} as it loads loom's plugin", death),
                      "build and install loom again for this Open MPI; --mca coll ^loom runs without it");
    else
      findings_.fails("Open MPI", death, "ompi_info has to work first");
  }
  /// Where a folder is not there, Open MPI 4.1 finds none of its own components either.
  bool look_at_component_path() {
    for (const std::string& folder : component_folders("", "")) {
      std::error_code error;
      // The words that stand for Open MPI's own folders.
      static const std::vector<std::string> kWords{"USER_DEFAULT", "USR_DEFAULT", "SYS_DEFAULT",
                                                   "SYSTEM_DEFAULT"};
      if (std::ranges::find(kWords, folder) != kWords.end() || std::filesystem::is_directory(folder, error))
        continue;
      findings_.fails("component path",
                      loom::format("{} names {}, which is not there", kPathVariable, folder),
                      sources_.plugin_folder.empty()
                          ? "correct it, or unset it"
                          : loom::format("correct it; loom's plugin is in {}", sources_.plugin_folder));
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
    if (has_died(info)) {
      tell_death(info, component_folders(home_plugin_folder(), sources_.own_folder));
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
    own_folder_ = value_of(ask({"--path", "pkglibdir"}).out, "path:pkglibdir").value_or("");
    base_ = ask({"--param", "mca", "base", "--level", "9"}).out;
    Ended info = ask({"--param", "coll", "loom", "--level", "9"});
    if (!look_at_values(info.err) && !has_plugin(info.out)) return;
    if (!has_plugin(info.out) && !sources_.plugin_folder.empty()) {
      const std::string why = line_with(info.err, "mca_coll_loom");
      const std::string path = component_path(found_.version, sources_.plugin_folder, own_folder_);
      Ended told =
          ask({"--param", "coll", "loom", "--level", "9"}, {"OMPI_MCA_mca_base_component_path=" + path});
      if (has_plugin(told.out)) {
        found_.path = found_.plugin_path = path;
        found_.has_plugin = true;
        const std::string options = component_path_options(found_.version, path);
        findings_.warn(
            kPluginTopic,
            why.empty() ? "Open MPI does not look where it is" + looks_elsewhere()
                        : loom::format("another one does not load: {}", NotLoaded(why).why),
            loom::format("mpirun {}; docs/troubleshooting.md, \"Where the plugin lies\", has other ways",
                         options));
        findings_.need_options(options);
        parameters_ = parameters_in(told.out);
        return;
      }
      if (has_died(told)) return tell_death(told, {sources_.plugin_folder});
      if (!look_at_values(told.err)) return;
      if (why.empty()) info.err = told.err;
    }
    if (!has_plugin(info.out)) {
      const std::string why = line_with(info.err, "mca_coll_loom");
      if (why.empty())
        return findings_.fails(kPluginTopic, loom::format("Open MPI finds none in {}", own_folder_),
                               "install it: cmake --install, or the package");
      const NotLoaded refused(why);
      return findings_.fails(kPluginTopic, "it does not load: " + refused.why, refused.cure);
    }
    found_.has_plugin = true;
    const std::string path = value_of(base_, "mca:mca:base:param:mca_base_component_path:value").value_or("");
    const std::string folder = folder_with_plugin(folders_in(path));
    if (!folder.empty()) found_.plugin_path = component_path(found_.version, folder, own_folder_);
    const std::string its = line_with(info.out, "component:");
    if (its.find(":" + sources_.version + "\"") == std::string::npos)
      findings_.warn(kPluginTopic,
                     loom::format("Open MPI loads another version than {}: {}", sources_.version, its),
                     "remove the older one: docs/troubleshooting.md, \"Where the plugin lies\"");
    else
      findings_.fine(kPluginTopic, loom::format("Open MPI loads version {}{}", sources_.version,
                                                folder.empty() ? "" : " from " + folder));
    parameters_ = parameters_in(info.out);
  }

  static std::string looks_elsewhere() {
    const char* const path = std::getenv(kPathVariable);
    return path == nullptr ? "" : loom::format(": {} is {}", kPathVariable, path);
  }

  static bool names_folder(const std::string& path, const std::string& folder) {
    const std::vector<std::string> folders = folders_in(path);
    return std::ranges::find(folders, folder) != folders.end();
  }

  static bool has_plugin(const std::string& text) {
    return text.find("mca:coll:loom:version") != std::string::npos;
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
    const std::string files = value_of(base_, "mca:mca:base:param:mca_base_param_files:value").value_or("");
    const auto taken = [&](const std::string& name) {
      const auto found = parameters_.find(name);
      return found == parameters_.end() ? std::nullopt : std::optional(found->second.value);
    };
    auto not_as_written = look_at_settings(settings_of_loom(files_in(files)), taken, findings_);
    if (!look_at_rules()) not_as_written.push_back(kRules);
    std::vector<std::string> set;
    for (const auto& [name, parameter] : parameters_)
      if (name != "coll_loom_enable" && !parameter.source.starts_with("default") &&
          std::ranges::find(not_as_written, name) == not_as_written.end())
        set.push_back(loom::format("{} = {} ({})", name, parameter.value, parameter.source));
    if (!set.empty()) findings_.fine("parameters", loom::join(set, ", "));
  }

  /// Ranks would fall back on rules that they cannot read.
  bool look_at_rules() {
    const auto rules = parameters_.find(kRules);
    if (rules == parameters_.end()) return true;
    try {
      Tune::parse(rules->second.value, kRules);
      return true;
    } catch (const Error& error) {
      findings_.fails("parameters", error.what(), "docs/algorithms.md has the grammar");
      return false;
    }
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
    else if (const char* const path = std::getenv(kPathVariable); asked.exit_code != 0 && path != nullptr &&
                                                                  found_.version.starts_with("4.") &&
                                                                  !names_folder(path, own_folder_))
      findings_.fails(
          "mpirun",
          loom::format("it does not start: {} is {}, without Open MPI's own components", kPathVariable, path),
          loom::format("add them: {}:{}", path, own_folder_));
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
  std::string own_folder_;  ///< of Open MPI's own components
  std::string base_;        ///< what ompi_info tells of its own variables
};

}  // namespace

std::string home_plugin_folder() {
  const char* const home = std::getenv("HOME");
  return home == nullptr ? "" : std::string(home) + "/.openmpi/components";
}
std::vector<std::string> component_folders(const std::string& home_folder, const std::string& own_folder) {
  const char* const path = std::getenv(kPathVariable);
  std::vector<std::string> folders = folders_in(path == nullptr ? "" : path);
  if (folders.empty()) folders = {home_folder, own_folder};
  std::erase(folders, "");
  return folders;
}
std::string component_path(const std::string& version, const std::string& folder,
                           const std::string& own_folder) {
  return version.starts_with("4.") && folder != own_folder ? folder + ":" + own_folder : folder;
}
std::vector<std::string> component_path_words(const std::string& version, const std::string& path) {
  std::vector<std::string> words{"--mca", "mca_base_component_path", path};
  // PMIx reads the same path from 5.0 on, and remarks on what it cannot use there.
  if (!version.starts_with("4."))
    words.insert(words.end(), {"--pmixmca", "mca_base_component_show_load_errors", "none"});
  return words;
}
std::string component_path_options(const std::string& version, const std::string& path) {
  std::vector<std::string> words = component_path_words(version, path);
  std::ranges::transform(words, words.begin(), shell_word);
  return loom::join(words, " ");
}

OpenMpi look_at_open_mpi(const OpenMpiSources& sources, Findings& findings) {
  return OpenMpiCheck(sources, findings).look();
}

}  // namespace loom::tools
