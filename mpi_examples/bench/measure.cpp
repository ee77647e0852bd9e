#include "mpi_examples/bench/measure.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "mpi_examples/support/clock.hpp"

namespace loom::bench {
namespace {

constexpr double kBatchSeconds = 20e-6;  // a thousand times what MPI_Wtime costs
constexpr double kBatchBarriers = 10;    // ranks leave the barrier before it at different moments
constexpr int kMostCallsPerBatch = 1024;
constexpr int kMostRequestsPerBatch = 32;
constexpr std::size_t kMostBytesPerBatch = 16 << 20;
constexpr int kFewestIterations = 8;
constexpr int kMostIterations = 10000;
constexpr std::uint64_t kSmallBytes = 64 << 10;
constexpr std::uint64_t kMostBytesInALine = 56;        // a flag's way is the floor
constexpr std::uint64_t kFewestBytesToMove = 1 << 20;  // reducing and copying is

Timing summary(std::vector<double>& seconds, int batch) {
  std::sort(seconds.begin(), seconds.end());
  const std::size_t n = seconds.size();
  const double to_us = 1e6 / batch;
  return {.min_us = seconds.front() * to_us,
          .avg_us = std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(n) * to_us,
          .p50_us = (seconds[(n - 1) / 2] + seconds[n / 2]) / 2 * to_us,
          .max_us = seconds.back() * to_us};
}

CpuTime cpu_time() {
  rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return {seconds(usage.ru_utime), seconds(usage.ru_stime)};
}

std::uint64_t all_ranks(std::uint64_t value, MPI_Op op, MPI_Comm comm) {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_UINT64_T, op, comm);
  return value;
}

}  // namespace

void Requests::clear() {
  for (auto& [comm, requests] : made_)
    for (MPI_Request& request : requests) MPI_Request_free(&request);
  made_.clear();
}

Measured Bench::measure(const Case& one, std::span<const MPI_Comm> comms) {
  const auto [batch, iterations] = plan(one, comms);
  const auto slots = static_cast<std::size_t>(batch);
  make_room(one, slots);

  std::vector<std::vector<double>> seconds(comms.size());
  std::vector<std::uint64_t> wrong(comms.size()), carried(comms.size());
  std::vector<CpuTime> cpu(comms.size());
  bool counted = true;
  std::uint64_t shift = 0;
  std::vector<double> floor_seconds;
  if (!options_.check) fill(one, slots, shift);
  std::vector<std::size_t> order(comms.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937 random;  // not seeded: all ranks take the same turns
  // Where ranks share CPUs, what one does between its calls delays the others in theirs: with one
  // communicator counters are read once before all calls, and once after them.
  const bool takes_turns = comms.size() > 1;
  auto before = carried_calls();
  const auto count_since = [&](std::size_t which) {
    const auto after = carried_calls();
    counted = counted && before && after;
    if (counted) carried[which] += *after - *before;
  };
  for (int iteration = 0; iteration < iterations; ++iteration) {
    // In random order, so that none always runs after the same other one and finds its caches.
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t which : order) {
      if (options_.check) fill(one, slots, ++shift);
      if (takes_turns) before = carried_calls();
      seconds[which].push_back(run(one, comms[which], slots, options_.cpu ? &cpu[which] : nullptr));
      if (takes_turns) count_since(which);
      if (options_.check) wrong[which] += count_wrong(one, slots, shift);
    }
    if (const auto floor = this->floor_seconds(one)) floor_seconds.push_back(*floor);
  }
  if (!takes_turns) count_since(0);

  Measured measured{.iterations = iterations, .calls_per_iteration = batch, .timings = {}};
  const MPI_Op across = options_.across_ranks == AcrossRanks::kMax ? MPI_MAX : MPI_SUM;
  const bool counted_everywhere = all_ranks(counted ? 1 : 0, MPI_MIN, control_) == 1;
  const auto join = [&](std::vector<double>& samples) {
    MPI_Allreduce(MPI_IN_PLACE, samples.data(), static_cast<int>(samples.size()), MPI_DOUBLE, across,
                  control_);
    if (options_.across_ranks == AcrossRanks::kAverage)
      for (double& each : samples) each /= one.ranks;
  };
  if (!floor_seconds.empty()) {
    join(floor_seconds);
    measured.floor_us = summary(floor_seconds, 1).p50_us;
  }
  for (std::size_t which = 0; which < comms.size(); ++which) {
    join(seconds[which]);
    Timing timing = summary(seconds[which], batch);
    timing.wrong = all_ranks(wrong[which], MPI_SUM, control_);
    timing.calls = static_cast<std::uint64_t>(iterations) * static_cast<std::uint64_t>(batch);
    const double per_call = 1e6 / static_cast<double>(timing.calls) / one.ranks;
    double both[] = {cpu[which].user * per_call, cpu[which].system * per_call};
    MPI_Allreduce(MPI_IN_PLACE, both, 2, MPI_DOUBLE, MPI_SUM, control_);
    timing.cpu_us = {both[0], both[1]};
    if (counted_everywhere) {
      timing.carried = all_ranks(carried[which], MPI_MIN, control_);
      timing.carried_at_most = all_ranks(carried[which], MPI_MAX, control_);
    }
    measured.timings.push_back(timing);
  }
  requests_.clear();
  return measured;
}

/// One sample of the least time that such a call can take. All ranks agree whether there is one.
std::optional<double> Bench::floor_seconds(const Case& one) {
  if (floor_ == nullptr) return {};
  if (one.bytes() <= kMostBytesInALine) return floor_->flag_us() * 1e-6;
  if (one.bytes() < kFewestBytesToMove) return {};
  if (options_.collective->name == "reduce_scatter_block") return floor_->reduce_us(one.bytes()) * 1e-6;
  if (options_.collective->name != "allreduce") return {};
  const double reduce_us = floor_->reduce_us(one.bytes());
  return (reduce_us + floor_->copy_us(one.bytes())) * 1e-6;
}

/// How long all ranks together need for a barrier; the same on every rank.
double Bench::barrier_seconds() {
  constexpr int kBarriers = 20;
  const double start = mpi::begin_together(control_);
  for (int i = 0; i < kBarriers; ++i) MPI_Barrier(control_);
  return slowest((mpi::now() - start) / kBarriers);
}

double Bench::slowest(double seconds) {
  MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, control_);
  return seconds;
}

/// Warms up and, from the time that calls then take, chooses how much to measure; the same on every rank.
Bench::Plan Bench::plan(const Case& one, std::span<const MPI_Comm> comms) {
  make_room(one, 1);
  const int warmup = options_.warmup.value_or(one.bytes() <= kSmallBytes ? 50 : 3);
  const bool starts = options_.form == Form::kNonblocking;
  for (const MPI_Comm comm : comms) {
    fill(one, 1, 0);
    if (starts) options_.collective->call(call_of(one, comm, 0));  // as in most programs
    for (int call = 0; call < warmup; ++call) {
      fill(one, 1, 0);  // in place, sums would overflow otherwise
      run(one, comm, 1);
    }
    if (starts) MPI_Barrier(comm);  // a component may make what these calls lacked
  }
  const double least = std::max(kBatchSeconds, kBatchBarriers * barrier_seconds());
  const std::size_t room = kMostBytesPerBatch / std::max<std::size_t>(one.bytes(), 1);
  const bool persistent = options_.form == Form::kPersistent;
  const int most =
      std::clamp(static_cast<int>(room), 1, persistent ? kMostRequestsPerBatch : kMostCallsPerBatch);
  for (int batch = 1;; batch = std::min(2 * batch, most)) {
    const auto slots = static_cast<std::size_t>(batch);
    make_room(one, slots);
    double fastest = HUGE_VAL, together = 0;
    for (const MPI_Comm comm : comms) {
      double seconds = HUGE_VAL;
      for (int time = 0; time < 2; ++time) {  // one may have been delayed, or have set something up
        fill(one, slots, 0);
        seconds = std::min(seconds, slowest(run(one, comm, slots)));
      }
      fastest = std::min(fastest, seconds);
      together += seconds;
    }
    if (fastest < least && batch < most) continue;
    const double iterations =
        std::clamp(options_.seconds_per_size / together, double{kFewestIterations}, double{kMostIterations});
    return {batch, options_.iterations.value_or(static_cast<int>(iterations))};
  }
}

void Bench::make_room(const Case& one, std::size_t slots) {
  constexpr std::size_t kLine = 64;
  stride_bytes_ = (one.bytes() + kLine - 1) / kLine * kLine;
  const std::size_t bytes = slots * stride_bytes_;
  const bool has_send = send_ && (one.in_place || send_->mirror.size() >= bytes);
  if (recv_ && recv_->mirror.size() >= bytes && has_send) return;
  requests_.clear();
  if (!recv_ || recv_->mirror.size() < bytes) recv_.emplace(bytes);
  if (!has_send) send_.emplace(one.in_place ? 0 : bytes);
}

void Bench::fill(const Case& one, std::size_t slots, std::uint64_t shift) {
  for (std::size_t slot = 0; slot < slots; ++slot) {
    // Slots differ from each other, too, so that a result in the wrong slot is wrong.
    fill_input(*options_.collective, one, send_->mirror.data() + slot * stride_bytes_,
               recv_->mirror.data() + slot * stride_bytes_, shift + 7 * slot);
  }
  send_->upload();
  recv_->upload();
}

Call Bench::call_of(const Case& one, MPI_Comm comm, std::size_t slot) {
  const std::size_t at = slot * stride_bytes_;
  return {.send = one.in_place ? MPI_IN_PLACE : send_->address() + at,
          .recv = recv_->address() + at,
          .one = &one,
          .root = one.root_of(slot),
          .comm = comm};
}

/// Adds the CPU time to *cpu, unless that is nullptr.
double Bench::run(const Case& one, MPI_Comm comm, std::size_t slots, CpuTime* cpu) {
  const Collective& collective = *options_.collective;
  std::span<MPI_Request> requests;
  if (options_.form == Form::kPersistent)
    requests =
        requests_.of(collective, comm, slots, [&](std::size_t slot) { return call_of(one, comm, slot); });
  const double start = mpi::begin_together(control_);
  const CpuTime before = cpu != nullptr ? cpu_time() : CpuTime();
  for (std::size_t slot = 0; slot < slots; ++slot) {
    if (options_.form == Form::kBlocking) {
      collective.call(call_of(one, comm, slot));
      continue;
    }
    MPI_Request started, *request = &started;
    if (options_.form == Form::kPersistent)
      MPI_Start(request = &requests[slot]);
    else
      collective.start(call_of(one, comm, slot), request);
    MPI_Wait(request, MPI_STATUS_IGNORE);
  }
  const double took = mpi::now() - start;
  if (cpu != nullptr) {
    const CpuTime after = cpu_time();
    cpu->user += after.user - before.user;
    cpu->system += after.system - before.system;
  }
  return took;
}

std::uint64_t Bench::count_wrong(const Case& one, std::size_t slots, std::uint64_t shift) {
  std::uint64_t wrong = 0;
  recv_->download();
  for (std::size_t slot = 0; slot < slots; ++slot) {
    wrong += options_.collective->count_wrong(one, one.root_of(slot),
                                              recv_->mirror.data() + slot * stride_bytes_, shift + 7 * slot);
  }
  return wrong;
}

std::optional<std::uint64_t> Bench::carried_calls() {
  return tool_.counter("coll_loom_calls", options_.collective->name);
}

}  // namespace loom::bench
