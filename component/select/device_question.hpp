// device_question.hpp -- when do ranks ask each other whether all have their buffers on GPUs? Each rank knows
// its own buffers alone, and asking costs as much as a small call on host memory. Only the arithmetic is
// here; device_calls.cpp asks.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "device/call.h"

namespace loom {

/// For calls of one kind. All ranks call these functions in the same order and with the same arguments.
class DeviceQuestion {
 public:
  /// Before each call of the kind. False: the call is for host memory as far as ranks know; buffers on GPUs
  /// are staged.
  bool asks() {
    if (calls_until_next_ == 0) return true;
    --calls_until_next_;
    return false;
  }
  /// After each question. While the answer is yes every call asks. The more often in a row it was no, the
  /// longer is the pause.
  void answered(bool on_gpus_everywhere) {
    if (on_gpus_everywhere) {
      noes_ = 0;
      has_been_yes_ = true;
      return;
    }
    noes_ = std::min<std::uint16_t>(noes_ + 1, kMostNoes);
    const int patience = has_been_yes_ ? kPatience : 0;
    calls_until_next_ = noes_ <= patience ? 0 : std::min(1 << (noes_ - patience - 1), kLongestPause);
  }

 private:
  static constexpr int kLongestPause = 256;  ///< calls
  /// In a program that has buffers of both kinds in one call, or by turns.
  static constexpr int kPatience = 16;
  static constexpr std::uint16_t kMostNoes = kPatience + 10;
  static_assert(1 << (kMostNoes - kPatience - 1) >= kLongestPause);

  std::uint16_t noes_ = 0;  ///< in a row
  bool has_been_yes_ = false;
  std::int32_t calls_until_next_ = 0;
};

/// Of one communicator: for each collective, and for most of them sizes in steps of four times.
class DeviceQuestions {
 public:
  /// bytes: the same on all ranks, but in calls whose truncation ends nothing but the call.
  DeviceQuestion& of(device::Collective collective, std::size_t bytes) {
    if (collective == device::Collective::kBroadcast || collective == device::Collective::kAllGatherV)
      bytes = 0;
    const std::size_t size = std::min<std::size_t>(std::bit_width(bytes) / 2, kSizes - 1);
    return questions_[static_cast<std::size_t>(collective)][size];
  }

 private:
  static constexpr std::size_t kSizes = 17;
  std::array<std::array<DeviceQuestion, kSizes>, device::kCollectiveCount> questions_;
};

}  // namespace loom
