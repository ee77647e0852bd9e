// select.hpp -- which algorithm runs a call? The user's choice (tune.hpp); or else, of the rows of the table
// that suit the call, the one with the lowest predicted time; or else the fallback component. The same on all
// ranks.
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
  /// An algorithm that may be faster on this machine: only a probe tells (tuner.hpp).
  std::optional<Algorithm> candidate = {};
  friend bool operator==(const Choice&, const Choice&) = default;
};

/// For a call on host memory. bytes: device::shared_bytes(). may_wait: a call that may not wait needs an
/// algorithm whose executor is resumable.
Choice choose(const Conditions& conditions, device::Collective collective, std::size_t bytes, bool may_wait,
              const Tune& tune = {});

/// Whether a call that does not wait may be one of those by which Open MPI agrees on a communicator's id, in
/// no fixed order with the program's. loom leaves them to the fallback component.
bool may_make_an_id(device::Collective collective, std::size_t bytes, device::Op op, device::Type type);
inline constexpr char kWhyIdsFallBack[] = "Open MPI makes such calls itself, in MPI_Comm_dup and the like";

/// An algorithm that can run a call.
struct Alternative {
  Algorithm algorithm;
  double us;   ///< predicted
  bool suits;  ///< as measured
};
/// For a call on host memory, by predicted time; those that suit it come first.
std::vector<Alternative> alternatives(const Conditions& conditions, device::Collective collective,
                                      std::size_t bytes, bool may_wait);
/// What a call whose buffers lie on GPUs is predicted to take through the host; nothing where the fallback
/// component carries it there.
std::optional<double> staged_us(const Conditions& conditions, device::Collective collective,
                                std::size_t bytes, bool may_wait, const Tune& tune);
/// For a call whose buffers lie on GPUs on all ranks, where it is predicted to take kernel_us: whether
/// staging it may be as fast on this machine, so that only a probe tells. That is so, too, where the fallback
/// component would carry it, whose time nothing predicts.
bool may_pay_to_stage(const Conditions& conditions, device::Collective collective, std::size_t bytes,
                      double kernel_us, const Tune& tune, Algorithm on_gpus);
/// Why choose() answers as it does: half a sentence for users.
std::string reason_of(const Conditions& conditions, device::Collective collective, std::size_t bytes,
                      bool may_wait, const Tune& tune);

/// The table compiled for one communicator: a list by size, which a few comparisons search.
class Selector {
 public:
  /// As choose(), even if memory has run out. Compiles once a collective has been called a few times, and
  /// again when the conditions have changed.
  Choice choose(const Conditions& conditions, device::Collective collective, std::size_t bytes, bool may_wait,
                const Tune& tune);
  /// The conditions are about to change.
  void forget() noexcept {
    for (auto& of_collective : steps_)
      for (Steps& steps : of_collective) steps.clear();
    calls_ = {};
  }
  /// choose() for the same conditions, at a tenth of its cost; nullptr: not compiled yet.
  const Choice* compiled(device::Collective collective, std::size_t bytes, bool may_wait) const {
    const Steps& steps = steps_[static_cast<std::size_t>(collective)][may_wait];
    if (steps.empty()) return nullptr;
    const Step* step = &steps.front();
    for (const Step& each : steps) {  // few, in ascending order
      if (each.from > bytes) break;
      step = &each;
    }
    return &step->choice;
  }

 private:
  struct Step {
    std::size_t from;  ///< bytes
    Choice choice;
  };
  using Steps = std::vector<Step>;
  static Steps compile(const Conditions& conditions, device::Collective collective, bool may_wait,
                       const Tune& tune);

  static constexpr int kCallsBeforeCompiling = 16;  ///< compiling costs a hundred looks at the table

  Conditions conditions_;
  std::array<std::array<int, 2>, device::kCollectiveCount> calls_{};
  std::array<std::array<Steps, 2>, device::kCollectiveCount> steps_;
};

/// Offers (device::offered_bytes()) of such calls below this use an immediate exchange, without a probe.
std::size_t immediate_below(const Conditions& conditions, device::Collective collective, const Tune& tune);

}  // namespace loom
