#include "device/host/split_rail_executor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "device/link/shared_fifo.hpp"

namespace loom::device {
namespace {

/// A ring of positions in one process, each with its FIFO in ordinary memory.
class TestRing {
 public:
  TestRing(int size, const FifoShape& shape) : size_(size) {
    for (int p = 0; p < size; ++p) memory_.emplace_back(shared_fifo_bytes(shape) / kCacheLine + 1);
    for (int p = 0; p < size; ++p) {
      const int next = (p + 1) % size;
      send_.push_back(std::make_unique<SharedSendLink>(fifo(next), shape, next));
      recv_.push_back(std::make_unique<SharedRecvLink>(fifo(p), shape, (p + size - 1) % size));
    }
  }
  RingLinks links(int p) {
    const auto i = static_cast<std::size_t>(p);
    return {p, size_, send_[i].get(), recv_[i].get()};
  }

 private:
  struct alignas(kCacheLine) Line {
    std::byte bytes[kCacheLine]{};
  };
  std::byte* fifo(int p) { return memory_[static_cast<std::size_t>(p)].data()->bytes; }

  int size_;
  std::deque<std::vector<Line>> memory_;
  std::vector<std::unique_ptr<SharedSendLink>> send_;
  std::vector<std::unique_ptr<SharedRecvLink>> recv_;
};

int value_at(int p, std::size_t i) {
  return static_cast<int>(i) * 3 + p * 1000;
}

void check(RingCollective collective, int size, std::size_t count, const FifoShape& shape, bool in_place) {
  SCOPED_TRACE(::testing::Message() << size << " ranks, " << count << " elements, slots of "
                                    << shape.slot_bytes);
  TestRing ring(size, shape);
  std::vector<std::vector<int>> in(static_cast<std::size_t>(size)), out(in.size());
  std::vector<std::jthread> threads;
  for (int p = 0; p < size; ++p) {
    auto &mine = in[static_cast<std::size_t>(p)], &result = out[static_cast<std::size_t>(p)];
    for (std::size_t i = 0; i < count; ++i) mine.push_back(value_at(p, i));
    result = in_place || collective == RingCollective::kAllGather ? mine : std::vector<int>(count, -1);
    threads.emplace_back([&, p] {
      auto* target = reinterpret_cast<std::byte*>(result.data());
      RingExecutor executor(ring.links(p),
                            {collective, in_place ? target : reinterpret_cast<const std::byte*>(mine.data()),
                             target, count, sizeof(int), find_reduce(Op::kSum, Type::kInt32)},
                            slice_ring(count, sizeof(int), size, shape.slot_bytes, shape.slot_count));
      while (executor.advance() != RingExecutor::State::kDone) std::this_thread::yield();
    });
  }
  threads.clear();

  for (int p = 0; p < size; ++p) {
    const auto& result = out[static_cast<std::size_t>(p)];
    for (int c = 0; c < size; ++c) {
      const ChunkRange chunk = chunk_range(count, sizeof(int), size, c);
      for (std::size_t i = chunk.first; i < chunk.first + chunk.count; ++i) {
        int sum = 0;
        for (int q = 0; q < size; ++q) sum += value_at(q, i);
        const bool scattered = collective == RingCollective::kReduceScatter;
        if (collective == RingCollective::kAllGather) {
          ASSERT_EQ(result[i], value_at(c, i));
        } else if (!scattered || c == p) {
          ASSERT_EQ(result[i], sum) << "rank " << p << ", element " << i;
        } else {
          ASSERT_EQ(result[i], in_place ? value_at(p, i) : -1) << "written outside the rank's own chunk";
        }
      }
    }
  }
}

TEST(RingExecutor, CarriesEveryCollectiveForOddSizesAndCounts) {
  const FifoShape shape{.slot_bytes = 256, .slot_count = 4};
  for (const auto collective :
       {RingCollective::kAllreduce, RingCollective::kReduceScatter, RingCollective::kAllGather})
    for (const int size : {2, 3, 5})
      for (const std::size_t count : {1UL, 15UL, 16UL, 17UL, 64UL, 127UL, 1000UL, 5003UL})
        for (const bool in_place : {false, true}) check(collective, size, count, shape, in_place);
}

TEST(RingExecutor, GetsByWithTheFewestSlots) {
  for (const int size : {2, 3, 4, 7})
    check(RingCollective::kAllreduce, size, 3000, {.slot_bytes = 64, .slot_count = 2}, true);
}

/// Blocks of the ranks as chunks: of unequal length, one of them empty, and not in order of position.
TEST(RingExecutor, TakesBlocksOfAnyLengthInAnyOrder) {
  constexpr int kSize = 4;
  const std::vector<ChunkRange> chunks = {{900, 100}, {0, 7}, {507, 0}, {7, 500}};
  constexpr std::size_t kCount = 1000;
  const FifoShape shape{.slot_bytes = 256, .slot_count = 4};
  for (const auto collective : {RingCollective::kReduceScatter, RingCollective::kAllGather}) {
    const bool scatters = collective == RingCollective::kReduceScatter;
    TestRing ring(kSize, shape);
    std::vector<std::vector<int>> in(kSize), out(kSize);
    std::vector<std::jthread> threads;
    for (int p = 0; p < kSize; ++p) {
      auto &mine = in[static_cast<std::size_t>(p)], &result = out[static_cast<std::size_t>(p)];
      const ChunkRange own = chunks[static_cast<std::size_t>(p)];
      for (std::size_t i = 0; i < kCount; ++i) mine.push_back(value_at(p, i));
      result.assign(scatters ? own.count : kCount, -1);
      if (!scatters)
        std::copy_n(mine.begin() + static_cast<std::ptrdiff_t>(own.first), own.count,
                    result.begin() + static_cast<std::ptrdiff_t>(own.first));
      threads.emplace_back([&, p, own] {
        RingExecutor executor(
            ring.links(p),
            {.collective = collective,
             .in = reinterpret_cast<const std::byte*>(mine.data()),
             .out = reinterpret_cast<std::byte*>(result.data()),
             .count = kCount,
             .elem_bytes = sizeof(int),
             .reduce = find_reduce(Op::kSum, Type::kInt32),
             .chunks = chunks,
             .out_first = scatters ? own.first : 0},
            slice_ring(500 * kSize, sizeof(int), kSize, shape.slot_bytes, shape.slot_count));
        while (executor.advance() != RingExecutor::State::kDone) std::this_thread::yield();
      });
    }
    threads.clear();
    for (std::size_t p = 0; p < kSize; ++p)
      for (std::size_t c = 0; c < kSize; ++c)
        for (std::size_t i = 0; i < chunks[c].count; ++i) {
          const std::size_t at = chunks[c].first + i;
          int sum = 0;
          for (int q = 0; q < kSize; ++q) sum += value_at(q, at);
          if (!scatters) {
            ASSERT_EQ(out[p][at], value_at(static_cast<int>(c), at));
          } else if (c == p) {
            ASSERT_EQ(out[p][i], sum);
          }
        }
    if (!scatters) {
      EXPECT_EQ(out[0][600], -1) << "belongs to nobody";
    }
  }
}

TEST(RingExecutor, PipelinesLargeMessages) {
  check(RingCollective::kAllreduce, 4, 500000, {.slot_bytes = 64 * 1024, .slot_count = 8}, false);
}

/// Hosts x ranks per host as threads; the rails are rings like the local ones.
void check_rails(int hosts, int per_host, std::size_t count, bool in_place) {
  SCOPED_TRACE(::testing::Message() << hosts << " hosts of " << per_host << " ranks, " << count
                                    << " elements");
  const FifoShape local_fifo{.slot_bytes = 4096, .slot_count = 4},
      rail_fifo{.slot_bytes = 8192, .slot_count = 3};
  std::deque<TestRing> locals, rails;
  std::vector<int> ranks(static_cast<std::size_t>(hosts * per_host));
  std::iota(ranks.begin(), ranks.end(), 0);
  for (int host = 0; host < hosts; ++host) locals.emplace_back(per_host, local_fifo);
  for (int position = 0; position < per_host; ++position) rails.emplace_back(hosts, rail_fifo);
  std::vector<std::vector<int>> in(static_cast<std::size_t>(hosts * per_host)), out(in.size());
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < hosts * per_host; ++rank) {
    auto &mine = in[static_cast<std::size_t>(rank)], &result = out[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < count; ++i) mine.push_back(value_at(rank, i));
    result = in_place ? mine : std::vector<int>(count, -1);
    threads.emplace_back([&, rank] {
      const int host = rank / per_host, position = rank % per_host;
      auto* target = reinterpret_cast<std::byte*>(result.data());
      SplitRailExecutor executor(
          {locals[static_cast<std::size_t>(host)].links(position), local_fifo,
           rails[static_cast<std::size_t>(position)].links(host), rail_fifo, ranks},
          {Collective::kAllreduce, in_place ? target : reinterpret_cast<const std::byte*>(mine.data()),
           target, count, Type::kInt32, Op::kSum});
      while (executor.advance() != RingExecutor::State::kDone) std::this_thread::yield();
    });
  }
  threads.clear();
  for (const auto& result : out)
    for (std::size_t i = 0; i < count; ++i) {
      int sum = 0;
      for (int rank = 0; rank < hosts * per_host; ++rank) sum += value_at(rank, i);
      ASSERT_EQ(result[i], sum) << "element " << i;
    }
}

TEST(SplitRailExecutor, SumsOverTheGridInOneBlockAndInMany) {
  for (const auto& [hosts, per_host] : {std::pair{2, 2}, {3, 2}, {2, 3}})
    for (const std::size_t count : {1UL, 100UL, 524288UL, 524289UL, 1600001UL})
      check_rails(hosts, per_host, count, count % 2 == 0);
}

TEST(RingChunks, CoverTheMessageOnceAndInOrder) {
  for (const std::size_t elem_bytes : {1UL, 2UL, 4UL, 8UL, 16UL, 24UL})
    for (const int size : {2, 3, 7, 64})
      for (const std::size_t count : {0UL, 1UL, 5UL, 63UL, 64UL, 65UL, 1000UL, 12345UL}) {
        std::size_t covered = 0;
        for (int c = 0; c < size; ++c) {
          const ChunkRange chunk = chunk_range(count, elem_bytes, size, c);
          EXPECT_EQ(chunk.first, covered);
          covered += chunk.count;
        }
        EXPECT_EQ(covered, count);
      }
}

TEST(RingSlicing, FitsASlotAndLeavesTheFifoRoom) {
  for (const std::size_t elem_bytes : {1UL, 8UL, 24UL})
    for (const std::size_t slot_bytes : {64UL, 4096UL, 65536UL})
      for (const std::size_t slots : {2UL, 3UL, 8UL})
        for (const std::size_t count : {1UL, 1000UL, 10000000UL}) {
          const Slicing slicing = slice_ring(count, elem_bytes, 4, slot_bytes, slots);
          EXPECT_LE(slicing.slice_elems * elem_bytes, slot_bytes);
          EXPECT_GE(slicing.slice_elems, 1U);
          EXPECT_LT(slicing.slices_per_round, slots);
        }
}

TEST(SharedFifo, ReportsAPeerThatGaveUp) {
  TestRing ring(2, {.slot_bytes = 64, .slot_count = 2});
  ring.links(0).next->abandon();
  EXPECT_THROW(ring.links(1).previous->try_receive(), Error);
  ring.links(1).previous->abandon();
  for (int i = 0; i < 2; ++i) {
    ASSERT_NE(ring.links(0).next->try_acquire(), nullptr);
    ring.links(0).next->publish(64);
  }
  EXPECT_THROW(ring.links(0).next->try_acquire(), Error);
}

}  // namespace
}  // namespace loom::device
