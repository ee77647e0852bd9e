// connect_svg.cpp -- a channel across nodes: its ring as lines of ranks, in the order in which data passes
// them; below, its two trees as indented lists, a node in each row and children below their parents. No edge
// passes a rank that is not one of its ends.
#include <algorithm>
#include <array>
#include <functional>

#include "base/error.hpp"
#include "base/format.hpp"
#include "tools/connect_views.hpp"
#include "tools/svg_canvas.hpp"
#include "tools/words.hpp"

namespace loom::tools {
namespace {

using namespace connect;

constexpr int kMostNodes = 64, kMostRanks = 1024;
constexpr const char *kInsideColour = "#4269d0", *kNetworkColour = "#d98000", *kBoxColour = "#eef2f6",
                     *kEdgeColour = "#9aa7b4";
constexpr double kMargin = 40, kDot = 9, kSlot = 30, kBox = 13, kWidest = 1100, kRowPitch = 58, kGap = 10,
                 kNodeGap = 26;

struct Point {
  double x = 0, y = 0;
};
using Way = std::vector<Point>;

void dot(Canvas& canvas, const Point& at, int rank) {
  canvas.box(at.x - kDot, at.y - kDot, 2 * kDot, 2 * kDot, "white", "#444", kDot);
  canvas.text(at.x, at.y + 3, loom::format("{}", rank), rank > 999 ? 7 : 9);
}

const char* colour_of(bool network) {
  return network ? kNetworkColour : kInsideColour;
}

/// Through all points, with a head at the end.
void arrow(Canvas& canvas, const Way& way, bool network) {
  canvas.way(way, colour_of(network), network ? 2 : 1.5);
  const Point &tip = way.back(), &before = way[way.size() - 2];
  canvas.arrow_head(before.x, before.y, tip.x, tip.y, colour_of(network));
}

/// The colours and their GB/s.
void legend(Canvas& canvas, double y, const std::string& heading, const Agreed& agreed, int channel,
            bool network) {
  const auto at = static_cast<std::size_t>(channel);
  canvas.text(kMargin, y, heading, 12, "start", "#222", true);
  double x = kMargin + 150;
  const auto entry = [&](bool over, const std::string& text) {
    canvas.line(x, y - 4, x + 24, y - 4, colour_of(over), 2);
    canvas.text(x + 30, y, text, 10, "start", "#555");
    x += 260;
  };
  entry(false, loom::format("inside a node: {:.5g} GB/s", agreed.intra_gbps[at]));
  if (network) entry(true, loom::format("between nodes: {:.5g} GB/s", agreed.inter_gbps[at]));
}

/// Ranks from left to right, row after row; a node starts a new row rather than being broken.
class RingPicture {
 public:
  RingPicture(const Job& job, int channel, double top) : job_(job), channel_(channel) {
    Point at{kMargin, top};
    for (int position = 0; position < job.ranks(); ++position) {
      const int rank = rank_at(job, channel, position), node = node_of(rank);
      const bool first = position == 0 || node != node_of(rank_at(job, channel, position - 1));
      if (first && position > 0) at.x += kNodeGap;
      const double size = kSlot * static_cast<double>(job.placement().ranks_of(node).size());
      const bool full = at.x + (first ? std::min(size, kWidest) : kSlot) > kMargin + kWidest;
      if (full && at.x > kMargin) at = {kMargin, at.y + kRowPitch};
      if (first || full) rows_.push_back({node, at, at.x});
      places_.push_back({at.x + kSlot / 2, at.y});
      at.x += kSlot;
      rows_.back().right = at.x;
      width_ = std::max(width_, at.x);
    }
  }

  double bottom() const { return places_.back().y + kRowPitch; }
  double width() const { return width_ + kMargin; }

  void draw(Canvas& canvas) const {
    for (const Row& row : rows_) {
      canvas.box(row.from.x, row.from.y - kBox, row.right - row.from.x, 2 * kBox, kBoxColour, kEdgeColour);
      canvas.text(row.from.x + 2, row.from.y - kBox - 4, loom::format("node {}", row.node), 9, "start",
                  "#555");
    }
    for (int position = 0; position < job_.ranks(); ++position) {
      const int rank = rank_at(job_, channel_, position), next = ring_of(job_, channel_, rank).next;
      dot(canvas, places_[static_cast<std::size_t>(position)], rank);
      if (next != rank) arrow(canvas, way_from(position), node_of(rank) != node_of(next));
    }
  }

 private:
  /// What a node has in one row.
  struct Row {
    int node = 0;
    Point from;
    double right = 0;
  };

  int node_of(int rank) const { return job_.placement().node_of(rank); }

  Way way_from(int position) const {
    const Point from = places_[static_cast<std::size_t>(position)],
                to = places_[static_cast<std::size_t>((position + 1) % job_.ranks())];
    const Point out{from.x + kDot, from.y}, in{to.x - kDot, to.y};
    if (from.y == to.y && from.x < to.x) return {out, in};
    // Around, below the row: to the next one, or, of the last rank, further out and back to the first.
    const bool closes = position + 1 == job_.ranks();
    const double right = from.x + kSlot / 2 + kGap, below = from.y + kBox + kGap,
                 left = kMargin - (closes ? 2 : 1) * kGap;
    return {out, {right, out.y}, {right, below}, {left, below}, {left, in.y}, in};
  }

  const Job& job_;
  int channel_;
  std::vector<Point> places_;  ///< by position
  std::vector<Row> rows_;
  double width_ = 0;
};

/// A row for each node, indented by its depth; where its chain is long, several.
class TreePicture {
 public:
  TreePicture(const Job& job, int channel, int tree, const Point& top)
      : job_(job),
        channel_(channel),
        tree_(tree),
        bottom_(top.y),
        places_(static_cast<std::size_t>(job.ranks())) {
    std::vector<std::vector<int>> children(static_cast<std::size_t>(job.nodes()));
    int root = 0;
    for (int node = 0; node < job.nodes(); ++node) {
      const int above = parent_of(order_of(node).front());
      if (above == connect::kNobody)
        root = node;
      else
        children[static_cast<std::size_t>(job.placement().node_of(above))].push_back(node);
    }
    const std::function<void(int, double)> place = [&](int node, double x) {
      rows_.push_back({node, x, bottom_, 0});
      const std::vector<int> order = order_of(node);
      for (std::size_t i = 0; i < order.size(); ++i) {
        if (i > 0 && i % kPerRow == 0) bottom_ += kChainPitch;
        const double indent = i < kPerRow ? 0 : kIndent;  // below the first two hang other nodes
        const Point at{x + indent + kSlot * (static_cast<double>(i % kPerRow) + 0.5), bottom_};
        places_[static_cast<std::size_t>(order[i])] = at;
        rows_.back().right = std::max(rows_.back().right, at.x + kSlot / 2);
      }
      rows_.back().bottom = bottom_;
      width_ = std::max(width_, rows_.back().right + kLabel - top.x);
      bottom_ += kNodePitch;
      for (const int child : children[static_cast<std::size_t>(node)]) place(child, x + kIndent);
    };
    place(root, top.x);
  }

  double bottom() const { return bottom_; }
  double width() const { return width_; }

  void draw(Canvas& canvas) const {
    for (const Row& row : rows_) {
      canvas.box(row.x, row.y - kBox, row.right - row.x, row.bottom - row.y + 2 * kBox, kBoxColour,
                 kEdgeColour);
      canvas.text(row.right + 6, row.y + 3, loom::format("node {}", row.node), 9, "start", "#555");
    }
    for (int rank = 0; rank < job_.ranks(); ++rank) {
      const Point from = places_[static_cast<std::size_t>(rank)];
      dot(canvas, from, rank);
      if (const int parent = parent_of(rank); parent != connect::kNobody) edge(canvas, rank, parent);
    }
  }

 private:
  struct Row {
    int node = 0;
    double x = 0, y = 0, right = 0, bottom = 0;
  };
  static constexpr std::size_t kPerRow = 32;
  static constexpr double kIndent = 2 * kSlot + 4, kNodePitch = 38, kChainPitch = 34, kLabel = 60;

  int parent_of(int rank) const {
    return tree_of(job_, channel_, rank).trees[static_cast<std::size_t>(tree_)].parent;
  }
  std::vector<int> order_of(int node) const {
    std::vector<int> ranks;
    for (const std::uint16_t local : job_.channel(Family::kTree, node, channel_).order)
      ranks.push_back(job_.rank_of(node, local));
    return ranks;
  }

  void edge(Canvas& canvas, int rank, int parent) const {
    const Point from = places_[static_cast<std::size_t>(rank)],
                to = places_[static_cast<std::size_t>(parent)];
    const bool network = job_.placement().node_of(rank) != job_.placement().node_of(parent);
    if (network)  // the parent is one of the first two of its chain, left of all rows that hang from it
      return arrow(canvas, {{from.x - kDot, from.y}, {to.x, from.y}, {to.x, to.y + kDot}}, true);
    if (from.y == to.y) return arrow(canvas, {{from.x - kDot, from.y}, {to.x + kDot, to.y}}, false);
    const double between = (from.y + to.y) / 2;
    arrow(canvas, {{from.x, from.y - kDot}, {from.x, between}, {to.x, between}, {to.x, to.y + kDot}}, false);
  }

  const Job& job_;
  int channel_, tree_;
  double bottom_, width_ = 0;
  std::vector<Point> places_;  ///< by rank
  std::vector<Row> rows_;
};

std::string title_of(const OfflineJob& offline, int channel) {
  const std::vector<int> count = nodes_of_kinds(offline.job);
  std::string text =
      loom::format("{} on {}: ", counted(offline.job.ranks(), "rank"), counted(offline.job.nodes(), "node"));
  for (std::size_t kind = 0; kind < count.size(); ++kind)
    text += loom::format("{}{} x {}", kind == 0 ? "" : ", ", count[kind], offline.kind_names[kind]);
  return loom::format("{}; channel {}", text, channel);
}

}  // namespace

void check_picture(const Job& job, int channel) {
  if (job.nodes() > kMostNodes || job.ranks() > kMostRanks)
    throw Error(ErrorCode::kBadInput,
                loom::format("{} of {} ranks are too many for a picture: at most {} of {}.",
                             counted(job.nodes(), "node"), job.ranks(), kMostNodes, kMostRanks));
  const int rings = job.agreed(Family::kRing).channels, trees = job.agreed(Family::kTree).channels;
  if (channel >= std::max(rings, trees))
    throw Error(ErrorCode::kBadInput,
                loom::format("--channel {}: the job has {} and {} of trees, numbered from 0.", channel,
                             counted(rings, "ring"), counted(trees, "pair")));
}

std::string channel_svg(const OfflineJob& offline, int channel) {
  const Job& job = offline.job;
  check_picture(job, channel);
  const bool network = job.nodes() > 1;
  Canvas canvas;
  canvas.text(kMargin, 26, title_of(offline, channel), 14, "start", "#222", true);
  double y = 58, width = 640;
  const auto missing = [&](const char* what, const Agreed& agreed) {
    canvas.text(kMargin, y, loom::format("no {} {}: there are {}", what, channel, agreed.channels), 12,
                "start", "#222", true);
    y += 36;
  };
  if (const Agreed& rings = job.agreed(Family::kRing); channel < rings.channels) {
    legend(canvas, y, loom::format("ring {}", channel), rings, channel, network);
    const RingPicture ring(job, channel, y + 44);
    ring.draw(canvas);
    width = std::max(width, ring.width());
    y = ring.bottom() + 12;
  } else {
    missing("ring", rings);
  }
  const Agreed& trees = job.agreed(Family::kTree);
  if (channel >= trees.channels) {
    missing("trees", trees);
    return canvas.finish(width, y);
  }
  legend(canvas, y, loom::format("trees of channel {}", channel), trees, channel, network);
  canvas.text(kMargin, y + 16, "Data is reduced along the arrows, to the root on top, and comes back.", 10,
              "start", "#555");
  y += 50;
  Point corner{kMargin, y};
  double bottom = y;
  for (const int tree : {0, 1}) {
    if (tree == 1 && corner.x + TreePicture(job, channel, tree, corner).width() > kMargin + kWidest)
      corner = {kMargin, bottom + 12};  // below, not beside
    const TreePicture picture(job, channel, tree, corner);
    picture.draw(canvas);
    canvas.text(corner.x, corner.y - kBox - 6, loom::format("tree {}", tree), 10, "start", "#222", true);
    width = std::max(width, corner.x + picture.width() + kMargin);
    bottom = std::max(bottom, picture.bottom());
    corner.x += picture.width() + kMargin;
  }
  return canvas.finish(width, bottom);
}

}  // namespace loom::tools
