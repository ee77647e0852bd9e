#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/format.hpp"
#include "tools/doctor/machine.hpp"
#include "tools/words.hpp"
#include "ucx_transport/ports.hpp"

namespace loom::tools {
namespace {

/// "mlx5_0:1 (400 Gbit/s)"
std::string text_of(const topo::UcxPort& port) {
  const std::string name = port.port > 0 ? loom::format("{}:{}", port.name, port.port) : port.name;
  return port.speed_mbps > 0 ? loom::format("{} ({} Gbit/s)", name, port.speed_mbps / 1000) : name;
}

bool is_chosen(const std::vector<std::string>& chosen, const topo::UcxPort& port) {
  return std::ranges::any_of(chosen, [&](const std::string& name) {
    return name == "all" || name == port.name || name == loom::format("{}:{}", port.name, port.port);
  });
}

/// UCX takes no transport that is not named, and prefixes are names: "rc" is rc_verbs and rc_mlx5.
/// Whether they lead to other hosts.
bool look_at_transports(Findings& findings) {
  const char* named = std::getenv("UCX_TLS");
  if (named == nullptr || *named == '\0') return true;
  const std::string list(named);
  const auto names_some = [&](const std::string& text) {
    return std::ranges::any_of(std::vector<std::string>{"all", "tcp", "rc", "ud", "dc", "ib", "srd", "ugni"},
                               [&](const std::string& one) { return text.starts_with(one); });
  };
  if (list.starts_with('^') || std::ranges::any_of(ucx_transport::listed_devices(list), names_some)) {
    findings.fine("network", loom::format("UCX_TLS is \"{}\"", list));
    return true;
  }
  findings.warn("network", loom::format("UCX_TLS is \"{}\": none of these leads to another host", list),
                "unset it, or add tcp or rc: a job of several hosts cannot be set up without");
  return false;
}

void look_at_locked_memory(Findings& findings) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return;
  constexpr rlim_t kEnough = rlim_t{1} << 30;
  if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= kEnough)
    return findings.fine("locked memory", "enough");
  findings.warn(
      "locked memory", loom::format("no more than {} KiB in a process", limit.rlim_cur >> 10),
      "ulimit -l unlimited (/etc/security/limits.conf, or LimitMEMLOCK of the batch system): network "
      "cards read and write locked memory alone");
}

}  // namespace

void look_at_network(const std::vector<topo::UcxPort>& all, Findings& findings) {
  std::vector<topo::UcxPort> ports;
  std::ranges::copy_if(all, std::back_inserter(ports),
                       [](const topo::UcxPort& port) { return port.name != "lo"; });
  if (!look_at_transports(findings)) return;
  if (ports.empty())
    return findings.warn("network", "UCX finds no port beside the loopback",
                         "jobs of one host need none; else see `ucx_info -d` and UCX_NET_DEVICES");
  std::vector<std::string> texts;
  for (const topo::UcxPort& port : ports) texts.push_back(text_of(port));
  const std::string there = loom::join(texts, ", ");
  bool is_named = false;
  for (const auto& [shown, variable] :
       {std::pair("UCX_NET_DEVICES", "UCX_NET_DEVICES"),
        std::pair("coll_loom_net_devices", "OMPI_MCA_coll_loom_net_devices")}) {
    const char* const named = std::getenv(variable);
    if (named == nullptr || *named == '\0') continue;
    is_named = true;
    const auto chosen = ucx_transport::listed_devices(named);
    if (std::ranges::any_of(ports, [&](const topo::UcxPort& port) { return is_chosen(chosen, port); }))
      findings.fine("network", loom::format("{} is \"{}\", of {}", shown, named, there));
    else
      findings.warn("network", loom::format("{} is \"{}\", but there are {}", shown, named, there),
                    "name one of these, or unset it: a job of several hosts cannot be set up without");
  }
  if (!is_named)
    findings.fine("network", loom::format("{} for UCX: {}", counted(ports.size(), "port"), there));
  if (std::ranges::any_of(ports, [](const topo::UcxPort& port) { return port.port > 0; }))
    look_at_locked_memory(findings);
}

}  // namespace loom::tools
