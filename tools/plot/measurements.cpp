#include "tools/plot/measurements.hpp"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/format.hpp"
#include "tools/words.hpp"
#include "topo/xml_file.hpp"

namespace loom::tools {
namespace {

using nlohmann::json;

json parse(const std::string& file) {
  constexpr std::size_t kMostBytes = std::size_t{64} << 20;
  json parsed =
      json::parse(topo::read_text_file(file == "-" ? "/dev/stdin" : file, kMostBytes), nullptr, false);
  if (parsed.is_discarded() || !parsed.is_object() || parsed.value("program", "") != "loom_bench")
    throw Error(ErrorCode::kBadInput, loom::format("{} is not what loom_bench --json writes.", file));
  if (parsed.value("format", 0) != 1)
    throw Error(ErrorCode::kBadInput,
                loom::format("{} has format {}; this loom reads format 1.", file, parsed.value("format", 0)));
  return parsed;
}

std::string title_of(const json& options) {
  const std::string form = options.value("form", "blocking"), collective = options.value("collective", "");
  const std::string memory = options.value("memory", "host");
  return (form == "blocking" ? "" : form + " ") + collective +
         (memory == "host" ? "" : " on " + memory + " memory");
}

std::string where_of(const json& environment) {
  return loom::format("{} on {}", counted(environment.value("ranks", 0), "rank"),
                      counted(environment.at("hosts").size(), "host"));
}

Curve& curve_of(Measurement& measurement, const std::string& name) {
  const auto known = std::ranges::find(measurement.curves, name, &Curve::name);
  if (known != measurement.curves.end()) return *known;
  return measurement.curves.emplace_back(Curve{name, {}});
}

/// `what`: was measured.
void add_row(const json& row, const std::string& what, Measurement& measurement) {
  const double bytes = row.at("size_bytes").get<double>();
  const auto add = [&](Curve& curve, const json& side) {
    curve.points.emplace_back(bytes, side.at("p50_us").get<double>());
  };
  add(curve_of(measurement, what), row.at("measured"));
  if (row.contains("fallback")) add(curve_of(measurement, "Open MPI's own"), row.at("fallback"));
  if (row.contains("peers"))
    for (const auto& [name, side] : row.at("peers").items()) add(curve_of(measurement, name), side);
  if (row.contains("floor_us"))
    measurement.floor.points.emplace_back(bytes, row.at("floor_us").get<double>());
}

void sort_points(Curve& curve) {
  std::ranges::stable_sort(curve.points, {}, &std::pair<double, double>::first);
  // Of a size that was measured twice the first counts.
  const auto same_size = [](const auto& a, const auto& b) { return a.first == b.first; };
  curve.points.erase(std::unique(curve.points.begin(), curve.points.end(), same_size), curve.points.end());
}

}  // namespace

double ratio_at(const Measurement& measurement, double bytes) {
  double mine = 0, best = 0;
  for (const Curve& curve : measurement.curves)
    for (const auto& [size, us] : curve.points) {
      if (size != bytes) continue;
      if (&curve == &measurement.curves.front())
        mine = us;
      else
        best = best == 0 ? us : std::min(best, us);
    }
  return mine > 0 ? best / mine : 0;
}

std::vector<Measurement> read_measurements(const std::vector<std::string>& files) {
  std::vector<Measurement> all;
  for (const std::string& file : files) {
    try {
      const json parsed = parse(file);
      const std::string title = title_of(parsed.at("options")), where = where_of(parsed.at("environment"));
      const bool is_on = parsed.at("environment").value("loom", "enabled") == "enabled";
      const std::string name = is_on ? Measurement::kLoom : "as is: loom is off";
      auto same = std::ranges::find_if(
          all, [&](const Measurement& other) { return other.title == title && other.where == where; });
      if (same == all.end()) same = all.insert(all.end(), Measurement{title, where, {}, {"floor", {}}});
      for (const json& row : parsed.at("results")) add_row(row, name, *same);
    } catch (const json::exception& error) {
      throw Error(ErrorCode::kBadInput,
                  loom::format("{} is not whole, or was changed since loom_bench --json wrote it ({}).", file,
                               error.what()));
    }
  }
  for (Measurement& measurement : all) {
    std::stable_partition(measurement.curves.begin(), measurement.curves.end(),
                          [](const Curve& curve) { return curve.name == Measurement::kLoom; });
    for (Curve& curve : measurement.curves) sort_points(curve);
    sort_points(measurement.floor);
  }
  std::erase_if(all, [](const Measurement& measurement) { return measurement.curves.empty(); });
  if (all.empty()) throw Error(ErrorCode::kBadInput, "There are no results in what was read.");
  return all;
}

}  // namespace loom::tools
