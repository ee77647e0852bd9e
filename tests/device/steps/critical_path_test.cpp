// What all-gathers and reduce-scatters along chains wait for, in virtual time: the moves that the step code
// makes on all ranks, over links that have a speed and a latency.
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "tests/device/steps/step_calls.hpp"

namespace loom::device::steps {
namespace {

constexpr std::size_t kSliceElems = 128, kSlots = 4, kSlices = 32;  ///< of a rank's block in a channel
/// What a group of threads takes to move a slice, and until the other end of a link sees it.
constexpr double kSliceUs = 1, kHopUs = 1;
constexpr double kNever = std::numeric_limits<double>::infinity();

/// What the two halves of the ranks share each way: all of it, or each two ranks have a port of their own.
enum class Crossing { kAtOnePlace, kByPorts };
/// Of slices that follow each other in a channel, or of blocks.
enum class Order { kBlockByBlock, kSliceBySlice };

using LinkId = const std::byte*;  ///< where its slots lie

/// A move: the links whose message it takes, passes over and makes. Its number is the same on all.
struct Step {
  std::vector<LinkId> from, over, to;
  std::size_t message = 0;
};

/// Takes the moves of a schedule in place of Moves.
struct Recorder {
  std::vector<Step> steps;

  std::size_t slice() const { return kSliceElems; }
  bool perform(const Move<float>& move) {
    Step& step = steps.emplace_back();
    step.message = move.sent;
    for (int i = 0; i < move.froms; ++i) step.from.push_back(move.from[i].slots);
    for (int i = 0; i < move.tos; ++i) step.to.push_back(move.to[i].slots);
    return true;
  }
  void pass_over(const RecvEnd* from, int count, Word /*message*/) {
    for (int i = 0; i < count; ++i) steps.back().over.push_back(from[i].slots);
  }
};

/// By message: when the receiver sees it, and when the sender sees that its slot is free again.
struct Link {
  int sender = 0, receiver = 0;
  std::vector<double> arrived, freed;
};
/// A rank's group of threads in a channel.
struct Worker {
  std::vector<Step> steps;
  std::size_t next = 0;
  double free_at = 0;
};

/// The moves of all ranks in one call, and when they happen.
class Timeline {
 public:
  Timeline(Algorithm algorithm, const std::vector<ChannelShape>& shapes, Order order)
      : ranks_(static_cast<int>(shapes.front().ring.size())), channels_(static_cast<int>(shapes.size())) {
    HostWorld world(ranks_, 1, small_form(kSliceElems * sizeof(float), kSlots, false), shapes);
    const Call call{
        algorithm, Protocol::kSimple, ranks_, 0, kSlices * kSliceElems * shapes.size(), sizeof(float),
        nullptr};
    const std::vector<std::byte*> nothing(static_cast<std::size_t>(ranks_));
    for (int rank = 0; rank < ranks_; ++rank)
      for (int c = 0; c < channels_; ++c) {
        Recorder recorder;
        Word passed[kTrees] = {};
        by_trees_in_blocks<Recorder, float>(recorder, world.task(call, rank, nothing, nothing, nullptr),
                                            world.channel(rank, c), static_cast<int>(Protocol::kSimple),
                                            passed, nullptr, nullptr);
        if (order == Order::kSliceBySlice) sort_by_slice(recorder.steps);
        add_links(rank, recorder.steps);
        workers_.push_back({.steps = std::move(recorder.steps)});
      }
  }

  /// What joins two ranks is as fast as all channels together, which share it, but for the two halves of the
  /// ranks: what joins these is `narrow` times slower, each way.
  double us(double narrow, Crossing crossing = Crossing::kAtOnePlace) {
    std::map<std::pair<int, int>, double> wires;  // when it is free again
    const auto half_of = [&](int rank) { return 2 * rank < ranks_ ? -1 : -2; };
    double end = 0;
    while (Worker* const worker = first_to_start()) {
      const double start = start_of(*worker);
      const Step& step = worker->steps[worker->next++];
      double done = start + kSliceUs;
      for (const LinkId id : step.to) {
        const auto& [sender, receiver, arrived, freed] = links_.at(id);
        const bool crosses = half_of(sender) != half_of(receiver);
        const bool shared = crosses && crossing == Crossing::kAtOnePlace;
        double& wire =
            wires[shared ? std::pair(half_of(sender), half_of(receiver)) : std::pair(sender, receiver)];
        wire = std::max(wire, start) + kSliceUs * (crosses ? narrow : 1) / channels_;
        done = std::max(done, wire);
      }
      for (const LinkId id : step.to) links_.at(id).arrived[step.message] = done + kHopUs;
      for (const auto* const taken : {&step.from, &step.over})
        for (const LinkId id : *taken) links_.at(id).freed[step.message] = done + kHopUs;
      worker->free_at = done;
      end = std::max(end, done);
    }
    for (const Worker& worker : workers_) EXPECT_EQ(worker.next, worker.steps.size()) << "it waits for ever";
    return end;
  }

 private:
  void sort_by_slice(std::vector<Step>& steps) const {
    const auto blocks = static_cast<std::size_t>(ranks_);
    std::vector<Step> sorted(steps.size());
    for (Step& step : steps) {
      step.message = step.message % kSlices * blocks + step.message / kSlices;
      sorted[step.message] = std::move(step);
    }
    steps = std::move(sorted);
  }
  void add_links(int rank, const std::vector<Step>& steps) {
    const auto add = [&](LinkId id, int Link::*end) {
      Link& link = links_[id];
      link.*end = rank;
      link.arrived.resize(steps.size(), kNever), link.freed.resize(steps.size(), kNever);
    };
    for (const Step& step : steps) {
      for (const LinkId id : step.to) add(id, &Link::sender);
      for (const auto* const taken : {&step.from, &step.over})
        for (const LinkId id : *taken) add(id, &Link::receiver);
    }
  }

  Worker* first_to_start() {
    Worker* first = nullptr;
    double start = kNever;
    for (Worker& worker : workers_)
      if (const double at = start_of(worker); at < start) first = &worker, start = at;
    return first;
  }
  double start_of(const Worker& worker) const {
    if (worker.next == worker.steps.size()) return kNever;
    const Step& step = worker.steps[worker.next];
    double at = worker.free_at;
    for (const LinkId id : step.from) at = std::max(at, links_.at(id).arrived[step.message]);
    if (step.message >= kSlots)
      for (const LinkId id : step.to) at = std::max(at, links_.at(id).freed[step.message - kSlots]);
    return at;
  }

  int ranks_, channels_;
  std::vector<Worker> workers_;
  std::map<LinkId, Link> links_;
};

/// Chains through one half of the ranks and then the other, in each in any order, or in order of rank.
std::vector<ChannelShape> chains(int ranks, int channels, bool in_order) {
  std::mt19937_64 random(7);
  std::vector<ChannelShape> shapes = plain_channels(ranks, channels);
  for (ChannelShape& shape : shapes) {
    std::vector<int> order = shape.ring;
    const auto middle = order.begin() + ranks / 2;
    if (!in_order) std::shuffle(order.begin(), middle, random), std::shuffle(middle, order.end(), random);
    for (std::size_t i = 1; i < order.size(); ++i)
      shape.trees[0][static_cast<std::size_t>(order[i])] = order[i - 1];
    shape.trees[0][static_cast<std::size_t>(order[0])] = kNobody;
  }
  return shapes;
}

/// While nothing waits: each group of threads moves all blocks.
double flow_us(int ranks) {
  return ranks * kSlices * kSliceUs;
}
/// From one block to the next the way between their ranks is waited for: in order of rank all of them
/// together take a chain a few times, in any order a third of it each.
double ways_us(int ranks, bool in_order) {
  const double chain_us = (ranks - 1) * (kHopUs + kSliceUs);
  return chain_us * (in_order ? 4 : 2 + ranks / 3.0);
}

TEST(ChainsInBlocks, WaitForTheWayToABlockOnceAndNotForEachSlice) {
  for (const auto algorithm : {Algorithm::kAllGatherTree, Algorithm::kReduceScatterTree})
    for (const int ranks : {4, 8, 16})
      for (const int channels : {1, 2, 4})
        for (const bool in_order : {true, false}) {
          SCOPED_TRACE(::testing::Message()
                       << (algorithm == Algorithm::kAllGatherTree ? "all-gather" : "reduce-scatter") << ", "
                       << ranks << " ranks, " << channels << " channels" << (in_order ? ", in order" : ""));
          const std::vector<ChannelShape> shapes = chains(ranks, channels, in_order);
          const double us = Timeline(algorithm, shapes, Order::kBlockByBlock).us(1);
          EXPECT_GE(us, flow_us(ranks));
          EXPECT_LE(us, flow_us(ranks) + ways_us(ranks, in_order));
          if (channels > 1) continue;
          EXPECT_GT(Timeline(algorithm, shapes, Order::kSliceBySlice).us(1), 3 * flow_us(ranks))
              << "what that is worth";
        }
}

/// Each half's blocks cross once, so both directions together could just carry them in flow_us(). Of a
/// reduce-scatter all channels take the first block at the same time, and as many cross the same way once
/// more.
TEST(ChainsInBlocks, CrossBetweenTheHalvesBothWaysAtATime) {
  for (const int ranks : {4, 8, 16})
    for (const int channels : {2, 4})
      for (const bool in_order : {true, false}) {
        SCOPED_TRACE(::testing::Message()
                     << ranks << " ranks, " << channels << " channels" << (in_order ? ", in order" : ""));
        const std::vector<ChannelShape> shapes = chains(ranks, channels, in_order);
        const double most = flow_us(ranks) + ways_us(ranks, in_order);
        EXPECT_LE(Timeline(Algorithm::kAllGatherTree, shapes, Order::kBlockByBlock).us(2), most);
        EXPECT_LE(Timeline(Algorithm::kReduceScatterTree, shapes, Order::kBlockByBlock).us(2),
                  most + 2 * kSlices * kSliceUs);
      }
}

/// Of eight ranks in two halves, which each tree joins elsewhere.
std::vector<ChannelShape> double_trees(int channels) {
  std::vector<ChannelShape> shapes = plain_channels(8, channels);
  for (ChannelShape& shape : shapes) {
    shape.trees[0] = {kNobody, 0, 1, 2, 1, 4, 5, 6};
    shape.trees[1] = {5, 0, 1, 2, kNobody, 4, 5, 6};
  }
  return shapes;
}

/// The trees of a channel cross by two ports, each of which carries a quarter of all blocks each way.
TEST(ChainsInBlocks, UseThePortsOfBothTreesAtATime) {
  const std::vector<ChannelShape> shapes = double_trees(4);
  for (const auto algorithm : {Algorithm::kAllGatherTree, Algorithm::kReduceScatterTree})
    EXPECT_LE(Timeline(algorithm, shapes, Order::kBlockByBlock).us(4, Crossing::kByPorts),
              flow_us(8) + 2 * ways_us(8, true) + 2 * kSlices * kSliceUs);
}

/// Whose ports are their own: each is used by two channels that follow each other, one at blocks of either
/// half.
TEST(ChainsInBlocks, UseThePortOfTwoChannelsBothWaysAtATime) {
  std::vector<ChannelShape> shapes = plain_channels(8, 4);
  for (std::size_t c = 0; c < shapes.size(); ++c) {
    const int port = c < 2 ? 3 : 2;  // and the other half's rank after the same one
    shapes[c].trees[0] = {kNobody, 0, 1, 2, port, 4, 5, 6};
    shapes[c].trees[1] = {};
  }
  for (const auto algorithm : {Algorithm::kAllGatherTree, Algorithm::kReduceScatterTree})
    EXPECT_LE(Timeline(algorithm, shapes, Order::kBlockByBlock).us(4, Crossing::kByPorts),
              flow_us(8) + 2 * ways_us(8, true) + 2 * kSlices * kSliceUs);
}

/// Two channels are enough where both trees cross at one place: they begin with blocks of different halves.
TEST(ChainsInBlocks, OfTwoChannelsCrossBothWaysAtATime) {
  const std::vector<ChannelShape> shapes = double_trees(2);
  for (const auto algorithm : {Algorithm::kAllGatherTree, Algorithm::kReduceScatterTree})
    EXPECT_LE(Timeline(algorithm, shapes, Order::kBlockByBlock).us(2),
              flow_us(8) + 2 * ways_us(8, true) + 2 * kSlices * kSliceUs);
}

}  // namespace
}  // namespace loom::device::steps
