#include "tests/virtual_gpu/machine/machine.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/format.hpp"

namespace virtual_gpu::machine {
namespace {

constexpr const char* kTwoGpus = R"(<system version="1">
  <cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:10:00.0" class="0x030200" vendor="0x10de" device="0x2330" link_speed="32.0 GT/s PCIe" link_width="16">
      <gpu dev="0" sm="90"/>
    </pci>
    <pci busid="0000:11:00.0" class="0x030200" vendor="0x10de" device="0x2330" link_speed="32.0 GT/s PCIe" link_width="16">
      <gpu dev="1" sm="90"/>
    </pci>
  </cpu>
</system>)";

std::size_t host_of_environment() {
  const std::string text = variable("VIRTUAL_GPU_HOST");
  std::size_t host = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), host);
  if (!text.empty() && (error != std::errc() || end != text.data() + text.size()))
    throw Error(loom::format("VIRTUAL_GPU_HOST is '{}': set it to the number of a host, from 0.", text));
  return host;
}

}  // namespace

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t value = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return value;
}

int nvlinks_to(const Gpu& from, const Gpu& to) {
  int count = 0;
  for (const NvLinks& row : from.nvlinks)
    if (row.to == NvLinks::To::kGpu && row.target == to.bus_id.to_string()) count += row.count;
  return count;
}

const char* to_string(Link::Kind kind) {
  switch (kind) {
    case Link::Kind::kMemory:
      return "memory";
    case Link::Kind::kNvlink:
      return "NVLink";
    case Link::Kind::kC2c:
      return "C2C";
    case Link::Kind::kPcie:
      return "PCIe";
    case Link::Kind::kSocket:
      return "socket";
  }
  return "";
}

Machine Machine::from_file(const std::string& path, std::size_t host) {
  errno = 0;
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file || text.fail())  // a folder opens, but gives nothing
    throw Error(loom::format("{}: {}; name a topology file in VIRTUAL_GPU_MACHINE.", path,
                             errno != 0 ? std::strerror(errno) : "it cannot be read"));
  return Machine(read_topology(text.str(), path, host));
}

Machine Machine::from_environment() {
  const std::string path = variable("VIRTUAL_GPU_MACHINE");
  const std::size_t host = host_of_environment();
  return path.empty() ? Machine(read_topology(kTwoGpus, "the default machine", host)) : from_file(path, host);
}

Machine::Machine(Description description) : description_(std::move(description)) {
  const auto& [host, sockets, switches, gpus, wiring] = description_;
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    socket_node_.push_back(add_node(loom::format("CPU {}", sockets[i].numa)));
    const std::size_t memory = add_node(name_of(host_memory(i)));
    join(socket_node_[i], memory, Link::Kind::kMemory, host_memory_gbps(sockets[i].processor),
         kMemoryLatencyNs, true);
    for (std::size_t other = 0; other < i; ++other)
      join(socket_node_[other], socket_node_[i], Link::Kind::kSocket,
           std::min(socket_gbps(sockets[other].processor), socket_gbps(sockets[i].processor)),
           kSocketLatencyNs);
  }
  const auto join_pcie = [&](std::size_t node, std::size_t parent, std::size_t socket, double gbps) {
    if (parent == Description::kSocketItself)
      join(node, socket_node_[socket], Link::Kind::kPcie, gbps, kPcieRootLatencyNs);
    else
      join(node, switch_node_[parent], Link::Kind::kPcie, gbps, kPcieSwitchLatencyNs);
  };
  for (const Description::Switch& s : switches) {
    switch_node_.push_back(add_node("switch " + s.bus_id));
    join_pcie(switch_node_.back(), s.parent, s.socket, s.gbps);
  }
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    gpu_node_.push_back(add_node(name_of(gpu(i))));
    const std::size_t memory = add_node(name_of(gpu_memory(i)));
    join(gpu_node_[i], memory, Link::Kind::kMemory, gpus[i].memory_gbps, kMemoryLatencyNs, true);
    join_pcie(gpu_node_[i], wiring[i].parent, gpus[i].socket, wiring[i].gbps);
    double c2c_gbps = 0;
    for (const C2cLinks& row : gpus[i].c2c)
      if (row.active) c2c_gbps += row.mbps / 1000. * row.count;
    if (c2c_gbps > 0)
      join(gpu_node_[i], socket_node_[gpus[i].socket], Link::Kind::kC2c, c2c_gbps, kC2cLatencyNs);
  }
  add_nvlinks();
  for (std::size_t from = 0; from < place_count(); ++from)
    for (std::size_t to = 0; to < place_count(); ++to) routes_.push_back(make_route(place(from), place(to)));
}

/// Rows that name the GPU itself, or one that is not there, carry nothing.
void Machine::add_nvlinks() {
  const std::vector<Gpu>& gpus = description_.gpus;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const double each = nvlink_gbps(gpus[i].capability);
    int to_switch = 0, to_processor = 0;
    for (const NvLinks& row : gpus[i].nvlinks) {
      if (row.to == NvLinks::To::kSwitch) to_switch += row.count;
      if (row.to == NvLinks::To::kProcessor) to_processor += row.count;
    }
    if (to_processor > 0)
      join(gpu_node_[i], socket_node_[gpus[i].socket], Link::Kind::kNvlink, each * to_processor,
           kNvlinkLatencyNs);
    if (to_switch > 0) {
      if (!nvswitch_) nvswitch_ = add_node("NVSwitch");
      // Some files have a row for each peer behind the switch.
      join(gpu_node_[i], *nvswitch_, Link::Kind::kNvlink,
           each * std::min(to_switch, nvlink_ports(gpus[i].capability)), kNvswitchLatencyNs);
    }
    for (std::size_t peer = 0; peer < i; ++peer)
      if (const int count = nvlinks_to(gpus[i], gpus[peer]); count > 0)
        join(gpu_node_[peer], gpu_node_[i], Link::Kind::kNvlink,
             count * std::min(each, nvlink_gbps(gpus[peer].capability)), kNvlinkLatencyNs);
  }
}

std::size_t Machine::add_node(std::string name) {
  nodes_.push_back({std::move(name), {}});
  return nodes_.size() - 1;
}

void Machine::join(std::size_t a, std::size_t b, Link::Kind kind, double gbps, double latency_ns,
                   bool shared) {
  const std::size_t there = links_.size(), back = there + 1;
  links_.push_back({kind, nodes_[a].name, nodes_[b].name, gbps, latency_ns, there});
  links_.push_back({kind, nodes_[b].name, nodes_[a].name, gbps, latency_ns, shared ? there : back});
  nodes_[a].links.emplace_back(b, there);
  nodes_[b].links.emplace_back(a, back);
}

Peers Machine::peers(std::size_t from, std::size_t to) const {
  if (from == to) return Peers::kNone;
  const Gpu &a = gpus().at(from), &b = gpus().at(to);
  if (nvlinks_between(from, to)) return Peers::kNvlink;
  if (!a.pcie_peers || !b.pcie_peers) return Peers::kNoneByChipset;
  const bool passed_on = a.socket == b.socket || (peers_across_sockets(sockets()[a.socket].processor) &&
                                                  peers_across_sockets(sockets()[b.socket].processor));
  return passed_on ? Peers::kPcie : Peers::kNoneBySocket;
}

std::size_t Machine::index_of(Place place) const {
  const bool on_host = place.kind == Place::Kind::kHostMemory;
  if (place.index >= (on_host ? sockets().size() : gpus().size()))
    throw std::out_of_range("there is no such GPU or socket");
  return place.index + gpus().size() * static_cast<std::size_t>(place.kind);
}
Place Machine::place(std::size_t index) const {
  const std::size_t count = gpus().size();
  return index < count       ? gpu(index)
         : index < 2 * count ? gpu_memory(index - count)
                             : host_memory(index - 2 * count);
}
std::string Machine::name_of(Place place) const {
  switch (place.kind) {
    case Place::Kind::kGpu:
      return loom::format("GPU {}", place.index);
    case Place::Kind::kGpuMemory:
      return loom::format("memory of GPU {}", place.index);
    case Place::Kind::kHostMemory:
      return loom::format("memory of CPU {}", description_.sockets.at(place.index).numa);
  }
  return "";
}

/// The widest.
std::optional<std::size_t> Machine::find_link(std::size_t from, std::size_t to) const {
  std::optional<std::size_t> found;
  for (const auto& [node, link] : nodes_[from].links)
    if (node == to && (!found || links_[link].gbps > links_[*found].gbps)) found = link;
  return found;
}

/// From one to the other directly, or through the switch.
bool Machine::nvlinks_between(std::size_t from, std::size_t to) const {
  const std::size_t a = gpu_node_[from], b = gpu_node_[to];
  return find_link(a, b) || (nvswitch_ && find_link(a, *nvswitch_) && find_link(b, *nvswitch_));
}

/// Nodes from a GPU to its socket: over C2C or NVLink where it has them, else over PCIe.
std::vector<std::size_t> Machine::way_up(std::size_t index) const {
  const std::size_t socket = socket_node_[description_.gpus[index].socket];
  std::vector<std::size_t> way{gpu_node_[index]};
  if (!find_link(gpu_node_[index], socket))
    for (std::size_t s = description_.wiring[index].parent; s != Description::kSocketItself;
         s = description_.switches[s].parent)
      way.push_back(switch_node_[s]);
  way.push_back(socket);
  return way;
}

/// Nodes from one to the other, both included. No GPU passes on what is not its own.
std::vector<std::size_t> Machine::way_between(Place from, Place to) const {
  const auto is_host = [](Place place) { return place.kind == Place::Kind::kHostMemory; };
  const auto way_of = [&](Place place) {
    return is_host(place) ? std::vector{socket_node_[place.index]} : way_up(place.index);
  };
  if (!is_host(from) && !is_host(to)) {
    const std::size_t a = gpu_node_[from.index], b = gpu_node_[to.index];
    if (a == b) return {a};
    if (find_link(a, b)) return {a, b};
    if (nvlinks_between(from.index, to.index)) return {a, *nvswitch_, b};
  }
  std::vector<std::size_t> way;
  const std::vector<std::size_t> down = way_of(to);
  for (const std::size_t node : way_of(from)) {
    way.push_back(node);
    const auto meeting = std::find(down.begin(), down.end(), node);
    if (meeting == down.end()) continue;
    way.insert(way.end(), std::make_reverse_iterator(meeting), down.rend());
    return way;
  }
  way.insert(way.end(), down.rbegin(), down.rend());
  return way;
}

Route Machine::make_route(Place from, Place to) const {
  std::vector<std::size_t> way = way_between(from, to);
  // Memory hangs on its GPU or socket by a link of its own: the first that was made there.
  const auto memory_of = [&](std::size_t node) { return nodes_[node].links[0].first; };
  if (from.kind != Place::Kind::kGpu) way.insert(way.begin(), memory_of(way.front()));
  if (to.kind != Place::Kind::kGpu) way.push_back(memory_of(way.back()));
  Route route;
  for (std::size_t i = 0; i + 1 < way.size(); ++i) {
    const std::size_t link = find_link(way[i], way[i + 1]).value();
    route.links.push_back(link);
    route.latency_ns += links_[link].latency_ns;
  }
  for (const std::size_t link : route.links) {
    const auto passes = std::count_if(route.links.begin(), route.links.end(), [&](std::size_t other) {
      return links_[other].capacity == links_[link].capacity;
    });
    const double gbps = links_[link].gbps / static_cast<double>(passes);
    route.gbps = route.gbps == 0 ? gbps : std::min(route.gbps, gbps);
  }
  return route;
}

std::uint64_t Machine::fingerprint() const {
  std::string all;
  for (const Link& link : links_) all += loom::format("{}>{}:{};", link.from, link.to, link.gbps);
  return hash_of(all);
}

/// One form rules the whole list, as the first entry has it. It ends before the first entry that is not
/// valid; a GPU that is there twice makes all of it void.
std::vector<std::size_t> visible_gpus(const std::vector<Gpu>& gpus, const char* value) {
  std::vector<std::size_t> visible;
  if (value == nullptr) {
    for (std::size_t i = 0; i < gpus.size(); ++i) visible.push_back(i);
    return visible;
  }
  const bool by_uuid = std::string_view(value).starts_with("GPU-");
  std::istringstream list(value);
  for (std::string entry; std::getline(list, entry, ',');) {
    std::optional<std::size_t> found;
    if (by_uuid) {
      if (!entry.starts_with("GPU-")) break;
      int matches = 0;
      for (std::size_t i = 0; i < gpus.size(); ++i)
        if (to_string(gpus[i].uuid).starts_with(entry)) found = i, ++matches;
      if (matches != 1) break;
    } else {
      char* end = nullptr;
      const long ordinal = std::strtol(entry.c_str(), &end, 10);
      if (end == entry.c_str() || ordinal < 0 || ordinal >= std::ssize(gpus)) break;
      found = static_cast<std::size_t>(ordinal);
    }
    if (std::find(visible.begin(), visible.end(), *found) != visible.end()) return {};
    visible.push_back(*found);
  }
  return visible;
}

}  // namespace virtual_gpu::machine
