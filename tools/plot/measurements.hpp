// measurements.hpp -- what loom_bench --json has written, as curves.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace loom::tools {

/// Times of one communicator over sizes.
struct Curve {
  std::string name;                               ///< "loom", "tuned"
  std::vector<std::pair<double, double>> points;  ///< bytes, us; ascending bytes
};

/// One collective in one form.
struct Measurement {
  std::string title;          ///< "allreduce", "nonblocking bcast"
  std::string where;          ///< "2 ranks on 1 host"
  std::vector<Curve> curves;  ///< loom's first, where it has one
  Curve floor;                ///< the machine's bound, as measured; maybe empty

  bool has_loom() const { return curves.front().name == kLoom; }
  static constexpr const char* kLoom = "loom";
};

/// How many times faster the first curve is than the best of the others at a size that all have; 0: there is
/// no other, or not that size.
double ratio_at(const Measurement& measurement, double bytes);

/// The files, "-" is stdin. Runs of one collective on the same ranks become one measurement: sizes come
/// together. Throws Error (kBadInput).
std::vector<Measurement> read_measurements(const std::vector<std::string>& files);

/// Latency (or bandwidth, in GB/s) over size, both axes logarithmic, as SVG.
std::string curves_svg(const Measurement& measurement, bool bandwidth);
/// By collective and size, how many times faster loom is than the best of the others, as SVG.
std::string ratios_svg(const std::vector<Measurement>& measurements);

}  // namespace loom::tools
