// Operands that come and results that leave during calls over a grid of ranks, ranks being threads.
#include "device/host/transit.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "grids.hpp"

namespace loom::device {
namespace {

using Ints = std::vector<int>;
constexpr int kNothing = -77;

/// The buffers of a call on "a device": the operand comes part by part when it is needed, over what is there,
/// and the result is what the host had when it was told of.
class Held final : public Transit {
 public:
  Held(Ints operand, int* operand_here, const int* result_here, std::size_t result_count)
      : operand_(std::move(operand)),
        operand_here_(operand_here),
        came_(operand_.size() / kPart + 1),
        result_here_(result_here),
        result_(result_count, kNothing),
        told_(result_count * sizeof(int)) {
    std::fill(operand_here, operand_here + operand_.size(), kNothing);
  }

  void need(const std::byte* first, std::size_t bytes) override {
    const auto begin = reinterpret_cast<const std::byte*>(operand_here_),
               end = begin + operand_.size() * sizeof(int);
    for (const std::byte* at = first; at < first + bytes; ++at) {
      if (at < begin || at >= end) continue;
      const std::size_t part = static_cast<std::size_t>(at - begin) / sizeof(int) / kPart;
      if (came_[part]) continue;
      came_[part] = true;
      const std::size_t from = part * kPart, to = std::min(operand_.size(), from + kPart);
      std::copy(operand_.begin() + static_cast<std::ptrdiff_t>(from),
                operand_.begin() + static_cast<std::ptrdiff_t>(to), operand_here_ + from);
    }
  }
  void need_all() override {
    need(reinterpret_cast<const std::byte*>(operand_here_), operand_.size() * sizeof(int));
  }
  void have(const std::byte* first, std::size_t bytes) noexcept override {
    const auto begin = reinterpret_cast<const std::byte*>(result_here_);
    for (const std::byte* at = first; at < first + bytes; ++at) {
      if (at < begin || at >= begin + told_.size()) continue;
      const auto i = static_cast<std::size_t>(at - begin);
      EXPECT_EQ(told_[i]++, 0) << "told twice, byte " << i;
      reinterpret_cast<std::byte*>(result_.data())[i] = *at;
    }
  }
  const Ints& result() const { return result_; }

 private:
  static constexpr std::size_t kPart = 1021;  // ints; to the executors' slices it has no relation

  Ints operand_;
  int* operand_here_;
  std::vector<char> came_;
  const int* result_here_;
  Ints result_;
  std::vector<char> told_;  ///< bytes: how often
};

Ints values_of(int rank, std::size_t count) {
  Ints result(count);
  for (std::size_t i = 0; i < count; ++i) result[i] = value_at(rank, i);
  return result;
}

constexpr std::pair<int, int> kForms[] = {{2, 1}, {3, 1}, {5, 1}, {2, 2}, {3, 2}, {2, 3}};
constexpr std::size_t kCounts[] = {1, 5003, 1'200'007};

class TransitOverGrid : public ::testing::TestWithParam<Collective> {
 protected:
  /// body(grids, count, in_place) for every form.
  template <class Body>
  static void for_each(Body&& body) {
    for (const auto& [hosts, per_host] : kForms)
      for (const std::size_t count : kCounts)
        for (const bool in_place : {true, false}) {
          SCOPED_TRACE(::testing::Message() << hosts << " hosts of " << per_host << ", " << count
                                            << (in_place ? ", in place" : ""));
          Grids grids(hosts, per_host);
          body(grids, count, in_place);
        }
  }
};

TEST_P(TransitOverGrid, BringsAllAndTakesAllOnce) {
  const Collective collective = GetParam();
  const bool blocks = collective == Collective::kReduceScatter || collective == Collective::kAllGather,
             rooted = collective == Collective::kBroadcast || collective == Collective::kReduce,
             reduces = is_reduction(collective), by_trees = rooted || collective == Collective::kAllreduce;
  for_each([&](Grids& grids, std::size_t most, bool in_place) {
    const int ranks = grids.size(), root = ranks - 1;
    const auto n = static_cast<std::size_t>(ranks);
    const std::size_t count = blocks ? most / n + 1 : most;
    for (const bool trees : {false, true}) {
      if (trees && !by_trees) continue;
      grids.run([&](int rank) {
        const auto r = static_cast<std::size_t>(rank);
        const std::size_t whole = blocks ? n * count : count;
        const bool gathers = collective == Collective::kAllGather;
        const Ints operand = values_of(rank, gathers ? count : whole);
        const bool gives = collective != Collective::kBroadcast || rank == root,
                   gets = rooted ? (rank == root) == reduces : true;
        const std::size_t got = !gets ? 0 : collective == Collective::kReduceScatter ? count : whole;
        Ints in(operand.size(), kNothing), out(whole, kNothing);
        int* const given = in_place ? out.data() + (gathers ? r * count : 0) : in.data();
        Held held(gives ? operand : Ints{}, given, out.data(), got);
        HostJob job{.collective = collective,
                    .in = reinterpret_cast<const std::byte*>(given),
                    .out = bytes_of(out),
                    .count = count,
                    .elem_bytes = sizeof(int),
                    .reduce = reduces ? find_reduce(Op::kSum, Type::kInt32) : nullptr,
                    .root = root,
                    .transit = &held};
        if (!reduces) job.count *= sizeof(int), job.elem_bytes = 1;
        if (trees && !rooted)
          run(RailTreesExecutor(grids.of(rank), grids.trees_of(rank), job, 0, 0));
        else if (rooted)
          grids.run_rooted(rank, job, trees);
        else
          run(RailsExecutor(grids.of(rank), job));
        for (std::size_t i = 0; i < got; ++i) {
          const std::size_t at = collective == Collective::kReduceScatter ? r * count + i : i;
          const int expected = reduces   ? ranks * value_at(0, at) + 1000 * ranks * (ranks - 1) / 2
                               : gathers ? value_at(static_cast<int>(i / count), i % count)
                                         : value_at(root, i);
          ASSERT_EQ(held.result()[i], expected) << "rank " << rank << ", " << i;
        }
      });
    }
  });
}
INSTANTIATE_TEST_SUITE_P(Of, TransitOverGrid,
                         ::testing::Values(Collective::kAllreduce, Collective::kReduceScatter,
                                           Collective::kAllGather, Collective::kBroadcast,
                                           Collective::kReduce));

/// Blocks of unequal length, some empty, the result of one of which may lie over the operands of others.
TEST(TransitOverGridV, BringsAllAndTakesAllOnce) {
  for (const auto& [hosts, per_host] : kForms)
    for (const std::size_t most : kCounts)
      for (const bool in_place : {true, false}) {
        SCOPED_TRACE(::testing::Message() << hosts << " hosts of " << per_host << ", " << most
                                          << (in_place ? ", in place" : ""));
        Grids grids(hosts, per_host);
        const int ranks = grids.size();
        std::vector<std::uint64_t> bounds{0};
        for (int rank = 0; rank < ranks; ++rank)
          bounds.push_back(bounds.back() +
                           (rank % 3 == 1 ? 0 : most / static_cast<std::size_t>(rank + 2) + 1));
        grids.run([&](int rank) {
          const auto r = static_cast<std::size_t>(rank);
          const Ints operand = values_of(rank, bounds.back());
          const std::size_t got = bounds[r + 1] - bounds[r];
          Ints in(operand.size(), kNothing), out(operand.size(), kNothing);
          int* const given = in_place ? out.data() : in.data();
          Held held(operand, given, out.data(), got);
          const HostJob job{.collective = Collective::kReduceScatterV,
                            .in = reinterpret_cast<const std::byte*>(given),
                            .out = bytes_of(out),
                            .count = operand.size(),
                            .elem_bytes = sizeof(int),
                            .reduce = find_reduce(Op::kSum, Type::kInt32),
                            .bounds = bounds.data(),
                            .transit = &held};
          run(RailsExecutor(grids.of(rank), job));
          for (std::size_t i = 0; i < got; ++i)
            ASSERT_EQ(held.result()[i],
                      ranks * value_at(0, bounds[r] + i) + 1000 * ranks * (ranks - 1) / 2)
                << "rank " << rank << ", " << i;
        });
      }
}

}  // namespace
}  // namespace loom::device
