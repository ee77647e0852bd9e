#include "mpi_examples/bench/report.hpp"

#include <algorithm>
#include <array>

#include "base/format.hpp"

namespace loom::bench {
namespace {

using nlohmann::ordered_json;

constexpr double kLongRunSeconds = 10;  ///< longer runs say in advance how long they take

/// GB/s, decimal as in nccl-tests.
double gigabytes_per_second(const Case& one, double us) {
  return us > 0 ? static_cast<double>(one.bytes()) / us / 1e3 : 0;
}

/// How many times faster than the fastest of the others.
double ratio_p50(const Measured& measured) {
  double best = measured.timings[1].p50_us;
  for (std::size_t other = 2; other < measured.timings.size(); ++other)
    best = std::min(best, measured.timings[other].p50_us);
  return measured.timings[0].p50_us > 0 ? best / measured.timings[0].p50_us : 0;
}

const char* loom_state(const Environment& environment) {
  if (!environment.loom_enabled) return "not loaded (see --mca mca_base_component_path)";
  return *environment.loom_enabled ? "enabled" : "loaded, but not enabled (see --mca coll_loom_enable 1)";
}

}  // namespace

Environment gather_environment(MPI_Comm control, mpi::ToolInterface& tool) {
  Environment environment;
  MPI_Comm_size(control, &environment.ranks);

  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version{};
  int length = 0;
  MPI_Get_library_version(version.data(), &length);
  environment.mpi_library = version.data();
  environment.component_path = tool.variable("mca_base_component_path").value_or("unknown");
  if (const auto enable = tool.variable("coll_loom_enable")) environment.loom_enabled = *enable != "0";

  using HostName = std::array<char, MPI_MAX_PROCESSOR_NAME>;
  HostName own{};
  MPI_Get_processor_name(own.data(), &length);
  std::vector<HostName> names(static_cast<std::size_t>(environment.ranks));
  MPI_Gather(own.data(), MPI_MAX_PROCESSOR_NAME, MPI_CHAR, names.data(), MPI_MAX_PROCESSOR_NAME, MPI_CHAR, 0,
             control);
  for (const HostName& name : names) {
    const auto known = std::find_if(environment.hosts.begin(), environment.hosts.end(),
                                    [&](const auto& host) { return host.first == name.data(); });
    if (known == environment.hosts.end())
      environment.hosts.emplace_back(name.data(), 1);
    else
      ++known->second;
  }
  return environment;
}

void Report::begin(std::size_t rows) {
  const std::string library = environment_.mpi_library.substr(0, environment_.mpi_library.find(','));
  loom::print(text_, "# loom_bench {}{}{}{}{}, {} ranks on {} host(s):", options_.collective->name,
              options_.form == Form::kBlocking ? "" : loom::format(", {}", name_of(options_.form)),
              options_.ordered_starts ? ", with ordered starts" : "", options_.in_place ? " in place" : "",
              options_.memory == "host" ? ""
              : options_.on_host == 0
                  ? " in " + options_.memory + " memory"
                  : loom::format(" in {} memory, of {} ranks on the host", options_.memory, options_.on_host),
              environment_.ranks, environment_.hosts.size());
  for (const auto& [host, ranks] : environment_.hosts) loom::print(text_, " {} x {}", host, ranks);
  loom::print(text_, "\n# {}; loom is {}\n# component path: {}\n", library, loom_state(environment_),
              environment_.component_path);
  if (options_.compare && !environment_.loom_active()) {
    loom::print(text_, "# so both sides of the comparison measure the same component\n");
  }
  loom::print(text_, "# latency in us: one call, {} over ranks; bandwidths in GB/s from the median\n",
              options_.across_ranks == AcrossRanks::kMax ? "maximum" : "average");
  if (!options_.iterations && static_cast<double>(rows) * options_.seconds_per_size >= kLongRunSeconds)
    loom::print(text_, "# {}, of up to {:g} s each: some {:.0f} s\n",
                rows == 1 ? "1 row" : loom::format("{} rows", rows), options_.seconds_per_size,
                static_cast<double>(rows) * options_.seconds_per_size);
  if (options_.floor)
    loom::print(
        text_,
        "# floor: the least that the machine itself needs, by turns: a cache line's way; or, from 1 MiB, "
        "each rank reducing its share where the operands lie and copying the others'\n");
  if (options_.cpu)
    loom::print(text_,
                "# cpu: us of a rank for a call, in the program + in the kernel, for each communicator\n");
  if (!options_.peers.empty()) {
    loom::print(text_, "#{:>11} {:>11} {:>7} {:>5}   p50: {:>9}", "size", "count", "type", "op",
                environment_.loom_active() ? "loom" : "as is");
    for (const std::string& peer : options_.peers) loom::print(text_, " {:>9}", peer);
    loom::print(text_, " {:>9} {:>6}\n", "best/loom", "wrong");
  } else if (options_.compare) {
    loom::print(text_, "# fallback: the component that Open MPI chooses without loom\n");
    loom::print(text_, "#{:>41} {:^43} {:^43} {:>7}\n#", "", environment_.loom_active() ? "loom" : "as is",
                "fallback", "fallback/");
    loom::print(text_, "{:>11} {:>11} {:>7} {:>5} ", "size", "count", "type", "op");
    for (int side = 0; side < 2; ++side) {
      loom::print(text_, "  {:>9} {:>9} {:>9} {:>7} {:>6}", "min", "p50", "max", "busbw", "wrong");
    }
    loom::print(text_, " {:>7}\n", "loom");
  } else {
    loom::print(text_, "#{:>11} {:>11} {:>7} {:>5} {:>10} {:>10} {:>10} {:>10} {:>8} {:>8} {:>7}\n", "size",
                "count", "type", "op", "min", "avg", "p50", "max", "algbw", "busbw", "wrong");
  }
  std::fflush(text_);
}

void Report::add(const Case& one, const Measured& measured) {
  const std::string op{options_.collective->reduces ? mpi::name(one.op) : "-"};
  const auto wrong_of = [&](const Timing& timing) {
    return options_.check ? std::to_string(timing.wrong) : std::string("-");
  };
  ordered_json row = {{"collective", options_.collective->name},
                      {"size_bytes", one.bytes()},
                      {"count", one.count},
                      {"type", mpi::name(one.type)},
                      {"op", op},
                      {"iterations", measured.iterations},
                      {"calls_per_iteration", measured.calls_per_iteration}};

  loom::print(text_, " {:>11} {:>11} {:>7} {:>5} ", one.bytes(), one.count, mpi::name(one.type), op);
  carried_.resize(measured.timings.size());
  for (std::size_t which = 0; which < measured.timings.size(); ++which) {
    const Timing& timing = measured.timings[which];
    const double algbw = gigabytes_per_second(one, timing.p50_us);
    const double busbw = algbw * options_.collective->busbw_factor(one.ranks);
    if (!options_.peers.empty()) {
      loom::print(text_, "{} {:>9.3f}", which == 0 ? "      " : "", timing.p50_us);
    } else if (options_.compare) {
      loom::print(text_, "  {:>9.2f} {:>9.2f} {:>9.2f} {:>7.2f} {:>6}", timing.min_us, timing.p50_us,
                  timing.max_us, busbw, wrong_of(timing));
    } else {
      loom::print(text_, "{:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f} {:>8.2f} {:>8.2f} {:>7}", timing.min_us,
                  timing.avg_us, timing.p50_us, timing.max_us, algbw, busbw, wrong_of(timing));
    }
    ordered_json side = {{"min_us", timing.min_us}, {"avg_us", timing.avg_us}, {"p50_us", timing.p50_us},
                         {"max_us", timing.max_us}, {"algbw", algbw},          {"busbw", busbw},
                         {"calls", timing.calls}};
    if (options_.cpu) side["cpu_us"] = {{"user", timing.cpu_us.user}, {"system", timing.cpu_us.system}};
    side["wrong"] = options_.check ? ordered_json(timing.wrong) : ordered_json(nullptr);
    side["carried_by_loom"] = timing.carried ? ordered_json(*timing.carried) : ordered_json(nullptr);
    if (which > 0 && !options_.peers.empty())
      row["peers"][options_.peers[which - 1]] = side;
    else
      row[which == 0 ? "measured" : "fallback"] = side;

    wrong_ += timing.wrong;
    Carried& carried = carried_[which];
    carried.calls += timing.calls;
    carried.known = carried.known && timing.carried;
    carried.at_least += timing.carried.value_or(0);
    carried.at_most += timing.carried_at_most.value_or(0);
  }
  if (options_.compare) {
    loom::print(text_, " {:>{}.2f}", ratio_p50(measured), options_.peers.empty() ? 7 : 9);
    if (!options_.peers.empty()) {
      std::uint64_t wrong = 0;
      for (const Timing& timing : measured.timings) wrong += timing.wrong;
      loom::print(text_, " {:>6}", options_.check ? std::to_string(wrong) : "-");
    }
    row["ratio_p50"] = ratio_p50(measured);
  }
  if (measured.floor_us > 0) {
    loom::print(text_, "  floor {:.3f}, {:.0f} %", measured.floor_us,
                100 * measured.floor_us / measured.timings[0].p50_us);
    row["floor_us"] = measured.floor_us;
  }
  for (std::size_t which = 0; which < measured.timings.size() && options_.cpu; ++which)
    loom::print(text_, "{} {:.2f} + {:.2f}", which == 0 ? "  cpu" : ",", measured.timings[which].cpu_us.user,
                measured.timings[which].cpu_us.system);
  loom::print(text_, "\n");
  std::fflush(text_);
  rows_.push_back(std::move(row));
}

void Report::end() {
  if (!carried_.empty()) print_carried("", carried_[0]);
  for (std::size_t other = 1; other < carried_.size(); ++other)
    print_carried(options_.peers.empty() ? " on the fallback component's communicator"
                                         : " beside " + options_.peers[other - 1],
                  carried_[other]);
  if (wrong_ > 0) loom::print(text_, "# WRONG RESULTS: {} elements\n", wrong_);
}

void Report::print_carried(const std::string& whose, const Carried& carried) const {
  if (!environment_.loom_active()) {
    loom::print(text_, "# carried by loom{}: 0 of {} calls, loom is {}\n", whose, carried.calls,
                loom_state(environment_));
  } else if (!carried.known) {
    loom::print(text_, "# carried by loom{}: unknown, there is no counter for {}\n", whose,
                options_.collective->name);
  } else if (carried.at_least == carried.at_most) {
    loom::print(text_, "# carried by loom{}: {} of {} calls\n", whose, carried.at_least, carried.calls);
  } else {
    loom::print(text_, "# carried by loom{}: {} of {} calls on one rank, {} on another\n", whose,
                carried.at_least, carried.calls, carried.at_most);
  }
}

bool Report::carried_as_expected() const {
  for (std::size_t which = 0; which < carried_.size(); ++which) {
    const Carried& carried = carried_[which];
    if (!carried.known) return false;
    const std::uint64_t expected = which == 0 ? carried.calls : 0;
    if (carried.at_least != expected || carried.at_most != expected) return false;
  }
  return true;
}

nlohmann::ordered_json Report::json() const {
  ordered_json hosts = ordered_json::array();
  for (const auto& [host, ranks] : environment_.hosts) hosts.push_back({{"name", host}, {"ranks", ranks}});
  return {{"program", "loom_bench"},
          {"format", 1},
          {"environment",
           {{"mpi_library", environment_.mpi_library},
            {"component_path", environment_.component_path},
            {"loom", loom_state(environment_)},
            {"ranks", environment_.ranks},
            {"hosts", hosts}}},
          {"options",
           {{"collective", options_.collective->name},
            {"form", name_of(options_.form)},
            {"ordered_starts", options_.ordered_starts},
            {"in_place", options_.in_place},
            {"root", options_.root},
            {"rotate_root", options_.rotate_root},
            {"check", options_.check},
            {"compare", options_.compare},
            {"memory", options_.memory},
            {"across_ranks", options_.across_ranks == AcrossRanks::kMax ? "max" : "average"}}},
          {"wrong", wrong_},
          {"results", rows_}};
}

}  // namespace loom::bench
