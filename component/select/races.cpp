// communicator_races.cpp -- calls that two ways may carry: now and then both are timed.
#include <fmt/format.h>

#include <array>
#include <bit>
#include <chrono>

#include "component/communicator.hpp"

namespace loom {
namespace {

constexpr std::uint64_t kMiB = 1024 * 1024;

}  // namespace

std::optional<Algorithm> Communicator::rival_of(Algorithm usual, const device::Call& call) const {
  const connect::Shape& shape = group_->wiring.shape;
  return loom::rival_of(usual, call.collective, shape, device::shared_bytes(call, shape.ranks), abilities());
}

std::size_t Communicator::whole_message_of(const device::Call& call) const {
  const int ranks = bootstrap_.size();
  return whole_message(call.collective, ranks, device::shared_bytes(call, ranks));
}

Race& Communicator::race_of(const device::Call& call, Algorithm usual) {
  return links_.races.of(call.collective, whole_message_of(call), usual == Algorithm::kImmediate);
}

/// The way that has carried the call.
Algorithm Communicator::perform_racing(const device::Call& call, Algorithm usual, Algorithm rival) {
  // Who is the root of a broadcast, or sends to that of a reduce, runs ahead of the others in a row of direct
  // calls, which times from when all are there do not show. By single copy it waits for them.
  const bool runs_ahead =
      usual == Algorithm::kImmediate &&
      (call.collective == device::Collective::kBroadcast || call.collective == device::Collective::kReduce);
  const double margin = runs_ahead ? 1.2 : 1.1;
  using Clock = std::chrono::steady_clock;
  Race& race = race_of(call, usual);
  if (race.meets())
    announce(call, device::CallFamily::kImmediate);  // a broadcast's sizes differ before others do
  const bool news = race.meets() && race.settle(largest_on_host(race.own_time()), margin);
  const bool timed = race.is_timed();
  const Algorithm way = race.by_rival() ? rival : usual;
  explain(race.rival_leads() ? rival : usual, call);  // laps are no news
  const auto began = timed ? Clock::now() : Clock::time_point();
  perform_by(way, call);
  std::uint64_t ns_per_mib = 0;
  if (timed) {
    const auto ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - began).count());
    ns_per_mib = ns * kMiB / whole_message_of(call);
  }
  race.finish(ns_per_mib);
  if (news) explain_race(call, race, usual, rival);  // not while the others wait
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

/// For a short call between hosts, which a star may carry as well.
Algorithm Communicator::one_shot_or_star() {
  Trials& trials = links_.trials;
  if (trials.is_due()) try_star();
  return trials.star_leads ? Algorithm::kHierStar : Algorithm::kHier;
}

void Communicator::try_star() {
  using Clock = std::chrono::steady_clock;
  constexpr std::array kWays{Algorithm::kHier, Algorithm::kHierStar};
  std::array<std::uint64_t, kWays.size()> took{};  // ns
  device::Call call{.collective = device::Collective::kAllreduce,
                    .in = reinterpret_cast<const std::byte*>(took.data()),
                    .count = took.size(),
                    .type = device::Type::kUint64,
                    .op = device::Op::kMax};
  std::array<std::uint64_t, kWays.size()> longest{};
  call.out = reinterpret_cast<std::byte*>(longest.data());
  for (int turn = 0; turn < Trials::kTurns; ++turn)
    for (std::size_t way = 0; way < kWays.size(); ++way) {
      for (int i = 0; i < Trials::kUntimed; ++i) perform_by(kWays[way], call);
      const auto began = Clock::now();
      for (int i = 0; i < Trials::kTimed; ++i) perform_by(kWays[way], call);
      took[way] += static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - began).count());
    }
  perform_by(kWays[0], call);
  const bool news = links_.trials.settle(longest[0], longest[1]);
  if (process_.runtime().parameters.verbose < (news ? 1 : 2) || rank_ != 0) return;
  without_failing([&] {
    const auto us = [](std::uint64_t sum) {
      return static_cast<double>(sum) / 1e3 / (Trials::kTurns * Trials::kTimed);
    };
    const Algorithm leader = kWays[links_.trials.star_leads ? 1 : 0];
    process_.runtime().log(fmt::format("{}: short calls take {:.1f} us by {}, {:.1f} by {}: they go by {} {}",
                                       name_, us(longest[0]), name_of(kWays[0]), us(longest[1]),
                                       name_of(kWays[1]), name_of(leader),
                                       !news                      ? "still"
                                       : links_.trials.star_leads ? "now"
                                                                  : "again")
                               .c_str());
  });
}

void Communicator::explain_race(const device::Call& call, const Race& race, Algorithm usual,
                                Algorithm rival) const {
  if (process_.runtime().parameters.verbose < 1 || rank_ != 0) return;
  without_failing([&] {
    const std::size_t bytes = whole_message_of(call);
    const auto us = [&](bool by_rival) {
      return race.mean(by_rival) * static_cast<double>(bytes) / static_cast<double>(kMiB) / 1e3;
    };
    process_.runtime().log(
        fmt::format(
            "{}: {} of {} bytes takes {:.1f} us by {}, {:.1f} by {}: calls of {} to {} bytes go by {}", name_,
            name_of(call.collective), bytes, us(false), name_of(usual), us(true), name_of(rival),
            std::bit_ceil(bytes) / 2 + 1, std::bit_ceil(bytes),
            race.rival_leads() ? fmt::format("{} now", name_of(rival))
                               : fmt::format("{} again", name_of(usual)))
            .c_str());
  });
}

}  // namespace loom
