// Small collectives on the lane of one request: threads as ranks, every result checked.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <memory>
#include <random>
#include <thread>
#include <tuple>

#include "base/error.hpp"
#include "device/host/lane_exchange.hpp"

namespace loom::device {
namespace {

using State = LaneExchangeExecutor::State;

/// The lanes of all ranks for calls of one size.
class Lanes {
 public:
  Lanes(int ranks, Collective collective, std::size_t bytes)
      : slots_(LaneSlots::of(collective, bytes, ranks)) {
    for (int rank = 0; rank < ranks; ++rank) {
      memory_.push_back(std::make_unique<Line[]>(slots_.bytes() / sizeof(Line)));
      lanes_.push_back(memory_.back()[0].bytes);
    }
  }
  LaneExchange of(int rank) const { return {lanes_, rank, slots_}; }
  const LaneSlots& slots() const { return slots_; }

 private:
  struct alignas(kCacheLine) Line {
    std::byte bytes[kCacheLine] = {};
  };
  LaneSlots slots_;
  std::vector<std::unique_ptr<Line[]>> memory_;
  std::vector<std::byte*> lanes_;
};

int value(int rank, std::size_t i, int nth) {
  return static_cast<int>((i * 7 + static_cast<std::size_t>(nth) * 5) % 89) + 3 * rank;
}

/// One rank's buffers of a call.
struct Buffers {
  Buffers(Collective collective, std::size_t elements, bool is_in_place, int self, int size, int to, int nth)
      : count(elements), rank(self), ranks(size), in_place(is_in_place) {
    const auto n = static_cast<std::size_t>(ranks), me = static_cast<std::size_t>(rank);
    const bool scatters = collective == Collective::kReduceScatter || collective == Collective::kAllToAll;
    const bool gathers = collective == Collective::kAllGather || collective == Collective::kAllToAll;
    in.resize(scatters ? n * count : count);
    out.assign(gathers || (scatters && in_place) ? n * count : count, -1);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = value(rank, i, nth);
    const std::size_t own = collective == Collective::kAllGather ? me * count : 0;
    if (in_place) std::copy(in.begin(), in.end(), out.begin() + static_cast<std::ptrdiff_t>(own));
    call = {collective,
            reinterpret_cast<const std::byte*>(in_place ? out.data() + own : in.data()),
            reinterpret_cast<std::byte*>(out.data()),
            count,
            Type::kInt32,
            Op::kSum,
            to};
  }

  int sum_at(std::size_t i, int nth) const {
    int sum = 0;
    for (int each = 0; each < ranks; ++each) sum += value(each, i, nth);
    return sum;
  }

  void check(int nth) const {
    const auto me = static_cast<std::size_t>(rank);
    for (std::size_t i = 0; i < count; ++i) switch (call.collective) {
        case Collective::kReduce:
          if (rank != call.root) break;
          [[fallthrough]];
        case Collective::kAllreduce:
          ASSERT_EQ(out[i], sum_at(i, nth)) << i;
          break;
        case Collective::kReduceScatter:
          ASSERT_EQ(out[i], sum_at(me * count + i, nth)) << i;
          break;
        case Collective::kBroadcast:
          if (rank != call.root) {
            ASSERT_EQ(out[i], value(call.root, i, nth)) << i;
          }
          break;
        default:
          for (int from = 0; from < ranks; ++from) {
            const std::size_t at = call.collective == Collective::kAllToAll ? me * count + i : i;
            ASSERT_EQ(out[static_cast<std::size_t>(from) * count + i], value(from, at, nth)) << i;
          }
      }
  }

  std::size_t count;
  int rank, ranks;
  bool in_place;
  std::vector<int> in, out;
  Call call;
};

void finish(LaneExchangeExecutor& executor) {
  while (executor.advance() != State::kDone) ::sched_yield();
}

class LaneExchanges : public ::testing::TestWithParam<std::tuple<int, Collective>> {};

TEST_P(LaneExchanges, GiveEveryRankItsResultInCallAfterCall) {
  const auto [ranks, collective] = GetParam();
  const bool rooted = collective == Collective::kReduce || collective == Collective::kBroadcast;
  for (const std::size_t count : {1, 13, 1000, rooted ? 7000 : 1500})
    for (const int root : {0, rooted ? ranks - 1 : 0}) {
      const Lanes lanes(ranks, collective, count * sizeof(int));
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank, size = ranks, kind = collective] {
          LaneExchange lane = lanes.of(rank);
          std::mt19937 random(static_cast<unsigned>(rank));
          for (int nth = 0; nth < 60; ++nth) {
            const bool in_place = nth % 3 == 0 && kind != Collective::kBroadcast &&
                                  (kind != Collective::kReduce || rank == root);
            Buffers buffers(kind, count, in_place, rank, size, root, nth);
            if (random() % 4 == 0) ::sched_yield();
            LaneExchangeExecutor executor(lane, buffers.call);
            finish(executor);
            buffers.check(nth);
          }
        });
    }
}

INSTANTIATE_TEST_SUITE_P(Of, LaneExchanges,
                         ::testing::Combine(::testing::Values(2, 3, 4, 7),
                                            ::testing::Values(Collective::kAllreduce, Collective::kReduce,
                                                              Collective::kReduceScatter,
                                                              Collective::kBroadcast, Collective::kAllGather,
                                                              Collective::kAllToAll)));

TEST(LaneExchange, OfABarrierEndsWhenAllHaveCome) {
  const Lanes lanes(3, Collective::kBarrier, 0);
  std::vector<LaneExchange> of;
  for (int rank = 0; rank < 3; ++rank) of.push_back(lanes.of(rank));
  for (int nth = 0; nth < 5; ++nth) {
    LaneExchangeExecutor first(of[0], {}), second(of[1], {}), third(of[2], {});
    EXPECT_EQ(first.advance(), State::kBlocked);
    EXPECT_EQ(second.advance(), State::kBlocked);
    EXPECT_EQ(second.awaited(), 2);
    EXPECT_EQ(third.advance(), State::kDone);
    EXPECT_EQ(first.advance(), State::kDone);
    EXPECT_EQ(second.advance(), State::kDone);
  }
}

TEST(LaneExchange, OfABroadcastLetsTheRootRunAheadUntilAllSlotsAreInUse) {
  const Lanes lanes(2, Collective::kBroadcast, sizeof(int));
  LaneExchange root = lanes.of(0), other = lanes.of(1);
  const auto slots = static_cast<int>(lanes.slots().count);
  ASSERT_GE(slots, 4);
  for (int nth = 0; nth < slots; ++nth) {
    Buffers buffers(Collective::kBroadcast, 1, false, 0, 2, 0, nth);
    LaneExchangeExecutor executor(root, buffers.call);
    ASSERT_EQ(executor.advance(), State::kDone) << nth;
  }
  Buffers last(Collective::kBroadcast, 1, false, 0, 2, 0, slots);
  LaneExchangeExecutor ahead(root, last.call);
  EXPECT_EQ(ahead.advance(), State::kBlocked);
  EXPECT_EQ(ahead.awaited(), 1);
  for (int nth = 0; nth <= slots; ++nth) {
    Buffers buffers(Collective::kBroadcast, 1, false, 1, 2, 0, nth);
    LaneExchangeExecutor executor(other, buffers.call);
    if (nth == slots) {
      EXPECT_EQ(executor.advance(), State::kBlocked);
      EXPECT_EQ(ahead.advance(), State::kDone);
    }
    ASSERT_EQ(executor.advance(), State::kDone) << nth;
    buffers.check(nth);
  }
}

TEST(LaneExchange, EndsWithAnErrorWhereARankHasGivenUp) {
  for (const Collective collective :
       {Collective::kAllreduce, Collective::kBroadcast, Collective::kReduce, Collective::kBarrier}) {
    const Lanes lanes(2, collective, sizeof(int));
    LaneExchange mine = lanes.of(0), its = lanes.of(1);
    its.abandon();
    const int root = collective == Collective::kBroadcast ? 1 : 0;
    Buffers buffers(collective, collective == Collective::kBarrier ? 0 : 1, false, 0, 2, root, 0);
    LaneExchangeExecutor executor(mine, buffers.call);
    EXPECT_THROW(executor.advance(), Error) << static_cast<int>(collective);
  }
}

/// Where it packs and unpacks, block by block.
TEST(LaneExchange, MovesBlocksThroughPackers) {
  constexpr std::size_t kBytes = 24;
  struct Packing {
    std::vector<std::byte> data;
    std::vector<std::size_t> at;
    static void pack(void* context, int block, std::byte* to, std::size_t bytes) {
      auto& self = *static_cast<Packing*>(context);
      std::copy_n(self.of(block), bytes, to);
      self.at[static_cast<std::size_t>(block)] += bytes;
    }
    static void unpack(void* context, int block, std::byte* from, std::size_t bytes) {
      auto& self = *static_cast<Packing*>(context);
      std::copy_n(from, bytes, self.of(block));
      self.at[static_cast<std::size_t>(block)] += bytes;
    }
    std::vector<std::byte>::iterator of(int block) {
      const auto index = static_cast<std::size_t>(block);
      return data.begin() + static_cast<std::ptrdiff_t>(index * kBytes + at[index]);
    }
  };
  const Lanes lanes(2, Collective::kAllToAll, kBytes);
  LaneExchange lane[2] = {lanes.of(0), lanes.of(1)};
  Packing in[2], out[2];
  Packer packs[2], unpacks[2];
  std::vector<LaneExchangeExecutor> executors;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    in[rank] = {std::vector<std::byte>(2 * kBytes), {0, 0}};
    out[rank] = in[rank];
    for (std::size_t i = 0; i < 2 * kBytes; ++i) in[rank].data[i] = std::byte(100 * rank + i);
    packs[rank] = {.move = Packing::pack, .context = &in[rank]};
    unpacks[rank] = {.move = Packing::unpack, .context = &out[rank]};
    Call call{.collective = Collective::kAllToAll, .count = kBytes};
    call.in_packer = &packs[rank];
    call.out_packer = &unpacks[rank];
    executors.emplace_back(lane[rank], call);
  }
  EXPECT_EQ(executors[0].advance(), State::kBlocked);
  EXPECT_EQ(executors[1].advance(), State::kDone);
  EXPECT_EQ(executors[0].advance(), State::kDone);
  for (std::size_t rank = 0; rank < 2; ++rank)
    for (std::size_t from = 0; from < 2; ++from)
      for (std::size_t i = 0; i < kBytes; ++i)
        ASSERT_EQ(out[rank].data[from * kBytes + i], std::byte(100 * from + rank * kBytes + i));
}

}  // namespace
}  // namespace loom::device
