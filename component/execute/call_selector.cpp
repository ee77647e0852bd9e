#include "component/execute/call_selector.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "base/format.hpp"
#include "component/select/gpu_calls.hpp"

namespace loom {
namespace {

constexpr std::uint64_t kMiB = 1024 * 1024;

/// Before the collective's name.
const char* name_of(CallForm form) {
  switch (form) {
    case CallForm::kNonblocking:
      return "nonblocking ";
    case CallForm::kPersistent:
      return "persistent ";
    case CallForm::kBlocking:
      break;
  }
  return "";
}

}  // namespace

std::size_t CallSelector::bytes_of(const device::Call& call) const {
  return device::shared_bytes(call, member_.bootstrap.size());
}

std::size_t CallSelector::whole_message_of(const device::Call& call) const {
  return whole_message(call.collective, member_.bootstrap.size(), bytes_of(call));
}

bool CallSelector::hier_is_due() const {
  if (counts_with_ != nullptr && counts_with_->hier_is_due()) return true;
  const std::uint64_t from = member_.group->hier_from;
  return from > 0 && (links_.state == LinkState::kReady || small_calls_ >= from);
}

Conditions CallSelector::conditions() const {
  Conditions conditions = member_.group->conditions();
  conditions.single_copy = !links_.pids.empty();
  conditions.hier = hier_is_due();
  return conditions;
}

bool CallSelector::count_small_call(const device::Call& call) {
  if (links_.state != LinkState::kNotMade || member_.group->hier_from == 0) return false;
  Conditions with = conditions();
  with.hier = true;
  if (loom::choose(with, call.collective, bytes_of(call), true, member_.group->tune).algorithm !=
      Algorithm::kHier)
    return false;
  ++small_calls_;
  return true;
}

Choice CallSelector::choose(const device::Call& call, bool may_wait) {
  return selector_.choose(conditions(), call.collective, bytes_of(call), may_wait, member_.group->tune);
}

Window& CallSelector::window_of(const device::Call& call, Algorithm usual) {
  const Tuner::Usual kind = usual == Algorithm::kImmediate ? Tuner::Usual::kImmediate
                            : row_of(usual).varies         ? Tuner::Usual::kVarying
                                                           : Tuner::Usual::kOther;
  return links_.tuner->of(call.collective, whole_message_of(call), kind);
}

Algorithm CallSelector::leading(const device::Call& call, Choice choice) {
  if (!choice.candidate) return choice.algorithm;
  return window_of(call, choice.algorithm).candidate_leads() ? *choice.candidate : choice.algorithm;
}

Algorithm CallSelector::in_a_lane(Algorithm algorithm, const device::Call& call) const {
  if (algorithm != Algorithm::kTiered) return algorithm;
  const Conditions all = conditions();
  const std::size_t bytes = bytes_of(call);
  const auto carries = [&](Algorithm other) { return row_of(other).can(all, call.collective, bytes); };
  const auto cost = [&](Algorithm other) { return row_of(other).cost(all, call.collective, bytes); };
  const bool exchanges = device::offered_bytes(call.collective, bytes, member_.bootstrap.size()) <=
                             most_exchanged(all, call.collective, false) &&
                         carries(Algorithm::kImmediate);
  const Algorithm among_all = exchanges ? Algorithm::kImmediate : Algorithm::kCico;
  return carries(Algorithm::kTieredCico) &&
                 row_of(Algorithm::kTieredCico).suits(all, call.collective, bytes) &&
                 cost(Algorithm::kTieredCico) < cost(among_all)
             ? Algorithm::kTieredCico
             : among_all;
}

Algorithm CallSelector::perform_probing(const device::Call& call, Choice choice) {
  const Algorithm usual = choice.algorithm, candidate = *choice.candidate;
  // In a row of immediate calls the root of a broadcast, and the senders of a reduce, run ahead: while the
  // others copy out of the slots, they copy the next message in. Probes time each call from the moment when
  // all ranks are there, one copy after the other, up to twice as long. By single copy the senders wait
  // either way. So the candidate must take less than two thirds of the time.
  const bool runs_ahead =
      usual == Algorithm::kImmediate &&
      (call.collective == device::Collective::kBroadcast || call.collective == device::Collective::kReduce);
  const double margin = runs_ahead ? 1.5 : 1.1;
  Window& window = window_of(call, usual);
  if (window.agrees())
    execution_.announce(call, device::CallFamily::kImmediate);  // a broadcast's sizes differ before others do
  const bool news = window.agrees() && window.settle(execution_.largest(window.own_time()), margin);
  const Algorithm way = window.by_candidate() ? candidate : usual;
  explain(window.candidate_leads() ? candidate : usual, call);  // probes are no news
  TimedCall timed(member_.process, window, whole_message_of(call));
  execution_.perform(way, call);
  timed.finish();
  if (news) explain_leader(call, window, usual, candidate);  // not while the others wait
  return way;
}

/// words(bytes) of the whole message.
template <class Words>
void CallSelector::explain_once(const Explained& kind, const device::Call& call, Words&& words) {
  if (!member_.tells(2) || std::ranges::find(explained_, kind) != explained_.end()) return;
  without_failing([&] {
    explained_.push_back(kind);
    // Of some calls not all ranks know how long they are.
    const std::size_t bytes = whole_message_of(call);
    const std::string size = bytes > 0 ? loom::format(" of {} bytes", bytes) : "";
    member_.process.runtime().log(loom::format("{}: {}{}{} goes by {}", member_.name, name_of(kind.form),
                                               name_of(call.collective), size, words(bytes))
                                      .c_str());
  });
}

void CallSelector::explain(Algorithm algorithm, const device::Call& call, CallForm form,
                           std::string_view reason) {
  explain_once({call.collective, algorithm, form}, call, [&](std::size_t) {
    return loom::format("{}: {}", name_of(algorithm),
                        !reason.empty() ? std::string(reason)
                        : algorithm == Algorithm::kFallback && links_.state == LinkState::kFailed
                            ? "loom could not connect the ranks"
                            : reason_of(conditions(), call.collective, bytes_of(call),
                                        form != CallForm::kNonblocking, member_.group->tune));
  });
}

void CallSelector::explain_on_gpus(Algorithm algorithm, const device::Call& call,
                                   const std::optional<device::cuda::KernelWay>& way, bool probes,
                                   CallForm form) {
  const bool may_wait = form != CallForm::kNonblocking;
  Explained kind{call.collective, algorithm, form};
  if (way) kind.by.emplace(way->algorithm, way->protocol);
  explain_once(kind, call, [&](std::size_t bytes) {
    const std::string links = way ? loom::format(" ({})", text_of(*way)) : "";
    const std::string_view reason =
        algorithm == Algorithm::kStaged
            ? "no slower than kernels, as timed"
            : reason_on_gpus(algorithm, call.collective, bytes, probes, may_wait, member_.group->tune);
    const std::string by = loom::format("{}{}: ", name_of(algorithm), links);
    if (may_wait) return by + std::string(reason);
    // When it starts, such a call does not know of the other ranks.
    return by + (reason == kBuffersAreOnGpus ? "" : std::string(reason) + ", ") +
           "if buffers are on GPUs on all ranks";
  });
}

void CallSelector::explain_staged(const device::Call& call, const char* reason) {
  explain_once({.collective = call.collective,
                .algorithm = Algorithm::kStaged,
                .form = CallForm::kNonblocking,
                .lacks_links = true},
               call,
               [&](std::size_t) { return loom::format("{}: {}", name_of(Algorithm::kStaged), reason); });
}

void CallSelector::explain_leader(const device::Call& call, const Window& window, Algorithm usual,
                                  Algorithm candidate) const {
  if (!member_.tells(1)) return;
  without_failing([&] {
    const std::size_t bytes = whole_message_of(call);
    const auto us = [&](bool by_candidate) {
      return window.mean(by_candidate) * static_cast<double>(bytes) / static_cast<double>(kMiB) / 1e3;
    };
    member_.process.runtime().log(
        loom::format(
            "{}: {} of {} bytes takes {:.1f} us by {}, {:.1f} by {}: calls of {} to {} bytes go by {}",
            member_.name, name_of(call.collective), bytes, us(false), name_of(usual), us(true),
            name_of(candidate), std::bit_ceil(bytes) / 2 + 1, std::bit_ceil(bytes),
            window.candidate_leads() ? loom::format("{} now", name_of(candidate))
                                     : loom::format("{} again", name_of(usual)))
            .c_str());
  });
}

}  // namespace loom
