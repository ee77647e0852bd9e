// mpi_conformance_test -- do all collectives do what the MPI standard says, in all forms, whoever carries
// them? Run it under mpirun. Exit codes: 0 all cases right; 1 some wrong, or not carried by whom they should;
// 2 bad arguments.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <sstream>
#include <thread>

#include "mpi_examples/support/loom_pvars.hpp"
#include "tests/mpi/conformance/conformance.hpp"

namespace loom::conformance {

namespace {

constexpr const char* kCollectives[] = {"allreduce",      "reduce",    "reduce_scatter_block",
                                        "reduce_scatter", "scan",      "exscan",
                                        "bcast",          "allgather", "allgatherv",
                                        "gather",         "gatherv",   "scatter",
                                        "scatterv",       "alltoall",  "alltoallv",
                                        "alltoallw",      "barrier"};

/// Calls of the form of Open MPI's own.
std::uint64_t fell_back_for_order(mpi::ToolInterface& tools, const std::string& collective) {
  return tools.counter("coll_loom_fallbacks", collective, "not_ordered").value_or(0);
}

/// Whether loom has carried at least one call of each collective of the cases, but for collectives of so few
/// that all may be of no elements; and only calls without an order fell back.
bool loom_has_carried_all(mpi::ToolInterface& tools, const std::map<std::string, int>& cases, int rank) {
  constexpr int kFew = 3;
  bool all = true;
  for (const auto& [collective, number] : cases) {
    const auto calls = tools.counter("coll_loom_calls", collective);
    const auto fallbacks = tools.counter("coll_loom_fallbacks", collective);
    const bool some = calls && (*calls > 0 || number <= kFew);
    if (some && fallbacks && *fallbacks == fell_back_for_order(tools, collective)) continue;
    all = false;
    if (rank == 0)
      loom::print(stderr, "{}: {} carried by loom, {} by the fallback component\n", collective,
                  calls.value_or(0), fallbacks.value_or(0));
  }
  return all;
}

/// The promise of one order for the starts of persistent requests; without it they have lanes, or fall back.
void promise_start_order(MPI_Comm comm) {
  MPI_Info info;
  MPI_Info_create(&info);
  MPI_Info_set(info, "coll_loom_ordered_starts", "true");
  MPI_Comm_set_info(comm, info);
  MPI_Info_free(&info);
}

/// All cases of the sample, again and again with others while there is time. Rank 0's clock decides for all.
void run_passes(Run& run) {
  if (run.settings.ordered_starts) promise_start_order(run.comm);
  MPI_Barrier(run.comm);  // connects the ranks of one host
  const double end = MPI_Wtime() + run.settings.seconds;
  int again = 1;
  for (std::uint64_t pass = 0; again; ++pass) {
    if (pass > 0) run.reseed(run.settings.seed + pass);
    run_moving(run);
    run_reducing(run);
    again = MPI_Wtime() < end && run.wrong == 0 ? 1 : 0;
    if (run.settings.seconds > 0) MPI_Bcast(&again, 1, MPI_INT, 0, run.comm);
  }
}

/// `threads` at the same time, each with a communicator of its own; 0: the program's only one, on the world.
std::vector<Run> run_in(int threads, const Settings& settings) {
  std::vector<Run> runs;
  if (threads == 0) {
    runs.emplace_back(MPI_COMM_WORLD, settings);
    run_passes(runs.front());
    return runs;
  }
  for (int thread = 0; thread < threads; ++thread) {
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    runs.emplace_back(copy, settings);
    runs.back().reseed(settings.seed + 1000 * static_cast<std::uint64_t>(thread));
  }
  {
    std::vector<std::jthread> working;
    for (Run& run : runs) working.emplace_back([&run] { run_passes(run); });
  }
  for (Run& run : runs) MPI_Comm_free(&run.comm);
  return runs;
}

int run(const Settings& settings, int threads, bool expect_loom) {
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  mpi::ToolInterface tools;
  MPI_Barrier(MPI_COMM_WORLD);
  tools.counter("coll_loom_calls");  // a counter counts from when it is first asked for
  tools.counter("coll_loom_fallbacks");
  int wrong = 0, cases = 0;
  std::map<std::string, int> by_collective;
  for (const Run& one : run_in(threads, settings)) {
    wrong += one.wrong;
    for (const auto& [collective, number] : one.cases) {
      by_collective[collective] += number;
      cases += number;
    }
  }
  if (expect_loom && !loom_has_carried_all(tools, by_collective, rank)) ++wrong;
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) {
    for (const auto& [collective, number] : by_collective) loom::print("{} {}, ", collective, number);
    loom::print("\n{} cases on {} ranks, {} wrong (counted on each rank)\n", cases, ranks, wrong);
  }
  return wrong > 0 ? 1 : 0;
}

}  // namespace
}  // namespace loom::conformance

int main(int argc, char** argv) {
  loom::conformance::Settings settings;
  bool expect_loom = false, skips = false;
  int threads = 0;
  std::string memory = "host";
  CLI::App app("Checks every MPI collective under mpirun.", "mpi_conformance_test");
  app.add_option("--share", settings.share, "Run this share of all cases, drawn alike on all ranks")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--seed", settings.seed, "For the draw")->capture_default_str();
  app.add_option("--seconds", settings.seconds,
                 "Draw again, with another seed, until so much time has passed")
      ->capture_default_str();
  app.add_option("--only", settings.only, "These collectives, separated by commas")
      ->delimiter(',')
      ->check(CLI::IsMember(std::set<std::string>(std::begin(loom::conformance::kCollectives),
                                                  std::end(loom::conformance::kCollectives))));
  const std::map<std::string, loom::conformance::Form> forms = [] {
    std::map<std::string, loom::conformance::Form> by_name;
    for (const auto form : loom::conformance::kForms) by_name.emplace(name(form), form);
    return by_name;
  }();
  app.add_option("--forms", settings.forms, "Calls of these forms, separated by commas")
      ->delimiter(',')
      ->transform(CLI::CheckedTransformer(forms))
      ->default_str("all");
  app.add_flag("--in-order", settings.in_order,
               "Random sums must have the bits that they have in order of rank; all of these cases are run");
  app.add_flag("!--any-start-order", settings.ordered_starts,
               "Do not promise that persistent requests are started in one order");
  app.add_flag("--long-elements", settings.long_elements,
               "Structs have an element of 32 bytes, too. Open MPI's own messages crash with these where they "
               "end within one (seen in 4.1.4)");
  app.add_option("--threads", threads, "Threads that run the cases, each on a communicator of its own");
  app.add_option("--big", settings.big, "A large count; the largest is the power of two from twice this")
      ->check(CLI::Range(1, 1 << 28))
      ->capture_default_str();
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
  int rank, provided;
  MPI_Init_thread(&argc, &argv, threads > 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (exit_code < 0 && threads > 0 && provided < MPI_THREAD_MULTIPLE) {
    text << "this MPI has no MPI_THREAD_MULTIPLE\n";
    exit_code = 2;
  }
  if (exit_code < 0 &&
      !loom::mpi::set_memory_kinds(memory, settings.seed + static_cast<std::uint64_t>(rank))) {
    text << "unknown kind of memory '" << memory << "'\n";
    exit_code = 2;
  }
  if (exit_code < 0) {
    exit_code = loom::conformance::run(settings, threads, expect_loom);
  } else {
    std::fputs(text.str().c_str(), stderr);
  }
  MPI_Finalize();
  return exit_code;
}
