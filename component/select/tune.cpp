#include "component/select/tune.hpp"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/error.hpp"
#include "base/format.hpp"

namespace loom {
namespace {

constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();
constexpr std::string_view kAll = "all", kTable = "table", kInfinite = "inf";

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

/// "8k". False if it is no size, or too large for a size.
bool read_size(std::string_view text, std::size_t& size) {
  size = kNoLimit;
  if (text == kInfinite) return true;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error != std::errc() || end == text.data()) return false;
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  if (unit.empty()) return true;
  const auto power = std::string_view("kmgt").find(static_cast<char>(unit[0] | 0x20));
  if (unit.size() != 1 || power == std::string_view::npos) return false;
  const auto bits = 10 * (power + 1);
  if (size > kNoLimit >> bits) return false;
  size <<= bits;
  return true;
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (std::size_t first = 0; first <= text.size();) {
    const std::size_t end = std::min(text.find(at, first), text.size());
    parts.push_back(trimmed(text.substr(first, end - first)));
    first = end + 1;
  }
  return parts;
}

}  // namespace

Tune::Rule Tune::parse_rule(std::string_view text, std::string_view where) {
  const auto wrong = [&](const std::string& what) {
    return Error(ErrorCode::kBadInput, loom::format("{}: \"{}\": {}", where, text, what));
  };
  const std::vector<std::string_view> parts = split(text, ':');
  if (parts.size() < 2 || parts.size() > 3)
    throw wrong(
        "A rule is COLLECTIVE:ALGORITHM or COLLECTIVE:FROM-TO:ALGORITHM, such as bcast:ring or "
        "allreduce:0-8k:hier.");
  Rule rule{.text = std::string(text),
            .where = std::string(where),
            .collectives = {},
            .from = 0,
            .to = kNoLimit,
            .algorithm = {}};
  if (parts[0] == kAll) {
    rule.collectives.set();
  } else if (const auto collective = collective_named(parts[0])) {
    rule.collectives.set(static_cast<std::size_t>(*collective));
  } else {
    std::vector<std::string_view> names{kAll};
    for (std::size_t i = 0; i < device::kCollectiveCount; ++i)
      names.push_back(name_of(static_cast<device::Collective>(i)));
    throw wrong(
        loom::format("There is no collective \"{}\". There are: {}.", parts[0], loom::join(names, ", ")));
  }
  if (parts.size() == 3) {
    const std::vector<std::string_view> range = split(parts[1], '-');
    if (range.size() != 2 || !read_size(range[0], rule.from) || !read_size(range[1], rule.to) ||
        rule.from >= rule.to)
      throw wrong(
          loom::format("\"{}\" is no range of sizes. It is FROM-TO, such as 0-8k or 1m-inf.", parts[1]));
  }
  if (parts.back() != kTable) {
    rule.algorithm = algorithm_named(parts.back());
    if (!rule.algorithm) {
      std::vector<std::string_view> names{kTable, name_of(Algorithm::kFallback), name_of(Algorithm::kStaged)};
      for (const AlgorithmRow& row : algorithms()) names.push_back(row.name);
      throw wrong(loom::format("There is no algorithm \"{}\". There are: {}.", parts.back(),
                               loom::join(names, ", ")));
    }
    bool any = !has_row(*rule.algorithm);
    for (std::size_t i = 0; i < device::kCollectiveCount && !any; ++i)
      any = rule.collectives[i] && row_of(*rule.algorithm).carries(static_cast<device::Collective>(i));
    if (!any) throw wrong(loom::format("{} does not carry {}.", parts.back(), parts[0]));
  }
  return rule;
}

Tune Tune::parse(std::string_view text, std::string_view where) {
  Tune tune;
  for (std::string_view line : split(text, '\n')) {
    line = line.substr(0, line.find('#'));
    for (const std::string_view rule : split(line, ','))
      if (!rule.empty()) tune.rules_.push_back(parse_rule(rule, where));
  }
  return tune;
}

void Tune::append(const Tune& other) {
  rules_.insert(rules_.end(), other.rules_.begin(), other.rules_.end());
}

bool Tune::probes(device::Collective collective, std::size_t whole_bytes) const {
  return std::ranges::none_of(
      rules_, [&](const Rule& rule) { return !rule.algorithm && rule.fits(collective, whole_bytes); });
}

bool Tune::has_rule_on_devices(device::Collective collective, std::size_t whole_bytes,
                               std::optional<Algorithm> algorithm) const {
  for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule) {
    if (!rule->fits(collective, whole_bytes)) continue;
    if (!rule->algorithm) return false;
    const bool is_last = !has_row(*rule->algorithm);
    if ((is_last || row_of(*rule->algorithm).on_devices) &&
        rule->algorithm == algorithm.value_or(*rule->algorithm))
      return true;
    if (is_last) return false;
  }
  return false;
}

bool Tune::may_use_on_devices(Algorithm algorithm, bool kernels, bool zero_copy) const {
  for (std::size_t i = 0; i < device::kCollectiveCount; ++i) {
    const auto collective = static_cast<device::Collective>(i);
    const auto carries = [&](Algorithm each) {
      return row_of(each).carries(collective) && (is_by_kernel(each) ? kernels : zero_copy);
    };
    std::vector<std::size_t> sizes = limits(collective);
    sizes.push_back(1);
    for (const std::size_t size : sizes)
      for (const Algorithm faster : {Algorithm::kKernel, Algorithm::kZeroCopy})
        if (on_devices(collective, size, carries, faster) == algorithm) return true;
  }
  return false;
}

bool Tune::names(Algorithm algorithm) const {
  return std::ranges::any_of(rules_, [&](const Rule& rule) { return rule.algorithm == algorithm; });
}

bool Tune::may_use_kernels(bool zero_copy) const {
  return std::ranges::any_of(algorithms(), [&](const AlgorithmRow& row) {
    return is_by_kernel(row.algorithm) && may_use_on_devices(row.algorithm, true, zero_copy);
  });
}

std::vector<std::size_t> Tune::limits(device::Collective collective) const {
  std::vector<std::size_t> limits;
  for (const Rule& rule : rules_)
    for (const std::size_t limit : {rule.from, rule.to})
      if (rule.collectives[static_cast<std::size_t>(collective)] && limit > 0 && limit < kNoLimit)
        limits.push_back(limit);
  return limits;
}

std::vector<std::string> Tune::without_effect(const Conditions& conditions,
                                              std::string_view not_on_gpus) const {
  std::vector<std::string> lines;
  for (const Rule& rule : rules_) {
    if (!rule.algorithm || !has_row(*rule.algorithm)) continue;
    const AlgorithmRow& row = row_of(*rule.algorithm);
    const char* why = nullptr;
    bool can = false;
    for (std::size_t i = 0; i < device::kCollectiveCount && !can; ++i) {
      const auto collective = static_cast<device::Collective>(i);
      if (!rule.collectives[i] || !row.carries(collective)) continue;
      why = row.why_not(conditions, collective);
      can = why == nullptr;
    }
    if (!can)
      lines.push_back(loom::format("{}: \"{}\" has no effect: {}", rule.where, rule.text, why));
    else if (row.on_devices && !not_on_gpus.empty())
      lines.push_back(loom::format("{}: \"{}\" has no effect: it is for calls that stay on GPUs, and {}.",
                                   rule.where, rule.text, not_on_gpus));
  }
  return lines;
}

std::uint64_t Tune::mark() const {
  if (rules_.empty()) return 0;
  std::uint64_t mark = 14695981039346656037U;  // FNV-1a
  const auto mix = [&](std::uint64_t word) {
    for (int byte = 0; byte < 8; ++byte) mark = (mark ^ (word >> 8 * byte & 0xff)) * 1099511628211U;
  };
  for (const Rule& rule : rules_) {
    mix(rule.collectives.to_ullong());
    mix(rule.from);
    mix(rule.to);
    mix(rule.algorithm ? static_cast<std::uint64_t>(*rule.algorithm) : ~std::uint64_t{0});
  }
  return mark | 1;
}

}  // namespace loom
