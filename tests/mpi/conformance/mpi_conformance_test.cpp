// mpi_conformance_test -- do all collectives do what the MPI standard says, in all forms, whoever carries
// them? Run it under mpirun. Exit codes: 0 all cases right; 1 some wrong, or not carried by whom they should;
// 2 bad arguments.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <sstream>

#include "mpi_examples/support/loom_pvars.hpp"
#include "tests/mpi/conformance/conformance.hpp"

namespace loom::conformance {

const char* name(Form form) {
  return form == Form::kBlocking ? "blocking" : form == Form::kNonblocking ? "nonblocking" : "persistent";
}

Run::Run(MPI_Comm communicator, const Settings& of_run)
    : settings(of_run), comm(communicator), random_(of_run.seed) {
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
}

bool Run::draw() {
  return static_cast<double>(random_() >> 11) * 0x1p-53 < settings.share;
}

void Run::judge(bool right, const std::string& what) {
  ++cases;
  if (right) return;
  if (++wrong <= 20) std::fprintf(stderr, "wrong on rank %d of %d: %s\n", rank, ranks, what.c_str());
}

std::vector<int> Run::counts() const {
  return {0, 1, ranks - 1, ranks, 77, 1009, 65'536, static_cast<int>(settings.big)};
}

namespace {

constexpr const char* kCollectives[] = {"allreduce",      "reduce",    "reduce_scatter_block",
                                        "reduce_scatter", "scan",      "exscan",
                                        "bcast",          "allgather", "allgatherv",
                                        "gather",         "gatherv",   "scatter",
                                        "scatterv",       "alltoall",  "alltoallv",
                                        "alltoallw",      "barrier"};

constexpr const char* kAlgorithms[] = {"copy",      "direct", "boards",      "single_copy",
                                       "blocks",    "scan",   "two_levels",  "rails",
                                       "flat_ring", "mesh",   "handed_over", "persistent"};

/// Calls that loom has carried, as the counters by algorithm have it.
std::uint64_t by_algorithms(mpi::ToolInterface& tools, const char* collective) {
  std::uint64_t sum = 0;
  for (const char* algorithm : kAlgorithms)
    sum += tools.counter(fmt::format("coll_loom_{}_by_{}", collective, algorithm)).value_or(0);
  return sum;
}

/// Whether loom has carried at least one call of each collective and handed none down.
bool loom_has_carried_all(mpi::ToolInterface& tools, int rank) {
  bool all = true;
  for (const char* collective : kCollectives) {
    const auto calls = tools.counter(fmt::format("coll_loom_{}_calls", collective));
    const auto below = tools.counter(fmt::format("coll_loom_{}_fallbacks", collective));
    if (calls && below && *calls > 0 && *below == 0 && by_algorithms(tools, collective) == *calls) continue;
    all = false;
    if (rank == 0)
      fmt::print(stderr, "{}: {} carried by loom ({} by its algorithms), {} handed to the component below\n",
                 collective, calls.value_or(0), by_algorithms(tools, collective), below.value_or(0));
  }
  return all;
}

int run(const Settings& settings, bool expect_loom) {
  Run of_world(MPI_COMM_WORLD, settings);
  MPI_Barrier(MPI_COMM_WORLD);  // calls that do not wait go below until one that may has connected the ranks
  mpi::ToolInterface tools;
  for (const char* collective : kCollectives) {  // a counter counts from when it is first asked for
    tools.counter(fmt::format("coll_loom_{}_calls", collective));
    tools.counter(fmt::format("coll_loom_{}_fallbacks", collective));
    by_algorithms(tools, collective);
  }
  // Rank 0's clock decides for all.
  const double end = MPI_Wtime() + settings.seconds;
  int again = 1;
  for (int pass = 0; again; ++pass) {
    if (pass > 0) of_world.reseed(settings.seed + static_cast<std::uint64_t>(pass));
    run_moving(of_world);
    run_reducing(of_world);
    again = MPI_Wtime() < end && of_world.wrong == 0 ? 1 : 0;
    if (settings.seconds > 0) MPI_Bcast(&again, 1, MPI_INT, 0, MPI_COMM_WORLD);
  }
  int wrong = of_world.wrong + (expect_loom && !loom_has_carried_all(tools, of_world.rank) ? 1 : 0);
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (of_world.rank == 0)
    std::printf("%d cases on %d ranks, %d wrong (counted on each rank)\n", of_world.cases, of_world.ranks,
                wrong);
  return wrong > 0 ? 1 : 0;
}

}  // namespace
}  // namespace loom::conformance

int main(int argc, char** argv) {
  loom::conformance::Settings settings;
  bool expect_loom = false, skips = false;
  std::string memory = "host";
  CLI::App app("Checks every MPI collective under mpirun.", "mpi_conformance_test");
  app.add_option("--share", settings.share, "Run this share of all cases, drawn alike on all ranks")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--seed", settings.seed, "For the draw")->capture_default_str();
  app.add_option("--seconds", settings.seconds,
                 "Draw again, with another seed, until so much time has passed")
      ->capture_default_str();
  app.add_option("--big", settings.big, "The largest count")->capture_default_str();
  app.add_option("--memory", memory, "Where buffers lie: host, device, managed, pool, registered, mixed")
      ->capture_default_str();
  app.add_flag("--skip-without-device", skips, "Exit with 77 where there is no CUDA device");
  app.add_flag("--expect-loom", expect_loom, "Fail unless loom carries every call");
  std::ostringstream text;
  int exit_code = -1;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error, text, text) == 0 ? 0 : 2;
  }
  if (exit_code < 0 && skips && !loom::mpi::Driver::is_there()) {
    std::puts("skipped: no CUDA device");
    return 77;
  }
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (exit_code < 0 &&
      !loom::mpi::set_memory_kinds(memory, settings.seed + static_cast<std::uint64_t>(rank))) {
    text << "unknown kind of memory '" << memory << "'\n";
    exit_code = 2;
  }
  if (exit_code < 0) {
    exit_code = loom::conformance::run(settings, expect_loom);
  } else {
    std::fputs(text.str().c_str(), stderr);
  }
  MPI_Finalize();
  return exit_code;
}
