// mpi_allreduce_test -- does MPI_Allreduce do what the MPI standard says, whoever carries it? Run it under
// mpirun. Exit codes: 0 all checks passed; 1 some failed; 2 bad arguments.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <sstream>

#include "tests/mpi/harness.hpp"

namespace {

using loom::mpi_test::Carrier;
using loom::mpi_test::Settings;

int run(const Settings& settings) {
  loom::mpi_test::Suite suite;
  loom::mpi_test::add_value_checks(suite);
  loom::mpi_test::add_special_type_checks(suite);
  loom::mpi_test::add_communicator_checks(suite);
  loom::mpi_test::add_big_count_checks(suite);
  return suite.run(settings);
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Checks MPI_Allreduce under mpirun.", "mpi_allreduce_test");
  bool expect_loom = false, expect_below = false;
  auto* loom = app.add_flag("--expect-loom", expect_loom,
                            "Fail unless loom carries every call that it has a kernel for");
  app.add_option("--loom-from", settings.loom_from_bytes,
                 "With --expect-loom: smaller messages may go either way")
      ->transform(CLI::AsSizeValue(false));
  app.add_flag("--expect-below", expect_below, "Fail if loom carries any call")->excludes(loom);
  app.add_option("--threads", settings.threads, "Ask for MPI_THREAD_MULTIPLE and call from this many threads")
      ->check(CLI::Range(1, 64));
  app.add_flag("--big", settings.big, "Also messages past 2^31 bytes: some 4 GiB of memory per rank");
  app.add_option("--filter", settings.filter, "Run only the checks whose name contains this");
  app.add_option("--seed", settings.seed, "For the random sequences")->capture_default_str();

  std::ostringstream text;
  int exit_code = -1;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error, text, text) == 0 ? 0 : 2;
  }
  if (expect_loom) settings.expected = Carrier::kLoom;
  if (expect_below) settings.expected = Carrier::kFallback;

  int provided = 0;
  MPI_Init_thread(&argc, &argv, settings.threads > 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
  if (exit_code < 0) {
    exit_code = run(settings);
  } else {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) std::fputs(text.str().c_str(), exit_code == 0 ? stdout : stderr);
  }
  MPI_Finalize();
  return exit_code;
}
