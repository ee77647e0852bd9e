#include "topo/hwloc_objects.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/format.hpp"
#include "topo/bandwidth.hpp"
#include "topo/draft_reader.hpp"

namespace loom::topo {
namespace {

constexpr std::size_t kMostMatrixObjects = 2048;

/// At most `limit` + 1 of them.
std::vector<std::string_view> words(std::string_view text, std::size_t limit = 16) {
  constexpr std::string_view kSpace = " \t\n\r";
  std::vector<std::string_view> all;
  for (std::size_t at = 0; all.size() <= limit;) {
    const std::size_t first = text.find_first_not_of(kSpace, at);
    if (first == std::string_view::npos) break;
    at = std::min(text.find_first_of(kSpace, first), text.size());
    all.push_back(text.substr(first, at - first));
  }
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
std::optional<int> loom_optional(const XmlDocument& xml, pugi::xml_node object, const std::string& name,
                                 int low, int high) {
  const pugi::xml_node element = info(object, "loom." + name);
  return element ? std::optional(static_cast<int>(xml.integer(element, "value", low, high))) : std::nullopt;
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
    pci.link_width = static_cast<int>(loom_int(xml, object, "link_width", 0, 255, 0));
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
  const bool valid = error == std::errc() && end == text.data() + text.size();
  return valid && guid != 0 ? std::optional(guid) : std::nullopt;
}

namespace {

int number_in(const XmlDocument& xml, pugi::xml_node element, std::string_view text, int base, int high) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > high)
    xml.fail(element, "its value is no list of links.");
  return value;
}

}  // namespace

NvLinks loom_nvlinks(const XmlDocument& xml, pugi::xml_node element) {
  const std::vector<std::string_view> parts = words(element.attribute("value").value());
  if (parts.size() != 3) xml.fail(element, "its value is not \"target count class\".");
  NvLinks row;
  row.target_seen = parts[0] != "-";
  if (row.target_seen) {
    const auto target = BusId::parse(parts[0]);
    if (!target) xml.fail(element, "its value does not begin with a PCI address.");
    row.target = *target;
  }
  row.count = number_in(xml, element, parts[1], 10, kMostNvLinks);
  row.target_class = static_cast<std::uint32_t>(number_in(xml, element, parts[2], 16, 0xffffff));
  return row;
}

C2cLinks loom_c2c(const XmlDocument& xml, pugi::xml_node element) {
  const std::vector<std::string_view> parts = words(element.attribute("value").value());
  if (parts.size() != 2) xml.fail(element, "its value is not \"MB/s count\".");
  return {number_in(xml, element, parts[0], 10, kMostC2cMbps),
          number_in(xml, element, parts[1], 10, kMostNvLinks)};
}

std::vector<NvLinkBandwidth> nvlink_matrix(const XmlDocument& xml, pugi::xml_node element) {
  std::string index_text, value_text;
  for (const pugi::xml_node child : element.children("indexes"))
    index_text += std::string(" ") + child.child_value();
  for (const pugi::xml_node child : element.children("u64values"))
    value_text += std::string(" ") + child.child_value();
  const auto indexes = words(index_text, kMostMatrixObjects);
  if (indexes.size() > kMostMatrixObjects)
    xml.fail(element, loom::format("it has more than {} objects, the limit.", kMostMatrixObjects));
  const std::size_t pairs = indexes.size() * indexes.size();
  const auto values = words(value_text, pairs);
  if (values.size() != pairs)
    xml.fail(element,
             loom::format("it has {}{} values for {} objects.", values.size() > pairs ? "more than " : "",
                          std::min(values.size(), pairs), indexes.size()));
  const auto number = [](std::string_view text) {
    std::uint64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  // An index stands alone, or as "PCIDev:17".
  const auto index_at = [&](std::size_t i) { return number(indexes[i].substr(indexes[i].find(':') + 1)); };
  std::vector<NvLinkBandwidth> entries;
  for (std::size_t i = 0; i < indexes.size(); ++i)
    for (std::size_t j = 0; j < indexes.size(); ++j)
      if (const std::uint64_t mbps = number(values[i * indexes.size() + j]); i != j && mbps > 0)
        entries.push_back({index_at(i), index_at(j), static_cast<double>(mbps)});
  return entries;
}

}  // namespace loom::topo
