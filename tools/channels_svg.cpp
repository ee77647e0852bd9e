// channels_svg.cpp -- channels over the picture of their machine: each follows its links, in a colour of its
// own and a little beside the others. Tags beside the links say what they carry.
#include <algorithm>
#include <array>
#include <map>

#include "base/format.hpp"
#include "search/columns.hpp"
#include "search/graph_xml.hpp"
#include "search/validate.hpp"
#include "tools/forest_views.hpp"
#include "tools/search_views.hpp"
#include "tools/topo_picture.hpp"
#include "tools/topo_picture_style.hpp"

namespace loom::tools {
namespace {

using namespace loom::topo;
using search::Channel;
using search::ChannelPlan;

constexpr std::array<const char*, 12> kColours = {"#4269d0", "#efb118", "#ff5a40", "#2a9d8f",
                                                  "#a463f2", "#ff8ab7", "#9c6b4e", "#00a2d9",
                                                  "#c2185b", "#6d7f00", "#7c7c7c", "#1b3a93"};
constexpr double kWidth = 1.6, kWidestStep = 3, kWidestBundle = 22, kLegendRow = 15, kLegendColumn = 460;
constexpr double kFull = 0.999, kLeast = 1e-6, kTagWidth = 6;
constexpr std::size_t kMostTags = 200;  // more would cover each other
constexpr const char *kTagColour = "#333", *kFullColour = "#c00000";

class Overlay {
 public:
  Overlay(Picture& picture, const System& system)
      : picture_(picture), places_(picture.places()), system_(system) {}

  /// The route's links, one after the other, `shift` pixels beside where they are drawn.
  void hop(std::span<const LinkId> route, double shift, const char* colour) {
    std::vector<Point> points;
    for (const LinkId id : route) add(system_.link(id), points);
    std::vector<Point> way = points;
    for (Point& point : way) point.x += shift, point.y += shift;
    if (points.size() < 2) return;
    // At its ends shift only across its direction, so that it does not enter boxes.
    for (const auto& [end, next] :
         {std::pair(std::size_t{0}, std::size_t{1}), {way.size() - 1, way.size() - 2}})
      if (points[end].x == points[next].x)
        way[end].y = points[end].y;
      else
        way[end].x = points[end].x;
    picture_.canvas().way(way, colour, kWidth);
  }

  /// What a link and its other direction carry, and of how much, where there is room beside other text.
  void tag(const Link& link, double carried, double back) {
    std::string text = loom::format("{:.4g}", carried);
    if (const std::string other = loom::format("{:.4g}", back); other != text) text += "|" + other;
    const bool full = std::max(carried, back) >= kFull * link.gbps;
    // NVLinks between GPUs have no other figure.
    if (std::min(carried, back) < kFull * link.gbps && arc_of(link) != nullptr)
      text += loom::format(" of {:.4g}", link.gbps);
    const std::vector<Point> places = places_of_tag(link, kTagWidth * static_cast<double>(text.size()));
    const auto free = std::find_if(places.begin(), places.end(), [&](const Point& place) {
      return picture_.canvas().has_room_for_tag(place.x, place.y, text);
    });
    const Point& place = free == places.end() ? places.front() : *free;
    picture_.canvas().tag(place.x, place.y, text, full ? kFullColour : kTagColour);
  }

 private:
  const Places::Box& box(NodeId id) const { return places_.boxes[static_cast<std::size_t>(id)]; }
  double at(const std::vector<double>& values, NodeId id) const {
    return values[static_cast<std::size_t>(id)];
  }
  NodeKind kind(NodeId id) const { return system_.node(id).kind(); }

  /// Ports stand in their NIC, further ranks of a GPU beside the first.
  NodeId drawn(NodeId id) const {
    while (kind(id) == NodeKind::kNet || kind(id) == NodeKind::kC2cPort) id = system_.node(id).parent;
    return id;
  }
  /// Where the link of `id` to its parent leaves the box; NVLink and C2C leave beside PCI.
  Point head(NodeId id, LinkType type) const {
    if (type == LinkType::kNvl || type == LinkType::kC2c) return {box(id).centre() - 2, box(id).y};
    if (places_.aside[static_cast<std::size_t>(id)])
      return {at(places_.top, id), box(id).y + std::min(box(id).h / 2, 28.)};
    const double x = at(places_.top, id);
    return {x > 0 ? x : box(id).centre(), box(id).y};
  }

  /// On the line that joins the rows of a box.
  Point riser(NodeId id, double y) const { return {box(id).x + places_.padding, y}; }

  void add(const Link& link, std::vector<Point>& points) const {
    if (kind(link.from) == NodeKind::kC2cPort || kind(link.to) == NodeKind::kC2cPort) return;
    const NodeId from = drawn(link.from), to = drawn(link.to);
    if (from == to) return;
    const Node &a = system_.node(from), &b = system_.node(to);
    const auto append = [&](std::initializer_list<Point> more) { points.insert(points.end(), more); };
    if (kind(from) == NodeKind::kNvSwitch) {
      const Point foot{box(to).centre(), at(places_.bar, b.host) + kBarMiddle};
      if (!points.empty() && points.back().y != foot.y)  // another row: around by the spine
        append({{places_.spine, points.back().y}, {places_.spine, foot.y}});
      append({foot, {box(to).centre(), box(to).bottom()}});
    } else if (kind(to) == NodeKind::kNvSwitch) {
      append({{box(from).centre(), box(from).bottom()},
              {box(from).centre(), at(places_.bar, a.host) + kBarMiddle}});
    } else if (const Places::Arc* curve = arc_of(link)) {
      const Point begin = from < to ? curve->from : curve->to, end = from < to ? curve->to : curve->from;
      append({begin});
      for (int i = 0; i <= kCurvePoints; ++i)
        append({on_arc(*curve, begin.x, end.x, static_cast<double>(i) / kCurvePoints)});
      append({end});
    } else if (kind(from) == NodeKind::kCpu && kind(to) == NodeKind::kCpu) {
      append({{box(from).centre(), at(places_.bus, from)}, {box(from).centre(), at(places_.sys, from)}});
      if (at(places_.sys, from) != at(places_.sys, to)) {  // another row: around by the left
        const double rail = places_.sys_rail[static_cast<std::size_t>(a.host)];
        append({{rail, at(places_.sys, from)}, {rail, at(places_.sys, to)}});
      }
      append({{box(to).centre(), at(places_.sys, to)}, {box(to).centre(), at(places_.bus, to)}});
    } else if (a.parent == to || kind(to) == NodeKind::kCpu) {
      if (at(places_.bus, from) > 0) append({{head(from, link.type).x, at(places_.bus, from)}});
      append({head(from, link.type), {head(from, link.type).x, at(places_.joint, from)}});
      if (at(places_.joint, from) != at(places_.bus, to))
        append({riser(to, at(places_.joint, from)), riser(to, at(places_.bus, to))});
    } else {
      if (at(places_.joint, to) != at(places_.bus, from))
        append({riser(from, at(places_.bus, from)), riser(from, at(places_.joint, to))});
      append({{head(to, link.type).x, at(places_.joint, to)}, head(to, link.type)});
      if (at(places_.bus, to) > 0) append({{head(to, link.type).x, at(places_.bus, to)}});
    }
  }

  /// nullptr: it is not drawn as an arc.
  const Places::Arc* arc_of(const Link& link) const {
    const auto found = places_.arcs.find(
        {std::min(drawn(link.from), drawn(link.to)), std::max(drawn(link.from), drawn(link.to))});
    return link.type == LinkType::kNvl && found != places_.arcs.end() ? &found->second : nullptr;
  }

  /// On the curve, whose controls are below its ends: `t` of the way.
  static Point on_arc(const Places::Arc& curve, double begin, double end, double t) {
    return {begin + (end - begin) * t * t * (3 - 2 * t),
            curve.foot + (curve.lowest - curve.foot) * 3 * t * (1 - t)};
  }

  /// The left ends of a tag of this width, the best first.
  std::vector<Point> places_of_tag(const Link& link, double width) const {
    const NodeId from = drawn(link.from), to = drawn(link.to);
    std::vector<Point> places;
    if (const Places::Arc* arc = arc_of(link)) {
      for (const double below : {4., 10., -2., 16.})
        for (const double t : {.5, .44, .56, .38, .62, .32, .68, .27, .73, .22, .78}) {
          const Point at = on_arc(*arc, arc->from.x, arc->to.x, t);
          places.push_back({at.x - width / 2, at.y + below});
        }
      return places;
    }
    const Point best = beside(link, from, to);
    for (const double right : {0., 8., -width - 20})
      for (const double below : {0., 11., -11., 22.}) places.push_back({best.x + right, best.y + below});
    return places;
  }

  /// The left end of a tag that covers no other text.
  Point beside(const Link& link, NodeId from, NodeId to) const {
    if (kind(to) == NodeKind::kNvSwitch) return {box(from).centre() + 14, box(from).bottom() + 12};
    if (kind(from) == NodeKind::kCpu && kind(to) == NodeKind::kCpu)
      return {(box(from).centre() + box(to).centre()) / 2 + 40, at(places_.sys, from) + 14};
    const Point end = head(from, link.type);
    if (places_.aside[static_cast<std::size_t>(from)] && kind(from) != NodeKind::kPciSwitch)
      return {box(from).x + box(from).w + 4, end.y};
    return kind(from) == NodeKind::kNic ? Point{end.x + 22, box(from).y - 4} : Point{end.x + 14, end.y - 4};
  }

  static constexpr double kBarMiddle = 13;
  static constexpr int kCurvePoints = 12;
  Picture& picture_;
  const Places& places_;
  const System& system_;
};

std::string title_of(const System& system, std::size_t number, const Channel& channel) {
  std::string text = loom::format("{}: {:.5g} GB/s  ", number, channel.inter_gbps);
  if (!channel.nets.empty()) text += label(system, channel.nets[0]) + " > ";
  text += loom::join(channel.ranks, " ");
  if (!channel.nets.empty()) text += " > " + label(system, channel.nets[1]);
  return text.size() < 76 ? text : text.substr(0, 73) + "...";
}

/// One tag for both directions of a link.
void tag_loads(Overlay& overlay, const System& system, const std::vector<double>& loads) {
  std::vector<LinkId> used;
  for (LinkId id = 0; id < static_cast<LinkId>(system.links().size()); ++id) {
    const Link& link = system.link(id);
    const LinkId back = link.reverse;
    const double both =
        loads[static_cast<std::size_t>(id)] + (back >= 0 ? loads[static_cast<std::size_t>(back)] : 0);
    const bool upwards = system.node(link.from).parent == link.to ||
                         system.node(link.to).kind() == NodeKind::kNvSwitch ||
                         (system.node(link.to).parent != link.from && link.from < link.to &&
                          system.node(link.from).kind() != NodeKind::kNvSwitch);
    if (both > kLeast && upwards && link.type != LinkType::kNet && link.type != LinkType::kLoc)
      used.push_back(id);
  }
  if (used.size() > kMostTags) return;
  for (const LinkId id : used) {
    const LinkId back = system.link(id).reverse;
    overlay.tag(system.link(id), loads[static_cast<std::size_t>(id)],
                back >= 0 ? loads[static_cast<std::size_t>(back)] : 0);
  }
}

}  // namespace

std::string channels_svg(const search::PathTables& tables, const topo::System& system,
                         const SearchResult& result, const std::string& title) {
  Picture picture(system, title, single_hosts(system), false);  // tags say what of it is taken
  picture.draw();
  std::size_t count = 0, number = 0;
  for (const ChannelPlan& plan : result.plans.parts) count += plan.channels.size();
  const double step =
      std::min(kWidestStep, kWidestBundle / static_cast<double>(std::max<std::size_t>(count, 1)));
  const auto columns = std::max<std::size_t>(1, static_cast<std::size_t>(picture.width() / kLegendColumn));
  for (std::size_t i = 0; i < result.plans.parts.size(); ++i) {
    const ChannelPlan& plan = result.plans.parts[i];
    const search::PartOfMachine& part = search::part_of(tables, result.plans, i);
    Overlay overlay(picture, part.system);
    const search::HopTable table(
        part.paths, plan.network,
        plan.pattern == search::Pattern::kCollnetChain || plan.pattern == search::Pattern::kCollnetDirect,
        plan.pattern == search::Pattern::kNvls);
    for (const Channel& channel : plan.channels) {
      const char* colour = kColours[number % kColours.size()];
      const double shift = (static_cast<double>(number) - (static_cast<double>(count) - 1) / 2) * step;
      for (const search::Charge& charge : charges_of(table, plan.pattern, order_of(table, channel)))
        if (charge.from != charge.to)
          overlay.hop(part.paths.route(table.node(charge.from), table.node(charge.to)), shift, colour);
      const double x = 14 + kLegendColumn * static_cast<double>(number % columns);
      const double y = picture.height() + kLegendRow * static_cast<double>(number / columns);
      picture.canvas().line(x, y, x + 22, y, colour, 3);
      picture.canvas().text(x + 28, y + 4, title_of(part.system, number, channel), 10, "start", "#333");
      ++number;
    }
    tag_loads(overlay, part.system, link_loads(part.paths, plan));
  }
  const double rows = static_cast<double>((count + columns - 1) / columns);
  picture.canvas().text(
      14, picture.height() + kLegendRow * rows + 6,
      "At links: GB/s that the channels take, up|down where they differ, of what there is; red: nothing is "
      "left.",
      10, "start", "#555");
  return picture.finish(kLegendRow * (rows + 1) + 6);
}

std::string forest_svg(const topo::Paths& paths, const search::Forest& forest, const std::string& title) {
  const System& system = paths.system();
  Picture picture(system, title, single_hosts(system), false);
  picture.draw();
  Overlay overlay(picture, system);
  std::vector<double> loads(system.links().size(), 0.0);
  std::vector<const search::RootedTree*> shown;
  for (const search::RootedTree& tree : forest.trees) {
    if (tree.root == forest.trees.front().root) shown.push_back(&tree);
    for (const search::TreeEdge& edge : tree.edges)
      for (const LinkId link :
           paths.route(system.gpu_of_rank(edge.from.rank), system.gpu_of_rank(edge.to.rank)))
        loads[static_cast<std::size_t>(link)] += tree.gbps;
  }
  const double count = static_cast<double>(shown.size()), step = std::min(kWidestStep, kWidestBundle / count);
  double y = picture.height();
  for (std::size_t i = 0; i < shown.size(); ++i, y += kLegendRow) {
    const char* colour = kColours[i % kColours.size()];
    std::string text = loom::format("{:.4g} GB/s from GPU {}:", shown[i]->gbps, shown[i]->root);
    for (const search::TreeEdge& edge : shown[i]->edges) {
      overlay.hop(paths.route(system.gpu_of_rank(edge.from.rank), system.gpu_of_rank(edge.to.rank)),
                  (static_cast<double>(i) - (count - 1) / 2) * step, colour);
      text += loom::format(" {}>{}", edge.from.rank, edge.to.rank);
    }
    picture.canvas().line(14, y, 36, y, colour, 3);
    picture.canvas().text(42, y + 4, text, 10, "start", "#333");
  }
  tag_loads(overlay, system, loads);
  picture.canvas().text(14, y + 6,
                        loom::format("At links: GB/s that the trees of all GPUs take while they all-gather "
                                     "{:.4g} GB/s, up|down where they differ; red: nothing is left.",
                                     forest.gbps),
                        10, "start", "#555");
  return picture.finish(y - picture.height() + kLegendRow + 6);
}

}  // namespace loom::tools
