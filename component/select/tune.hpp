// tune.hpp -- the user's choice of algorithms: coll_loom_tune and the file that coll_loom_tune_file names.
//
//   TUNE       = RULE { ("," | newline) RULE }     "#" begins a comment, up to the end of the line
//   RULE       = COLLECTIVE ":" [ RANGE ":" ] ALGORITHM
//   COLLECTIVE = a collective's name, or "all"
//   RANGE      = FROM "-" TO          bytes of the whole message, FROM <= size < TO; 8k, 1m, 2g, inf
//   ALGORITHM  = a name of the table (algorithms.hpp), "fallback", or "table": the table's choice, no probes;
//                for buffers on GPUs also "staged": they are copied to the host
//
// The last rule counts that fits a call and whose algorithm can run it. Rules with algorithms for buffers on
// GPUs are for calls whose buffers lie there on all ranks, the others for host memory, staged copies
// included; "fallback" is for both.
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
  /// The rules of `other` override these.
  void append(const Tune& other);

  /// For a call on host memory: the algorithm that the user wants, of those for which carries(algorithm) is
  /// true; or nothing. Allocates nothing.
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
  /// For a call whose buffers lie on GPUs on all ranks: one of the table, of those for which
  /// carries(algorithm) is true, or kStaged. Without a rule that can be met kKernel or kZeroCopy, the one
  /// that is the `faster` one first. Allocates nothing.
  template <class Carries>
  Algorithm on_devices(device::Collective collective, std::size_t whole_bytes, Carries&& carries,
                       Algorithm faster = Algorithm::kKernel) const {
    for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule) {
      if (!rule->fits(collective, whole_bytes)) continue;
      if (!rule->algorithm) break;
      if (!has_row(*rule->algorithm)) return Algorithm::kStaged;
      if (row_of(*rule->algorithm).on_devices && carries(*rule->algorithm)) return *rule->algorithm;
    }
    const Algorithm other = faster == Algorithm::kKernel ? Algorithm::kZeroCopy : Algorithm::kKernel;
    return carries(faster) ? faster : carries(other) ? other : Algorithm::kStaged;
  }
  /// Some rule is for buffers on GPUs in such calls, and names `algorithm` if that is given.
  bool has_rule_on_devices(device::Collective collective, std::size_t whole_bytes,
                           std::optional<Algorithm> algorithm = {}) const;
  /// Some call with buffers on GPUs would use the algorithm. kernels, zero_copy: what can be used at all.
  bool may_use_on_devices(Algorithm algorithm, bool kernels = true, bool zero_copy = true) const;
  /// Of one that is_by_kernel().
  bool may_use_kernels(bool zero_copy = true) const;
  /// Some rule names it.
  bool names(Algorithm algorithm) const;
  /// Where the ranges of the collective's rules begin and end, except 0 and infinity.
  std::vector<std::size_t> limits(device::Collective collective) const;
  /// A line for each rule that has no effect on such a communicator, with the reason. not_on_gpus: why no
  /// call stays on GPUs there, as the rest of a sentence; empty: some may.
  std::vector<std::string> without_effect(const Conditions& conditions,
                                          std::string_view not_on_gpus = {}) const;

  bool empty() const { return rules_.empty(); }
  /// Tells different rules apart; 0 where there are none.
  std::uint64_t mark() const;

 private:
  struct Rule {
    std::string text, where;
    std::bitset<device::kCollectiveCount> collectives;
    std::size_t from, to;
    std::optional<Algorithm> algorithm;  ///< empty: "table"

    bool fits(device::Collective collective, std::size_t whole_bytes) const {
      return collectives[static_cast<std::size_t>(collective)] && from <= whole_bytes && whole_bytes < to;
    }
  };
  static Rule parse_rule(std::string_view text, std::string_view where);

  std::vector<Rule> rules_;
};

}  // namespace loom
