// select.hpp -- which algorithm carries a call? The user's choice (tune.hpp), or of the rows of the table
// that suit the call the one that is predicted to be cheapest; the fallback component where none does. The
// same on all ranks.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "component/select/algorithms.hpp"
#include "component/select/tune.hpp"

namespace loom {

struct Choice {
  Algorithm algorithm = Algorithm::kFallback;
  /// What may be faster on this machine, which only a probe shows (tuner.hpp).
  std::optional<Algorithm> candidate = {};
  friend bool operator==(const Choice&, const Choice&) = default;
};

/// Of a call on host memory. bytes: device::shared_bytes(). may_wait: a call that does not wait needs an
/// algorithm whose executor is resumable.
Choice choose(const Conditions& conditions, device::Collective collective, std::size_t bytes, bool may_wait,
              const Tune& tune = {});

/// An algorithm that can carry a call.
struct Alternative {
  Algorithm algorithm;
  double us;   ///< predicted
  bool suits;  ///< as far as was measured
};
/// Of a call on host memory, those that suit it first, and by predicted time.
std::vector<Alternative> alternatives(const Conditions& conditions, device::Collective collective,
                                      std::size_t bytes, bool may_wait);
/// Why choose() answers as it does, for people: half a sentence.
std::string reason_of(const Conditions& conditions, device::Collective collective, std::size_t bytes,
                      bool may_wait, const Tune& tune);

/// The table compiled for one communicator: by size, looked up by a few comparisons.
class Selector {
 public:
  /// As choose(), also where there is no memory. Compiles when a collective has been called some times; anew
  /// when the conditions have changed.
  Choice choose(const Conditions& conditions, device::Collective collective, std::size_t bytes, bool may_wait,
                const Tune& tune);

 private:
  struct Step {
    std::size_t from;  ///< bytes
    Choice choice;
  };
  using Steps = std::vector<Step>;
  static Steps compile(const Conditions& conditions, device::Collective collective, bool may_wait,
                       const Tune& tune);

  static constexpr int kCallsBeforeCompiling = 16;  ///< a look at the table costs a hundredth of it

  Conditions conditions_;
  std::array<std::array<int, 2>, device::kCollectiveCount> calls_{};
  std::array<std::array<Steps, 2>, device::kCollectiveCount> steps_;
};

/// Offers (device::offered_bytes()) of such calls below this go by an immediate exchange, and no probe is
/// due: the shorter way of small calls.
std::size_t immediate_below(const Conditions& conditions, device::Collective collective, const Tune& tune);

}  // namespace loom
