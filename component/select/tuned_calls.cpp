// tuned_calls.cpp -- calls that two algorithms may carry: probes time both now and then.
#include <fmt/format.h>

#include <array>
#include <bit>
#include <chrono>

#include "component/communicator.hpp"

namespace loom {
namespace {

constexpr std::uint64_t kMiB = 1024 * 1024;

}  // namespace

std::size_t Communicator::whole_message_of(const device::Call& call) const {
  const int ranks = bootstrap_.size();
  return whole_message(call.collective, ranks, device::shared_bytes(call, ranks));
}

Window& Communicator::window_of(const device::Call& call, Algorithm usual) {
  return links_.tuner.of(call.collective, whole_message_of(call), usual == Algorithm::kImmediate);
}

/// The way that has carried the call.
Algorithm Communicator::perform_probing(const device::Call& call, Algorithm usual, Algorithm candidate) {
  // Who is the root of a broadcast, or sends to that of a reduce, runs ahead of the others in a row of direct
  // calls, which times from when all are there do not show. By single copy it waits for them.
  const bool runs_ahead =
      usual == Algorithm::kImmediate &&
      (call.collective == device::Collective::kBroadcast || call.collective == device::Collective::kReduce);
  const double margin = runs_ahead ? 1.2 : 1.1;
  using Clock = std::chrono::steady_clock;
  Window& window = window_of(call, usual);
  if (window.meets())
    announce(call, device::CallFamily::kImmediate);  // a broadcast's sizes differ before others do
  const bool news = window.meets() && window.settle(largest_on_host(window.own_time()), margin);
  const bool timed = window.is_timed();
  const Algorithm way = window.by_candidate() ? candidate : usual;
  explain(window.candidate_leads() ? candidate : usual, call);  // probes are no news
  const auto began = timed ? Clock::now() : Clock::time_point();
  perform_by(way, call);
  std::uint64_t ns_per_mib = 0;
  if (timed) {
    const auto ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - began).count());
    ns_per_mib = ns * kMiB / whole_message_of(call);
  }
  window.finish(ns_per_mib);
  if (news) explain_probe(call, window, usual, candidate);  // not while the others wait
  return way;
}

/// By all ranks, which leave it together.
std::uint64_t Communicator::largest_on_host(std::uint64_t mine) {
  auto* const there = reinterpret_cast<std::byte*>(&mine);
  perform_by(Algorithm::kImmediate, {.collective = device::Collective::kAllreduce,
                                     .in = there,
                                     .out = there,
                                     .count = 1,
                                     .type = device::Type::kUint64,
                                     .op = device::Op::kMax});
  return mine;
}

void Communicator::explain_probe(const device::Call& call, const Window& window, Algorithm usual,
                                 Algorithm candidate) const {
  if (process_.runtime().parameters.verbose < 1 || rank_ != 0) return;
  without_failing([&] {
    const std::size_t bytes = whole_message_of(call);
    const auto us = [&](bool by_candidate) {
      return window.mean(by_candidate) * static_cast<double>(bytes) / static_cast<double>(kMiB) / 1e3;
    };
    process_.runtime().log(
        fmt::format(
            "{}: {} of {} bytes takes {:.1f} us by {}, {:.1f} by {}: calls of {} to {} bytes go by {}", name_,
            name_of(call.collective), bytes, us(false), name_of(usual), us(true), name_of(candidate),
            std::bit_ceil(bytes) / 2 + 1, std::bit_ceil(bytes),
            window.candidate_leads() ? fmt::format("{} now", name_of(candidate))
                                     : fmt::format("{} again", name_of(usual)))
            .c_str());
  });
}

}  // namespace loom
