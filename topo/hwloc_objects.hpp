// hwloc_objects.hpp -- inside topo: what single elements of hwloc's XML say.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topo/limits.hpp"
#include "topo/system.hpp"
#include "topo/xml.hpp"

namespace loom::topo {

std::string_view type_of(pugi::xml_node object);
/// The closest object above, itself included, of this type; empty where there is none.
pugi::xml_node above(pugi::xml_node object, std::string_view type);
/// The <info> of an object with this name; empty where there is none.
pugi::xml_node info(pugi::xml_node object, std::string_view name);
std::string info_text(pugi::xml_node object, std::string_view name);
/// The whole number in "loom.<name>", or `fallback` without one.
std::int64_t loom_int(const XmlDocument& xml, pugi::xml_node object, const std::string& name,
                      std::int64_t low, std::int64_t high, std::int64_t fallback);
std::optional<int> loom_optional(const XmlDocument& xml, pugi::xml_node object, const std::string& name,
                                 int low, int high);

/// An operating system's network interface or OpenFabrics device.
bool is_port(pugi::xml_node object);
/// Of the bridges that hwloc shows (root ports, upstream and downstream ports) the one that stands for a
/// switch.
bool is_upstream_port(pugi::xml_node object);
PciFunction hwloc_function(const XmlDocument& xml, pugi::xml_node object);
/// A NodeGUID: "b859:9f03:00a8:6b42"; nullopt also for 0, which drivers say where they know none.
std::optional<std::uint64_t> guid_of(std::string text);

/// An <info> "loom.nvlink": "<target or -> <count> <class>".
NvLinks loom_nvlinks(const XmlDocument& xml, pugi::xml_node element);
/// An <info> "loom.c2c": "<MB/s> <count>".
C2cLinks loom_c2c(const XmlDocument& xml, pugi::xml_node element);

/// What a matrix NVLinkBandwidth says of two objects, by their gp_index.
struct NvLinkBandwidth {
  std::uint64_t from_index = 0, to_index = 0;
  double mbps = 0;  ///< MB/s
};
/// Without the diagonal and zeros.
std::vector<NvLinkBandwidth> nvlink_matrix(const XmlDocument& xml, pugi::xml_node element);
/// MB/s that hwloc's NVML backend counts for one NVLink: 20000 on Pascal, 25000 later.
constexpr int hwloc_nvlink_mbps(int compute_capability) {
  return compute_capability != 0 && compute_capability < 70 ? 20000 : 25000;
}

}  // namespace loom::topo
