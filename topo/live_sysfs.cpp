// live_sysfs.cpp -- /sys: what links and ports can do, and which ports are up. hwloc has found the devices.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "base/format.hpp"
#include "topo/bandwidth.hpp"
#include "topo/hwloc_objects.hpp"
#include "topo/live_sources.hpp"

namespace loom::topo {
namespace {

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<double> first_number(const std::filesystem::path& path) {
  const std::string line = first_line(path);
  double value = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

/// What a function and the port above it can do together. Not what they do now: an idle GPU slows its link
/// down.
void add_pci_link(PciFunction& pci, const std::filesystem::path& device) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(device, error);
  if (error) return;
  std::string speed;
  std::optional<double> lane;
  std::optional<int> width;
  for (const std::filesystem::path& end : {real, real.parent_path()}) {
    const std::string text = first_line(end / "max_link_speed");
    if (const auto gbit = pci_lane_gbit(text, Model::kLoom); gbit && (!lane || *gbit < *lane))
      lane = gbit, speed = text;
    // 255 and 0 stand for "not known" in virtual machines.
    if (const auto lanes = first_number(end / "max_link_width"); lanes && *lanes >= 1 && *lanes <= kWidestPci)
      width = std::min(width.value_or(kWidestPci), static_cast<int>(*lanes));
  }
  if (!lane || !width) return;
  pci.link_speed = speed, pci.link_width = *width;
}

class Ports {
 public:
  Ports(Draft& draft, const std::filesystem::path& root)
      : draft_(draft), verbs_(root / "class/infiniband"), networks_(root / "class/net") {}

  void read() {
    std::vector<bool> gone(draft_.nodes.size());
    for (NodeId id = 0; id < static_cast<NodeId>(gone.size()); ++id)
      if (std::holds_alternative<NetInfo>(draft_.node(id).info))
        gone[static_cast<std::size_t>(id)] = !read_device(id);
    gone.resize(draft_.nodes.size());  // further ports were added behind
    erase_leaves(draft_, gone);
    sort_depth_first(draft_);
    int device = 0;
    for (Node& node : draft_.nodes)
      if (auto* net = std::get_if<NetInfo>(&node.info)) net->device = device++;
  }

 private:
  /// False: none of its ports is up.
  bool read_device(NodeId id) {
    const std::string name = draft_.node(id).net().name;
    std::vector<int> numbers = port_numbers(verbs_ / name / "ports");
    if (numbers.empty()) numbers = {draft_.node(id).net().port};
    bool first = true;
    for (const int number : numbers) {
      NetInfo net = draft_.node(id).net();
      net.port = number;
      if (const std::string state = trouble(net); !state.empty()) {
        draft_.notes.push_back(loom::format("{}{} is left out: it is {}.", name,
                                            number > 0 ? loom::format(" port {}", number) : "", state));
        continue;
      }
      add_speed_and_guid(net);
      if (std::exchange(first, false))
        draft_.node(id).info = std::move(net);
      else
        draft_.add({std::move(net), draft_.node(id).parent, draft_.node(id).host, std::nullopt});
    }
    return !first;
  }

  /// Ascending; none unless it is a verbs device.
  static std::vector<int> port_numbers(const std::filesystem::path& folder) {
    std::vector<int> numbers;
    std::error_code absent;
    for (const auto& entry : std::filesystem::directory_iterator(folder, absent)) {
      const std::string name = entry.path().filename().string();
      int number = 0;
      if (std::from_chars(name.data(), name.data() + name.size(), number).ec == std::errc())
        numbers.push_back(number);
    }
    std::sort(numbers.begin(), numbers.end());
    return numbers;
  }

  /// "DOWN" and the like; empty where it is up, or sysfs does not say.
  std::string trouble(const NetInfo& net) const {
    const std::filesystem::path port = verbs_ / net.name / "ports" / std::to_string(net.port);
    // "4: ACTIVE", "1: DOWN"
    if (const std::string state = first_line(port / "state"); !state.empty())
      return state.find("ACTIVE") != std::string::npos
                 ? ""
                 : state.substr(std::min(state.find(' ') + 1, state.size()));
    const std::string state = first_line(networks_ / net.name / "operstate");
    return state == "down" || state == "lowerlayerdown" || state == "notpresent" ? state : "";
  }

  void add_speed_and_guid(NetInfo& net) const {
    const std::filesystem::path device = verbs_ / net.name;
    // "200 Gb/sec (4X HDR)"
    if (const auto gbit = first_number(device / "ports" / std::to_string(net.port) / "rate");
        gbit && *gbit > 0)
      net.speed_mbps = *gbit * 1000;
    else if (const auto mbit = first_number(networks_ / net.name / "speed"); mbit && *mbit > 0)
      net.speed_mbps = *mbit;
    if (!net.guid) net.guid = guid_of(first_line(device / "node_guid"));
  }

  Draft& draft_;
  const std::filesystem::path verbs_, networks_;
};

bool has_gpu(const Draft& draft, const BusId& bus_id) {
  return std::any_of(draft.nodes.begin(), draft.nodes.end(), [&](const Node& node) {
    return node.kind() == NodeKind::kGpu && node.pci && node.pci->bus_id == bus_id;
  });
}

/// kNoNode where sysfs does not know the function.
NodeId place_in_sysfs(Draft& draft, const std::filesystem::path& device) {
  std::error_code error;
  std::filesystem::path above = std::filesystem::canonical(device, error);
  if (error) return kNoNode;
  const auto numa = first_number(above / "numa_node");
  for (above = above.parent_path(); BusId::parse(above.filename().string()); above = above.parent_path())
    for (std::size_t id = 0; id < draft.nodes.size(); ++id)
      if (const Node& node = draft.nodes[id];
          node.kind() == NodeKind::kPciSwitch && node.pci->bus_id == BusId::parse(above.filename().string()))
        return static_cast<NodeId>(id);
  return numa && *numa >= 0 ? cpu_with(draft, static_cast<int>(*numa)) : kNoNode;
}

}  // namespace

std::string fabric_of(const UcxPort& port, const std::string& root) {
  const std::filesystem::path folder =
      std::filesystem::path(root) / "class/infiniband" / port.name / "ports" / std::to_string(port.port);
  const std::string layer = first_line(folder / "link_layer");
  if (layer != "InfiniBand") return layer;
  // "fe80:0000:0000:0000:b859:9f03:00f7:1234": the subnet's prefix, and the port's number in it.
  constexpr std::size_t kPrefix = std::string_view("fe80:0000:0000:0000").size();
  return layer + " " + first_line(folder / "gids/0").substr(0, kPrefix);
}

void add_missing_gpus(Draft& draft, std::span<const BusId> bus_ids, const std::string& root) {
  for (const BusId& bus_id : bus_ids) {
    if (has_gpu(draft, bus_id)) continue;
    NodeId parent =
        place_in_sysfs(draft, std::filesystem::path(root) / "bus/pci/devices" / bus_id.to_string());
    if (parent == kNoNode) {
      parent = cpu_with(draft, kNoNuma);
      draft.notes.push_back(
          loom::format("Where GPU {} is on this machine is not known: NUMA node {} is taken.",
                       bus_id.to_string(), draft.node(parent).cpu().numa_id));
    }
    add_gpu(draft, bus_id, parent);
  }
  sort_depth_first(draft);
}

void add_from_sysfs(Draft& draft, const std::string& root) {
  const std::filesystem::path sysfs(root);
  for (Node& node : draft.nodes)
    if (node.pci) add_pci_link(*node.pci, sysfs / "bus/pci/devices" / node.pci->bus_id.to_string());
  Ports(draft, sysfs).read();
}

}  // namespace loom::topo
