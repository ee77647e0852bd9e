// The pictures of channels as their readers see them: by what stands in the SVG, which the canvas writes one
// element in a line.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <regex>
#include <sstream>

#include "base/error.hpp"
#include "base/format.hpp"
#include "job_cases.hpp"
#include "tools/connect_views.hpp"
#include "tools/search_views.hpp"
#include "topo/hwloc_xml.hpp"

namespace loom::tools {
namespace {

struct At {
  double x = 0, y = 0;
};
struct Text {
  At left;
  double width = 0, size = 0;
  std::string content;
  bool edged = false;
  double top() const { return left.y - 0.7 * size; }
  double right() const { return left.x + width; }
};
struct Svg {
  double width = 0, height = 0;
  std::vector<At> dots;
  std::vector<std::vector<At>> ways;
  std::size_t heads = 0;
  std::vector<Text> texts;
};

Svg parsed(const std::string& svg) {
  static const std::regex kSize("^<svg .*width='([0-9]+)' height='([0-9]+)'"),
      kDot("^<rect x='([-0-9.]+)' y='([-0-9.]+)' width='18.0' height='18.0' rx='9'"),
      kWay("^<polyline .*points='([^']+)'"), kPoint("([-0-9.]+),([-0-9.]+)"),
      kText(
          "^<text x='([-0-9.]+)' y='([-0-9.]+)' font-size='([0-9.]+)' text-anchor='(\\w+)'(.*)>(.*)</text>");
  Svg found;
  std::istringstream lines(svg);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_search(line, match, kSize)) {
      found.width = std::stod(match[1]), found.height = std::stod(match[2]);
    } else if (std::regex_search(line, match, kDot)) {
      found.dots.push_back({std::stod(match[1]) + 9, std::stod(match[2]) + 9});
    } else if (std::regex_search(line, match, kWay)) {
      const std::string points = match[1];
      found.ways.emplace_back();
      for (std::sregex_iterator point(points.begin(), points.end(), kPoint), end; point != end; ++point)
        found.ways.back().push_back({std::stod((*point)[1]), std::stod((*point)[2])});
    } else if (line.starts_with("<polygon")) {
      ++found.heads;
    } else if (std::regex_search(line, match, kText)) {
      Text text{{std::stod(match[1]), std::stod(match[2])}, 0, std::stod(match[3]), match[6]};
      text.width = 0.5 * text.size * static_cast<double>(text.content.size());
      if (match[4] == "middle") text.left.x -= text.width / 2;
      text.edged = match[5].str().find("paint-order") != std::string::npos;
      found.texts.push_back(text);
    }
  }
  return found;
}

double distance(const At& a, const At& b) {
  return std::hypot(a.x - b.x, a.y - b.y);
}
double distance(const At& point, const At& from, const At& to) {
  const double length = distance(from, to);
  if (length == 0) return distance(point, from);
  const double along =
      ((point.x - from.x) * (to.x - from.x) + (point.y - from.y) * (to.y - from.y)) / (length * length);
  const double t = std::clamp(along, 0., 1.);
  return distance(point, {from.x + t * (to.x - from.x), from.y + t * (to.y - from.y)});
}

/// Of lines along the axes.
bool crosses(const At& from, const At& to, const Text& text) {
  return std::max(from.x, to.x) > text.left.x && std::min(from.x, to.x) < text.right() &&
         std::max(from.y, to.y) > text.top() && std::min(from.y, to.y) < text.left.y;
}

OfflineJob job_of_files(std::vector<MachineFile> machines, const std::string& placement = "block") {
  JobRequest request;
  for (MachineFile& machine : machines) machine.path = loom::format("{}/{}", LOOM_TEST_DATA, machine.path);
  request.machines = std::move(machines);
  request.placement = placement;
  return build_job(request);
}

/// Three nodes, made up, whose rings and chains take several rows.
OfflineJob job_of_large_nodes() {
  const std::vector<int> sizes = {70, 33, 40};
  std::vector<std::vector<int>> nodes;
  std::vector<connect::NodeSummary> summaries;
  OfflineJob offline;
  int rank = 0;
  for (const int size : sizes) {
    std::vector<int> order(static_cast<std::size_t>(size));
    std::iota(order.rbegin(), order.rend(), 0);
    summaries.push_back(connect::node_with_order(order));
    std::iota(order.begin(), order.end(), rank);
    nodes.push_back(order);
    rank += size;
    offline.kind_names.push_back(loom::format("{}.xml", size));
  }
  offline.job = connect::job_of(nodes, summaries);
  return offline;
}

void expect_clear(const OfflineJob& offline, int channel) {
  SCOPED_TRACE(loom::format("{}, channel {}", offline.kind_names.front(), channel));
  const std::string text = channel_svg(offline, channel);
  const Svg svg = parsed(text);
  const auto ranks = static_cast<std::size_t>(offline.job.ranks());
  const std::size_t rings = channel < offline.job.agreed(connect::Family::kRing).channels ? 1 : 0;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    EXPECT_THAT(text, ::testing::HasSubstr(loom::format(">{}<", rank)));
  EXPECT_EQ(svg.dots.size(), (rings + 2) * ranks);
  EXPECT_EQ(svg.ways.size(), rings * ranks + 2 * (ranks - 1));
  EXPECT_EQ(svg.heads, svg.ways.size());
  for (const std::vector<At>& way : svg.ways) {
    ASSERT_GE(way.size(), 2U);
    double last = 0;  // the straight way to the tip
    for (std::size_t i = way.size() - 1; i > 0; --i) {
      last += distance(way[i - 1], way[i]);
      if (last > 0) break;
    }
    EXPECT_GE(last, 7) << "the arrow's head stands alone";
    for (std::size_t i = 0; i + 1 < way.size(); ++i) {
      for (const At& dot : svg.dots) EXPECT_GE(distance(dot, way[i], way[i + 1]), 8.9);
      for (const Text& label : svg.texts) EXPECT_FALSE(crosses(way[i], way[i + 1], label)) << label.content;
      for (const At& end : {way[i], way[i + 1]})
        EXPECT_TRUE(end.x > 0 && end.y > 0 && end.x < svg.width && end.y < svg.height);
    }
  }
}

TEST(JobPicture, ItsEdgesTouchNoRankAndNoTextButTheirOwn) {
  for (const OfflineJob& offline :
       {job_of_files({{"dgxh100.xml", 6}}), job_of_files({{"dgx1v.xml", 3}, {"dgxh100.xml", 2}}, "random:3"),
        job_of_files({{"gh200.xml", 40}}, "round-robin"), job_of_large_nodes()})
    for (int channel = 0; channel < offline.job.agreed(connect::Family::kTree).channels; channel += 9)
      expect_clear(offline, channel);
}

TEST(JobPicture, SaysWhatItIsOfAndTheSpeedOfEachColour) {
  const std::string svg = channel_svg(job_of_files({{"dgx1v.xml", 3}, {"dgxh100.xml", 2}}), 0);
  for (const char* words : {"40 ranks on 5 nodes: 3 x dgx1v.xml, 2 x dgxh100.xml; channel 0",
                            "inside a node: 12 GB/s", "between nodes: 12 GB/s"})
    EXPECT_THAT(svg, ::testing::HasSubstr(words));
}

TEST(JobPicture, NeedsNotMuchMoreRoomThanItsRanks) {
  for (const int nodes : {3, 16, 64}) {
    const OfflineJob offline = job_of_files({{"dgxh100.xml", nodes}});
    const Svg svg = parsed(channel_svg(offline, 0));
    EXPECT_LT(svg.width * svg.height, 18'000. * offline.job.ranks()) << nodes;
  }
  EXPECT_THROW(channel_svg(job_of_files({{"gh200.xml", 65}}), 0), Error);
}

void expect_readable(const std::string& file, int nodes) {
  SCOPED_TRACE(loom::format("{}, {} nodes", file, nodes));
  const topo::System system = topo::read_system(file, topo::Model::kNccl).system;
  const search::PathTables tables(system);
  search::Request request;
  request.nodes = nodes;
  const SearchResult result = timed_search(tables, request);
  const Svg svg = parsed(channels_svg(tables, system, result, file));
  for (std::size_t i = 0; i < svg.texts.size(); ++i) {
    const Text& a = svg.texts[i];
    EXPECT_TRUE(a.left.x >= 0 && (i == 0 || a.right() <= svg.width)) << a.content;  // but for the title
    EXPECT_TRUE(a.edged || a.content.find("NVSwitch") == std::string::npos) << a.content;
    for (std::size_t j = 0; j < i; ++j) {
      const Text& b = svg.texts[j];
      EXPECT_FALSE(a.left.x < b.right() && b.left.x < a.right() && a.top() < b.left.y && b.top() < a.left.y)
          << a.content << " and " << b.content;
    }
  }
}

TEST(SearchPicture, ItsTextsCoverNoOthers) {
  int files = 0;
  for (const char* folder : {LOOM_TEST_DATA, LOOM_SEARCH_DATA})
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() != ".xml" || entry.path().stem() == "lstopo-2gpu") continue;
      ++files;
      for (const int nodes : {1, 2}) expect_readable(entry.path().string(), nodes);
    }
  EXPECT_GT(files, 10);
}

}  // namespace
}  // namespace loom::tools
