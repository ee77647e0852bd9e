// Simulates the ring schedule: ranks as positions, FIFOs of k slots, any interleaving. A slot carries the set
// of ranks whose contributions it holds.
#include "device/schedule/ring_schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <random>
#include <utility>
#include <vector>

#include "tests/device/schedule/schedule_simulator.hpp"

namespace loom::device {
namespace {

/// How often it contains each rank's contribution.
using Contributions = std::vector<std::uint8_t>;

Contributions none(int size) {
  return Contributions(static_cast<std::size_t>(size));
}
Contributions only(int size, int rank) {
  Contributions counts = none(size);
  counts[static_cast<std::size_t>(rank)] = 1;
  return counts;
}

struct Simulation {
  RingCollective collective;
  int size;
  std::size_t slots, slices;  ///< per FIFO; per chunk and round
  int rounds = 1;

  struct Position {
    std::vector<std::vector<Contributions>> output;      ///< [chunk][slice], of the last round
    std::deque<std::pair<Contributions, int>> incoming;  ///< with its depth
    int depth = 0;  ///< messages that had to follow one another up to here
    int round = 0, step = 0, sent = 0;
    std::size_t slice = 0;
  };
  std::vector<Position> positions;

  bool done(const Position& position) const { return position.round == rounds; }

  bool try_slice(int p) {
    Position& self = positions[static_cast<std::size_t>(p)];
    Position& next = positions[static_cast<std::size_t>((p + 1) % size)];
    const RingStep step = ring_step(collective, p, size, self.step);
    if (receives(step.action) && self.incoming.empty()) return false;
    if (sends(step.action) && next.incoming.size() == slots) return false;

    Contributions data;
    Contributions& output = self.output[static_cast<std::size_t>(step.chunk)][self.slice];
    if (receives(step.action)) {
      data = self.incoming.front().first;
      self.depth = std::max(self.depth, self.incoming.front().second);
      self.incoming.pop_front();
    }
    switch (step.action) {
      case RingAction::kSend:
        data = only(size, collective == RingCollective::kAllGather ? step.chunk : p);
        if (collective == RingCollective::kAllGather) output = data;
        break;
      case RingAction::kRecvReduceSend:
        ++data[static_cast<std::size_t>(p)];
        break;
      case RingAction::kRecvReduceCopySend:
      case RingAction::kRecvReduceCopy:
        ++data[static_cast<std::size_t>(p)];
        output = data;
        break;
      case RingAction::kRecvCopySend:
      case RingAction::kRecvCopy:
        output = data;
        break;
    }
    if (sends(step.action)) {
      next.incoming.emplace_back(data, self.depth + 1);
      ++self.sent;
    }
    if (++self.slice == slices) {
      self.slice = 0;
      if (++self.step == ring_step_count(collective, size)) {
        self.step = 0;
        ++self.round;
      }
    }
    return true;
  }

  /// Lets a random position go on until all are done; false on deadlock.
  bool run(unsigned seed) {
    std::mt19937 random(seed);
    const auto chunks = static_cast<std::size_t>(size);
    positions.assign(chunks, {});
    for (Position& position : positions)
      position.output.assign(chunks, std::vector<Contributions>(slices, none(size)));
    while (true) {
      std::vector<int> order;
      for (int p = 0; p < size; ++p)
        if (!done(positions[static_cast<std::size_t>(p)])) order.push_back(p);
      if (order.empty()) return true;
      std::shuffle(order.begin(), order.end(), random);
      bool moved = false;
      for (const int p : order) {
        // Sometimes a position runs far ahead of the others.
        const int burst = random() % 4 == 0 ? 1000 : 1;
        for (int i = 0; i < burst && !done(positions[static_cast<std::size_t>(p)]) && try_slice(p); ++i)
          moved = true;
        if (moved) break;
      }
      if (!moved) return false;
    }
  }
};

struct Case {
  RingCollective collective;
  const char* name;
};

class RingSchedule : public ::testing::TestWithParam<Case> {};

TEST_P(RingSchedule, GivesEveryContributionExactlyOnceAndCostsWhatItSaysForEverySize) {
  const RingCollective collective = GetParam().collective;
  std::vector<int> sizes = {65, 97, 129, 257};
  for (int size = 2; size <= 64; ++size) sizes.push_back(size);
  for (const int size : sizes) {
    const Contributions all(static_cast<std::size_t>(size), 1);
    for (unsigned seed = 0; seed < (size > 16 ? 1U : 10U); ++seed) {
      Simulation once{collective, size, 2, 1, 1, {}};
      ASSERT_TRUE(once.run(seed)) << "deadlock with " << size << " ranks";
      for (const auto& position : once.positions)
        EXPECT_EQ(position.depth, ring_step_count(collective, size) - 1) << size;
      Simulation simulation{collective, size, 2, 1, 2, {}};
      ASSERT_TRUE(simulation.run(seed)) << "deadlock with " << size << " ranks";
      for (int p = 0; p < size; ++p) {
        const auto& self = simulation.positions[static_cast<std::size_t>(p)];
        EXPECT_TRUE(self.incoming.empty());
        const int chunks_sent = collective == RingCollective::kAllreduce ? 2 * (size - 1) : size - 1;
        EXPECT_EQ(self.sent, simulation.rounds * chunks_sent);
        for (int chunk = 0; chunk < size; ++chunk) {
          const Contributions& got = self.output[static_cast<std::size_t>(chunk)][0];
          if (collective == RingCollective::kAllreduce) {
            EXPECT_EQ(got, all);
          }
          if (collective == RingCollective::kAllGather) {
            EXPECT_EQ(got, only(size, chunk));
          }
          if (collective == RingCollective::kReduceScatter) {
            EXPECT_EQ(got, chunk == p ? all : none(size)) << "only its own chunk is its to write";
          }
        }
      }
    }
  }
}

/// Position p's steps; blocks are chunks.
Program program_of(RingCollective collective, int p, int size) {
  Program program{p, {}};
  for (int k = 0; k < ring_step_count(collective, size); ++k) {
    const RingStep step = ring_step(collective, p, size, k);
    const bool copies = step.action == RingAction::kRecvCopySend || step.action == RingAction::kRecvCopy;
    if (receives(step.action))
      program.operations.push_back(
          {copies ? Operation::kReceive : Operation::kReceiveReduce, (p + size - 1) % size, 0, step.chunk});
    if (sends(step.action)) program.operations.push_back({Operation::kSend, (p + 1) % size, 0, step.chunk});
  }
  return program;
}

TEST_P(RingSchedule, EndsAlikeAfterEveryInterleaving) {
  const RingCollective collective = GetParam().collective;
  std::size_t states = 0;
  for (const int size : {2, 3, 4, 5})
    for (const std::size_t slots : {1UL, 2UL}) {
      std::vector<Program> programs;
      for (int p = 0; p < size; ++p) programs.push_back(program_of(collective, p, size));
      Simulator simulator(size, size, slots, std::move(programs));
      const std::size_t found = simulator.run_all();
      ASSERT_GT(found, 0U) << size << " ranks, " << slots << " slots";
      for (int p = 0; p < size; ++p)
        for (int chunk = 0; chunk < size; ++chunk) {
          if (collective == RingCollective::kReduceScatter && chunk != p) continue;
          ASSERT_EQ(simulator.output(p, chunk), collective == RingCollective::kAllGather
                                                    ? simulator.contribution(chunk, chunk)
                                                    : simulator.complete(chunk));
        }
      states += found;
    }
  std::printf("%zu states\n", states);
}

TEST_P(RingSchedule, NeverDeadlocksWhileARoundIsShorterThanTheFifo) {
  for (const int size : {2, 3, 4, 7, 8})
    for (std::size_t slots = 2; slots <= 8; ++slots)
      for (std::size_t slices = 1; slices < slots; ++slices)
        for (unsigned seed = 0; seed < 5; ++seed) {
          Simulation simulation{GetParam().collective, size, slots, slices, 3, {}};
          EXPECT_TRUE(simulation.run(seed))
              << size << " ranks, " << slots << " slots, " << slices << " slices";
        }
}

TEST(RingScheduleLimit, DeadlocksWhenARoundFillsTheFifo) {
  // Why a round must be shorter than the FIFO: all ranks fill their successor's FIFO, and no one can pass
  // anything on.
  Simulation simulation{RingCollective::kAllreduce, 3, 4, 4, 1, {}};
  EXPECT_FALSE(simulation.run(1));
}

INSTANTIATE_TEST_SUITE_P(Collectives, RingSchedule,
                         ::testing::Values(Case{RingCollective::kAllreduce, "Allreduce"},
                                           Case{RingCollective::kReduceScatter, "ReduceScatter"},
                                           Case{RingCollective::kAllGather, "AllGather"}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace loom::device
