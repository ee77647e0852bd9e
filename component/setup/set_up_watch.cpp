#include "component/setup/set_up_watch.hpp"

#include "base/format.hpp"
#include "device/link/process_watch.hpp"
#include "device/link/waiter.hpp"

namespace loom {
namespace {

constexpr double kCheckPeersEverySeconds = 0.2;

}  // namespace

void SetUpWatch::look(double waited_s, const loom_standing& standing) {
  if (device::is_past(timeout_s_, waited_s, nullptr))
    throw Error(ErrorCode::kTimeout,
                loom::format("No step forward for {:.1f} s in the exchanges that connect the ranks. {}",
                             waited_s, missing(standing)));
  if (waited_s < checked_s_) checked_s_ = 0;  // another step
  if (group_ == nullptr || waited_s - checked_s_ < kCheckPeersEverySeconds) return;
  checked_s_ = waited_s;
  for (const auto& [rank, process] : (*group_)->host_mates)
    if (!device::is_alive(process))
      throw Error(ErrorCode::kPeerFailed, loom::format("{} has died.", (*group_)->name_of(rank)));
  if (check_) check_();
}

/// Of ranks on this host the system may know more than the exchange tells.
std::string SetUpWatch::missing(const loom_standing& standing) const {
  if (group_ != nullptr)
    for (const auto& [rank, process] : (*group_)->host_mates)
      if (device::is_stopped(process))
        return loom::format("Waiting for {}, which is stopped.", (*group_)->name_of(rank));
  const std::string awaited =
      group_ != nullptr ? (*group_)->name_of(standing.awaited) : loom::format("rank {}", standing.awaited);
  return standing.steps == 0
             ? loom::format("Waiting for {}, which has not come to this call, or does not go on in it.",
                            awaited)
             : loom::format("Waiting for {}, which may itself wait for another one.", awaited);
}

}  // namespace loom
