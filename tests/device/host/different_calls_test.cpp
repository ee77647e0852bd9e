// Ranks that do not make the same call, by an error of the program: each finds out by itself, and goes on
// with the others if it can do as they do. Threads as ranks.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <thread>
#include <variant>

#include "base/error.hpp"
#include "device/host/cico_blocks_executor.hpp"
#include "device/host/cico_scan_executor.hpp"
#include "device/host/single_copy_executor.hpp"
#include "device/link/shared_fifo.hpp"
#include "device/link/waiter.hpp"
#include "tests/device/host/host_ranks.hpp"

namespace loom::device {
namespace {

const WaitPolicy kPolicy{.progress = {}, .check_peers = {}, .oversubscribed = true, .timeout_s = 30};

/// body(immediate, cico, rank) in a thread for each rank.
template <class Body>
void run_ranks(int ranks, Body&& body) {
  Host host(ranks);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      ImmediateExchange immediate(Host::pointers(host.areas), rank);
      CicoBuffers cico(Host::pointers(host.cico), rank);
      body(immediate, cico, rank);
    });
}

/// What body() throws; nothing: it ends.
template <class Body>
std::optional<ErrorCode> failure_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.code();
  }
  return {};
}

struct Buffers {
  explicit Buffers(std::size_t ints) : in(ints, 1), out(ints, -1) {}
  Call call(Collective collective, std::size_t count, int root = 0) {
    return {.collective = collective,
            .in = reinterpret_cast<std::byte*>(in.data()),
            .out = reinterpret_cast<std::byte*>(out.data()),
            .count = count,
            .type = Type::kInt32,
            .op = Op::kSum,
            .root = root};
  }
  std::vector<int> in, out;
};

constexpr Collective kOfAllToAll[] = {Collective::kAllreduce, Collective::kReduceScatter,
                                      Collective::kAllGather, Collective::kAllToAll};

TEST(DifferentCalls, DirectOnesWithAnotherSizeFailOnEveryRank) {
  constexpr int kRanks = 3;
  for (const Collective collective : kOfAllToAll)
    for (const std::size_t count : {std::size_t{2}, std::size_t{1200}})
      run_ranks(kRanks, [&](ImmediateExchange& immediate, CicoBuffers&, int rank) {
        Buffers buffers(count * kRanks);
        const auto perform = [&](std::size_t now) {
          Waiter waiter(kPolicy);
          immediate.perform(buffers.call(collective, now), waiter);
        };
        perform(count);
        const auto failed = failure_of([&] { perform(rank == 1 ? count / 2 : count); });
        EXPECT_EQ(failed, rank == 1 ? ErrorCode::kTruncated : ErrorCode::kMismatch);
        immediate.abandon();
      });
}

TEST(DifferentCalls, OfAnotherCollectiveAreSeenWhateverTheirSize) {
  run_ranks(2, [&](ImmediateExchange& immediate, CicoBuffers&, int rank) {
    Buffers buffers(4);
    Waiter waiter(kPolicy);
    EXPECT_EQ(failure_of([&] {
                immediate.perform(buffers.call(rank == 0 ? Collective::kAllGather : Collective::kAllToAll, 2),
                                  waiter);
              }),
              ErrorCode::kMismatch);
    immediate.abandon();
  });
}

TEST(DifferentCalls, TheRootOfAReduceSeesThatItsRoomIsShort) {
  run_ranks(3, [&](ImmediateExchange& immediate, CicoBuffers&, int rank) {
    Buffers buffers(10);
    Waiter waiter(kPolicy);
    const auto failed = failure_of(
        [&] { immediate.perform(buffers.call(Collective::kReduce, rank == 2 ? 5 : 10, 2), waiter); });
    EXPECT_EQ(failed, rank == 2 ? std::optional(ErrorCode::kTruncated) : std::nullopt);
  });
}

// The sender runs ahead; sizes are of a line, of the ring, and of several exchanges.
TEST(DifferentCalls, AnImmediateBroadcastCanBePerformedAnewWithTheSizeOfItsRoot) {
  constexpr std::size_t kCounts[] = {2, 14, 40, 4000, 9000, 16'000};
  run_ranks(3, [&](ImmediateExchange& immediate, CicoBuffers&, int rank) {
    for (int call = 0; call < 2000; ++call) {
      const auto n = static_cast<std::size_t>(call);
      const std::size_t count = kCounts[n % std::size(kCounts)],
                        other = kCounts[(n / 7) % std::size(kCounts)];
      Buffers buffers(count > other ? count : other);
      buffers.in.assign(buffers.in.size(), call);
      Waiter waiter(kPolicy);
      const bool odd_one = rank == 2 && call % 3 == 0 && count != other;
      const auto failed = failure_of([&] {
        immediate.perform(buffers.call(Collective::kBroadcast, odd_one ? other : count, call % 2), waiter);
      });
      ASSERT_EQ(failed.has_value(), odd_one);
      if (odd_one) {
        ASSERT_EQ(failed, count > other ? ErrorCode::kTruncated : ErrorCode::kMismatch);
        immediate.perform(buffers.call(Collective::kBroadcast, count, call % 2), waiter);
      }
      if (rank != call % 2) {
        ASSERT_EQ(buffers.out[0], call);
        ASSERT_EQ(buffers.out[count - 1], call);
      }
      if (call % 5 > 0) continue;
      int value = rank;
      auto* const bytes = reinterpret_cast<std::byte*>(&value);
      immediate.perform({.collective = Collective::kAllreduce,
                         .in = bytes,
                         .out = bytes,
                         .count = 1,
                         .type = Type::kInt32,
                         .op = Op::kSum},
                        waiter);
      ASSERT_EQ(value, 3);
    }
  });
}

TEST(DifferentCalls, WhoWaitsInAnImmediateOneSeesThatTheOtherIsInNone) {
  run_ranks(2, [&](ImmediateExchange& immediate, CicoBuffers&, int rank) {
    Buffers buffers(100'000);
    Waiter waiter(kPolicy);
    const Call call = buffers.call(Collective::kBroadcast, rank == 0 ? 100'000 : 2);
    if (rank == 0) return immediate.announce(call, CallFamily::kCico, waiter);
    try {
      immediate.perform(call, waiter);
      FAIL();
    } catch (const DifferentCall& other) {
      EXPECT_EQ(other.its(), CallNote(Collective::kBroadcast, CallFamily::kCico, 400'000));
    }
    immediate.announce(buffers.call(Collective::kBroadcast, 100'000), CallFamily::kCico, waiter);
  });
}

TEST(DifferentCalls, WhoWaitsElsewhereCanLookWhetherAnotherHasLeftForAnImmediateOne) {
  Host host(2);
  ImmediateExchange first(Host::pointers(host.areas), 0), second(Host::pointers(host.areas), 1);
  Buffers buffers(10'000);
  Waiter waiter(kPolicy);
  first.announce(buffers.call(Collective::kReduce, 10'000, 0), CallFamily::kCico, waiter);
  first.check_calls();  // the other may yet come
  second.perform(buffers.call(Collective::kReduce, 2, 0), waiter);
  EXPECT_EQ(failure_of([&] { first.check_calls(); }), ErrorCode::kMismatch);
}

using Executor = std::variant<std::monostate, CicoExecutor, SingleCopyExecutor, CicoScanExecutor>;
constexpr int kByCico = 1, kBySingleCopy = 2, kByScan = 3;

void emplace(Executor& executor, int which, CicoBuffers& cico, std::span<const std::int64_t> pids,
             const Call& call, Begun begun = Begun::kNo) {
  if (which == kByCico) executor.emplace<CicoExecutor>(cico, call, begun);
  if (which == kBySingleCopy) executor.emplace<SingleCopyExecutor>(cico, pids, call, begun);
  if (which == kByScan) executor.emplace<CicoScanExecutor>(cico, call);
}

void run(Executor& executor) {
  Waiter waiter(kPolicy);
  for (auto state = RingExecutor::State::kMoved; state != RingExecutor::State::kDone;) {
    state = std::visit(
        [](auto& each) {
          if constexpr (requires { each.advance(); })
            return each.advance();
          else
            return RingExecutor::State::kDone;
        },
        executor);
    if (state == RingExecutor::State::kBlocked) waiter.pause();
  }
}

// With as many tiles and with another number; a rank that has found out says so, and gives up at once.
TEST(DifferentCalls, ThroughCicoBuffersWithAnotherSizeFailOnEveryRank) {
  constexpr int kRanks = 2;
  const std::vector<std::int64_t> pids(kRanks, ::getpid());
  for (const int which : {kByCico, kBySingleCopy, kByScan})
    for (const Collective collective :
         {Collective::kAllreduce, Collective::kReduceScatter, Collective::kAllGather, Collective::kAllToAll,
          Collective::kScan, Collective::kExscan})
      for (const std::size_t count : {std::size_t{8}, std::size_t{10'000}, std::size_t{400'000}}) {
        const bool scans = collective == Collective::kScan || collective == Collective::kExscan;
        if (scans != (which == kByScan)) continue;
        run_ranks(kRanks, [&](ImmediateExchange&, CicoBuffers& cico, int rank) {
          Buffers buffers(count * kRanks);
          Executor executor;
          const auto perform = [&](std::size_t now) {
            emplace(executor, which, cico, pids, buffers.call(collective, now));
            run(executor);
          };
          perform(count);
          perform(count / 4);
          try {
            perform(rank == 1 ? count / 2 : count);
            ADD_FAILURE() << "nothing found";
          } catch (const DifferentCall& other) {
            EXPECT_EQ(other.code(), rank == 1 ? ErrorCode::kTruncated : ErrorCode::kMismatch);
            cico.say_left(other.mine());
          }
          cico.abandon();
        });
      }
}

TEST(DifferentCalls, ABroadcastThroughCicoBuffersGoesOnWithTheSizeOfItsRoot) {
  constexpr int kRanks = 3;
  const std::vector<std::int64_t> pids(kRanks, ::getpid());
  constexpr std::size_t kCounts[] = {3, 5000, 90'000, 400'000};
  run_ranks(kRanks, [&](ImmediateExchange&, CicoBuffers& cico, int rank) {
    for (int call = 0; call < 64; ++call) {
      const auto n = static_cast<std::size_t>(call);
      const std::size_t count = kCounts[n % 4], other = kCounts[n / 4 % 4];
      const int which = call / 16 % 2 == 0 ? kByCico : kBySingleCopy, root = call % kRanks;
      Buffers buffers(std::max(count, other));
      buffers.in.assign(buffers.in.size(), call);
      const bool odd_one = rank == (root + 1) % kRanks && count != other;
      Executor executor;
      // Also by another executor.
      emplace(executor, odd_one && call % 3 == 0 ? kByCico : which, cico, pids,
              buffers.call(Collective::kBroadcast, odd_one ? other : count, root));
      std::optional<DifferentCall> found;
      try {
        run(executor);
      } catch (const DifferentCall& different) {
        found = different;
      }
      ASSERT_EQ(found.has_value(), odd_one);
      if (found) {
        ASSERT_EQ(found->progress(), CallProgress::kFirstRound);
        ASSERT_EQ(found->its().bytes(), count * sizeof(int));
        emplace(executor, found->its().family() == CallFamily::kSingleCopy ? kBySingleCopy : kByCico, cico,
                pids, buffers.call(Collective::kBroadcast, count, root), Begun::kYes);
        run(executor);
      }
      if (rank != root) {
        ASSERT_EQ(buffers.out[0], call);
        ASSERT_EQ(buffers.out[count - 1], call);
      }
      emplace(executor, kByCico, cico, pids, buffers.call(Collective::kAllreduce, 3));
      run(executor);
      ASSERT_EQ(buffers.out[2], kRanks * call);
    }
  });
}

TEST(DifferentCalls, ASlotOfAnotherCallIsNotTaken) {
  constexpr FifoShape kShape{.slot_bytes = 64, .slot_count = 2};
  struct alignas(kCacheLine) Line {
    std::byte bytes[kCacheLine];
  };
  std::vector<Line> memory(shared_fifo_bytes(kShape) / sizeof(Line));
  SharedSendLink send(memory[0].bytes, kShape, 1);
  SharedRecvLink receive(memory[0].bytes, kShape, 0);
  const auto note = [](std::size_t bytes) {
    return CallNote(Collective::kBroadcast, CallFamily::kBetweenHosts, bytes);
  };
  for (int call = 0; call < 5; ++call) {
    send.enter(note(100));
    receive.enter(note(100));
    ASSERT_NE(send.try_acquire(), nullptr);
    send.publish(64);
    ASSERT_NE(receive.try_receive(), nullptr);
    receive.release();
  }
  send.publish(36);
  receive.enter(note(64));
  EXPECT_EQ(failure_of([&] { receive.try_receive(); }), ErrorCode::kTruncated);
  receive.enter(note(1000));
  EXPECT_EQ(failure_of([&] { receive.try_receive(); }), ErrorCode::kMismatch);
}

}  // namespace
}  // namespace loom::device
