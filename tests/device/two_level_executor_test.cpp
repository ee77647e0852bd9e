#include "device/host/two_level_executor.hpp"

#include <gtest/gtest.h>

#include <atomic>

#include "mesh.hpp"

namespace loom::device {
namespace {

/// Hosts whose first ranks are joined by links; ranks are spread over them in any order.
class Cluster {
 public:
  Cluster(std::vector<int> host_of, const FifoShape& shape)
      : host_of_(std::move(host_of)),
        hosts_(1 + *std::max_element(host_of_.begin(), host_of_.end())),
        shape_(shape),
        mesh_(hosts_, shape) {
    for (int host = 0; host < hosts_; ++host) {
      std::vector<Board*> boards;
      for (int rank = 0; rank < size(); ++rank) {
        if (host_of_[static_cast<std::size_t>(rank)] != host) continue;
        ranks_.push_back(rank);
        boards_.push_back(std::make_unique<Board>());
        boards.push_back(boards_.back().get());
      }
      boards_of_.push_back(std::move(boards));
    }
    local_of_.resize(host_of_.size());
    std::vector<int> next(static_cast<std::size_t>(hosts_));
    for (const int rank : ranks_)
      local_of_[static_cast<std::size_t>(rank)] =
          next[static_cast<std::size_t>(host_of_[static_cast<std::size_t>(rank)])]++;
  }

  int size() const { return static_cast<int>(host_of_.size()); }

  /// Runs `body(rank, perform)` on a thread each; perform(job) performs.
  template <class Body>
  void run(Body&& body) {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size(); ++rank)
      threads.emplace_back([&, rank] {
        const auto r = static_cast<std::size_t>(rank);
        const int host = host_of_[r], local = local_of_[r];
        const auto& boards = boards_of_[static_cast<std::size_t>(host)];
        std::optional<Boards> mine;
        if (boards.size() > 1) mine.emplace(boards, local);
        TwoLevels levels{.boards = mine ? &*mine : nullptr,
                         .self = {host, local},
                         .root = {},
                         .rank = rank,
                         .hosts = hosts_,
                         .links = local == 0 ? mesh_.of(host) : std::span<const PeerLinks>{},
                         .slot_bytes = shape_.slot_bytes,
                         .ranks = ranks_};
        body(rank, [&](const HostJob& job) {
          const auto root = static_cast<std::size_t>(job.root);
          levels.root = {host_of_[root], local_of_[root]};
          loom::device::run(TwoLevelExecutor(levels, job));
        });
      });
  }

 private:
  std::vector<int> host_of_, local_of_, ranks_;
  int hosts_;
  FifoShape shape_;
  Mesh mesh_;
  std::vector<std::unique_ptr<Board>> boards_;
  std::vector<std::vector<Board*>> boards_of_;
};

int value_at(int rank, std::size_t i) {
  return static_cast<int>(i * 7 % 1013) + 5000 * rank;
}

std::vector<int> operand(int rank, std::size_t count) {
  std::vector<int> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = value_at(rank, i);
  return values;
}

void check(const std::vector<int>& host_of, Collective collective, std::size_t count, bool in_place,
           int root) {
  SCOPED_TRACE(::testing::Message() << "collective " << static_cast<int>(collective) << ", " << host_of.size()
                                    << " ranks, " << count << " elements, root " << root
                                    << (in_place ? ", in place" : ""));
  Cluster cluster(host_of, {.slot_bytes = 4096, .slot_count = 4});
  const auto n = static_cast<std::size_t>(cluster.size());
  cluster.run([&](int rank, const auto& perform) {
    const auto r = static_cast<std::size_t>(rank);
    const std::size_t given = collective == Collective::kReduceScatter ? n * count : count;
    const std::size_t taken = collective == Collective::kAllGather ? n * count : in_place ? given : count;
    std::vector<int> in = operand(rank, given), out(taken, -1);
    std::size_t own = 0;  // where the operand lies in place
    if (collective == Collective::kAllGather) own = r * count;
    if (in_place) std::copy(in.begin(), in.end(), out.begin() + static_cast<std::ptrdiff_t>(own));
    if (collective == Collective::kBroadcast && rank != root) std::fill(in.begin(), in.end(), -2);
    perform({collective, reinterpret_cast<const std::byte*>(in_place ? out.data() + own : in.data()),
             reinterpret_cast<std::byte*>(out.data()), count, sizeof(int),
             find_reduce(Op::kSum, Type::kInt32), root});

    const auto sum_at = [&](std::size_t i) {
      int sum = 0;
      for (std::size_t q = 0; q < n; ++q) sum += value_at(static_cast<int>(q), i);
      return sum;
    };
    for (std::size_t i = 0; i < count; ++i) {
      if (collective == Collective::kAllreduce) {
        ASSERT_EQ(out[i], sum_at(i));
      }
      if (collective == Collective::kReduce && rank == root) {
        ASSERT_EQ(out[i], sum_at(i));
      }
      if (collective == Collective::kReduce && rank != root) {
        ASSERT_EQ(out[i], in_place ? value_at(rank, i) : -1);
      }
      if (collective == Collective::kReduceScatter) {
        ASSERT_EQ(out[i], sum_at(r * count + i));
      }
      if (collective == Collective::kBroadcast && rank != root) {
        ASSERT_EQ(out[i], value_at(root, i));
      }
      for (std::size_t q = 0; q < n && collective == Collective::kAllGather; ++q)
        ASSERT_EQ(out[q * count + i], value_at(static_cast<int>(q), i));
    }
  });
}

class TwoLevel : public ::testing::TestWithParam<std::vector<int>> {};

TEST_P(TwoLevel, CarryEveryCollectiveButAllToAll) {
  const std::vector<int>& host_of = GetParam();
  const auto ranks_on = [&](int host) { return std::count(host_of.begin(), host_of.end(), host); };
  const bool equal =
      std::all_of(host_of.begin(), host_of.end(), [&](int host) { return ranks_on(host) == ranks_on(0); });
  for (const std::size_t count : {1UL, 100UL, 2049UL, 20011UL})  // one shot, two shots, several tiles of them
    for (const bool in_place : {false, true})
      for (const auto collective : {Collective::kAllreduce, Collective::kReduce, Collective::kReduceScatter,
                                    Collective::kBroadcast, Collective::kAllGather}) {
        if (collective == Collective::kAllGather && !equal) continue;
        const bool has_root = collective == Collective::kReduce || collective == Collective::kBroadcast;
        for (int root = 0; root < (has_root ? static_cast<int>(host_of.size()) : 1); ++root)
          check(host_of, collective, count, in_place, root);
      }
}

TEST_P(TwoLevel, LetNobodyPassABarrierBeforeAllHaveCome) {
  Cluster cluster(GetParam(), {.slot_bytes = 256, .slot_count = 4});
  std::atomic<int> here = 0;
  cluster.run([&](int, const auto& perform) {
    for (int round = 1; round <= 20; ++round) {
      ++here;
      perform({.collective = Collective::kBarrier});
      EXPECT_GE(here, round * cluster.size());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Placements, TwoLevel,
                         ::testing::Values(std::vector{0, 1}, std::vector{0, 1, 2}, std::vector{0, 0, 1, 1},
                                           std::vector{0, 1, 2, 0, 1, 2}, std::vector{0, 1, 0, 2, 0}));

}  // namespace
}  // namespace loom::device
