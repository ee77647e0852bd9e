// loom_bench -- times and checks MPI collectives, with loom or without, or both by turns. See README.md and
// --help.
// Exit codes: 0; 1 wrong results, or --require-loom was not met; 2 bad arguments, or results that could not
// be written.

#include <mpi.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "base/format.hpp"
#include "mpi_examples/bench/floor.hpp"
#include "mpi_examples/bench/measure.hpp"
#include "mpi_examples/bench/options.hpp"
#include "mpi_examples/bench/report.hpp"

namespace loom::bench {
namespace {

/// The element counts for the chosen sizes, each once: several small sizes may round to one count.
std::vector<std::size_t> counts(const Options& options, mpi::Type type, int ranks) {
  if (options.collective->output == Part::kNone) return {0};
  const std::size_t unit = options.collective->blocks ? static_cast<std::size_t>(ranks) : 1;
  std::vector<std::size_t> result;
  for (const std::uint64_t bytes : options.sizes()) {
    const std::size_t units = std::max<std::size_t>(1, bytes / (mpi::size_of(type) * unit));
    if (result.empty() || result.back() != units * unit) result.push_back(units * unit);
  }
  return result;
}

/// All sizes of one type and operation.
struct Series {
  mpi::Type type;
  mpi::Op op;
  std::vector<std::size_t> counts;
};

std::vector<Series> all_series(const Options& options, int ranks) {
  std::vector<Series> result;
  for (const mpi::Type type : options.types) {
    for (const mpi::Op op : options.ops) {
      const bool reduces = options.collective->reduces;
      if (!reduces || mpi::defined(op, type)) result.push_back({type, op, counts(options, type, ranks)});
      if (!reduces) break;  // operations make no difference
    }
  }
  return result;
}

void tell_unwritten(const std::string& where) {
  loom::print(stderr, "loom_bench: cannot write {}: {}\n", where,
              errno != 0 ? std::strerror(errno) : "an earlier write failed");
}

/// All that is in buffers still; says so where any of it does not get there.
bool write_results(const Options& options, const Report& report, std::ofstream& json_file) {
  bool written = true;
  errno = 0;
  if (options.json_path == "-") {
    loom::print("{}\n", report.json().dump(2));
  } else if (!options.json_path.empty()) {
    json_file << report.json().dump(2) << '\n';
    json_file.close();
    if (!json_file) tell_unwritten(loom::format("'{}'", options.json_path)), written = false;
  }
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) tell_unwritten("stdout"), written = false;
  return written;
}

int run_bench(const Options& options, MPI_Comm control, mpi::ToolInterface& tool) {
  int rank, ranks;
  MPI_Comm_rank(control, &rank);
  MPI_Comm_size(control, &ranks);

  std::ofstream json_file;
  int ready = 1;
  if (rank == 0 && !options.json_path.empty() && options.json_path != "-") {
    errno = 0;
    json_file.open(options.json_path);
    ready = json_file.is_open() ? 1 : 0;
    if (!ready) tell_unwritten(loom::format("'{}'", options.json_path));
  }
  for (const std::string& peer : options.peers) {
    if (rank != 0 || tool.variable("coll_" + peer + "_priority")) continue;
    ready = 0;  // it would be measured as tuned
    loom::print(stderr,
                "loom_bench: Open MPI has loaded no coll component '{}' ('ompi_info' lists those it has)\n",
                peer);
  }
  MPI_Bcast(&ready, 1, MPI_INT, 0, control);
  if (!ready) return 2;

  std::vector<MPI_Comm> comms = {options.ordered_starts ? mpi::dup_with_ordered_starts(MPI_COMM_WORLD)
                                                        : MPI_COMM_WORLD};
  for (const std::string& peer : options.peers)
    comms.push_back(mpi::dup_with_component(MPI_COMM_WORLD, peer));
  if (options.compare && options.peers.empty()) comms.push_back(mpi::dup_without_loom(MPI_COMM_WORLD));

  const Environment environment = gather_environment(control, tool);
  Report report(options, environment, options.json_path == "-" ? stderr : stdout);
  std::optional<Floor> floor;
  if (options.floor && environment.hosts.size() == 1 && ranks > 1) floor.emplace(control, options.max_bytes);
  const std::vector<Series> all = all_series(options, ranks);
  std::size_t rows = 0;
  for (const Series& series : all) rows += series.counts.size();
  if (rank == 0) report.begin(rows);

  Bench bench(options, control, tool, floor ? &*floor : nullptr);
  for (const Series& series : all) {
    Case one =
        make_case(*options.collective, series.type, series.op, rank, ranks, options.root, options.in_place);
    one.root_step = options.rotate_root ? 1 : 0;
    for (const std::size_t count : series.counts) {
      one.count = count;
      const Measured measured = bench.measure(one, comms);
      if (rank == 0) report.add(one, measured);
    }
  }
  floor.reset();
  for (MPI_Comm& comm : comms)
    if (comm != MPI_COMM_WORLD) MPI_Comm_free(&comm);

  int exit_code = 0;
  if (rank == 0) {
    report.end();
    const bool without_loom = options.require_loom && !report.carried_as_expected();
    if (without_loom)
      loom::print(stderr, "loom_bench: --require-loom: loom did not carry the calls as required\n");
    exit_code = report.wrong() > 0 || without_loom ? 1 : 0;
    if (!write_results(options, report, json_file)) exit_code = 2;
  }
  MPI_Bcast(&exit_code, 1, MPI_INT, 0, control);
  return exit_code;
}

int run(int argc, char** argv) {
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const ParsedOptions parsed = parse_options(argc, argv, ranks);
  if (!parsed.options) {
    if (rank == 0) loom::print(parsed.exit_code == 0 ? stdout : stderr, "{}", parsed.text);
    return parsed.exit_code;
  }
  const bool is_on_host = rank >= ranks - parsed.options->on_host;
  mpi::set_memory_kinds(is_on_host ? "host" : parsed.options->memory, 0);
  mpi::ToolInterface tool;
  MPI_Comm control = mpi::dup_without_loom(MPI_COMM_WORLD);
  const std::string no_gpu = mpi::why_no_gpu(parsed.options->memory != "host", control);
  if (!no_gpu.empty()) {
    if (rank == 0) loom::print(stderr, "loom_bench: --memory {}: {}\n", parsed.options->memory, no_gpu);
    MPI_Comm_free(&control);
    return 2;
  }
  if (is_on_host && parsed.options->on_host > 0) mpi::Driver::get();  // it may keep time
  const int exit_code = run_bench(*parsed.options, control, tool);
  MPI_Comm_free(&control);
  return exit_code;
}

}  // namespace
}  // namespace loom::bench

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int exit_code = loom::bench::run(argc, argv);
  MPI_Finalize();
  return exit_code;
}
