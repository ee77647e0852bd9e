#include "tools/doctor/local_job.hpp"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "base/format.hpp"
#include "tools/doctor/report.hpp"
#include "tools/doctor/subprocess.hpp"
#include "tools/words.hpp"

namespace loom::tools {
namespace {

/// Paragraphs, each as one line. Rules of dashes and empty lines are between them; a process that dies may
/// leave NULs in its output.
std::vector<std::string> paragraphs_of(const std::string& text) {
  std::vector<std::string> all(1);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::erase_if(line, [](unsigned char c) { return c < ' ' && c != '\t'; });
    const std::size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string::npos || line.find_first_not_of('-') == std::string::npos) {
      if (!all.back().empty()) all.emplace_back();
      continue;
    }
    line = line.substr(begin, line.find_last_not_of(" \t") - begin + 1);
    all.back() += (all.back().empty() ? "" : " ") + line;
  }
  if (all.back().empty()) all.pop_back();
  return all;
}

/// Of a message of loom's help file.
std::string cause_in(const std::string& text) {
  const std::string mark = "Cause:";
  for (const std::string& paragraph : paragraphs_of(text))
    if (const std::size_t begin = paragraph.find(mark); begin != std::string::npos)
      if (const std::size_t cause = paragraph.find_first_not_of(' ', begin + mark.size());
          cause != std::string::npos)
        return paragraph.substr(cause);
  return last_words_of(text);
}

class LocalJobCheck {
 public:
  LocalJobCheck(const LocalJob& job, const OpenMpi& open_mpi, Findings& findings)
      : job_(job), open_mpi_(open_mpi), findings_(findings) {}

  void look() {
    std::error_code error;
    if (!std::filesystem::exists(job_.program, error))
      return findings_.warn("job", loom::format("there is no {}", job_.program),
                            "cmake --build build/release --target loom_doctor_job, and cmake --install "
                            "build/release where loom is installed");
    Outcome outcome = run_with(open_mpi_.path.value_or(""));
    // Debian's mpirun 5.0 replaces the component path of its ranks by its own.
    if (outcome.lacks_plugin() && !open_mpi_.path && !open_mpi_.plugin_path.empty())
      if (Outcome again = run_with(open_mpi_.plugin_path); !again.lacks_plugin()) {
        const std::string options = component_path_options(open_mpi_.version, open_mpi_.plugin_path);
        findings_.warn(
            "ranks",
            loom::format("mpirun's ranks do not look where the plugin is, {}", open_mpi_.plugin_path),
            loom::format("mpirun {}; or OMPI_MCA_mca_base_component_path={} in the environment", options,
                         shell_word(open_mpi_.plugin_path)));
        findings_.need_options(options);
        outcome = std::move(again);
      }
    tell(outcome);
  }

 private:
  struct Outcome {
    Ended ended;
    Findings found;

    bool lacks_plugin() const {
      return std::ranges::any_of(found.all(), [](const Finding& finding) {
        return finding.verdict == Verdict::kFails &&
               (finding.topic == kPluginTopic || finding.topic == "components");
      });
    }
  };

  Outcome run_with(const std::string& path) const {
    std::vector<std::string> command{job_.mpirun, "--oversubscribe", "-n", std::to_string(job_.ranks)};
    if (!path.empty())
      for (const std::string& word : component_path_words(open_mpi_.version, path)) command.push_back(word);
    command.insert(command.end(), {"--mca", "coll_loom_enable", "1", job_.program, "--lines"});
    std::vector<std::string> environment;
    for (const char* prefix : {"OMPI", "PRTE"})
      for (const char* end : {"", "_CONFIRM"})
        environment.push_back(loom::format("{}_ALLOW_RUN_AS_ROOT{}=1", prefix, end));
    Outcome outcome{run(command, std::chrono::seconds(60 + 2 * job_.ranks), environment), {}};
    add_lines(outcome.ended.out, outcome.found);
    return outcome;
  }

  void tell(const Outcome& outcome) {
    const auto& [ended, found] = outcome;
    for (Finding finding : found.all()) {
      // The job's output is not shown: its message, of loom's help file, is.
      if (finding.topic == "calls" && finding.verdict == Verdict::kFails) finding.cure = cause_in(ended.err);
      findings_.add(finding);
    }
    if (ended.exit_code == Ended::kNotStarted)
      return findings_.fails("job", "there is no mpirun on PATH", "put Open MPI's bin folder first on PATH");
    if (ended.exit_code == Ended::kTookTooLong)
      return findings_.fails("job", loom::format("a job of {} ranks does not end", job_.ranks),
                             "try the same with --mca coll ^loom: does it end then?");
    if (ended.exit_code == 0 && !found.all().empty()) return;
    const std::string failure =
        loom::format("a job of {} ranks fails: {}", job_.ranks, last_words_of(ended.err));
    if (findings_.turn_to_failure(kSharedMemoryTopic, failure)) return;
    findings_.fails("job", failure,
                    loom::format("see what it says: mpirun -n {} {}", job_.ranks, shell_word(job_.program)));
  }

  const LocalJob& job_;
  const OpenMpi& open_mpi_;
  Findings& findings_;
};

}  // namespace

std::string last_words_of(const std::string& text) {
  std::vector<std::string> all = paragraphs_of(text);
  const std::string asked = "Space Requested:";
  for (const std::string& paragraph : all)
    if (const std::size_t begin = paragraph.find(asked); begin != std::string::npos)
      return "Open MPI wants more shared memory than there is: " + paragraph.substr(begin);
  // What the launcher adds after the words of a rank that aborts.
  const auto is_epitaph = [](const std::string& paragraph) {
    return paragraph.find("has exited due to process rank") != std::string::npos &&
           paragraph.find("\"abort\"") != std::string::npos;
  };
  while (all.size() > 1 && is_epitaph(all.back())) all.pop_back();
  return all.empty() ? "it says nothing" : all.back();
}

void look_at_local_job(const LocalJob& job, const OpenMpi& open_mpi, Findings& findings) {
  LocalJobCheck(job, open_mpi, findings).look();
}

}  // namespace loom::tools
