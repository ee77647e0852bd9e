// The executors over links between any two positions: exchanges, chains, trees. Threads as ranks, every
// result checked.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "device/host/exchange_executor.hpp"
#include "device/host/tree_executor.hpp"
#include "device/schedule/tree_schedule.hpp"
#include "links_between_all.hpp"

namespace loom::device {
namespace {

using Buffers = std::vector<std::vector<float>>;

/// What each position gives, of so many blocks; not to be summed exactly in any order.
Buffers operands(int size, std::size_t elements) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> values(-1, 1);
  Buffers in(static_cast<std::size_t>(size), std::vector<float>(elements));
  for (auto& each : in)
    for (float& value : each) value = values(random);
  return in;
}

void expect_near_sum(const Buffers& in, float value, std::size_t i) {
  double sum = 0;
  for (const auto& each : in) sum += each[i];
  ASSERT_NEAR(value, sum, 1e-5 * static_cast<double>(in.size())) << i;
}

constexpr float kUntouched = -99;

/// Every position's output after `body(position, in, out)` on a thread each.
template <class Body>
Buffers outputs(const Buffers& in, bool in_place, Body&& body) {
  Buffers out(in.size());
  std::vector<std::jthread> threads;
  for (std::size_t p = 0; p < in.size(); ++p) {
    out[p] = in_place ? in[p] : std::vector<float>(in[p].size(), kUntouched);
    threads.emplace_back([&, p] {
      auto* target = reinterpret_cast<std::byte*>(out[p].data());
      body(static_cast<int>(p), in_place ? target : reinterpret_cast<const std::byte*>(in[p].data()), target);
    });
  }
  return out;
}

void check_exchange(Pattern pattern, int size, std::size_t count, int root) {
  SCOPED_TRACE(::testing::Message() << "pattern " << static_cast<int>(pattern) << ", " << size
                                    << " positions, " << count << " elements, root " << root);
  const FifoShape shape{.slot_bytes = 256, .slot_count = 2};
  const LinksBetweenAll pairwise(size, shape);
  const auto blocks = static_cast<std::size_t>(block_count(pattern, size));
  const Buffers in = operands(size, blocks * count);
  Buffers out;
  for (const bool in_place : {true, pattern != Pattern::kOneShotAllreduce})  // slots are used again
    out = outputs(in, in_place, [&](int p, const std::byte* from, std::byte* data) {
      run(ExchangeExecutor(pairwise.of(p), p, shape.slot_bytes,
                           {.pattern = pattern,
                            .data = data,
                            .in = in_place ? nullptr : from,
                            .count = count,
                            .elem_bytes = sizeof(float),
                            .reduce = find_reduce(Op::kSum, Type::kFloat),
                            .root = root}));
    });

  for (std::size_t p = 0; p < out.size(); ++p)
    for (std::size_t block = 0; block < blocks; ++block)
      for (std::size_t i = block * count; i < (block + 1) * count; ++i) {
        const auto r = static_cast<std::size_t>(root);
        switch (pattern) {
          case Pattern::kOneShotAllreduce:
          case Pattern::kTwoShotAllreduce:
            expect_near_sum(in, out[p][i], i);
            ASSERT_EQ(out[p][i], out[0][i]) << "not the same everywhere";
            break;
          case Pattern::kLinearAllGather:
            ASSERT_EQ(out[p][i], in[block][i]);
            break;
          case Pattern::kLinearBroadcast:
            ASSERT_EQ(out[p][i], in[r][i]);
            break;
          case Pattern::kLinearReduce:
            if (p == r) expect_near_sum(in, out[p][i], i);
            break;
        }
      }
}

class Exchanges : public ::testing::TestWithParam<Pattern> {};

TEST_P(Exchanges, ComeOutRightForEverySize) {
  for (const int size : {2, 3, 4, 5, 6, 7, 8, 9})
    for (const std::size_t count : {1UL, 7UL, 64UL, 1000UL})
      check_exchange(GetParam(), size, count, size / 2);
}

INSTANTIATE_TEST_SUITE_P(Patterns, Exchanges,
                         ::testing::Values(Pattern::kOneShotAllreduce, Pattern::kTwoShotAllreduce,
                                           Pattern::kLinearAllGather, Pattern::kLinearBroadcast,
                                           Pattern::kLinearReduce));

TEST(Trees, CarryTheirThreeCollectivesFromEveryRoot) {
  for (const int size : {2, 3, 4, 5, 6, 9})
    for (const int tree : {0, 1})
      for (int root = 0; root < size; ++root)
        for (const std::size_t count : {1UL, 1000UL})
          for (const bool in_place : {false, true}) {
            SCOPED_TRACE(::testing::Message() << size << " positions, tree " << tree << ", root " << root);
            const FifoShape shape{.slot_bytes = 256, .slot_count = 2};
            const LinksBetweenAll pairwise(size, shape);
            const Buffers in = operands(size, count);
            const auto over_tree = [&](TreeCollective collective) {
              return outputs(in, in_place, [&](int p, const std::byte* from, std::byte* to) {
                const RootedPlace place = double_tree_from(tree, root, p, size);
                const auto links_to = [&](int peer) {
                  return peer == kNobody ? PeerLinks{} : pairwise.of(p)[static_cast<std::size_t>(peer)];
                };
                run(TreeExecutor(
                    {links_to(place.parent),
                     {links_to(place.child[0]), links_to(place.child[1]), links_to(place.child[2])}},
                    {collective, from, to, count, sizeof(float), find_reduce(Op::kSum, Type::kFloat)},
                    shape.slot_bytes / sizeof(float)));
              });
            };
            const auto r = static_cast<std::size_t>(root);
            const Buffers all = over_tree(TreeCollective::kAllreduce),
                          spread = over_tree(TreeCollective::kBroadcast),
                          reduced = over_tree(TreeCollective::kReduce);
            for (std::size_t p = 0; p < in.size(); ++p) {
              ASSERT_EQ(all[p], all[0]);
              if (p != r || in_place) {
                ASSERT_EQ(spread[p], in[r]);
              }
            }
            for (std::size_t i = 0; i < count; ++i) {
              expect_near_sum(in, all[0][i], i);
              expect_near_sum(in, reduced[r][i], i);
            }
          }
}

}  // namespace
}  // namespace loom::device
