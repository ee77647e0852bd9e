// device_calls.hpp -- calls whose buffers lie on GPUs on all ranks, and stay there. Whether they do is a fact
// of each rank: a round of flags makes it one that all share, and every verdict of the set-up likewise.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "component/execute/call_selector.hpp"
#include "component/execute/device_links.hpp"
#include "component/execute/execution.hpp"
#include "component/execute/result_elsewhere.hpp"
#include "component/links/links.hpp"
#include "component/select/device_question.hpp"
#include "component/select/tuner.hpp"
#include "component/setup/member.hpp"
#include "device/call.h"
#include "device/cuda/gpu_links.hpp"

namespace loom {

class DeviceCalls {
 public:
  /// All must outlive this.
  DeviceCalls(Member& member, Links& links, Execution& execution, CallSelector& selector)
      : member_(member), links_(links), execution_(execution), selector_(selector) {}

  /// As far as that is known to all: the ranks have yet to ask each other for the rest. The same on all.
  /// Once before each call.
  bool may_carry(const device::Call& call);
  /// Collective, once there are links and may_carry() was true. What has carried the call; nothing, on all
  /// ranks: it is to be staged, and call_ended() follows. Throws as Execution::perform().
  std::optional<Algorithm> try_perform(const device::Call& call);
  void call_ended() noexcept;

 private:
  /// A kernel, on all ranks alike.
  enum class Prepared : std::uint8_t { kNotYet, kReady, kRefused };

  Prepared* prepared_for(Algorithm algorithm, const device::Call& call);
  bool may_carry_by(Algorithm algorithm, const device::Call& call);
  template <class Carries>
  Algorithm algorithm_for(const device::Call& call, Carries&& carries);
  bool can_carry(Algorithm algorithm, const device::Call& call);
  void explain(Algorithm leader, const device::Call& call, bool probes);
  Window* window_of(const device::Call& call, Algorithm algorithm);
  bool prepare(Algorithm algorithm, const device::Call& call);
  std::optional<device::cuda::Owner> gpu_of(const device::Call& call) const;
  bool make_room_elsewhere(std::size_t bytes, const device::cuda::Owner& owner);

  Member& member_;
  Links& links_;
  Execution& execution_;
  CallSelector& selector_;
  DeviceQuestions questions_;
  ResultElsewhere elsewhere_;
  DeviceLinks maker_{member_, links_, execution_};
  /// Between a kernel and staging. Made with the links.
  std::unique_ptr<Tuner> tuner_;
  std::optional<TimedCall> timed_;  ///< the call that is under way, if it is one of a window
  /// By algorithm (host_driven, kernel), operation and type.
  std::array<std::array<std::array<Prepared, device::kTypeCount>, device::cuda::kKernelOps>, 2> prepared_{};
};

}  // namespace loom
