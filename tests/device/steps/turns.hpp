// turns.hpp -- ranks of step code whose threads run by turns in one thread, in an order drawn from a seed:
// each runs until it waits in vain or for the others of its group. Kernels that leave are launched again some
// time later.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "tests/device/host/fiber.hpp"
#include "tests/device/steps/steps_world.hpp"

namespace loom::device::steps {

class FiberGroup {
 public:
  static constexpr int kLanes = 1;
  struct Agreement {
    int arrived = 0;
    unsigned meetings = 0;
    bool holds[2] = {false, false};  ///< of this meeting and the last one, in turn
  };

  FiberGroup(int index, int size, Agreement& agreement) : index_(index), size_(size), agreement_(agreement) {}
  int index() const { return index_; }
  int size() const { return size_; }
  bool any(bool condition) {
    const unsigned meeting = agreement_.meetings;
    bool& holds = agreement_.holds[meeting % 2];
    holds |= condition;
    if (++agreement_.arrived == size_) {
      agreement_.arrived = 0;
      agreement_.holds[(meeting + 1) % 2] = false;
      ++agreement_.meetings;
    }
    while (agreement_.meetings == meeting) Fiber::stop();
    return holds;
  }
  bool all_lanes(bool condition) { return condition; }
  void pause() { Fiber::stop(); }

 private:
  int index_, size_;
  Agreement& agreement_;
};

/// Which ranks' kernels run at a time.
enum class Residence { kAll, kOne };

/// Performs a call by all its ranks; a rank has 1 to 3 threads in a group. How many launches it took; 0: no
/// end was in sight.
template <class Operation, class T>
unsigned perform_by_turns(HostWorld& world, const Call& call, const std::vector<std::byte*>& in,
                          const std::vector<std::byte*>& out, Residence residence, std::uint64_t seed) {
  struct Launch {
    std::vector<std::unique_ptr<FiberGroup::Agreement>> agreements;
    std::vector<std::unique_ptr<Fiber>> fibers;  ///< of those that have not ended
    bool leaves = false;
  };
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  std::vector<std::vector<Part>> blocks;
  for (int r = 0; r < call.size; ++r) blocks.push_back(call.blocks(r));
  std::vector<Launch> launches(static_cast<std::size_t>(call.size));
  std::vector<std::size_t> unfinished;
  unsigned count = 0;
  const auto launch = [&](std::size_t r, bool resumes) {
    Launch& now = launches[r] = {};
    Task task = world.task(call, static_cast<int>(r), in, out, blocks[r].data());
    task.resumes = resumes;
    const int threads = 1 + static_cast<int>(r) % 3;
    for (int g = 0; g < world.groups(call.algorithm); ++g) {
      auto& agreement = *now.agreements.emplace_back(std::make_unique<FiberGroup::Agreement>());
      for (int t = 0; t < threads; ++t)
        now.fibers.push_back(std::make_unique<Fiber>([&world, &now, &agreement, g, t, threads, task] {
          FiberGroup group(t, threads, agreement);
          now.leaves |= world.perform_group<Operation, T>(group, g, task) == Outcome::kLeft;
        }));
    }
    ++count;
  };
  for (std::size_t r = 0; r < launches.size(); ++r) {
    unfinished.push_back(r);
    launch(r, false);
  }
  constexpr int kMostTurns = 2'000'000;
  std::size_t chosen = 0, turns_left = 0;
  for (int turn = 0; turn < kMostTurns && !unfinished.empty(); ++turn) {
    // Turns come in bursts, so that ranks fall behind.
    if (turns_left-- == 0) {
      chosen = unfinished[below(unfinished.size())];
      turns_left = residence == Residence::kOne ? ~std::size_t{0} : below(40);
    }
    Launch& now = launches[chosen];
    const std::size_t f = below(now.fibers.size());
    now.fibers[f]->resume();
    if (now.fibers[f]->done()) now.fibers.erase(now.fibers.begin() + static_cast<std::ptrdiff_t>(f));
    if (!now.fibers.empty()) continue;
    if (now.leaves)
      launch(chosen, true);
    else
      std::erase(unfinished, chosen);
    turns_left = 0;
  }
  return unfinished.empty() ? count : 0;
}

}  // namespace loom::device::steps
