// connect_svg.cpp -- a channel across nodes: above its ring, nodes beside each other around a circle; below
// its two trees, nodes from left to right in order and parents above their children.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <numbers>

#include "base/error.hpp"
#include "tools/connect_views.hpp"
#include "tools/svg_canvas.hpp"

namespace loom::tools {
namespace {

using namespace connect;

constexpr int kMostNodes = 64, kMostRanks = 1024;
constexpr const char *kInsideColour = "#4269d0", *kNetworkColour = "#d98000", *kBoxColour = "#eef2f6",
                     *kEdgeColour = "#9aa7b4";
constexpr double kMargin = 40, kDot = 9, kTitle = 46;

struct Point {
  double x = 0, y = 0;
};

double text_size(int ranks) {
  return ranks > 1000 ? 7 : 9;
}

void dot(Canvas& canvas, const Point& at, int rank) {
  canvas.box(at.x - kDot, at.y - kDot, 2 * kDot, 2 * kDot, "white", "#444", kDot);
  canvas.text(at.x, at.y + 3, fmt::format("{}", rank), text_size(rank));
}

/// From the edge of one dot to that of another.
void edge(Canvas& canvas, const Point& from, const Point& to, bool network) {
  const double length = std::hypot(to.x - from.x, to.y - from.y),
               part = length > 2 * kDot ? kDot / length : 0;
  const double x = (to.x - from.x) * part, y = (to.y - from.y) * part;
  canvas.line(from.x + x, from.y + y, to.x - x, to.y - y, network ? kNetworkColour : kInsideColour,
              network ? 2 : 1.5);
}

/// The head of an arrow whose tip is on the edge of the dot at `to`.
void arrow_head(Canvas& canvas, const Point& from, const Point& to, bool network) {
  constexpr double kHead = 6, kSpread = 0.45;  // radians to each side
  const double angle = std::atan2(to.y - from.y, to.x - from.x);
  const Point tip{to.x - kDot * std::cos(angle), to.y - kDot * std::sin(angle)};
  for (const double side : {-kSpread, kSpread})
    canvas.line(tip.x, tip.y, tip.x - kHead * std::cos(angle + side), tip.y - kHead * std::sin(angle + side),
                network ? kNetworkColour : kInsideColour, network ? 2 : 1.5);
}

/// Ranks around a circle, with a gap between nodes.
double draw_ring(Canvas& canvas, const Job& job, int channel) {
  const double slots = job.ranks() + job.nodes();
  const double radius = std::max(110.0, slots * 2.4 * kDot / (2 * std::numbers::pi));
  const Point centre{kMargin + radius + 60, kTitle + radius + 60};
  const auto at = [&](double slot, double out) {
    const double angle = 2 * std::numbers::pi * slot / slots;
    return Point{centre.x + (radius + out) * std::sin(angle), centre.y - (radius + out) * std::cos(angle)};
  };
  std::vector<Point> points(static_cast<std::size_t>(job.ranks()));
  for (int node = 0; node < job.nodes(); ++node) {
    const auto ranks = job.placement().ranks_of(node);
    const double first = job.placement().first_position(node) + node;
    for (std::size_t i = 0; i < ranks.size(); ++i)
      points[static_cast<std::size_t>(ranks[i])] = at(first + static_cast<double>(i), 0);
    const Point name = at(first + (static_cast<double>(ranks.size()) - 1) / 2, 34);
    canvas.text(name.x, name.y + 4, fmt::format("node {}", node), 10, "middle", "#555");
  }
  for (int rank = 0; rank < job.ranks(); ++rank) {
    const Ring ring = ring_of(job, channel, rank);
    const Point from = points[static_cast<std::size_t>(rank)],
                to = points[static_cast<std::size_t>(ring.next)];
    const bool network = job.placement().node_of(rank) != job.placement().node_of(ring.next);
    if (ring.next != rank) {
      edge(canvas, from, to, network);
      arrow_head(canvas, from, to, network);
    }
    dot(canvas, from, rank);
  }
  return centre.y + radius + 60;
}

int depth_of(const Job& job, int channel, int tree, int rank) {
  int depth = 0, node = job.placement().node_of(rank);
  for (int above = rank;
       (above = tree_of(job, channel, above).trees[static_cast<std::size_t>(tree)].parent) !=
       connect::kNobody;)
    if (const int other = job.placement().node_of(above); other != node) node = other, ++depth;
  return depth;
}

double draw_tree(Canvas& canvas, const Job& job, int channel, int tree, double top, double& width) {
  std::vector<Point> points(static_cast<std::size_t>(job.ranks()));
  double x = kMargin, bottom = top;
  canvas.text(kMargin, top, fmt::format("tree {}", tree), 12, "start", "#222", true);
  for (int node = 0; node < job.nodes(); ++node) {
    const ChannelSummary& own = job.channel(Family::kTree, node, channel);
    const int head = job.rank_of(node, own.order.front());
    const double y = top + 30 + 66 * depth_of(job, channel, tree, head);
    const double box = 2.6 * kDot * static_cast<double>(own.order.size());
    canvas.box(x - 4, y - kDot - 4, box + 2, 2 * kDot + 8, kBoxColour, kEdgeColour);
    canvas.text(x + box / 2, y + 2 * kDot + 6, fmt::format("node {}", node), 8, "middle", "#777");
    for (std::size_t i = 0; i < own.order.size(); ++i)
      points[static_cast<std::size_t>(job.rank_of(node, own.order[i]))] = {
          x + kDot + 2.6 * kDot * static_cast<double>(i), y};
    x += box + 8;
    bottom = std::max(bottom, y + 40);
  }
  for (int rank = 0; rank < job.ranks(); ++rank) {
    const TreeLinks links = tree_of(job, channel, rank).trees[static_cast<std::size_t>(tree)];
    const Point from = points[static_cast<std::size_t>(rank)];
    if (links.parent != connect::kNobody) {
      const Point to = points[static_cast<std::size_t>(links.parent)];
      const bool network = job.placement().node_of(rank) != job.placement().node_of(links.parent);
      edge(canvas, from, to, network);
    }
    dot(canvas, from, rank);
  }
  width = std::max(width, x + kMargin);
  return bottom + 20;
}

}  // namespace

std::string channel_svg(const Job& job, int channel, const std::string& title) {
  if (job.nodes() > kMostNodes || job.ranks() > kMostRanks)
    throw Error(ErrorCode::kBadInput,
                fmt::format("{} nodes of {} ranks are too many for a picture: at most {} of {}.", job.nodes(),
                            job.ranks(), kMostNodes, kMostRanks));
  Canvas canvas;
  canvas.text(kMargin, 26, title, 14, "start", "#222", true);
  double bottom = kTitle, width = 400;
  if (channel < job.agreed(Family::kRing).channels) {
    bottom = draw_ring(canvas, job, channel);
    width = std::max(width, bottom - kTitle + 2 * kMargin);
  }
  for (const int tree : {0, 1})
    if (channel < job.agreed(Family::kTree).channels)
      bottom = draw_tree(canvas, job, channel, tree, bottom, width);
  return canvas.finish(width, bottom);
}

}  // namespace loom::tools
