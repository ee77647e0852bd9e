// The step code of device/steps, which kernels perform, by threads of the host: its logic, its memory order
// (under TSan) and its arithmetic. That a GPU does the same is for the tests with the label `cuda`.
#include <gtest/gtest.h>

#include "tests/device/steps/protocols.hpp"
#include "tests/device/steps/step_calls.hpp"

namespace loom::device::steps {
namespace {

template <class Operation, class T>
void check(const Call& call, HostWorld& world, std::size_t offset_bytes = 0) {
  SCOPED_TRACE(about(call));
  Buffers<T> buffers(call, offset_bytes);
  ASSERT_TRUE((world.perform<Operation, T>(call, buffers.in, buffers.out, call.size)));
  buffers.check();
}

/// C++ orders the plain accesses of two threads by acquire and release alone, not by data that one needs from
/// the other, as GPUs do. By LL in a tree one group of threads loads an operand that another overwrites.
bool is_known_to_tsan(const Call& call) {
#ifdef __SANITIZE_THREAD__
  return !call.in_place || call.algorithm != Algorithm::kAllreduceTree || call.protocol != Protocol::kLL;
#else
  static_cast<void>(call);
  return true;
#endif
}

void check_every_algorithm(HostWorld& world, int size, std::size_t count, bool in_place, int root,
                           std::size_t offset = 0, std::size_t slice_bytes = 0) {
  for (const Way& way : every_way(size)) {
    const Call call{way.algorithm,
                    way.protocol,
                    size,
                    root,
                    count,
                    sizeof(int),
                    find_reduce(Op::kSum, Type::kInt32),
                    in_place,
                    {},
                    slice_bytes};
    if (is_known_to_tsan(call)) check<Sum, int>(call, world, offset);
  }
}

TEST(Steps, CarryEveryCollectiveForEverySize) {
  for (int size = 2; size <= 9; ++size) {
    HostWorld world(size, 1, small_form(256, 4, size <= kMostPairwise), channels_with_chains(size, 1));
    for (const std::size_t count : {1UL, 7UL, 64UL, 501UL})
      for (const bool in_place : {false, true}) check_every_algorithm(world, size, count, in_place, size - 1);
  }
}

TEST(Steps, GetByWithTheFewestSlots) {
  for (const int size : {2, 3, 4, 5}) {
    HostWorld world(size, 1, small_form(128, 2), channels_with_chains(size, 1));
    check_every_algorithm(world, size, 300, false, 0);
  }
}

TEST(Steps, AreSharedOutAmongThreadsAndChannels) {
  for (const int threads : {2, 3}) {
    const int size = threads + 1;
    HostWorld world(size, threads, small_form(1024, 4), channels_with_chains(size, 2));
    for (const std::size_t count : {1UL, 1000UL, 5003UL}) check_every_algorithm(world, size, count, false, 1);
  }
}

TEST(Steps, GoByRingsAndTreesOfAnyShape) {
  for (const int size : {4, 11, 17}) {
    std::mt19937_64 random(static_cast<unsigned>(size));
    HostWorld world(size, 1, small_form(256, 4), random_channels(random, size, 2));
    check_every_algorithm(world, size, 1501, true, size / 2);
  }
}

/// Calls with slices of their own take turns on the same links. More than a slot holds, or less than an
/// element, is as none.
TEST(Steps, GoBySlicesAsTheCallSays) {
  for (const int size : {2, 4, 6}) {
    std::mt19937_64 random(static_cast<unsigned>(size));
    HostWorld world(size, 1, small_form(1024, 4), random_channels(random, size, 2));
    for (const std::size_t slice_bytes : {128UL, 384UL, 0UL, 4096UL, 3UL, 100UL})
      check_every_algorithm(world, size, 1501, true, size - 1, 0, slice_bytes);
  }
}

/// By Simple alone: LL and LL128 are for messages that fit in few slots. A tree has half of the message.
TEST(Steps, SendAsManyMessagesAsThereAreSlices) {
  for (const auto& [protocol, slice_bytes, messages] :
       {std::tuple{Protocol::kSimple, 0UL, 4U}, std::tuple{Protocol::kSimple, 256UL, 16U},
        std::tuple{Protocol::kLL, 256UL, 8U}}) {
    HostWorld world(3, 1, small_form(1024, 4), channels_with_chains(3, 1));
    Call call{Algorithm::kBroadcastChain, protocol, 3, 0, 1024, sizeof(int), nullptr, false, {}, slice_bytes};
    const auto of_protocol = static_cast<std::size_t>(protocol);
    check<Sum, int>(call, world);
    EXPECT_EQ(world.channel(1, 0).ring.ends[of_protocol].passed.received, messages);
    call.algorithm = Algorithm::kBroadcastTree;
    check<Sum, int>(call, world);
    EXPECT_EQ(world.channel(1, 0).tree[0].ends[of_protocol].passed[0], messages / 2);
  }
}

/// However much longer than the others: a round of its own for a part of it would be one more way around the
/// ring.
TEST(Steps, SendTheLongestBlockInOneRoundWhereSlotsAllow) {
  for (const auto& [longest, messages] :
       {std::pair{2048UL, 4U}, std::pair{4096UL, 4U}, std::pair{4097UL, 5U}}) {
    HostWorld world(4, 1, small_form(4096, 8), channels_with_chains(4, 1));
    Call call{
        Algorithm::kAllGatherRing, Protocol::kSimple, 4, 0, longest, sizeof(int), nullptr, false, {}, 256};
    call.counts = {16, longest, 0, 1};
    check<Sum, int>(call, world);
    EXPECT_EQ(world.channel(2, 0).ring.ends[0].passed.sent, 3 * messages) << "in three steps";
    call.algorithm = Algorithm::kAllGatherHier;
    check<Sum, int>(call, world);
    EXPECT_EQ(world.channel(2, 0).grid.rail.passed.sent, messages) << "to the other row";
  }
}

/// Of the links of every two ranks a slot holds few bytes anyway.
TEST(Steps, ExchangeWholeSlots) {
  HostWorld world(3, 1, small_form(1024, 4), channels_with_chains(3, 1));
  const Call call{Algorithm::kAllToAll, Protocol::kSimple, 3, 0, 512, sizeof(int), nullptr, false, {}, 128};
  check<Sum, int>(call, world);
  EXPECT_EQ(world.channel(0, 0).exchange.links[0].passed.sent, 2U);
}

/// Threads of a group leave at different elements.
TEST(Steps, LeaveAndGoOnAgain) {
  std::mt19937_64 random(1);
  HostWorld world(4, 2, small_form(1024, 2), random_channels(random, 4, 2));
  world.be_patient(1);
  check_every_algorithm(world, 4, 3001, true, 1);
  check_every_algorithm(world, 4, 1001, true, 1, 0, 512);
  EXPECT_GT(world.launches(), 1000U);
}

TEST(Steps, TakeBuffersThatAreAlignedForTheirTypeAlone) {
  HostWorld world(3, 2, small_form(512, 4), channels_with_chains(3, 1));
  for (const std::size_t offset : {4UL, 8UL, 12UL}) check_every_algorithm(world, 3, 777, false, 2, offset);
  Call bytes{Algorithm::kTwoShot, Protocol::kLL128, 3, 0, 1001, 1, find_reduce(Op::kMax, Type::kInt8)};
  for (std::size_t offset = 0; offset < 8; ++offset) check<Max, std::int8_t>(bytes, world, offset);
}

/// Every type by one operation, every operation on one type, and pairs by both of theirs: the others differ
/// from these by arithmetic alone, which has its tests, and each of them takes the compiler half a second.
template <class Operation, class T>
constexpr bool is_tried = std::is_same_v<Operation, Sum> || std::is_same_v<T, std::int32_t> ||
                          requires(T pair) {
  pair.index;
};

template <class Operation, class T>
int check_type(HostWorld& world, Op op, Type type) {
  if constexpr (on_device<T> && std::is_invocable_v<Operation, T, T> && is_tried<Operation, T>) {
    for (const Way& way : every_way(3))
      if ((way.algorithm == Algorithm::kAllreduceRing && way.protocol != Protocol::kLL) ||
          is_pairwise(way.algorithm))
        check<Operation, T>({way.algorithm, way.protocol, 3, 0, 203, sizeof(T), find_reduce(op, type)},
                            world);
    return 1;
  }
  return 0;
}
template <class Operation, class... T>
int check_types(HostWorld& world, Op op, std::tuple<T...>*) {
  int type = 0, combinations = 0;
  ((combinations += check_type<Operation, T>(world, op, static_cast<Type>(type++))), ...);
  return combinations;
}
template <class... Operation>
int check_operations(HostWorld& world, std::tuple<Operation...>*) {
  int op = 0, combinations = 0;
  ((combinations += check_types<Operation>(world, static_cast<Op>(op++), static_cast<Types*>(nullptr))), ...);
  return combinations;
}

TEST(Steps, ReduceEveryTypeAndByEveryOperation) {
  HostWorld world(3, 1, 1, small_form(512, 4));
  // Sums of 8 integer types, 4 real and 2 complex ones; nine more operations on one type; two on 7 pairs.
  EXPECT_EQ(check_operations(world, static_cast<Operations*>(nullptr)), 8 + 4 + 2 + 9 + 2 * 7);
}

TEST(Steps, LeaveWhenTheCommunicatorIsAbandoned) {
  for (const Way& way : every_way(4)) {
    HostWorld world(4, 2, small_form(256, 2), channels_with_chains(4, 1));
    std::vector<std::vector<int>> buffers(4, std::vector<int>(4000));
    std::vector<std::byte*> at;
    for (auto& buffer : buffers) at.push_back(reinterpret_cast<std::byte*>(buffer.data()));
    const Call call{
        way.algorithm, way.protocol, 4, 3, 1000, sizeof(int), find_reduce(Op::kSum, Type::kInt32)};
    std::jthread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      world.abandon();
    });
    EXPECT_FALSE((world.perform<Sum, int>(call, at, at, 3))) << "rank 3 never came";
  }
}

// --- Slots are laid out as in the model, whose memory orders protocols_test.cpp tries.

template <class MoveBy, class Model>
void check_layout() {
  const FifoForm form{1024, 2};
  AlignedBytes memory(form.bytes() + 256);
  const SendEnd send{memory.data() + 256, reinterpret_cast<Word*>(memory.data()),
                     reinterpret_cast<Word*>(memory.data() + 128)};
  const RecvEnd receive{send.slots, send.filled, const_cast<Word*>(send.consumed)};
  HostGroup::Agreement agreement(1);
  HostGroup group(0, 1, agreement);
  const Word no = 0;
  const WayOut never{&no, 0};
  model::HostMemory host;
  Word message = 0;
  for (const std::size_t bytes : {1UL, 8UL, 119UL, 121UL, 400UL})
    for (const bool step_code_writes : {true, false}) {
      const Bytes data = elements<std::int8_t>(bytes, 7);
      Bytes got(bytes);
      std::uint32_t turns = 0;
      const auto* const in = reinterpret_cast<const std::int8_t*>(data.data());
      auto* const out = reinterpret_cast<std::int8_t*>(got.data());
      Move<std::int8_t> move;
      move.sent = move.received = message++;
      move.count = bytes;
      if (step_code_writes) {
        move.to = &send;
        move.tos = 1;
        move.in = in;
        EXPECT_TRUE((MoveBy::template perform<NoOperation>(group, move, form, never, turns)));
        EXPECT_TRUE(
            Model::try_read(host, slot_of(receive, form.offset_of(message)), got.data(), bytes, message));
        store_release(receive.consumed, message);
      } else {
        Model::write(host, slot_of(send, form.offset_of(message)), data.data(), bytes, message);
        move.from = &receive;
        move.froms = 1;
        move.out = out;
        // A vector of LL is read whole; the model writes no more words than it needs.
        if (std::is_same_v<MoveBy, LL128Move> || bytes % sizeof(Vector) == 0)
          EXPECT_TRUE((MoveBy::template perform<NoOperation>(group, move, form, never, turns)));
        else
          got = data;
      }
      EXPECT_EQ(got, data) << bytes << " bytes, " << step_code_writes;
    }
}

TEST(Steps, LayOutSlotsAsTheModelOfTheProtocolsDoes) {
  check_layout<LLMove, model::LL>();
  check_layout<LL128Move, model::LL128>();
}

}  // namespace
}  // namespace loom::device::steps
