// steps.hpp -- how much work a search may do. Counted, not timed, so that every rank stops at the same point.
#pragma once

#include <cstdint>

namespace loom::search {

/// A step is one addition or comparison in an inner loop: about a nanosecond.
class Steps {
 public:
  explicit Steps(std::int64_t most) noexcept : most_(most) {}

  void take(std::int64_t count) noexcept { taken_ += count; }
  bool are_spent() const noexcept { return taken_ >= most_; }
  std::int64_t taken() const noexcept { return taken_; }
  std::int64_t left() const noexcept { return most_ - taken_; }

 private:
  friend class PartOfSteps;
  std::int64_t most_, taken_ = 0;
};

/// As long as it lives, only `percent` of the steps left may be taken.
class PartOfSteps {
 public:
  PartOfSteps(Steps& steps, std::int64_t percent) noexcept : steps_(steps), most_(steps.most_) {
    if (!steps.are_spent()) steps.most_ = steps.taken_ + steps.left() / 100 * percent;
  }
  ~PartOfSteps() { steps_.most_ = most_; }
  PartOfSteps(const PartOfSteps&) = delete;
  PartOfSteps& operator=(const PartOfSteps&) = delete;

 private:
  Steps& steps_;
  std::int64_t most_;
};

}  // namespace loom::search
