#include "tests/virtual_gpu/machine/traffic.hpp"

#include <cstdio>

#include "base/format.hpp"

namespace virtual_gpu::machine {

std::uint64_t Traffic::bytes(Place from, Place to) const {
  return state_.moved()[machine_.index_of(from) * machine_.place_count() + machine_.index_of(to)].load(
      std::memory_order_relaxed);
}

TrafficReport Traffic::report() const {
  TrafficReport report;
  report.elsewhere = state_.header().elsewhere.load(std::memory_order_relaxed);
  const std::vector<Link>& links = machine_.links();
  std::vector<std::uint64_t> of_link(links.size()), of_capacity(links.size());
  for (std::size_t from = 0; from < machine_.place_count(); ++from)
    for (std::size_t to = 0; to < machine_.place_count(); ++to) {
      const std::uint64_t moved = bytes(machine_.place(from), machine_.place(to));
      if (moved == 0) continue;
      report.flows.push_back({machine_.place(from), machine_.place(to), moved});
      for (const std::size_t link : machine_.route(from, to).links) {
        of_link[link] += moved;
        of_capacity[links[link].capacity] += moved;
      }
    }
  for (std::size_t i = 0; i < links.size(); ++i) {
    if (of_link[i] == 0) continue;
    const double ns =
        static_cast<double>(of_capacity[links[i].capacity]) / links[i].gbps;  // 1 GB/s: 1 byte/ns
    report.rows.push_back({i, of_link[i], ns / 1000});
    if (report.rows.back().us > report.slowest.us) report.slowest = report.rows.back();
  }
  return report;
}

std::string to_string(const TrafficReport& report, const Machine& machine) {
  std::string text =
      loom::format("{:<8} {:<20} {:<20} {:>9} {:>16} {:>14}\n", "link", "from", "to", "GB/s", "bytes", "us");
  for (const TrafficReport::Row& row : report.rows) {
    const Link& link = machine.links()[row.link];
    text += loom::format("{:<8} {:<20} {:<20} {:>9.1f} {:>16} {:>14.1f}\n", to_string(link.kind), link.from,
                         link.to, link.gbps, row.bytes, row.us);
  }
  if (report.elsewhere > 0)
    text += loom::format("{} bytes from or to GPUs of other machines are in no row\n", report.elsewhere);
  if (report.rows.empty()) return text + "nothing has moved\n";
  const Link& slowest = machine.links()[report.slowest.link];
  return text +
         loom::format("the slowest link: {} to {}, {:.1f} us\n", slowest.from, slowest.to, report.slowest.us);
}

void leave(const Machine& machine, SharedState& state) {
  const std::string path = variable("VIRTUAL_GPU_TRAFFIC");
  if (!state.leave() || path.empty()) return;
  const std::string text = to_string(Traffic(machine, state).report(), machine);
  std::FILE* const file = path == "-" ? stderr : std::fopen(path.c_str(), "w");
  bool written = file != nullptr && std::fputs(text.c_str(), file) >= 0;
  if (file != nullptr && file != stderr) written = std::fclose(file) == 0 && written;
  if (!written) throw Error(path + ": it cannot be written; name another file in VIRTUAL_GPU_TRAFFIC.");
}

}  // namespace virtual_gpu::machine
