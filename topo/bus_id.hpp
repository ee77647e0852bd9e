// bus_id.hpp -- the address of a PCI function, as all of Linux writes it: domain:bus:device.function.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace loom::topo {

struct BusId {
  std::uint32_t domain = 0;
  std::uint8_t bus = 0, device = 0, function = 0;

  /// "0000:c4:00.0", "c4:00.0" (domain 0); nullopt for anything else.
  static std::optional<BusId> parse(std::string_view text);
  std::string to_string() const;
  friend auto operator<=>(const BusId&, const BusId&) = default;
};

}  // namespace loom::topo
