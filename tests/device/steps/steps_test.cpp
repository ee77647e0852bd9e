// The step code of device/steps, which kernels perform, by threads of the host: its logic, its memory order
// (under TSan) and its arithmetic. That a GPU does the same is for the tests with the label `cuda`.
#include <gtest/gtest.h>

#include "tests/device/steps/protocols.hpp"
#include "tests/device/steps/steps_world.hpp"

namespace loom::device::steps {
namespace {

/// Small FIFOs, so that short messages take many slices and use all slots again.
ChannelForm small_form(std::size_t slot_bytes, std::size_t slots, bool pairwise = true) {
  ChannelForm form;
  for (int p = 0; p < kProtocols; ++p) {
    form.ring[p] = {slot_bytes, slots};
    if (pairwise) form.pairwise[p] = {slot_bytes, slots};
  }
  form.pairwise[static_cast<int>(Protocol::kSimple)] = form.ring[static_cast<int>(Protocol::kLL)] = {};
  return form;
}

/// Checks that every rank's output is right, and that no byte beside it has changed.
template <class Operation, class T>
void check(const Call& call, HostWorld& world, std::size_t offset_bytes = 0) {
  SCOPED_TRACE(::testing::Message() << "algorithm " << static_cast<int>(call.algorithm) << ", protocol "
                                    << static_cast<int>(call.protocol) << ", " << call.size << " ranks, "
                                    << call.count << " elements of " << call.elem_bytes << " bytes");
  constexpr std::size_t kGuard = 64;
  const auto ranks = static_cast<std::size_t>(call.size);
  std::vector<Bytes> in(ranks), before(ranks);
  std::vector<AlignedBytes> in_memory, out_memory;
  std::vector<std::byte*> in_at, out_at;
  for (std::size_t r = 0; r < ranks; ++r) {
    in[r] = elements<T>(call.in_count(), static_cast<unsigned>(r + 1));
    before[r].assign(call.out_count() * sizeof(T), std::byte{0x5a});
    const std::size_t longest = std::max(in[r].size(), before[r].size()) + offset_bytes + 2 * kGuard;
    for (auto* memory : {&in_memory, &out_memory}) {
      memory->emplace_back(longest);
      std::memset(memory->back().data(), 0x5a, longest);
    }
    in_at.push_back(in_memory[r].data() + kGuard + offset_bytes);
    out_at.push_back(out_memory[r].data() + kGuard + offset_bytes);
    if (call.in_place) {
      out_at[r] = in_at[r];
      if (call.algorithm == Algorithm::kAllGatherRing) in_at[r] += r * call.count * sizeof(T);
    }
    std::memcpy(in_at[r], in[r].data(), in[r].size());
    std::memcpy(before[r].data(), out_at[r], before[r].size());
  }
  ASSERT_TRUE((world.perform<Operation, T>(call, in_at, out_at, call.size)));
  for (std::size_t r = 0; r < ranks; ++r) {
    const Bytes right = expected(call, in, static_cast<int>(r), before[r]);
    const Bytes found(out_at[r], out_at[r] + right.size());
    ASSERT_EQ(first_difference<T>(found, right), -1) << "rank " << r;
    std::byte* const end = out_at[r] + right.size();
    const bool in_larger = call.in_place && call.in_count() > call.out_count();
    for (std::size_t i = 0; i < kGuard; ++i) {
      ASSERT_EQ(out_at[r][-static_cast<std::ptrdiff_t>(i) - 1], std::byte{0x5a}) << "before the output";
      ASSERT_TRUE(in_larger || end[i] == std::byte{0x5a}) << "behind the output";
    }
  }
}

struct Way {
  Algorithm algorithm;
  Protocol protocol;
  bool pairwise = false;
};
constexpr Way kWays[] = {
    {Algorithm::kAllreduceRing, Protocol::kSimple},     {Algorithm::kAllreduceRing, Protocol::kLL128},
    {Algorithm::kReduceScatterRing, Protocol::kSimple}, {Algorithm::kReduceScatterRing, Protocol::kLL128},
    {Algorithm::kAllGatherRing, Protocol::kSimple},     {Algorithm::kAllGatherRing, Protocol::kLL128},
    {Algorithm::kBroadcastChain, Protocol::kSimple},    {Algorithm::kBroadcastChain, Protocol::kLL128},
    {Algorithm::kReduceChain, Protocol::kSimple},       {Algorithm::kReduceChain, Protocol::kLL128},
    {Algorithm::kOneShot, Protocol::kLL, true},         {Algorithm::kOneShot, Protocol::kLL128, true},
    {Algorithm::kTwoShot, Protocol::kLL, true},         {Algorithm::kTwoShot, Protocol::kLL128, true}};

void check_every_algorithm(HostWorld& world, int size, std::size_t count, bool in_place, int root,
                           std::size_t offset = 0) {
  for (const Way& way : kWays) {
    if (way.pairwise && size > kMostRanks) continue;
    check<Sum, int>({way.algorithm, way.protocol, size, root, count, sizeof(int),
                     find_reduce(Op::kSum, Type::kInt32), in_place},
                    world, offset);
  }
}

TEST(Steps, CarryEveryCollectiveForEverySize) {
  for (int size = 2; size <= 9; ++size) {
    HostWorld world(size, 1, 1, small_form(256, 4, size <= kMostRanks));
    for (const std::size_t count : {1UL, 7UL, 64UL, 501UL})
      for (const bool in_place : {false, true}) check_every_algorithm(world, size, count, in_place, size - 1);
  }
}

TEST(Steps, GetByWithTheFewestSlots) {
  for (const int size : {2, 3, 5}) {
    HostWorld world(size, 1, 1, small_form(128, 2));
    check_every_algorithm(world, size, 300, false, 0);
  }
}

TEST(Steps, AreSharedOutAmongThreadsAndChannels) {
  for (const int threads : {2, 3}) {
    HostWorld world(3, threads, 2, small_form(1024, 4));
    for (const std::size_t count : {1UL, 1000UL, 5003UL}) check_every_algorithm(world, 3, count, false, 1);
  }
}

TEST(Steps, TakeBuffersThatAreAlignedForTheirTypeAlone) {
  HostWorld world(3, 2, 1, small_form(512, 4));
  for (const std::size_t offset : {4UL, 8UL, 12UL}) check_every_algorithm(world, 3, 777, false, 2, offset);
  Call bytes{Algorithm::kTwoShot, Protocol::kLL128, 3, 0, 1001, 1, find_reduce(Op::kMax, Type::kInt8)};
  for (std::size_t offset = 0; offset < 8; ++offset) check<Max, std::int8_t>(bytes, world, offset);
}

template <class Operation, class T>
int check_type(HostWorld& world, Op op, Type type) {
  if constexpr (on_device<T> && std::is_invocable_v<Operation, T, T>) {
    for (const Way& way : kWays)
      if (way.algorithm == Algorithm::kAllreduceRing || way.pairwise)
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

TEST(Steps, ReduceEveryTypeByEveryOperation) {
  HostWorld world(3, 1, 1, small_form(512, 4));
  // Ten operations on 8 integer types, four on 4 real ones, two on 2 complex ones and 7 pairs.
  EXPECT_EQ(check_operations(world, static_cast<Operations*>(nullptr)), 10 * 8 + 4 * 4 + 2 * 2 + 2 * 7);
}

TEST(Steps, LeaveWhenTheCommunicatorIsAbandoned) {
  for (const Way& way : kWays) {
    HostWorld world(3, 2, 1, small_form(256, 2));
    std::vector<std::vector<int>> buffers(3, std::vector<int>(3000));
    std::vector<std::byte*> at;
    for (auto& buffer : buffers) at.push_back(reinterpret_cast<std::byte*>(buffer.data()));
    const Call call{
        way.algorithm, way.protocol, 3, 2, 1000, sizeof(int), find_reduce(Op::kSum, Type::kInt32)};
    std::jthread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      world.abandon();
    });
    EXPECT_FALSE((world.perform<Sum, int>(call, at, at, 2))) << "rank 2 never came";
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
  const WayOut never{&no};
  model::HostMemory host;
  Word message = 0;
  for (const std::size_t bytes : {1UL, 8UL, 119UL, 121UL, 400UL})
    for (const bool step_code_writes : {true, false}) {
      const Bytes data = elements<std::int8_t>(bytes, 7);
      Bytes got(bytes);
      const auto* const in = reinterpret_cast<const std::int8_t*>(data.data());
      auto* const out = reinterpret_cast<std::int8_t*>(got.data());
      Move<std::int8_t> move;
      move.sent = move.received = message++;
      move.count = bytes;
      if (step_code_writes) {
        move.to = &send;
        move.tos = 1;
        move.in = in;
        EXPECT_TRUE((MoveBy::template perform<NoOperation>(group, move, form, never)));
        EXPECT_TRUE(Model::try_read(host, slot_of(receive, form, message), got.data(), bytes, message));
        store_release(receive.consumed, message);
      } else {
        Model::write(host, slot_of(send, form, message), data.data(), bytes, message);
        move.from = &receive;
        move.froms = 1;
        move.out = out;
        // A vector of LL is read whole; the model writes no more words than it needs.
        if (std::is_same_v<MoveBy, LL128Move> || bytes % sizeof(Vector) == 0)
          EXPECT_TRUE((MoveBy::template perform<NoOperation>(group, move, form, never)));
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
