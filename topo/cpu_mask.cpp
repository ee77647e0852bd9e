#include "topo/cpu_mask.hpp"

#include <charconv>
#include <cstdint>

#include "base/format.hpp"

namespace loom::topo {
namespace {

constexpr std::size_t kMostGroups = 1024;  // 32768 CPUs

/// The groups between commas, highest first; hwloc leaves out the text of empty ones.
std::optional<std::vector<std::uint32_t>> groups_of(std::string_view text) {
  std::vector<std::uint32_t> groups;
  if (text.empty()) return groups;
  for (bool more = true; more;) {
    const std::size_t comma = text.find(',');
    std::string_view group = text.substr(0, comma);
    if (group.starts_with("0x")) group.remove_prefix(2);
    std::uint32_t bits = 0;
    if (!group.empty()) {
      const auto [end, error] = std::from_chars(group.data(), group.data() + group.size(), bits, 16);
      if (error != std::errc() || end != group.data() + group.size()) return std::nullopt;
    }
    groups.push_back(bits);
    if (groups.size() > kMostGroups) return std::nullopt;
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
  }
  return groups;
}

}  // namespace

std::optional<std::string> cpu_mask(std::string_view text) {
  const auto groups = groups_of(text);
  if (!groups) return std::nullopt;
  std::string mask;
  for (const std::uint32_t bits : *groups)
    if (!mask.empty() || bits != 0) mask += loom::format("{}{:08x}", mask.empty() ? "" : ",", bits);
  return mask;
}

std::vector<int> cpus_of(std::string_view mask) {
  std::vector<int> cpus;
  const auto groups = groups_of(mask).value_or(std::vector<std::uint32_t>{});
  for (std::size_t i = 0; i < groups.size(); ++i)
    for (int bit = 0; bit < 32; ++bit)
      if (groups[groups.size() - 1 - i] >> bit & 1) cpus.push_back(static_cast<int>(i) * 32 + bit);
  return cpus;
}

std::string mask_of(const std::vector<int>& cpus) {
  std::vector<std::uint32_t> groups;
  for (const int cpu : cpus) {
    const auto group = static_cast<std::size_t>(cpu) / 32;
    if (group >= groups.size()) groups.resize(group + 1);
    groups[group] |= 1U << (cpu % 32);
  }
  std::string mask;
  for (auto bits = groups.rbegin(); bits != groups.rend(); ++bits)
    mask += loom::format("{}{:08x}", mask.empty() ? "" : ",", *bits);
  return mask;
}

std::string to_hwloc_mask(std::string_view mask) {
  if (mask.empty()) return "0x0";
  std::string text = "0x";
  for (const char c : mask) text += c == ',' ? std::string(",0x") : std::string(1, c);
  return text;
}

std::string to_cpu_list(std::string_view mask) {
  std::vector<std::string> ranges;
  const std::vector<int> cpus = cpus_of(mask);
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    ranges.push_back(last == i ? loom::format("{}", cpus[i]) : loom::format("{}-{}", cpus[i], cpus[last]));
    i = last + 1;
  }
  return loom::join(ranges, ",");
}

}  // namespace loom::topo
