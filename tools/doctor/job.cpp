// job.cpp -- loom_doctor_job: what the ranks of a job find about it. `loom doctor` runs it, and becomes it
// under mpirun.
//
//   loom_doctor_job KERNELS OPTIONS   KERNELS: which ones for GPUs loom's build has, as text; empty: none
//                                     OPTIONS: of mpirun, if ranks find no plugin; empty: none would help
//   loom_doctor_job --lines           for loom doctor, and about the job alone
//
// Until it is known that all ranks have enabled loom or none, they speak point to point alone: in a
// collective call some would wait for the others for ever.
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/format.hpp"
#include "mpi_examples/support/loom_pvars.hpp"
#include "tools/doctor/machine.hpp"
#include "tools/doctor/report.hpp"
#include "tools/doctor/settings.hpp"
#include "tools/words.hpp"
#include "topo/discover.hpp"
#include "ucx_transport/ports.hpp"

namespace {

using namespace loom::tools;

int rank, ranks;

/// What rank 0 hears from each rank.
struct Facts {
  char host[256] = {}, library[256] = {};
  int enabled = -1;          ///< -1: the plugin is not there
  cpu_set_t cpus;            ///< on which it may run
  double clock_ahead_s = 0;  ///< of rank 0's
};

double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// As Open MPI reads booleans.
bool is_truth_value(const std::string& text) {
  constexpr std::array<const char*, 8> kWords{"true", "false", "yes", "no", "t", "f", "y", "n"};
  const bool is_number = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  return text.empty() || is_number || std::ranges::find(kWords, text) != kWords.end();
}

Facts facts_of_this_rank(loom::mpi::ToolInterface& tool) {
  Facts facts;
  loom::format_into(facts.host, "{}", loom::topo::host_name());
  char library[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(library, &length);
  loom::format_into(facts.library, "{}", std::string_view(library, std::strcspn(library, ",")));
  if (const auto enabled = tool.variable("coll_loom_enable"))
    facts.enabled = *enabled == "1" || *enabled == "true";
  CPU_ZERO(&facts.cpus);
  ::sched_getaffinity(0, sizeof(facts.cpus), &facts.cpus);
  return facts;
}

/// Of rank 0's clock, as the fastest of some exchanges tells.
double clock_difference(int peer) {
  double best = 1e9, difference = 0;
  for (int i = 0; i < 5; ++i) {
    if (rank == 0) {
      double its;
      const double before = wall_clock();
      MPI_Send(&before, 1, MPI_DOUBLE, peer, 1, MPI_COMM_WORLD);
      MPI_Recv(&its, 1, MPI_DOUBLE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      const double after = wall_clock();
      if (after - before < best) {
        best = after - before;
        difference = its - (before + after) / 2;
      }
    } else {
      double dummy;
      MPI_Recv(&dummy, 1, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      const double mine = wall_clock();
      MPI_Send(&mine, 1, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD);
    }
  }
  return difference;
}

/// On rank 0: of all ranks.
std::vector<Facts> gather(const Facts& mine) {
  std::vector<Facts> all{mine};
  if (rank > 0) {
    MPI_Send(&mine, sizeof(mine), MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    clock_difference(0);
    return {};
  }
  for (int peer = 1; peer < ranks; ++peer) {
    Facts its;
    MPI_Recv(&its, sizeof(its), MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    its.clock_ahead_s = clock_difference(peer);
    all.push_back(its);
  }
  return all;
}

/// On rank 0: what each host's first rank says.
std::string gather_text(const std::string& mine, int from) {
  if (rank == from && rank > 0) {
    MPI_Send(mine.data(), static_cast<int>(mine.size()), MPI_CHAR, 0, 2, MPI_COMM_WORLD);
    return "";
  }
  if (rank > 0 || from == 0) return mine;
  MPI_Status status;
  int bytes;
  MPI_Probe(from, 2, MPI_COMM_WORLD, &status);
  MPI_Get_count(&status, MPI_CHAR, &bytes);
  std::string text(static_cast<std::size_t>(bytes), '\0');
  MPI_Recv(text.data(), bytes, MPI_CHAR, from, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  return text;
}

/// "ranks 3 and 5", "rank 3 and 12 more"
std::string ranks_text(const std::vector<int>& some) {
  if (some.size() == 1) return loom::format("rank {}", some[0]);
  if (some.size() == 2) return loom::format("ranks {} and {}", some[0], some[1]);
  return loom::format("rank {} and {} more", some[0], some.size() - 1);
}

/// "host a", "hosts a, b, c, d and 12 more": of these ranks.
std::string hosts_text(const std::vector<Facts>& all, const std::vector<int>& some) {
  std::vector<std::string> names;
  for (const int r : some)
    if (const char* host = all[static_cast<std::size_t>(r)].host;
        std::ranges::find(names, host) == names.end())
      names.emplace_back(host);
  return loom::format("{} {}", names.size() == 1 ? "host" : "hosts", listed(names));
}

void look_at_libraries(const std::vector<Facts>& all, Findings& findings) {
  std::vector<int> others;
  for (int r = 0; r < ranks; ++r)
    if (std::strcmp(all[static_cast<std::size_t>(r)].library, all[0].library) != 0) others.push_back(r);
  if (others.empty()) return findings.fine("job", loom::format("{} on all ranks", all[0].library));
  const Facts& other = all[static_cast<std::size_t>(others[0])];
  findings.fails("Open MPI",
                 loom::format("{} on rank 0, but {} on {} ({})", all[0].library, other.library,
                              ranks_text(others), hosts_text(all, others)),
                 "install one version on all hosts");
}

/// Whether all ranks have the plugin, and enable it.
bool look_at_enabled(const std::vector<Facts>& all, const std::string& options,
                     loom::mpi::ToolInterface& tool, Findings& findings) {
  std::vector<int> without, off;
  for (int r = 0; r < ranks; ++r) {
    if (all[static_cast<std::size_t>(r)].enabled < 0) without.push_back(r);
    if (all[static_cast<std::size_t>(r)].enabled == 0) off.push_back(r);
  }
  const std::string only = tool.variable("coll").value_or("");
  if (!without.empty() && !only.empty()) {
    findings.fails(
        "components",
        loom::format("the MCA parameter coll is \"{}\": if that leaves loom out, it is not loaded", only),
        "take ^loom off the list, or add loom to it");
    return false;
  }
  if (!without.empty()) {
    // Debian's mpirun 5.0 replaces the component path of its ranks by its own.
    const bool is_elsewhere = without[0] == 0 && !options.empty();
    const std::string whose = loom::format("{} ({})", ranks_text(without), hosts_text(all, without));
    if (is_elsewhere)
      findings.fails(kPluginTopic, whose + ": mpirun has them look elsewhere for components",
                     "mpirun " + options);
    else
      findings.fails(kPluginTopic, "not loaded on " + whose,
                     "loom doctor there, without mpirun, says why; it has to be installed on all hosts");
    return false;
  }
  const char* const given = std::getenv("OMPI_MCA_coll_loom_enable");
  if (off.size() == all.size() && given != nullptr && !is_truth_value(given)) {
    findings.fails(kEnabledTopic, loom::format("coll_loom_enable is \"{}\", which Open MPI refuses", given),
                   "mpirun --mca coll_loom_enable 1");
    return false;
  }
  if (off.size() == all.size()) {
    findings.warn(kEnabledTopic, "coll_loom_enable is 0 on all ranks", "mpirun --mca coll_loom_enable 1");
    return false;
  }
  if (!off.empty()) {
    findings.fails(
        "enabled",
        loom::format("coll_loom_enable is 0 on {} ({}), and 1 on others: the first collective hangs",
                     ranks_text(off), hosts_text(all, off)),
        "mpirun --mca coll_loom_enable 1, or the same mca-params.conf on all hosts");
    return false;
  }
  findings.fine("job", loom::format("{}, with loom loaded and enabled", counted(ranks, "rank")));
  return true;
}

std::map<std::string, std::vector<int>> hosts_of(const std::vector<Facts>& all) {
  std::map<std::string, std::vector<int>> hosts;
  for (int r = 0; r < ranks; ++r) hosts[all[static_cast<std::size_t>(r)].host].push_back(r);
  return hosts;
}

/// Ranks that are bound to one CPU together, or outnumber the CPUs of all of them.
void look_at_binding(const std::vector<Facts>& all, Findings& findings) {
  for (const auto& [host, its_ranks] : hosts_of(all)) {
    cpu_set_t together;
    CPU_ZERO(&together);
    std::map<int, std::vector<int>> bound_to;  // one CPU
    for (const int r : its_ranks) {
      const cpu_set_t& cpus = all[static_cast<std::size_t>(r)].cpus;
      CPU_OR(&together, &together, &cpus);
      if (CPU_COUNT(&cpus) != 1) continue;
      for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        if (CPU_ISSET(cpu, &cpus)) bound_to[cpu].push_back(r);
    }
    for (const auto& [cpu, sharers] : bound_to)
      if (sharers.size() > 1)
        return findings.warn(
            "binding",
            loom::format("{} of host {} are bound to one CPU ({})", ranks_text(sharers), host, cpu),
            "mpirun --bind-to none, or --map-by core and no more ranks than CPUs");
    if (CPU_COUNT(&together) < static_cast<int>(its_ranks.size()))
      return findings.warn("binding",
                           loom::format("{} on {} of host {}", counted(its_ranks.size(), "rank"),
                                        counted(CPU_COUNT(&together), "CPU"), host),
                           "no more ranks than CPUs: those that wait take turns with those that work");
  }
  findings.fine("binding", "at least as many CPUs as ranks");
}

void look_at_clocks(const std::vector<Facts>& all, Findings& findings) {
  double most = 0;
  int whose = 0;
  for (int r = 0; r < ranks; ++r) {
    const double ahead = std::abs(all[static_cast<std::size_t>(r)].clock_ahead_s);
    if (ahead > most) whose = r;
    most = std::max(most, ahead);
  }
  if (hosts_of(all).size() == 1) return;
  if (most < 1)
    findings.fine("clocks", loom::format("they differ by no more than {:.0f} ms", most * 1000));
  else
    findings.warn(
        "clocks",
        loom::format("that of host {} differs by {:.1f} s", all[static_cast<std::size_t>(whose)].host, most),
        "chrony or ntp; loom needs no equal clocks, but who reads several hosts' logs does");
}

/// Microseconds of an allreduce, the median of some.
double time_allreduce(std::size_t bytes, MPI_Comm comm) {
  const int calls = bytes > 4096 ? 21 : 301;
  std::vector<char> in(bytes), out(bytes);
  std::vector<double> times;
  for (int call = 0; call < calls; ++call) {
    const double began = MPI_Wtime();
    MPI_Allreduce(in.data(), out.data(), static_cast<int>(bytes / sizeof(int)), MPI_INT, MPI_SUM, comm);
    times.push_back((MPI_Wtime() - began) * 1e6);
  }
  std::ranges::nth_element(times, times.begin() + calls / 2);
  return times[static_cast<std::size_t>(calls) / 2];
}

/// Why allreduces fell back, as coll_loom_fallbacks counts.
class Fallbacks {
 public:
  explicit Fallbacks(loom::mpi::ToolInterface& tool) : tool_(tool) {
    for (const Reason& reason : kReasons) before_.push_back(count(reason));
  }
  void tell(Findings& findings) const {
    constexpr const char* kWhat = "loom carries no allreduce of 8 bytes or 1 MiB here: ";
    for (std::size_t i = 0; i < std::size(kReasons); ++i) {
      if (count(kReasons[i]) == before_[i]) continue;
      const bool is_failure = kReasons[i].verdict == Verdict::kFails;
      findings.add({kReasons[i].verdict, "calls", std::string(kWhat) + kReasons[i].text,
                    is_failure ? "loom's message in the job's output has the cause"
                               : "mpirun --mca coll_loom_verbose 2 says more"});
      return;
    }
    findings.warn(
        "calls", std::string(kWhat) + "Open MPI does not ask it",
        "coll_loom_include and coll_loom_exclude may leave allreduce out; another component may have "
        "a higher priority");
  }

 private:
  struct Reason {
    const char *name, *text;
    Verdict verdict;
  };
  static constexpr Reason kReasons[] = {
      {"not_connected", "its set-up failed", Verdict::kFails},
      {"not_better", "Open MPI's own component is faster, or a rule prefers it", Verdict::kWarning},
  };
  std::uint64_t count(const Reason& reason) const {
    return tool_.counter("coll_loom_fallbacks", "allreduce", reason.name).value_or(0);
  }

  loom::mpi::ToolInterface& tool_;
  std::vector<std::uint64_t> before_;
};

/// Collective: loom's allreduces and those of Open MPI's own component.
void look_at_calls(loom::mpi::ToolInterface& tool, Findings& findings) {
  constexpr std::size_t kSmall = 8, kLarge = std::size_t{1} << 20;
  MPI_Comm without = loom::mpi::dup_without_loom(MPI_COMM_WORLD);
  const auto carried = [&] { return tool.counter("coll_loom_calls", "allreduce").value_or(0); };
  const auto before = carried();
  const Fallbacks fallbacks(tool);
  std::string text;
  for (const std::size_t bytes : {kLarge, kSmall}) {
    time_allreduce(bytes, MPI_COMM_WORLD);
    time_allreduce(bytes, without);
    const double by_loom = time_allreduce(bytes, MPI_COMM_WORLD), own = time_allreduce(bytes, without);
    text += loom::format("{}{} in {:.1f} us, without loom {:.1f}", text.empty() ? "allreduces of " : "; ",
                         bytes == kSmall ? "8 bytes" : "1 MiB", by_loom, own);
  }
  MPI_Comm_free(&without);
  if (ranks == 1) return findings.fine("calls", "a single rank needs no collectives");
  if (carried() == before)
    fallbacks.tell(findings);
  else
    findings.fine("calls", text);
}

void look_at_this_host(const std::string& kernels, Findings& findings) {
  look_at_host(findings, true);
  const auto ports = loom::ucx_transport::ports();
  look_at_network(ports, findings);
  look_at_gpus({.initialise_cuda = true, .ucx_ports = ports}, kernels, findings);
}

/// As rank 0 has them. Where the plugin is not loaded, Open MPI has none of its variables.
void look_at_variables(loom::mpi::ToolInterface& tool, Findings& findings) {
  if (!tool.variable("coll_loom_enable")) return;
  std::vector<std::string> files = files_in(tool.variable("mca_base_param_files").value_or(""));
  // From 5.0 on mpirun reads the user's own, and its ranks do not.
  const char* const home = std::getenv("HOME");
  const std::string own = std::string(home == nullptr ? "" : home) + "/.openmpi/mca-params.conf";
  if (std::ranges::find(files, own) == files.end()) files.insert(files.begin(), own);
  look_at_settings(
      settings_of_loom(files), [&](const std::string& name) { return tool.variable(name); }, findings);
}

int look(bool lines, const std::string& kernels, const std::string& options) {
  loom::mpi::ToolInterface tool;
  const std::vector<Facts> all = gather(facts_of_this_rank(tool));
  Findings findings;
  int is_on = 0;
  if (rank == 0) {
    look_at_libraries(all, findings);
    is_on = look_at_enabled(all, options, tool, findings);
    if (!lines) look_at_variables(tool, findings);
  }
  // The first rank of each host looks at it.
  std::vector<int> first(static_cast<std::size_t>(ranks));
  if (rank == 0)
    for (const auto& [host, its_ranks] : hosts_of(all)) first[static_cast<std::size_t>(its_ranks[0])] = 1;
  for (int peer = 1; peer < ranks; ++peer) {
    int words[2] = {is_on, first[static_cast<std::size_t>(peer)]};
    if (rank == 0) MPI_Send(words, 2, MPI_INT, peer, 3, MPI_COMM_WORLD);
    if (rank != peer) continue;
    MPI_Recv(words, 2, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    is_on = words[0];
    first[static_cast<std::size_t>(peer)] = words[1];
  }
  std::vector<std::pair<std::string, Findings>> by_host;
  if (!lines) {
    Findings mine;
    if (first[static_cast<std::size_t>(rank)] != 0) look_at_this_host(kernels, mine);
    for (int from = 0; from < ranks; ++from) {
      const bool is_first = first[static_cast<std::size_t>(from)] != 0;
      if (!is_first || (rank != 0 && rank != from)) continue;
      const std::string text = gather_text(lines_of(mine), from);
      if (rank > 0) continue;
      by_host.emplace_back(all[static_cast<std::size_t>(from)].host, Findings());
      add_lines(text, by_host.back().second);
    }
  }
  if (rank == 0) {
    const Findings of_hosts = merged(by_host);
    for (const Finding& finding : of_hosts.all()) findings.add(finding);
    look_at_binding(all, findings);
    look_at_clocks(all, findings);
  }
  if (is_on != 0) look_at_calls(tool, findings);
  if (rank > 0) return 0;
  const std::string heading = loom::format("loom {}, {} on {}", LOOM_VERSION, counted(ranks, "rank"),
                                           counted(hosts_of(all).size(), "host"));
  loom::print("{}", lines ? lines_of(findings) : text_of(findings, heading));
  return findings.count(Verdict::kFails) > 0 && !lines ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  loom::ucx_transport::leave_signals_alone();
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const std::string argument = argc > 1 ? argv[1] : "";
  const int exit_code = look(argument == "--lines", argument, argc > 2 ? argv[2] : "");
  MPI_Finalize();
  return exit_code;
}
