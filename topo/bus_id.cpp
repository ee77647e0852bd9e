#include "topo/bus_id.hpp"

#include <charconv>

#include "base/format.hpp"

namespace loom::topo {
namespace {

/// Takes a hexadecimal number of at most `limit` off the front of `text`.
std::optional<std::uint32_t> take_hex(std::string_view& text, std::uint32_t limit) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || value > limit) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

bool take(std::string_view& text, char c) {
  if (text.empty() || text.front() != c) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::optional<BusId> BusId::parse(std::string_view text) {
  auto first = take_hex(text, 0xfffffff);
  if (!first || !take(text, ':')) return std::nullopt;
  const auto second = take_hex(text, 0xff);
  if (!second) return std::nullopt;
  std::uint32_t domain = 0, bus = *first, device = *second;
  if (take(text, ':')) {
    const auto third = take_hex(text, 0xff);
    if (!third) return std::nullopt;
    domain = *first, bus = *second, device = *third;
  }
  if (bus > 0xff || !take(text, '.')) return std::nullopt;
  const auto function = take_hex(text, 0xf);
  if (!function || !text.empty()) return std::nullopt;
  return BusId{domain, static_cast<std::uint8_t>(bus), static_cast<std::uint8_t>(device),
               static_cast<std::uint8_t>(*function)};
}

std::string BusId::to_string() const {
  return loom::format("{:04x}:{:02x}:{:02x}.{:x}", domain, bus, device, function);
}

}  // namespace loom::topo
