// svg_canvas.hpp -- shapes and text of a picture, and how links look in it.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "topo/system.hpp"
#include "topo/utf8.hpp"

namespace loom::tools {

using topo::LinkType;

inline constexpr const char *kPciColour = "#5f7285", *kNvlColour = "#5a9e00", *kC2cColour = "#008c95",
                            *kSysColour = "#d98000", *kLocColour = "#888888";

inline const char* colour_of(LinkType type) {
  switch (type) {
    case LinkType::kNvl:
      return kNvlColour;
    case LinkType::kC2c:
      return kC2cColour;
    case LinkType::kSys:
      return kSysColour;
    case LinkType::kPci:
    case LinkType::kNet:
      return kPciColour;
    case LinkType::kLoc:
      return kLocColour;
  }
  return "";
}

inline double line_width(float gbps) {
  return 1 + 0.9 * std::log2(1 + static_cast<double>(gbps) / 5);
}

/// Text for XML. What is no character becomes a question mark.
inline std::string escaped(std::string_view text) {
  std::string out;
  for (std::size_t valid = topo::valid_utf8(text).size(), i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (i == valid) {
      out += '?';
      valid = i + 1 + topo::valid_utf8(text.substr(i + 1)).size();
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
    }
  }
  return out;
}

/// A drawing that grows: boxes below, lines over them, text on top.
class Canvas {
 public:
  void box(double x, double y, double w, double h, const char* fill, const char* stroke, double radius = 5) {
    boxes_ += loom::format(
        "<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}' rx='{}' fill='{}' stroke='{}'/>\n", x, y,
        w, h, radius, fill, stroke);
  }
  void line(double x1, double y1, double x2, double y2, const char* colour, double width,
            bool dashed = false) {
    lines_ += loom::format(
        "<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' stroke='{}' stroke-width='{:.1f}'{}/>\n", x1,
        y1, x2, y2, colour, width, dashed ? " stroke-dasharray='5 3'" : "");
  }
  void arc(double x1, double y1, double x2, double y2, double bottom, const char* colour, double width) {
    lines_ += loom::format(
        "<path d='M{:.1f} {:.1f} C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}' fill='none' stroke='{}' "
        "stroke-width='{:.1f}' stroke-opacity='0.8'/>\n",
        x1, y1, x1, bottom, x2, bottom, x2, y2, colour, width);
  }
  /// From one height to another: first down to `bottom1`, at the end up from `bottom2`.
  void curve(double x1, double y1, double bottom1, double x2, double y2, double bottom2, const char* colour,
             double width) {
    lines_ += loom::format(
        "<path d='M{:.1f} {:.1f} C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}' fill='none' stroke='{}' "
        "stroke-width='{:.1f}' stroke-opacity='0.8'/>\n",
        x1, y1, x1, bottom1, x2, bottom2, x2, y2, colour, width);
  }
  /// A line through all points, which have x and y. dashes: lengths of lines and gaps; empty: none.
  template <class Points>
  void way(const Points& points, const char* colour, double width, std::string_view dashes = "") {
    ways_ += "<polyline fill='none' stroke-linejoin='round' points='";
    for (const auto& point : points) ways_ += loom::format("{:.1f},{:.1f} ", point.x, point.y);
    ways_ += loom::format("' stroke='{}' stroke-width='{:g}'{}/>\n", colour, width,
                          dashes.empty() ? "" : loom::format(" stroke-dasharray='{}'", dashes));
  }
  void disc(double x, double y, double radius, const char* colour) {
    ways_ += loom::format("<circle cx='{:.1f}' cy='{:.1f}' r='{:g}' fill='{}'/>\n", x, y, radius, colour);
  }
  /// corners: x and y of each.
  void outline(const std::vector<std::pair<double, double>>& corners, const char* colour, const char* fill) {
    ways_ += "<polygon points='";
    for (const auto& [x, y] : corners) ways_ += loom::format("{:.1f},{:.1f} ", x, y);
    ways_ += loom::format("' fill='{}' stroke='{}' stroke-width='1.3'/>\n", fill, colour);
  }
  /// A triangle whose tip is at (x, y), of an arrow that comes from (from_x, from_y).
  void arrow_head(double from_x, double from_y, double x, double y, const char* colour) {
    constexpr double kLength = 7, kHalfWidth = 3.5;
    const double length = std::hypot(x - from_x, y - from_y), along_x = (x - from_x) / length,
                 along_y = (y - from_y) / length, back_x = x - kLength * along_x,
                 back_y = y - kLength * along_y;
    ways_ += loom::format("<polygon points='{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}' fill='{}'/>\n", x, y,
                          back_x - kHalfWidth * along_y, back_y + kHalfWidth * along_x,
                          back_x + kHalfWidth * along_y, back_y - kHalfWidth * along_x, colour);
  }
  /// `edge`: a colour around the characters, so that they read over lines.
  void text(double x, double y, const std::string& content, double size, const char* anchor = "middle",
            const char* colour = "#222", bool bold = false, const char* edge = nullptr,
            double edge_width = 3) {
    const std::string around =
        edge == nullptr
            ? ""
            : loom::format(" stroke='{}' stroke-width='{:g}' stroke-linejoin='round' paint-order='stroke'",
                           edge, edge_width);
    texts_ += loom::format(
        "<text x='{:.1f}' y='{:.1f}' font-size='{:g}' text-anchor='{}' fill='{}'{}{}>{}</text>\n", x, y, size,
        anchor, colour, bold ? " font-weight='bold'" : "", around, escaped(content));
    taken_.push_back(text_box(x, y, content, size, anchor));
  }
  /// Text on a line: with a white edge.
  void tag(double x, double y, const std::string& content, const char* colour, const char* anchor = "start") {
    text(x, y, content, kTagSize, anchor, colour, false, "white");
  }
  /// Whether such a tag would cover no text.
  bool has_room_for_tag(double x, double y, const std::string& content, const char* anchor = "start") const {
    const Rectangle box = text_box(x, y, content, kTagSize, anchor);
    return std::none_of(taken_.begin(), taken_.end(), [&](const Rectangle& other) {
      return box.left < other.right && other.left < box.right && box.top < other.bottom &&
             other.top < box.bottom;
    });
  }
  std::string finish(double w, double h) const {
    return loom::format(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{0:.0f}' height='{1:.0f}' viewBox='0 0 {0:.0f} "
        "{1:.0f}' font-family='Helvetica, Arial, sans-serif'>\n"
        "<rect width='100%' height='100%' fill='white'/>\n{2}{3}{4}{5}</svg>\n",
        w, h, boxes_, lines_, ways_, texts_);
  }

 private:
  struct Rectangle {
    double left, top, right, bottom;
  };
  static constexpr double kTagSize = 10;

  /// An estimate: the viewer chooses the font.
  static Rectangle text_box(double x, double y, std::string_view content, double size,
                            std::string_view anchor) {
    const double width = 0.6 * size * static_cast<double>(content.size());
    const double left = anchor == "middle" ? x - width / 2 : anchor == "end" ? x - width : x;
    return {left, y - 0.8 * size, left + width, y + 0.2 * size};
  }

  std::string boxes_, lines_, ways_, texts_;
  std::vector<Rectangle> taken_;  ///< by texts
};

}  // namespace loom::tools
