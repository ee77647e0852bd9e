// tune.hpp -- the user's choice of algorithms: coll_loom_tune and the file that coll_loom_tune_file names.
//
//   TUNE       = RULE { ("," | newline) RULE }     "#" begins a comment, up to the end of the line
//   RULE       = COLLECTIVE ":" [ RANGE ":" ] ALGORITHM
//   COLLECTIVE = a collective's name, or "all"
//   RANGE      = FROM "-" TO                       bytes of the whole message, FROM <= size < TO; 8k, 1m, 2g,
//   inf ALGORITHM  = a name of the table (algorithms.hpp), "fallback", or "table": as the table says, without
//   probes
//
// The last rule that fits a call, and whose algorithm can carry it, counts.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "component/select/algorithms.hpp"

namespace loom {

class Tune {
 public:
  Tune() = default;
  /// where: for messages, "coll_loom_tune" or a file's name. Throws Error (kBadInput).
  static Tune parse(std::string_view text, std::string_view where);
  /// Those of `other` count before these.
  void append(const Tune& other);

  /// Of a call on host memory: what the user wants and carries(algorithm) says yes to; or nothing. Allocates
  /// nothing.
  template <class Carries>
  std::optional<Algorithm> wanted(device::Collective collective, std::size_t whole_bytes,
                                  Carries&& carries) const {
    for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule) {
      if (!rule->fits(collective, whole_bytes)) continue;
      if (!rule->algorithm) return {};
      if (carries(*rule->algorithm)) return rule->algorithm;
    }
    return {};
  }
  /// Probes are allowed.
  bool probes(device::Collective collective, std::size_t whole_bytes) const;
  /// The user wants calls whose buffers all lie on GPUs to stay there, by this algorithm.
  bool wants_on_devices(Algorithm algorithm, device::Collective collective, std::size_t whole_bytes) const;
  /// Some rule has it.
  bool names(Algorithm algorithm) const;
  /// Where ranges of rules for the collective begin and end, but 0 and infinity.
  std::vector<std::size_t> limits(device::Collective collective) const;
  /// A line for each rule that cannot have an effect on such a communicator, and why.
  std::vector<std::string> without_effect(const Conditions& conditions) const;

  bool empty() const { return rules_.empty(); }
  /// Tells different rules apart; 0 where there are none.
  std::uint64_t mark() const;

 private:
  struct Rule {
    std::string text, where;
    std::bitset<device::kCollectiveCount> collectives;
    std::size_t from, to;
    std::optional<Algorithm> algorithm;  ///< nothing: "table"

    bool fits(device::Collective collective, std::size_t whole_bytes) const {
      return collectives[static_cast<std::size_t>(collective)] && from <= whole_bytes && whole_bytes < to;
    }
  };
  static Rule parse_rule(std::string_view text, std::string_view where);

  std::vector<Rule> rules_;
};

}  // namespace loom
