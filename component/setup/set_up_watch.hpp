// set_up_watch.hpp -- looks after the ranks of a communicator while an exchange of its set-up waits for them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "component/setup/bootstrap.hpp"
#include "component/setup/group.hpp"

namespace loom {

/// Gives an exchange up at the time limit, or once a rank of this host has died. What ranks of other hosts
/// do, nobody knows before there are links.
class SetUpWatch final : public ExchangeWatch {
 public:
  /// timeout_s 0: no limit.
  explicit SetUpWatch(double timeout_s) noexcept : timeout_s_(timeout_s) {}

  /// Whose ranks it looks after, as soon as they are known; must outlive this.
  void look_after(const std::shared_ptr<Group>& group) noexcept { group_ = &group; }
  /// check: looks after ranks by other means, and throws Error.
  void look_by(std::function<void()> check) { check_ = std::move(check); }
  void look(double waited_s, const loom_standing& standing) override;

 private:
  std::string missing(const loom_standing& standing) const;

  const double timeout_s_;
  const std::shared_ptr<Group>* group_ = nullptr;
  std::function<void()> check_;
  double checked_s_ = 0;  ///< into the wait
};

}  // namespace loom
