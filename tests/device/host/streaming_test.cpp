// Operands that come and results that leave during calls, ranks being threads.
#include "device/streaming.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "grids.hpp"
#include "host_ranks.hpp"

namespace loom::device {
namespace {

using Ints = std::vector<int>;
constexpr int kNothing = -77;

/// The buffers of a call on "a device": the operand arrives part by part when it is needed, over what is
/// there, and the result is what the host had when the executor told of it.
class Held final : public Streaming {
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

constexpr std::size_t kCounts[] = {1, 5003, 1'200'007};

int sum_at(int ranks, std::size_t i) {
  return ranks * value_at(0, i) + 1000 * ranks * (ranks - 1) / 2;
}

/// One rank's part of one call: after perform(call), each byte of its result has left once. The message, or
/// all of its blocks, has about `most` ints.
template <class Perform>
void check_call(int rank, int ranks, Collective collective, std::size_t most, bool in_place,
                Perform&& perform) {
  const int root = ranks - 1;
  const auto r = static_cast<std::size_t>(rank), n = static_cast<std::size_t>(ranks);
  const bool reduces = is_reduction(collective), gathers = collective == Collective::kAllGather,
             scatters = collective == Collective::kReduceScatter,
             exchanges = collective == Collective::kAllToAll,
             rooted = collective == Collective::kBroadcast || collective == Collective::kReduce;
  const std::size_t count = gathers || scatters || exchanges ? most / n + 1 : most,
                    whole = gathers || scatters || exchanges ? n * count : count;
  const bool gives = collective != Collective::kBroadcast || rank == root,
             gets = !rooted || (rank == root) == reduces;
  const Ints operand = values_of(rank, gathers ? count : whole);
  const std::size_t got = !gets ? 0 : scatters ? count : whole;
  Ints in(operand.size(), kNothing), out(whole, kNothing);
  int* const given = in_place ? out.data() + (gathers ? r * count : 0) : in.data();
  Held held(gives ? operand : Ints{}, given, out.data(), got);
  Call call{.collective = collective,
            .in = reinterpret_cast<const std::byte*>(given),
            .out = bytes_of(out),
            .count = reduces ? count : count * sizeof(int),
            .type = reduces ? Type::kInt32 : Type::kUint8,
            .root = root,
            .streaming = &held};
  perform(call);
  for (std::size_t i = 0; i < got; ++i) {
    const auto from = static_cast<int>(i / count);
    const int expected = scatters    ? sum_at(ranks, r * count + i)
                         : reduces   ? sum_at(ranks, i)
                         : gathers   ? value_at(from, i % count)
                         : exchanges ? value_at(from, r * count + i % count)
                                     : value_at(root, i);
    ASSERT_EQ(held.result()[i], expected)
        << "rank " << rank << " of " << ranks << ", " << most << (in_place ? " in place" : "") << ", " << i;
  }
}

/// A reduce-scatter of unequal blocks, some of them empty, whose result may overlap the operands of other
/// blocks.
template <class Perform>
void check_unequal(int rank, int ranks, std::size_t most, bool in_place, Perform&& perform) {
  std::vector<std::uint64_t> bounds{0};
  for (int each = 0; each < ranks; ++each)
    bounds.push_back(bounds.back() + (each % 3 == 1 ? 0 : most / static_cast<std::size_t>(each + 2) + 1));
  const auto r = static_cast<std::size_t>(rank);
  const Ints operand = values_of(rank, bounds.back());
  const std::size_t got = bounds[r + 1] - bounds[r];
  Ints in(operand.size(), kNothing), out(operand.size(), kNothing);
  int* const given = in_place ? out.data() : in.data();
  Held held(operand, given, out.data(), got);
  const Call call{.collective = Collective::kReduceScatterV,
                  .in = reinterpret_cast<const std::byte*>(given),
                  .out = bytes_of(out),
                  .count = operand.size(),
                  .type = Type::kInt32,
                  .op = Op::kSum,
                  .bounds = bounds.data(),
                  .streaming = &held};
  perform(call);
  for (std::size_t i = 0; i < got; ++i)
    ASSERT_EQ(held.result()[i], sum_at(ranks, bounds[r] + i))
        << "rank " << rank << " of " << ranks << ", " << most << (in_place ? " in place" : "") << ", " << i;
}

constexpr std::pair<int, int> kForms[] = {{2, 1}, {3, 1}, {5, 1}, {2, 2}, {3, 2}, {2, 3}};

/// body(grids, count, in_place) for every form.
template <class Body>
void for_grids(Body&& body) {
  for (const auto& [hosts, per_host] : kForms)
    for (const std::size_t count : kCounts)
      for (const bool in_place : {true, false}) {
        Grids grids(hosts, per_host);
        body(grids, count, in_place);
      }
}

using StreamingOf = ::testing::TestWithParam<Collective>;
using StreamingOverGrid = StreamingOf;
using StreamingByCico = StreamingOf;

TEST_P(StreamingOverGrid, BringsAllAndTakesAllOnce) {
  const Collective collective = GetParam();
  const bool rooted = collective == Collective::kBroadcast || collective == Collective::kReduce;
  for_grids([&](Grids& grids, std::size_t count, bool in_place) {
    for (const bool by_trees : {false, true}) {
      if (by_trees && !DbtExecutor::takes(collective)) continue;
      grids.run([&](int rank) {
        check_call(rank, grids.size(), collective, count, in_place, [&](const Call& call) {
          if (rooted)
            grids.run_rooted(rank, call, by_trees);
          else if (by_trees)
            run(DbtExecutor(grids.of(rank), grids.trees_of(rank), call, 0, 0));
          else
            run(SplitRailExecutor(grids.of(rank), call));
        });
      });
    }
  });
}
INSTANTIATE_TEST_SUITE_P(Of, StreamingOverGrid,
                         ::testing::Values(Collective::kAllreduce, Collective::kReduceScatter,
                                           Collective::kAllGather, Collective::kBroadcast,
                                           Collective::kReduce));

TEST(StreamingOverGridV, BringsAllAndTakesAllOnce) {
  for_grids([](Grids& grids, std::size_t count, bool in_place) {
    grids.run([&](int rank) {
      check_unequal(rank, grids.size(), count, in_place,
                    [&](const Call& call) { run(SplitRailExecutor(grids.of(rank), call)); });
    });
  });
}

/// perform(rank, check) for a host of some ranks; check is a call of CicoExecutor, with outputs that bypass
/// the caches or not, and in few rounds or many.
template <class Body>
void for_hosts(Body&& body) {
  for (const int ranks : {2, 3, 5})
    for (const bool streams : {false, true})
      for (const bool few_rounds : {false, true}) {
        Host host(ranks);
        std::vector<std::jthread> threads;
        for (int rank = 0; rank < ranks; ++rank)
          threads.emplace_back([&, rank] {
            CicoBuffers cico(Host::pointers(host.cico), rank, few_rounds);
            for (const std::size_t count : kCounts)
              for (const bool in_place : {true, false})
                body(rank, ranks, count, in_place,
                     [&](const Call& call) { run(CicoExecutor(cico, call, streams)); });
          });
      }
}

TEST_P(StreamingByCico, BringsAllAndTakesAllOnce) {
  for_hosts([](int rank, int ranks, std::size_t count, bool in_place, const auto& perform) {
    check_call(rank, ranks, GetParam(), count, in_place, perform);
  });
}
INSTANTIATE_TEST_SUITE_P(Of, StreamingByCico,
                         ::testing::Values(Collective::kAllreduce, Collective::kReduceScatter,
                                           Collective::kAllGather, Collective::kBroadcast,
                                           Collective::kReduce, Collective::kAllToAll));

TEST(StreamingByCicoV, BringsAllAndTakesAllOnce) {
  for_hosts([](int rank, int ranks, std::size_t count, bool in_place, const auto& perform) {
    check_unequal(rank, ranks, count, in_place, perform);
  });
}

}  // namespace
}  // namespace loom::device
