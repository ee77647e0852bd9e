// doctor_command.cpp -- `loom doctor`.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "device/cuda/images.hpp"
#include "tools/commands.hpp"
#include "tools/doctor/local_job.hpp"
#include "tools/doctor/machine.hpp"
#include "tools/doctor/open_mpi.hpp"
#include "tools/doctor/report.hpp"
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
  std::error_code error;
  const std::vector<fs::path> folders{own_folder() / "../lib", own_folder() / "../components",
                                      home_plugin_folder()};
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

std::string kernels() {
  return device::cuda::has_kernels() ? device::cuda::all_kernels() : "";
}

/// Options of mpirun for ranks that do not look where the plugin is; empty: they do, or there is none.
std::string options_for_ranks() {
  const std::string own_folder = LOOM_OPENMPI_COMPONENT_DIR;
  std::string folder = plugin_folder();
  std::error_code error;
  if (folder.empty() && fs::exists(own_folder + "/mca_coll_loom.so", error)) folder = own_folder;
  const std::vector<std::string> searched = component_folders(home_plugin_folder(), own_folder);
  if (folder.empty() || std::ranges::find(searched, folder) != searched.end()) return "";
  return component_path_options(LOOM_OPENMPI_VERSION,
                                component_path(LOOM_OPENMPI_VERSION, folder, own_folder));
}

/// As a rank of a job: the program that speaks MPI looks at all of it. It lacks the kernels, which are large.
void become_rank() {
  const std::string program = job_program();
  ::execl(program.c_str(), program.c_str(), kernels().c_str(), options_for_ranks().c_str(), nullptr);
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

void doctor(const Options& options) {
  if (is_rank_of_job()) become_rank();
  Findings findings;
  const OpenMpi open_mpi = look_at_open_mpi({.built_for = LOOM_OPENMPI_VERSION,
                                             .version = LOOM_VERSION,
                                             .plugin_folder = plugin_folder(),
                                             .own_folder = LOOM_OPENMPI_COMPONENT_DIR},
                                            findings);
  look_at_host(findings);
  const auto ports = ucx_transport::ports();
  look_at_network(ports, findings);
  look_at_gpus({.initialise_cuda = true, .ucx_ports = ports}, kernels(), findings);
  if (open_mpi.has_plugin && !options.without_job)
    look_at_local_job({.program = job_program(), .ranks = options.ranks}, open_mpi, findings);
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
