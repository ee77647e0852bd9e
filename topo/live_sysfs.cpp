#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>

#include "topo/bandwidth.hpp"
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

void add_port(NetInfo& net, const std::filesystem::path& root) {
  const std::filesystem::path verbs = root / "class/infiniband" / net.name;
  // "200 Gb/sec (4X HDR)"
  if (const auto gbit = first_number(verbs / "ports" / std::to_string(net.port) / "rate"); gbit && *gbit > 0)
    net.speed_mbps = *gbit * 1000;
  else if (const auto mbit = first_number(root / "class/net" / net.name / "speed"); mbit && *mbit > 0)
    net.speed_mbps = *mbit;
  if (net.guid) return;
  std::string guid = first_line(verbs / "node_guid");
  std::erase(guid, ':');
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(guid.data(), guid.data() + guid.size(), value, 16);
  if (error == std::errc() && !guid.empty()) net.guid = value;
}

}  // namespace

void add_from_sysfs(Draft& draft, const std::string& root) {
  const std::filesystem::path sysfs(root);
  for (Node& node : draft.nodes) {
    if (node.pci) add_pci_link(*node.pci, sysfs / "bus/pci/devices" / node.pci->bus_id.to_string());
    if (auto* net = std::get_if<NetInfo>(&node.info)) add_port(*net, sysfs);
  }
}

}  // namespace loom::topo
