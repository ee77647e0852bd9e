#include <algorithm>
#include <array>
#include <cmath>

#include "base/format.hpp"
#include "tools/plot/measurements.hpp"
#include "tools/svg_canvas.hpp"
#include "tools/words.hpp"

namespace loom::tools {
namespace {

constexpr double kWidth = 760, kHeight = 470;
constexpr double kLeft = 70, kRight = 130, kTop = 50, kBottom = 55;
constexpr const char *kAxis = "#444", *kGrid = "#dddddd";

/// What tells curves apart, also in black and white: dashes and marks before colours.
struct Style {
  const char *colour, *dashes;
  int mark;  ///< 0 disc, 1 square, 2 triangle, 3 diamond, 4 none
  double width;
};
constexpr Style kFirst{"#0b4f9e", "", 0, 2.6};
constexpr std::array kOthers{Style{"#c2500a", "7 3", 1, 1.6}, Style{"#4b7f1b", "2 3", 2, 1.6},
                             Style{"#7a3fa0", "9 3 2 3", 3, 1.6}, Style{"#555555", "4 4", 1, 1.6}};
constexpr Style kFloor{"#888888", "1 3", 4, 1.4};

/// A logarithmic axis.
class Axis {
 public:
  Axis(double least, double most, double begin, double end)
      : least_(std::log2(least)),
        span_(std::max(1e-9, std::log2(most) - std::log2(least))),
        begin_(begin),
        end_(end) {}
  double at(double value) const { return begin_ + (std::log2(value) - least_) / span_ * (end_ - begin_); }

 private:
  double least_, span_, begin_, end_;
};

std::string size_text(double bytes) {
  const auto whole = static_cast<std::size_t>(bytes);
  const std::string text = bytes_text(whole);
  return text == std::to_string(whole) ? text : text.substr(0, text.size() - 1) + " " + text.back() + "i";
}

std::string number_text(double value) {
  return value >= 1 ? loom::format("{:.0f}", value) : loom::format("{:g}", value);
}

double value_of(const std::pair<double, double>& point, bool bandwidth) {
  return bandwidth ? point.first / point.second / 1e3 : point.second;
}

class Plot {
 public:
  Plot(const Measurement& measurement, bool bandwidth)
      : measurement_(measurement),
        bandwidth_(bandwidth),
        bounds_(bounds()),
        x_(bounds_.least_bytes, bounds_.most_bytes, kLeft, kWidth - kRight),
        y_(bounds_.least, bounds_.most, kHeight - kBottom, kTop) {}

  std::string draw() {
    axes();
    if (!measurement_.floor.points.empty()) curve(measurement_.floor, kFloor, "floor");
    for (std::size_t i = measurement_.curves.size(); i-- > 1;)
      curve(measurement_.curves[i], kOthers[(i - 1) % kOthers.size()], measurement_.curves[i].name);
    curve(measurement_.curves[0], kFirst, measurement_.curves[0].name);
    labels();
    canvas_.text(kLeft, 26, loom::format("{}, {}", measurement_.title, measurement_.where), 16, "start",
                 "#222", true);
    return canvas_.finish(kWidth, kHeight);
  }

 private:
  struct Bounds {
    double least_bytes = 1e18, most_bytes = 0, least = 1e18, most = 0;
  };
  Bounds bounds() const {
    Bounds all;
    const auto include = [&](const Curve& curve) {
      for (const auto& point : curve.points) {
        if (point.first <= 0 || point.second <= 0) continue;
        all.least_bytes = std::min(all.least_bytes, point.first);
        all.most_bytes = std::max(all.most_bytes, point.first);
        all.least = std::min(all.least, value_of(point, bandwidth_));
        all.most = std::max(all.most, value_of(point, bandwidth_));
      }
    };
    for (const Curve& curve : measurement_.curves) include(curve);
    include(measurement_.floor);
    if (all.most_bytes == 0) return {1, 2, 1, 2};  // nothing to show, as of a barrier
    all.least /= 1.25;
    all.most *= 1.25;
    return all;
  }

  void axes() {
    const double right = kWidth - kRight, bottom = kHeight - kBottom;
    for (int exponent = -6; exponent < 12; ++exponent)
      for (const int digit : {1, 2, 5}) {
        const double value = digit * std::pow(10.0, exponent);
        if (value < bounds_.least || value > bounds_.most) continue;
        const double y = y_.at(value);
        canvas_.line(kLeft, y, right, y, kGrid, digit == 1 ? 1.2 : 0.5);
        if (digit == 1 || bounds_.most / bounds_.least < 2000)
          canvas_.text(kLeft - 8, y + 4, number_text(value), 11, "end", kAxis);
      }
    const int from = static_cast<int>(std::ceil(std::log2(bounds_.least_bytes))),
              to = static_cast<int>(std::floor(std::log2(bounds_.most_bytes)));
    const int step = std::max(1, (to - from + 8) / 9);
    for (int power = from; power <= to; ++power) {
      const double bytes = std::pow(2.0, power), x = x_.at(bytes);
      const bool is_named = (power - from) % step == 0;
      canvas_.line(x, kTop, x, bottom + (is_named ? 4 : 0), kGrid, is_named ? 1 : 0.4);
      if (is_named) canvas_.text(x, bottom + 18, size_text(bytes), 11, "middle", kAxis);
    }
    canvas_.line(kLeft, bottom, right, bottom, kAxis, 1);
    canvas_.line(kLeft, kTop, kLeft, bottom, kAxis, 1);
    canvas_.text((kLeft + right) / 2, kHeight - 14, "bytes of the message", 12, "middle", kAxis);
    canvas_.text(kLeft - 8, kTop - 10, bandwidth_ ? "GB/s" : "us", 12, "end", kAxis);
  }

  void curve(const Curve& curve, const Style& style, const std::string& name) {
    struct Point {
      double x, y;
    };
    std::vector<Point> points;
    for (const auto& point : curve.points)
      if (point.first > 0 && point.second > 0)
        points.push_back({x_.at(point.first), y_.at(value_of(point, bandwidth_))});
    if (points.empty()) return;
    canvas_.way(points, style.colour, style.width, style.dashes);
    for (const Point& point : points) mark(point.x, point.y, style);
    ends_.push_back({points.back().y, name, style.colour});
  }

  void mark(double x, double y, const Style& style) {
    constexpr double kHalf = 3;
    if (style.mark == 4) return;
    if (style.mark == 0) return canvas_.disc(x, y, kHalf, style.colour);
    const std::vector<std::pair<double, double>> square{{-1, -1}, {1, -1}, {1, 1}, {-1, 1}},
        triangle{{0, -1.3}, {1.2, 1}, {-1.2, 1}}, diamond{{0, -1.4}, {1.4, 0}, {0, 1.4}, {-1.4, 0}};
    const auto& corners = style.mark == 1 ? square : style.mark == 2 ? triangle : diamond;
    std::vector<std::pair<double, double>> around;
    for (const auto& [dx, dy] : corners) around.emplace_back(x + kHalf * dx, y + kHalf * dy);
    canvas_.outline(around, style.colour, "white");
  }

  /// Names stand at the ends of their curves, none over another.
  void labels() {
    constexpr double kApart = 15;
    std::ranges::sort(ends_, {}, &End::y);
    for (std::size_t i = 1; i < ends_.size(); ++i) ends_[i].y = std::max(ends_[i].y, ends_[i - 1].y + kApart);
    const double over = ends_.empty() ? 0 : std::max(0.0, ends_.back().y - (kHeight - kBottom));
    for (const End& end : ends_)
      canvas_.text(kWidth - kRight + 10, end.y - over + 4, end.name, 12, "start", end.colour,
                   end.name == "loom");
  }

  struct End {
    double y;
    std::string name;
    const char* colour;
  };
  const Measurement& measurement_;
  const bool bandwidth_;
  const Bounds bounds_;
  const Axis x_, y_;
  std::vector<End> ends_;
  Canvas canvas_;
};

}  // namespace

std::string curves_svg(const Measurement& measurement, bool bandwidth) {
  return Plot(measurement, bandwidth).draw();
}

namespace {

bool has_size(const Measurement& measurement, double size) {
  return std::ranges::any_of(measurement.curves.front().points,
                             [&](const auto& point) { return point.first == size; });
}

/// Sizes that share a column, ascending. Where ranks do not divide a size it is a little less, so sizes of
/// different collectives may be one; no two of the same collective are.
std::vector<std::vector<double>> columns_of(const std::vector<Measurement>& measurements) {
  std::vector<double> sizes;
  for (const Measurement& measurement : measurements)
    for (const auto& point : measurement.curves.front().points) sizes.push_back(point.first);
  std::ranges::sort(sizes);
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  std::vector<std::vector<double>> columns;
  for (const double size : sizes) {
    const bool joins =
        !columns.empty() && size <= columns.back().front() * std::sqrt(2.0) &&
        std::ranges::none_of(measurements, [&](const Measurement& measurement) {
          return has_size(measurement, size) && std::ranges::any_of(columns.back(), [&](double other) {
                   return has_size(measurement, other);
                 });
        });
    if (!joins) columns.emplace_back();
    columns.back().push_back(size);
  }
  return columns;
}

/// "tuned", "the best of tuned and sm"
std::string others_of(const std::vector<Measurement>& measurements) {
  std::vector<std::string> names;
  for (const Measurement& measurement : measurements)
    for (std::size_t i = 1; i < measurement.curves.size(); ++i)
      if (const std::string& name = measurement.curves[i].name; std::ranges::find(names, name) == names.end())
        names.push_back(name);
  if (names.size() == 1) return names[0];
  const std::string last = names.back();
  names.pop_back();
  return loom::format("the best of {} and {}", loom::join(names, ", "), last);
}

}  // namespace

std::string ratios_svg(const std::vector<Measurement>& measurements) {
  constexpr double kCell = 46, kRow = 30, kNames = 190;
  const std::vector<std::vector<double>> columns = columns_of(measurements);
  Canvas canvas;
  double y = 70;
  for (const Measurement& measurement : measurements) {
    canvas.text(kNames - 10, y + kRow * 0.65, measurement.title, 12, "end");
    for (std::size_t i = 0; i < columns.size(); ++i) {
      double ratio = 0;
      for (const double size : columns[i]) ratio = std::max(ratio, ratio_at(measurement, size));
      if (ratio <= 0) continue;
      const double x = kNames + kCell * static_cast<double>(i);
      // Faster is bluer, slower is more orange and framed; 4 times and more is the darkest.
      const double depth = std::min(1.0, std::abs(std::log2(ratio)) / 2);
      const auto mixed = [&](int full) { return static_cast<int>(255 - depth * (255 - full)); };
      const std::string fill = ratio >= 1 ? loom::format("rgb({},{},{})", mixed(20), mixed(90), mixed(170))
                                          : loom::format("rgb({},{},{})", mixed(225), mixed(110), mixed(10));
      const bool is_slower = ratio < 0.95;
      canvas.box(x, y, kCell, kRow, fill.c_str(), is_slower ? "#222" : "#ffffff", 0);
      canvas.text(x + kCell / 2, y + kRow * 0.65,
                  ratio >= 10 ? loom::format("{:.0f}", ratio) : loom::format("{:.2f}", ratio), 11, "middle",
                  depth > 0.75 ? "#ffffff" : "#222", is_slower);
    }
    y += kRow;
  }
  for (std::size_t i = 0; i < columns.size(); ++i)
    if (i % 2 == 0 || columns.size() < 16)
      canvas.text(kNames + kCell * (static_cast<double>(i) + 0.5), y + 18, size_text(columns[i].back()), 11,
                  "middle", kAxis);
  const double width = kNames + kCell * static_cast<double>(columns.size()) + 20;
  const std::string title =
      loom::format("How many times faster than {}, {}", others_of(measurements), measurements.front().where);
  canvas.text(20, 28, title, 15, "start", "#222", true);
  canvas.text(20, 48, "above 1: loom is faster; framed: slower than 0.95", 12, "start", kAxis);
  canvas.text((kNames + width) / 2, y + 38, "bytes of the message", 12, "middle", kAxis);
  return canvas.finish(std::max(width, 40 + 9.5 * static_cast<double>(title.size())), y + 52);
}

}  // namespace loom::tools
