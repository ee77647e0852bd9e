#include "mpi_examples/bench/options.hpp"

#include <mpi-ext.h>  // MPIX_Query_cuda_support
#include <mpi.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "base/format.hpp"

namespace loom::bench {
namespace {

constexpr const char* kExamples = R"(
Examples:
  mpirun -n 4 --mca coll_loom_enable 1 loom_bench --compare
  mpirun -n 4 --mca coll_loom_enable 1 loom_bench allreduce --min 1K --max 1G --type double --op max
  mpirun -n 2 --mca coll_loom_enable 1 loom_bench bcast --root 1 --min 1M --max 8M --step 1M --json bcast.json
  mpirun -n 8 --mca coll_loom_enable 1 loom_bench allreduce --min 8 --max 4K --type all --op all --iterations 20

Sizes take K, M and G (powers of 1024). mpi_examples/README.md explains the columns and the JSON.)";

std::string collective_names() {
  std::string names;
  for (const Collective& collective : collectives()) {
    if (!names.empty()) names += ", ";
    names += collective.name;
  }
  return names;
}

/// The kinds that the user named; "all" stands for `all`.
template <class Kind, class All, class Find>
std::vector<Kind> named(const std::vector<std::string>& names, const All& all, Find&& find,
                        const char* what) {
  std::vector<Kind> kinds;
  for (const std::string& name : names) {
    if (name == "all") {
      kinds.insert(kinds.end(), all.begin(), all.end());
    } else if (auto kind = find(name)) {
      kinds.push_back(*kind);
    } else {
      std::string known = "all";
      for (const Kind each : all) known += loom::format(", {}", mpi::name(each));
      throw std::invalid_argument(loom::format("unknown {} '{}'; known are {}", what, name, known));
    }
  }
  return kinds;
}

void require(bool condition, const std::string& otherwise) {
  if (!condition) throw std::invalid_argument(otherwise);
}

void check(const Options& options, int ranks) {
  const std::string_view collective = options.collective->name;
  require(options.min_bytes >= 1, "--min must be at least 1 byte");
  require(options.min_bytes <= options.max_bytes,
          loom::format("--min ({}) is larger than --max ({})", options.min_bytes, options.max_bytes));
  require(options.factor > 1, loom::format("--factor must be larger than 1, not {}", options.factor));
  require(options.iterations.value_or(1) >= 1, "--iterations must be at least 1");
  require(options.warmup.value_or(0) >= 0, "--warmup must not be negative");
  require(options.seconds_per_size > 0, "--time must be larger than 0");
  require(options.root >= 0 && options.root < ranks,
          loom::format("--root {} is not one of the {} ranks (0 to {})", options.root, ranks, ranks - 1));
  require(options.memory == "host" || !options.compare || MPIX_Query_cuda_support() == 1,
          "--compare would hand device buffers to an Open MPI without CUDA");
  require(options.memory != "host" || options.on_host == 0,
          "--on-host is for buffers on devices: see --memory");
  require(!options.in_place || options.collective->has_in_place,
          loom::format("{} in place is not measured", collective));
  require(!options.ordered_starts || options.form == Form::kPersistent,
          "--ordered-starts is about persistent requests: see --form");
  require(!options.rotate_root || options.collective->has_root, loom::format("{} has no root", collective));
  for (const mpi::Type type : options.types) {
    const std::uint64_t count = options.max_bytes / mpi::size_of(type);
    require(count <= static_cast<std::uint64_t>(std::numeric_limits<int>::max()),
            loom::format("--max {} is {} elements of type {}, more than MPI's int count holds",
                         options.max_bytes, count, mpi::name(type)));
  }
  if (!options.collective->reduces) return;
  bool any = false;
  for (const mpi::Type type : options.types) {
    for (const mpi::Op op : options.ops) any = any || mpi::defined(op, type);
  }
  require(any, "MPI defines none of the chosen operations on the chosen types");
}

}  // namespace

std::vector<std::uint64_t> Options::sizes() const {
  std::vector<std::uint64_t> result;
  for (std::uint64_t bytes = min_bytes; bytes <= max_bytes;) {
    result.push_back(bytes);
    if (step_bytes > 0)
      bytes += step_bytes;
    else
      bytes =
          std::max(bytes + 1, static_cast<std::uint64_t>(std::llround(static_cast<double>(bytes) * factor)));
  }
  return result;
}

ParsedOptions parse_options(int argc, char** argv, int ranks) {
  Options options;
  std::string collective = "allreduce";
  std::vector<std::string> types = {"float"};
  std::vector<std::string> ops = {"sum"};
  std::string across = "average", form = "blocking";
  int iterations = 0;
  int warmup = 0;

  CLI::App app("Times an MPI collective over a range of sizes and checks its results.", "loom_bench");
  app.footer(kExamples);
  app.add_option("collective", collective, "One of: " + collective_names())->capture_default_str();
  app.add_option("--min", options.min_bytes, "Smallest size in bytes")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("8");
  app.add_option("--max", options.max_bytes, "Largest size in bytes")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("64M");
  auto* factor = app.add_option("--factor", options.factor, "Each size is this many times the one before")
                     ->capture_default_str();
  app.add_option("--step", options.step_bytes, "Each size is this many bytes more than the one before")
      ->transform(CLI::AsSizeValue(false))
      ->excludes(factor);
  auto* iterations_given =
      app.add_option("--iterations", iterations, "Measurements per size (default: by --time)");
  auto* warmup_given = app.add_option("--warmup", warmup, "Calls before them (default: by size)");
  app.add_option("--time", options.seconds_per_size, "Seconds of measured calls per size")
      ->capture_default_str();
  app.add_option("--type", types, "Element types, separated by commas, or all")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->default_str("float");
  app.add_option("--op", ops, "Operations, separated by commas, or all")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->default_str("sum");
  app.add_option("--across-ranks", across,
                 "Latency of one measurement from those of its ranks: average or max")
      ->check(CLI::IsMember({"average", "max"}))
      ->capture_default_str();
  app.add_option(
         "--form", form,
         "blocking; nonblocking: each call started and waited for; or persistent: the same of requests "
         "that are made before")
      ->check(CLI::IsMember(std::vector<std::string>(kForms.begin(), kForms.end())))
      ->capture_default_str();
  app.add_flag("--ordered-starts", options.ordered_starts,
               "The communicator promises that all ranks start persistent requests in one order");
  app.add_option("--root", options.root, "Root of the collectives that have one")->capture_default_str();
  app.add_flag("--in-place", options.in_place, "Use MPI_IN_PLACE");
  app.add_flag_callback(
      "--no-check", [&] { options.check = false; },
      "Do not check results (each is, outside the measured time)");
  app.add_flag_callback(
         "--check", [&] { options.check = true; }, "Check every result, as without --no-check")
      ->group("");
  app.add_flag("--compare", options.compare, "Measure the fallback component side by side");
  app.add_option("--peers", options.peers,
                 "Measure these coll components of Open MPI side by side, each with tuned for what it lacks; "
                 "loom's is "
                 "compared with the fastest")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_flag("--rotate-root", options.rotate_root,
               "Each call has the next rank as its root, so that no rank can run ahead");
  app.add_flag("--require-loom", options.require_loom, "Fail unless loom carried every measured call");
  app.add_flag("--floor", options.floor,
               "Also measure what the machine itself needs: a flag's way, or reducing and copying as much");
  app.add_flag("--cpu", options.cpu,
               "Also tell the CPU time of a call, of the program and of the kernel, waiting included");
  app.add_option("--memory", options.memory,
                 "Where buffers lie: host, or on a CUDA device: device, managed, pool")
      ->check(CLI::IsMember({"host", "device", "managed", "pool"}))
      ->capture_default_str();
  app.add_option("--on-host", options.on_host,
                 "With --memory: so many ranks, the last ones, have theirs on the host")
      ->check(CLI::Range(0, ranks));
  app.add_option("--json", options.json_path, "Write the results to this file; - is standard output");

  try {
    app.parse(argc, argv);
    options.collective = find_collective(collective);
    require(options.collective != nullptr,
            loom::format("unknown collective '{}'; known are {}", collective, collective_names()));
    options.compare = options.compare || !options.peers.empty();
    options.types = named<mpi::Type>(types, mpi::kTypes, mpi::type_named, "type");
    options.ops = named<mpi::Op>(ops, mpi::kOps, mpi::op_named, "operation");
    if (iterations_given->count() > 0) options.iterations = iterations;
    if (warmup_given->count() > 0) options.warmup = warmup;
    options.form = static_cast<Form>(std::ranges::find(kForms, form) - kForms.begin());
    options.across_ranks = across == "max" ? AcrossRanks::kMax : AcrossRanks::kAverage;
    check(options, ranks);
  } catch (const CLI::ParseError& error) {
    std::ostringstream out;
    const int code = app.exit(error, out, out);
    return {std::nullopt, out.str(), code == 0 ? 0 : 2};
  } catch (const std::invalid_argument& error) {
    return {std::nullopt, loom::format("loom_bench: {}\nTry --help.\n", error.what()), 2};
  }
  return {options, {}, 0};
}

}  // namespace loom::bench
