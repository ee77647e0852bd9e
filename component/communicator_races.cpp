// communicator_races.cpp -- calls that two ways may carry: now and then some are timed.
#include <fmt/format.h>

#include <bit>
#include <chrono>

#include "component/communicator.hpp"

namespace loom {
namespace {

constexpr std::uint64_t kMiB = 1024 * 1024;

}  // namespace

std::optional<Algorithm> Communicator::rival_of(Algorithm usual, const device::HostJob& job) const {
  const connect::Shape& shape = group_->wiring.shape;
  return loom::rival_of(usual, job.collective, shape, device::shared_bytes(job, shape.ranks), abilities());
}

std::size_t Communicator::whole_message_of(const device::HostJob& job) const {
  const int ranks = bootstrap_.size();
  return whole_message(job.collective, ranks, device::shared_bytes(job, ranks));
}

Race& Communicator::race_of(const device::HostJob& job, Algorithm usual) {
  if (usual == Algorithm::kTwoLevels) return links_.races.between_hosts(job.collective);
  return links_.races.of(job.collective, whole_message_of(job), usual == Algorithm::kDirect);
}

/// The way that has carried the call.
Algorithm Communicator::perform_racing(const device::HostJob& job, Algorithm usual, Algorithm rival) {
  // Who is the root of a broadcast, or sends to that of a reduce, runs ahead of the others in a row of direct
  // calls, which times from when all are there do not show. By single copy it waits for them.
  const bool runs_ahead = usual == Algorithm::kDirect && (job.collective == device::Collective::kBroadcast ||
                                                          job.collective == device::Collective::kReduce);
  const double margin = runs_ahead ? 1.2 : 1.1;
  using Clock = std::chrono::steady_clock;
  Race& race = race_of(job, usual);
  const bool news = race.meets() && race.settle(largest_of_all(race.own_time()), margin);
  const bool timed = race.is_timed();
  const Algorithm way = race.by_rival() ? rival : usual;
  explain(race.rival_leads() ? rival : usual, job);  // laps are no news
  const auto began = timed ? Clock::now() : Clock::time_point();
  perform_by(way, job);
  std::uint64_t took = 0;
  if (timed) {
    const auto ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - began).count());
    took = ns * kMiB / race_unit(job, usual);
  }
  race.finish(took);
  if (news) explain_race(job, race, usual, rival);  // not while the others wait
  return way;
}

/// Calls that race together inside a host differ in size by up to a factor of two, and are compared by their
/// time per MiB. Between hosts short ones take much the same time.
std::size_t Communicator::race_unit(const device::HostJob& job, Algorithm usual) const {
  return usual == Algorithm::kTwoLevels ? kMiB : whole_message_of(job);
}

/// By all ranks, which leave it together.
std::uint64_t Communicator::largest_of_all(std::uint64_t mine) {
  auto* const there = reinterpret_cast<std::byte*>(&mine);
  const bool one_host = group_->wiring.shape.hosts == 1;
  perform_by(one_host ? Algorithm::kDirect : Algorithm::kTwoLevels,
             {.collective = device::Collective::kAllreduce,
              .in = there,
              .out = there,
              .count = 1,
              .elem_bytes = sizeof(mine),
              .reduce = device::find_reduce(device::Op::kMax, device::Type::kUint64)});
  return mine;
}

void Communicator::explain_race(const device::HostJob& job, const Race& race, Algorithm usual,
                                Algorithm rival) const {
  if (process_.runtime().parameters.verbose < 1 || rank_ != 0) return;
  without_failing([&] {
    const std::size_t bytes = whole_message_of(job);
    const auto us = [&](bool by_rival) {
      return race.mean(by_rival) * static_cast<double>(race_unit(job, usual)) / static_cast<double>(kMiB) /
             1e3;
    };
    const auto [least, most] = usual == Algorithm::kTwoLevels
                                   ? std::pair(0UL, device::TwoLevelExecutor::kMostShortBytes)
                                   : std::pair(std::bit_ceil(bytes) / 2 + 1, std::bit_ceil(bytes));
    process_.runtime().log(
        fmt::format(
            "{}: {} of {} bytes takes {:.1f} us by {}, {:.1f} by {}: calls of {} to {} bytes go by {}", name_,
            name_of(job.collective), bytes, us(false), name_of(usual), us(true), name_of(rival), least, most,
            race.rival_leads() ? fmt::format("{} now", name_of(rival))
                               : fmt::format("{} again", name_of(usual)))
            .c_str());
  });
}

}  // namespace loom
