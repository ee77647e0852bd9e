#include "topo/hwloc_objects.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "topo/bandwidth.hpp"

namespace loom::topo {
namespace {

constexpr std::size_t kMostMatrixObjects = 2048;

std::vector<std::string> words(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::vector<std::string> all;
  for (std::string word; in >> word;) all.push_back(word);
  return all;
}

/// hwloc gives a whole link's GB/s. Which generation and width that was does not matter to bandwidth: the
/// widest that fits.
void guess_link(double gbytes, PciFunction& pci) {
  constexpr std::pair<double, const char*> kLanes[] = {{0.25, "2.5 GT/s PCIe"},   {0.5, "5.0 GT/s PCIe"},
                                                       {0.9846, "8.0 GT/s PCIe"}, {1.969, "16.0 GT/s PCIe"},
                                                       {3.938, "32.0 GT/s PCIe"}, {7.563, "64.0 GT/s PCIe"}};
  for (const int width : {16, 8, 4, 2, 1, 32})
    for (const auto& [lane_gbytes, speed] : kLanes)
      if (std::abs(gbytes / (width * lane_gbytes) - 1) < 0.06) {
        pci.link_speed = speed, pci.link_width = width;
        return;
      }
}

}  // namespace

std::string_view type_of(pugi::xml_node object) {
  return object.attribute("type").value();
}

pugi::xml_node info(pugi::xml_node object, std::string_view name) {
  for (const pugi::xml_node child : object.children("info"))
    if (child.attribute("name").value() == name) return child;
  return {};
}
std::string info_text(pugi::xml_node object, std::string_view name) {
  return info(object, name).attribute("value").value();
}
pugi::xml_node above(pugi::xml_node object, std::string_view type) {
  while (object && type_of(object) != type) object = object.parent();
  return object;
}

std::int64_t loom_int(const XmlDocument& xml, pugi::xml_node object, const std::string& name,
                      std::int64_t low, std::int64_t high, std::int64_t fallback) {
  const pugi::xml_node element = info(object, "loom." + name);
  return element ? xml.integer(element, "value", low, high) : fallback;
}
std::optional<int> loom_optional(const XmlDocument& xml, pugi::xml_node object, const std::string& name) {
  const pugi::xml_node element = info(object, "loom." + name);
  return element ? std::optional(static_cast<int>(xml.integer(element, "value", -1, kMostIds)))
                 : std::nullopt;
}

bool is_upstream_port(pugi::xml_node object) {
  int bridges = 0;
  for (pugi::xml_node up = object.parent();
       type_of(up) == "Bridge" && *up.attribute("pci_busid").value() != '\0'; up = up.parent())
    ++bridges;
  return bridges % 2 == 1;
}

PciFunction hwloc_function(const XmlDocument& xml, pugi::xml_node object) {
  PciFunction pci;
  pci.bus_id = bus_id(xml, object, "pci_busid");
  // "0302 [10de:2330] [10de:16c1] a1"
  unsigned class_code = 0, vendor = 0, device = 0, subsystem_vendor = 0, subsystem_device = 0;
  const std::string type = xml.text_or(object, "pci_type", "");
  if (std::sscanf(type.c_str(), "%4x [%4x:%4x] [%4x:%4x]", &class_code, &vendor, &device, &subsystem_vendor,
                  &subsystem_device) != 5)
    xml.fail(object, "attribute 'pci_type' is not like 0302 [10de:2330] [10de:16c1] a1.");
  pci.class_code = static_cast<std::uint32_t>(loom_int(xml, object, "class", 0, 0xffffff, class_code << 8));
  pci.vendor = static_cast<std::uint16_t>(vendor), pci.device = static_cast<std::uint16_t>(device);
  pci.subsystem_vendor = static_cast<std::uint16_t>(subsystem_vendor);
  pci.subsystem_device = static_cast<std::uint16_t>(subsystem_device);
  const double gbytes = xml.number_or(object, "pci_link_speed", 0, 1e6, 0);
  if (info(object, "loom.link_width")) {
    pci.link_speed = info_text(object, "loom.link_speed");
    pci.link_width = static_cast<int>(loom_int(xml, object, "link_width", 0, kWidestPci, 0));
  } else {
    guess_link(gbytes, pci);
  }
  return pci;
}

bool is_port(pugi::xml_node object) {
  const int os_type = object.attribute("osdev_type").as_int(-1);
  return type_of(object) == "OSDev" && (os_type == 2 || os_type == 3);  // network, OpenFabrics
}

std::optional<std::uint64_t> guid_of(std::string text) {
  std::erase(text, ':');
  std::uint64_t guid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), guid, 16);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(guid) : std::nullopt;
}

void add_loom_links(const XmlDocument& xml, pugi::xml_node object, GpuInfo& gpu) {
  const auto number = [&](pugi::xml_node element, const std::string& text, int base, int high) {
    int value = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > high)
      xml.fail(element, "its value is no list of links.");
    return value;
  };
  for (const pugi::xml_node child : object.children("info")) {
    const std::string_view name = child.attribute("name").value();
    const std::vector<std::string> parts = words(child.attribute("value").value());
    if (name == "loom.nvlink") {
      if (parts.size() != 3) xml.fail(child, "its value is not \"target count class\".");
      NvLinks row;
      row.target_seen = parts[0] != "-";
      if (row.target_seen) {
        const auto target = BusId::parse(parts[0]);
        if (!target) xml.fail(child, "its value does not begin with a PCI address.");
        row.target = *target;
      }
      row.count = number(child, parts[1], 10, 1024);
      row.target_class = static_cast<std::uint32_t>(number(child, parts[2], 16, 0xffffff));
      if (row.count > 0) gpu.nvlinks.push_back(row);
    } else if (name == "loom.c2c") {
      if (parts.size() != 2) xml.fail(child, "its value is not \"MB/s count\".");
      const C2cLinks row{number(child, parts[0], 10, 100'000'000), number(child, parts[1], 10, 1024)};
      if (row.mbps > 0 && row.count > 0) gpu.c2c.push_back(row);
    }
  }
}

BusId bus_id(const XmlDocument& xml, pugi::xml_node element, const char* attribute) {
  const auto id = BusId::parse(xml.text(element, attribute));
  if (!id) xml.fail(element, fmt::format("attribute '{}' is no PCI address like 0000:c4:00.0.", attribute));
  return *id;
}

std::vector<NvLinkBandwidth> nvlink_matrix(const XmlDocument& xml, pugi::xml_node element) {
  std::string index_text, value_text;
  for (const pugi::xml_node child : element.children("indexes"))
    index_text += std::string(" ") + child.child_value();
  for (const pugi::xml_node child : element.children("u64values"))
    value_text += std::string(" ") + child.child_value();
  const std::vector<std::string> indexes = words(index_text), values = words(value_text);
  if (indexes.size() > kMostMatrixObjects || values.size() != indexes.size() * indexes.size())
    xml.fail(element, fmt::format("it has {} values for {} objects.", values.size(), indexes.size()));
  const auto number = [](std::string_view text) {
    std::uint64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  // An index stands alone, or as "PCIDev:17".
  const auto index_at = [&](std::size_t i) {
    return number(std::string_view(indexes[i]).substr(indexes[i].find(':') + 1));
  };
  std::vector<NvLinkBandwidth> entries;
  for (std::size_t i = 0; i < indexes.size(); ++i)
    for (std::size_t j = 0; j < indexes.size(); ++j)
      if (const std::uint64_t mbps = number(values[i * indexes.size() + j]); i != j && mbps > 0)
        entries.push_back({index_at(i), index_at(j), static_cast<double>(mbps)});
  return entries;
}

}  // namespace loom::topo
