// mpi_random_programs -- random programs of collectives: persistent requests, whose starts each rank puts
// where it likes, blocking and nonblocking calls and messages, on communicators made from each other; in one
// thread or in several. Run it under mpirun. Exit codes: 0 all programs right; 1 one wrong, or not carried by
// whom it should; 2 bad arguments.
#include <mpi.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <numeric>
#include <span>
#include <sstream>
#include <thread>
#include <vector>

#include "base/format.hpp"
#include "mpi_examples/support/loom_pvars.hpp"
#include "tests/mpi/random_programs/run.hpp"

namespace loom::random_programs {
namespace {

struct Arguments {
  Options program;
  int programs = 1, times = 1, threads = 1;
  std::string progress, memory = "host", ordered_key = "coll_loom_ordered_starts";
  bool prints = false, traces = false, expect_loom = false;
};

/// MPI calls these itself, at any time: their counters tell nothing about the program's calls.
bool is_called_by_mpi(Collective collective) {
  return collective == Collective::kAllreduce || collective == Collective::kAllgather ||
         collective == Collective::kBcast || collective == Collective::kBarrier;
}

/// Persistent calls that loom has certainly carried: its calls beyond the number of all others.
std::uint64_t carried(mpi::ToolInterface& tools, const Totals& totals) {
  std::uint64_t sum = 0;
  for (int index = 0; index < kCollectives; ++index) {
    const auto collective = static_cast<Collective>(index);
    const auto i = static_cast<std::size_t>(index);
    const std::uint64_t calls = tools.counter("coll_loom_calls", name(collective)).value_or(0);
    const std::uint64_t others = totals.blocking[i] + totals.nonblocking[i];
    if (!is_called_by_mpi(collective) && calls > others) sum += calls - others;
  }
  return sum;
}

std::uint64_t sum(const ByCollective& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), std::uint64_t{0});
}

static_assert(sizeof(Totals) % sizeof(std::uint64_t) == 0);
constexpr std::size_t kWords = sizeof(Totals) / sizeof(std::uint64_t);

/// Over all ranks, on rank 0.
Totals of_all_ranks(Totals totals) {
  Totals result;
  MPI_Reduce(&totals, &result, kWords, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  return result;
}

void print(const Totals& totals, int programs, int ranks, int wrong) {
  for (int index = 0; index < kCollectives; ++index) {
    const auto i = static_cast<std::size_t>(index);
    loom::print("{}: {} requests, {} starts, {} blocking, {} nonblocking\n", kCollectiveNames[i],
                totals.requests[i], totals.starts[i], totals.blocking[i], totals.nonblocking[i]);
  }
  loom::print(
      "{} requests, {} starts ({} on communicators with ordered starts), {} messages, {} freed "
      "communicators, "
      "{} results checked (counted on each rank)\n{} programs on {} ranks, {} wrong\n",
      sum(totals.requests), sum(totals.starts), sum(totals.asserted_starts), totals.messages,
      totals.freed_communicators, totals.checks, programs, ranks, wrong);
}

/// Whether all ranks find the program right. Collective on environment.base.
bool is_right(const Program& program, const Environment& environment, Totals& totals,
              std::vector<Place> made) {
  const std::vector<std::string> differences = run(program, environment, totals, std::move(made));
  for (std::size_t i = 0; i < std::min<std::size_t>(differences.size(), 5); ++i)
    loom::print(stderr, "seed {}: wrong on rank {} of {}: {}\n", program.options.seed, environment.rank,
                environment.ranks, differences[i]);
  int wrong = differences.empty() ? 0 : 1;
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, environment.base);
  return wrong == 0;
}

void add(Totals& sum, const Totals& totals) {
  const auto words = [](auto& of) { return std::span(reinterpret_cast<std::uint64_t*>(&of), kWords); };
  Totals added = totals;
  for (std::size_t i = 0; i < kWords; ++i) words(sum)[i] += words(added)[i];
}

/// Runs programs of seeds one after the other at the same time, each in a thread of its own and on a
/// communicator of its own. Whether all are right.
bool are_right(const Arguments& arguments, const std::vector<Environment>& environments, Totals& totals) {
  std::vector<char> right(environments.size(), 0);
  std::vector<Totals> of_each(environments.size());
  std::vector<Program> programs;
  std::vector<std::vector<Place>> made(environments.size());
  for (std::size_t thread = 0; thread < environments.size(); ++thread) {
    Options options = arguments.program;
    options.seed += thread;
    programs.push_back(generate(options));
    if (environments.size() > 1) made[thread] = make_communicators(programs[thread], environments[thread]);
  }
  const auto run_one = [&](std::size_t thread) {
    right[thread] = is_right(programs[thread], environments[thread], of_each[thread], made[thread]);
  };
  const bool on_device = arguments.memory != "host";
  if (on_device) mpi::Driver::get();  // the first thread has its context by this
  std::vector<std::thread> threads;
  for (std::size_t thread = 1; thread < environments.size(); ++thread)
    threads.emplace_back([&, thread] {
      // A device's context is each thread's own affair.
      if (on_device) mpi::Driver::get().use(0);
      run_one(thread);
      if (on_device) mpi::Driver::get().leave();
    });
  run_one(0);
  for (std::thread& thread : threads) thread.join();
  for (const Totals& each : of_each) add(totals, each);
  return std::ranges::count(right, 0) == 0;
}

int run_all(Arguments arguments) {
  const UserOperations operations;
  Environment environment(operations);
  MPI_Comm_rank(MPI_COMM_WORLD, &environment.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &environment.ranks);
  environment.memory = arguments.memory;
  environment.ordered_key = arguments.ordered_key;
  environment.traces = arguments.traces;
  arguments.program.ranks = environment.ranks;
  std::vector<Environment> environments(static_cast<std::size_t>(arguments.threads), environment);
  if (arguments.threads > 1)
    for (Environment& each : environments) MPI_Comm_dup(MPI_COMM_WORLD, &each.base);
  mpi::ToolInterface tools;
  Totals totals;
  carried(tools, totals);  // a counter counts from when it is first asked for
  int programs = 0, wrong = 0;
  const std::uint64_t first = arguments.program.seed;
  for (; wrong == 0 && programs < arguments.programs; programs += arguments.threads) {
    arguments.program.seed = first + static_cast<std::uint64_t>(programs);
    if (environment.rank == 0 && !arguments.progress.empty())
      std::ofstream(arguments.progress) << arguments.program.seed << '\n';
    for (int thread = 0; environment.rank == 0 && arguments.prints && thread < arguments.threads; ++thread) {
      Options options = arguments.program;
      options.seed += static_cast<std::uint64_t>(thread);
      loom::print("{}", describe(generate(options)));
      std::fflush(stdout);
    }
    for (int time = 0; wrong == 0 && time < arguments.times; ++time)
      if (!are_right(arguments, environments, totals)) ++wrong;
  }
  if (arguments.threads > 1)
    for (Environment& each : environments) MPI_Comm_free(&each.base);
  const std::uint64_t by_loom = carried(tools, totals);
  const Totals all = of_all_ranks(totals);
  if (environment.rank == 0) print(all, programs, environment.ranks, wrong);
  if (arguments.expect_loom && sum(totals.starts) > 0 && by_loom == 0) {
    loom::print(stderr, "rank {}: of {} starts loom has carried none\n", environment.rank,
                sum(totals.starts));
    return 1;
  }
  if (arguments.expect_loom && environment.rank == 0)
    loom::print("rank 0: at least {} persistent calls carried by loom\n", by_loom);
  return wrong > 0 ? 1 : 0;
}

}  // namespace
}  // namespace loom::random_programs

int main(int argc, char** argv) {
  using loom::random_programs::Asserted;
  loom::random_programs::Arguments arguments;
  std::vector<int> without;
  CLI::App app("Runs random programs around persistent collective requests under mpirun.",
               "mpi_random_programs");
  app.add_option("--seed", arguments.program.seed, "Of the first program")->capture_default_str();
  app.add_option("--programs", arguments.programs, "How many, with seeds one after the other")
      ->capture_default_str();
  app.add_option_function<std::uint64_t>(
      "--only-seed",
      [&](std::uint64_t seed) {
        arguments.program.seed = seed;
        arguments.programs = 1;
      },
      "Run the one program with this seed");
  app.add_option("--threads", arguments.threads,
                 "Run so many programs at the same time, whose seeds follow each other")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  app.add_option("--times", arguments.times, "Run each so many times")->capture_default_str();
  app.add_option("--without", without, "Leave out these elements, separated by commas; --print numbers them")
      ->delimiter(',');
  app.add_option("--max-bytes", arguments.program.max_bytes, "Data in the largest buffer of a call")
      ->check(CLI::Range(0, 64 << 20))
      ->capture_default_str();
  const std::map<std::string, Asserted> words{
      {"never", Asserted::kNever}, {"always", Asserted::kAlways}, {"random", Asserted::kRandom}};
  app.add_option(
         "--assert", arguments.program.asserted,
         "Which communicators say that starts are in one order, and have them so: never, always, random")
      ->transform(CLI::CheckedTransformer(words));
  app.add_flag_callback(
      "--ordered", [&] { arguments.program.asserted = Asserted::kAlways; }, "The same as --assert always");
  app.add_option("--ordered-key", arguments.ordered_key, "The info key by which they say it")
      ->capture_default_str();
  app.add_flag("!--no-freed-communicators", arguments.program.freed_communicators,
               "Free no communicator before its requests");
  app.add_flag("--same-starts", arguments.program.same_starts,
               "All ranks start in one order, and after the same steps");
  app.add_option("--memory", arguments.memory,
                 "Where buffers lie: host, device, managed, pool, registered, mixed")
      ->capture_default_str();
  app.add_option("--progress", arguments.progress, "File that has the seed of the running program");
  app.add_flag("--print", arguments.prints, "Print each program");
  app.add_flag("--trace", arguments.traces, "Each rank says what it does");
  app.add_flag("--expect-loom", arguments.expect_loom, "Fail unless loom carries persistent calls");
  std::ostringstream text;
  int exit_code = -1;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error, text, text) == 0 ? 0 : 2;
  }
  if (exit_code < 0 && !loom::mpi::set_memory_kinds(arguments.memory, 0)) {
    text << "unknown kind of memory '" << arguments.memory << "'\n";
    exit_code = 2;
  }
  arguments.program.without.insert(without.begin(), without.end());
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, arguments.threads > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
  if (exit_code < 0 && arguments.threads > 1 && provided < MPI_THREAD_MULTIPLE) {
    text << "MPI has no MPI_THREAD_MULTIPLE here\n";
    exit_code = 2;
  }
  if (exit_code < 0)
    exit_code = loom::random_programs::run_all(arguments);
  else
    std::fputs(text.str().c_str(), stderr);
  MPI_Finalize();
  return exit_code;
}
