// doctor_command.cpp -- `loom doctor`.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <climits>
#include <cstdlib>
#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "component/select/tune.hpp"
#include "device/cuda/images.hpp"
#include "tools/commands.hpp"
#include "tools/doctor/machine.hpp"
#include "tools/doctor/open_mpi.hpp"
#include "tools/doctor/report.hpp"
#include "tools/doctor/subprocess.hpp"
#include "tools/options.hpp"
#include "tools/words.hpp"
#include "ucx_transport/ports.hpp"

namespace loom::tools {
namespace {

namespace fs = std::filesystem;

struct Options {
  int ranks = 2;
  bool without_job = false;
  int* exit_code = nullptr;
};

fs::path own_folder() {
  std::error_code error;
  const fs::path own = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path() : own.parent_path();
}

/// Where a build folder or an installation has the plugin; empty: neither does.
std::string plugin_folder() {
  std::vector<fs::path> folders{own_folder() / "../lib", own_folder() / "../components"};
  if (const char* home = std::getenv("HOME")) folders.push_back(fs::path(home) / ".openmpi/components");
  std::error_code error;
  for (const fs::path& folder : folders)
    if (fs::exists(folder / "mca_coll_loom.so", error)) return fs::canonical(folder, error).string();
  return "";
}

/// The program that speaks MPI: beside loom in a build folder, and where it has been installed.
std::string job_program() {
  const fs::path beside = own_folder() / "loom_doctor_job";
  std::error_code error;
  return (fs::exists(beside, error) ? beside : own_folder() / "../libexec/loom/loom_doctor_job")
      .lexically_normal()
      .string();
}

/// The last sentences, which Open MPI breaks into lines.
std::string last_words_of(const std::string& text) {
  const std::size_t end = text.find_last_not_of(" \n-");
  if (end == std::string::npos) return "it says nothing";
  const std::size_t gap = text.rfind("\n\n", end), rule = text.rfind("-\n", end);
  const std::size_t begin =
      std::max(gap == std::string::npos ? 0 : gap + 2, rule == std::string::npos ? 0 : rule + 2);
  std::string words = text.substr(begin, end - begin + 1);
  std::ranges::replace(words, '\n', ' ');
  return words;
}

/// A job of some ranks on this host, which look at themselves.
class JobCheck {
 public:
  JobCheck(const Options& options, const OpenMpi& open_mpi, const std::string& folder)
      : options_(options), open_mpi_(open_mpi), folder_(folder) {}

  void look(Findings& findings) const {
    std::error_code error;
    if (!fs::exists(program(), error))
      return findings.warn("job", loom::format("there is no {}", program()),
                           "cmake --build build/release --target loom_doctor_job, and cmake --install "
                           "build/release where loom "
                           "is installed");
    Ended ended = run_with(open_mpi_.path.value_or(""));
    Findings found;
    add_lines(ended.out, found);
    // Debian's mpirun 5.0 replaces the component path of its ranks by its own.
    if (found.count(Verdict::kFails) > 0 && !open_mpi_.path && !folder_.empty()) {
      const Ended again = run_with(folder_);
      Findings told;
      add_lines(again.out, told);
      if (again.exit_code == 0 && told.count(Verdict::kFails) == 0 && !told.all().empty()) {
        findings.warn("ranks", "mpirun's ranks do not look where the plugin is",
                      "mpirun " + component_path_option(folder_));
        findings.need_options(component_path_option(folder_));
        ended = again;
        found = told;
      }
    }
    for (Finding finding : found.all()) {
      // The job's output is not shown: its message, of loom's help file, is.
      if (finding.topic == "calls" && finding.verdict == Verdict::kFails)
        finding.cure = last_words_of(ended.err);
      findings.add(finding);
    }
    if (ended.exit_code == Ended::kNotStarted)
      return findings.fails("job", "there is no mpirun on PATH", "put Open MPI's bin folder first on PATH");
    if (ended.exit_code == Ended::kTookTooLong)
      return findings.fails("job", loom::format("a job of {} ranks does not end", options_.ranks),
                            "try the same with --mca coll ^loom: does it end then?");
    if (ended.exit_code != 0 || found.all().empty())
      findings.fails("job",
                     loom::format("a job of {} ranks fails: {}", options_.ranks, last_words_of(ended.err)),
                     loom::format("see what it says: mpirun -n {} {}", options_.ranks, program()));
  }

 private:
  std::string program() const { return job_program(); }
  Ended run_with(const std::string& path) const {
    std::vector<std::string> command{"mpirun", "--oversubscribe", "-n", std::to_string(options_.ranks)};
    if (!path.empty()) command.insert(command.end(), {"--mca", "mca_base_component_path", path});
    command.insert(command.end(), {"--mca", "coll_loom_enable", "1", program(), "--lines"});
    std::vector<std::string> environment;
    for (const char* prefix : {"OMPI", "PRTE"})
      for (const char* end : {"", "_CONFIRM"})
        environment.push_back(loom::format("{}_ALLOW_RUN_AS_ROOT{}=1", prefix, end));
    return run(command, std::chrono::seconds(60 + 2 * options_.ranks), environment);
  }

  const Options& options_;
  const OpenMpi& open_mpi_;
  const std::string& folder_;
};

std::string kernels() {
  return device::cuda::has_kernels() ? device::cuda::all_kernels() : "";
}

/// As a rank of a job: the program that speaks MPI looks at all of it. It lacks the kernels, which are large.
void become_rank() {
  const std::string program = job_program();
  ::execl(program.c_str(), program.c_str(), kernels().c_str(), nullptr);
  refuse(
      loom::format("{} is not there, or does not start: cmake --build build/release --target "
                   "loom_doctor_job, and cmake --install build/release "
                   "where loom is installed. Without mpirun or srun, loom doctor looks at this host.",
                   program));
}

/// mpirun sets the first; srun --mpi=pmix the others, of an interactive shell as of a job of one rank.
bool is_rank_of_job() {
  const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr ||
         (std::getenv("PMIX_RANK") != nullptr && tasks != nullptr && parsed<int>(tasks).value_or(1) > 1);
}

/// Ranks would fall back on rules that they cannot read.
void check_rules(const OpenMpi& open_mpi, Findings& findings) {
  try {
    Tune::parse(open_mpi.rules, "coll_loom_tune");
  } catch (const Error& error) {
    findings.fails("parameters", error.what(), "docs/algorithms.md has the grammar");
  }
}

void doctor(const Options& options) {
  if (is_rank_of_job()) become_rank();
  Findings findings;
  const std::string folder = plugin_folder();
  const OpenMpi open_mpi = look_at_open_mpi(
      {.built_for = LOOM_OPENMPI_VERSION, .version = LOOM_VERSION, .plugin_folder = folder}, findings);
  check_rules(open_mpi, findings);
  look_at_host(findings);
  const auto ports = ucx_transport::ports();
  look_at_network(ports, findings);
  look_at_gpus({.initialise_cuda = true, .ucx_ports = ports}, kernels(), findings);
  if (open_mpi.has_plugin && !options.without_job) JobCheck(options, open_mpi, folder).look(findings);
  loom::print("{}", text_of(findings, loom::format("loom {} on {}", LOOM_VERSION, topo::host_name())));
  *options.exit_code = findings.count(Verdict::kFails) > 0 ? kFound : kOk;
}

}  // namespace

void add_doctor_command(CLI::App& loom, int& exit_code) {
  auto options = std::make_shared<Options>();
  options->exit_code = &exit_code;
  CLI::App* command = loom.add_subcommand("doctor", "Will loom run here, or in a job, and how well?");
  command->footer(
      "Looks at Open MPI, the plugin, this host, its network and GPUs, and runs a job on it. Under mpirun "
      "(mpirun loom doctor) it looks at that job and all its hosts. Exit code 1: loom will not run.");
  command->add_option("--ranks", options->ranks, "Of the job that it runs")
      ->check(whole_number(1, 1024))
      ->capture_default_str();
  command->add_flag("--no-job", options->without_job, "Run no job");
  command->callback([options] { doctor(*options); });
}

}  // namespace loom::tools
