// Calls whose kernels reach the buffers of all ranks, and the links of both executors, on a driver without a
// GPU (tests/virtual_gpu); ranks are threads. Between processes: tests/mpi.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <numeric>
#include <optional>
#include <vector>

#include "device/cuda/images.hpp"
#include "device/cuda/zero_copy_executor.hpp"
#include "tests/device/cuda/gpu_world.hpp"

namespace loom::device::cuda {
namespace {

constexpr Collective kAll[] = {
    Collective::kAllreduce, Collective::kReduce,     Collective::kReduceScatter,  Collective::kBroadcast,
    Collective::kAllGather, Collective::kAllToAll,   Collective::kReduceScatterV, Collective::kScan,
    Collective::kExscan,    Collective::kGather,     Collective::kGatherV,        Collective::kScatter,
    Collective::kScatterV,  Collective::kAllGatherV, Collective::kAllToAllV};

int value(int rank, std::size_t i) {
  return static_cast<int>(i % 1000) * 7 + rank * 10'000;
}

/// A call of all ranks: what each has, and what it must have afterwards. Sides are arrays of ints in which
/// blocks lie one after the other, with an int between two of them where they are listed.
class Calls {
 public:
  Calls(Collective collective, int ranks, std::size_t count, bool in_place)
      : collective_(collective), ranks_(ranks), root_(ranks - 1), count_(count), in_place_(in_place) {
    bounds_.push_back(0);
    for (int r = 0; r < ranks; ++r) bounds_.push_back(bounds_.back() + length(r, r));
    for (int r = 0; r < ranks; ++r) {
      sides_[LOOM_IN].push_back(operand_of(r));
      sides_[LOOM_OUT].push_back(Ints(ints(LOOM_OUT, r), -1));
    }
    if (in_place_)
      for (int r = 0; r < ranks; ++r) put_in_place(r);
  }

  void perform(const Gpus& gpus, World& world) {
    SCOPED_TRACE(::testing::Message() << "collective " << static_cast<int>(collective_) << ", " << ranks_
                                      << " ranks, " << count_ << " elements, in place " << in_place_);
    std::vector<std::unique_ptr<Buffer>> ins, outs;
    std::vector<Call> calls;
    std::vector<std::vector<Block>> in_blocks(static_cast<std::size_t>(ranks_)), out_blocks = in_blocks;
    for (int r = 0; r < ranks_; ++r) {
      const auto of = static_cast<std::size_t>(r);
      ins.push_back(std::make_unique<Buffer>(gpus, world.gpu(), sides_[LOOM_IN][of]));
      outs.push_back(std::make_unique<Buffer>(gpus, world.gpu(), sides_[LOOM_OUT][of]));
      std::byte* const out = outs[of]->at();
      const std::byte* const in =
          in_place_ && place_of_operand(r) ? out + *place_of_operand(r) : ins[of]->at();
      Call call{.collective = collective_, .in = in, .out = out, .count = count_, .type = Type::kInt32};
      call.root = root_;
      call.bounds = bounds_.data();
      if (collective_ == Collective::kReduceScatterV) call.count = bounds_.back();
      if (!is_reduction(collective_)) call.type = Type::kUint8, call.count *= sizeof(int);
      if (lists_blocks(collective_)) {
        in_blocks[of] = blocks_at(const_cast<std::byte*>(in), LOOM_IN, r);
        out_blocks[of] = blocks_at(out, LOOM_OUT, r);
        call.in_blocks = in_blocks[of].data();
        call.out_blocks = out_blocks[of].data();
        call.owns_its_block = in_place_ && place_of_operand(r).has_value();
      }
      calls.push_back(call);
    }
    world.perform(calls);
    for (int r = 0; r < ranks_; ++r) check(r, outs[static_cast<std::size_t>(r)]->read());
  }

 private:
  /// Of a block from one rank for another, or of a part of a message.
  std::size_t length(int from, int to) const {
    switch (collective_) {
      case Collective::kGatherV:
      case Collective::kScatterV:
      case Collective::kAllGatherV:
      case Collective::kAllToAllV:
      case Collective::kReduceScatterV:
        return count_ * static_cast<std::size_t>((from + 2 * to) % 3);
      default:
        return count_;
    }
  }
  std::size_t length(Side side, int rank, int block) const {
    switch (collective_) {
      case Collective::kAllToAllV:
        return side == LOOM_IN ? length(rank, block) : length(block, rank);
      case Collective::kGatherV:
      case Collective::kAllGatherV:
        return side == LOOM_IN ? length(rank, rank) : length(block, block);
      case Collective::kScatterV:
        return side == LOOM_IN ? length(block, block) : length(rank, rank);
      case Collective::kReduceScatterV:
        return side == LOOM_IN ? length(block, block) : length(rank, rank);
      default:
        return count_;
    }
  }
  int blocks(Side side) const { return blocks_of(collective_, side, ranks_); }
  std::size_t gap() const { return lists_blocks(collective_) ? 1 : 0; }
  std::size_t first(Side side, int rank, int block) const {
    std::size_t at = 0;
    for (int b = 0; b < block; ++b) at += length(side, rank, b) + gap();
    return at;
  }
  std::size_t ints(Side side, int rank) const {
    const std::size_t own = first(side, rank, blocks(side));
    return std::max<std::size_t>(1, in_place_ ? std::max(own, first(LOOM_IN, rank, blocks(LOOM_IN))) : own);
  }
  Ints operand_of(int rank) const {
    Ints operand(ints(LOOM_IN, rank));
    for (std::size_t i = 0; i < operand.size(); ++i) operand[i] = value(rank, i);
    return operand;
  }
  /// Where a call in place has a rank's operand in its result, in bytes; nothing: that rank gives both.
  std::optional<std::size_t> place_of_operand(int rank) const {
    switch (collective_) {
      case Collective::kAllGather:
      case Collective::kAllGatherV:
        return first(LOOM_OUT, rank, rank) * sizeof(int);
      case Collective::kBroadcast:
      case Collective::kScatter:  // tested by those that own their blocks
      case Collective::kScatterV:
        return {};
      case Collective::kGather:
      case Collective::kGatherV:
        if (rank != root_) return {};
        return first(LOOM_OUT, rank, rank) * sizeof(int);
      case Collective::kReduce:
        return rank == root_ ? std::optional<std::size_t>(0) : std::nullopt;
      case Collective::kAllToAllV:  // in place a block for a rank is as long as the one from it
        return {};
      default:
        return 0;
    }
  }
  void put_in_place(int rank) {
    const auto place = place_of_operand(rank);
    if (!place) return;
    const Ints& in = sides_[LOOM_IN][static_cast<std::size_t>(rank)];
    Ints& out = sides_[LOOM_OUT][static_cast<std::size_t>(rank)];
    const std::size_t at = *place / sizeof(int), room = out.size() - at;
    std::copy_n(in.begin(), std::min(in.size() - gap(), room), out.begin() + static_cast<std::ptrdiff_t>(at));
  }
  std::vector<Block> blocks_at(std::byte* begin, Side side, int rank) const {
    std::vector<Block> all;
    for (int b = 0; b < blocks(side); ++b)
      all.push_back({begin + first(side, rank, b) * sizeof(int), length(side, rank, b) * sizeof(int)});
    return all;
  }
  int operand(int rank, int block, std::size_t i) const {
    return value(rank, first(LOOM_IN, rank, block) + i);
  }
  int sum(int ranks, int block, std::size_t i) const {
    int total = 0;
    for (int q = 0; q < ranks; ++q) total += operand(q, block, i);
    return total;
  }
  /// Element i of a block of the result.
  int right(int rank, int block, std::size_t i) const {
    switch (collective_) {
      case Collective::kReduceScatter:
      case Collective::kReduceScatterV:
        return sum(ranks_, rank, i);
      case Collective::kScan:
        return sum(rank + 1, 0, i);
      case Collective::kExscan:
        return sum(rank, 0, i);
      case Collective::kBroadcast:
        return operand(root_, 0, i);
      case Collective::kAllGather:
      case Collective::kAllGatherV:
      case Collective::kGather:
      case Collective::kGatherV:
        return operand(block, 0, i);
      case Collective::kScatter:
      case Collective::kScatterV:
        return operand(root_, rank, i);
      case Collective::kAllToAll:
      case Collective::kAllToAllV:
        return operand(block, rank, i);
      default:
        return sum(ranks_, 0, i);
    }
  }
  /// All that is no result stays as it was, but for what operands in place leave.
  void check(int rank, const Ints& found) const {
    Ints expected = sides_[LOOM_OUT][static_cast<std::size_t>(rank)];
    const bool has_result = has_side(collective_, LOOM_OUT, rank, root_);
    std::size_t end = 0;
    for (int b = 0; has_result && b < blocks(LOOM_OUT); ++b)
      for (std::size_t i = 0; i < length(LOOM_OUT, rank, b); ++i) {
        end = first(LOOM_OUT, rank, b) + i + 1;
        expected[end - 1] = right(rank, b, i);
      }
    if (in_place_ && scatters_result(collective_)) return compare(rank, found, expected, end);
    compare(rank, found, expected, expected.size());
  }
  static void compare(int rank, const Ints& found, const Ints& expected, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_EQ(found[i], expected[i]) << "rank " << rank << ", element " << i;
  }

  Collective collective_;
  int ranks_, root_;
  std::size_t count_;
  bool in_place_;
  std::vector<std::uint64_t> bounds_;
  std::vector<Ints> sides_[kSides];
};

class ZeroCopy : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_kernels()) GTEST_SKIP() << "skipped: this build has no kernels";
  }
  void perform_all(World& world, std::initializer_list<std::size_t> counts) {
    for (const Collective collective : kAll)
      for (const std::size_t count : counts)
        for (const bool in_place : {false, true})
          Calls(collective, world.size(), count, in_place).perform(gpus_, world);
  }

  const Gpus gpus_;
};

TEST_F(ZeroCopy, CarriesEveryCollective) {
  for (const int size : {2, 3, 5, 9, 16}) {
    World world(gpus_, size, size == 3 ? Gpu::Memory::kVirtual : Gpu::Memory::kPlain);
    if (size < 5)
      perform_all(world, {1, 1000, 50'003});
    else
      perform_all(world, {3});
  }
}

/// Which bounce, in one round and in many.
TEST_F(ZeroCopy, CarriesBuffersThatOthersCannotReach) {
  World world(gpus_, 3, Gpu::Memory::kPlain, {.bounce_bytes = 16 * 1024, .channels = 0});
  gpus_.fail("cuIpcGetMemHandle", 801);
  perform_all(world, {1, 1000, 10'007});
  gpus_.fail("cuIpcGetMemHandle", 0);
  perform_all(world, {1000});
}

TEST_F(ZeroCopy, LaunchesOneKernelOnEachRank) {
  World world(gpus_, 3);
  Calls calls(Collective::kAllreduce, 3, 1000, false);
  calls.perform(gpus_, world);  // loads the kernel
  const auto before = gpus_.counts();
  calls.perform(gpus_, world);
  EXPECT_EQ(gpus_.counts().kernels, before.kernels + 3);
}

TEST_F(ZeroCopy, CutsWhatDoesNotFitAndTellsTheReceiver) {
  World world(gpus_, 2);
  const Buffer from(gpus_, world.gpu(), Ints(10, 5)), to(gpus_, world.gpu(), Ints(10, -1));
  const Block sent[] = {{from.at(), 4 * sizeof(int)}}, own[] = {{from.at(), 4}};
  const Block room[] = {{to.at(), 4}, {to.at(1), 3 * sizeof(int)}};
  Call root{.collective = Collective::kGatherV, .in_blocks = own, .out_blocks = room};
  Call other = root;
  other.in_blocks = sent;
  const auto cuts = world.perform({root, other});
  ASSERT_TRUE(cuts[0]);
  EXPECT_EQ(cuts[0]->peer, 1);
  EXPECT_EQ(cuts[0]->sent, 4 * sizeof(int));
  EXPECT_EQ(cuts[0]->room, 3 * sizeof(int));
  EXPECT_FALSE(cuts[1]);
  EXPECT_THAT(to.read(), ::testing::ElementsAre(5, 5, 5, 5, -1, -1, -1, -1, -1, -1));
}

/// Of a side without bytes nobody knows where it lies.
TEST_F(ZeroCopy, LooksForNothingWhereNoBytesAre) {
  World world(gpus_, 2);
  const Buffer from(gpus_, world.gpu(), Ints(4, 5)), to(gpus_, world.gpu(), Ints(4, -1));
  const Block none[] = {{}, {}}, some[] = {{from.at(), sizeof(int)}};
  for (const Collective collective :
       {Collective::kGatherV, Collective::kScatterV, Collective::kAllToAllV, Collective::kGather}) {
    const Call empty{.collective = collective, .in_blocks = none, .out_blocks = none};
    EXPECT_FALSE(world.perform({empty, empty})[0]);
  }
  Call root{.collective = Collective::kGatherV, .in_blocks = none, .out_blocks = none}, other = root;
  other.in_blocks = some;
  const auto cuts = world.perform({root, other});
  ASSERT_TRUE(cuts[0]);
  EXPECT_EQ(cuts[0]->room, 0U);
  EXPECT_THAT(to.read(), ::testing::Each(-1));
}

/// Who has told that its operand is there, and fails then, ends the call for all, and no result counts.
TEST_F(ZeroCopy, EndsForAllWhereOneRankFailsOnTheWay) {
  World world(gpus_, 2);
  Calls(Collective::kAllreduce, 2, 1000, false).perform(gpus_, world);  // loads the kernel
  const Buffer one(gpus_, world.gpu(), Ints(1000, 1)), two(gpus_, world.gpu(), Ints(1000, 2));
  const auto call = [&](const Buffer& buffer) {
    return Call{.collective = Collective::kAllreduce,
                .in = buffer.at(),
                .out = buffer.at(),
                .count = 1000,
                .type = Type::kInt32};
  };
  const Call first = call(one), second = call(two);
  ZeroCopyExecutor other(world.links(1), second, true);
  {
    ZeroCopyExecutor executor(world.links(0), first, true);
    using State = ZeroCopyExecutor::State;
    for (int step = 0; step < 5; ++step) executor.advance();  // it waits for the other rank
    EXPECT_EQ(executor.advance(), State::kBlocked);
  }
  EXPECT_THROW(
      {
        while (other.advance() != ZeroCopyExecutor::State::kDone) continue;
      },
      Error);
  EXPECT_THAT(one.read(), ::testing::Each(1)) << "it has gone back to its owner";
}

/// They take little beside rings and trees, and go only where nothing else can.
TEST(GpuLinksForm, HasLinksForAllToAllsWhereThereIsRoom) {
  constexpr int kRanks = 8;
  GpuLinks::Form whole{.bounce_bytes = 0};
  for (int rank = 0; rank < kRanks; ++rank) whole.kernels.hosts.push_back(rank / 4);
  whole.kernels.exchange = true;
  const std::uint64_t all = GpuLinks::room_for(whole, kRanks);
  EXPECT_TRUE(GpuLinks::fitting(whole, kRanks, all)->kernels.exchange);
  const auto halved = GpuLinks::fitting(whole, kRanks, all * 3 / 4);
  EXPECT_LT(halved->channels, whole.channels);
  EXPECT_TRUE(halved->kernels.exchange) << "half of the channels leave room for them";
  GpuLinks::Form least = whole;
  while (least.shrink(kRanks)) {
  }
  const auto smallest = GpuLinks::fitting(whole, kRanks, GpuLinks::room_for(least, kRanks));
  EXPECT_EQ(smallest->channels, 1);
  EXPECT_FALSE(smallest->kernels.exchange);
}

TEST(GpuLinksForm, IsAsLargeAsThereIsRoom) {
  constexpr std::uint64_t kMiB = 1 << 20;
  const GpuLinks::Form both, kernels{.bounce_bytes = 0}, zero_copy{.channels = 0};
  for (const int ranks : {2, 3, 8})
    for (const GpuLinks::Form& whole : {both, kernels, zero_copy}) {
      const auto with_room = GpuLinks::fitting(whole, ranks, 1024 * kMiB);
      ASSERT_TRUE(with_room);
      EXPECT_EQ(with_room->bytes(ranks), whole.bytes(ranks));
      EXPECT_FALSE(GpuLinks::fitting(whole, ranks, kMiB));
      std::size_t before = whole.bytes(ranks);
      for (std::uint64_t room = before + 3 * kMiB; room > 0; room -= std::min<std::uint64_t>(room, 100'000)) {
        const auto form = GpuLinks::fitting(whole, ranks, room);
        if (!form) break;
        EXPECT_LT(form->bytes(ranks), room);
        EXPECT_LE(form->bytes(ranks), before) << room;
        EXPECT_EQ(form->zero_copy(), whole.zero_copy());
        EXPECT_TRUE(form->has_kernels() || whole.zero_copy());
        EXPECT_FALSE(form->has_kernels() && !whole.has_kernels());
        before = form->bytes(ranks);
      }
    }
}

TEST_F(ZeroCopy, MemoryEndsAtItsLimit) {
  const Gpus& gpus = gpus_;
  Gpu gpu(gpus.driver(), gpus.owner(), 100'000);
  EXPECT_EQ(gpu.facts().room, 100'000U);
  std::byte* const memory = gpu.allocate(60'000);
  EXPECT_EQ(gpu.facts().room, 40'000U);
  try {
    gpu.allocate(40'001);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
  }
  gpu.release(memory);
  gpu.release(gpu.allocate(100'000));
  EXPECT_EQ(gpu.facts().room, 100'000U);
}

TEST_F(ZeroCopy, FreesItsMemoryWhenAllHaveLeft) {
  const Gpus& gpus = gpus_;
  auto gpu = std::make_shared<Gpu>(gpus.driver(), gpus.owner());
  const std::uint64_t before = gpus.counts().allocations;
  const auto make = [&] { return std::make_unique<GpuLinks>(gpu, GpuLinks::Form{.channels = 0}, 2); };
  auto a = make(), b = make();
  const std::vector<GpuLinks::Handle> handles = {a->handle(), b->handle()};
  a->connect(handles, 0);
  b->connect(handles, 1);
  EXPECT_EQ(gpus.counts().allocations, before + 8);  // bounce buffers, two words, and the host's word, each
  a->leave();
  EXPECT_FALSE(a->all_have_left());
  EXPECT_EQ(gpus.counts().allocations, before + 5);
  b.reset();
  EXPECT_TRUE(a->all_have_left());
  a.reset();
  EXPECT_EQ(gpus.counts().allocations, before);
}

TEST_F(ZeroCopy, FreesMemoryWhoseHandleNobodyHas) {
  const Gpus& gpus = gpus_;
  auto gpu = std::make_shared<Gpu>(gpus.driver(), gpus.owner());
  const std::uint64_t before = gpus.counts().allocations;
  for (const auto memory : {Gpu::Memory::kPlain, Gpu::Memory::kVirtual})
    GpuLinks(gpu, GpuLinks::Form{}, 2, memory);
  gpus.fail("cuIpcGetMemHandle", 801);
  EXPECT_THROW(GpuLinks(gpu, GpuLinks::Form{.channels = 0}, 2), Error);
  gpus.fail("cuIpcGetMemHandle", 0);
  EXPECT_EQ(gpus.counts().allocations, before);
  EXPECT_EQ(gpus.counts().reservations, 0U);
}

TEST_F(ZeroCopy, SaysSoWhereTheWordOfARankIsNotItsOwn) {
  const Gpus& gpus = gpus_;
  auto gpu = std::make_shared<Gpu>(gpus.driver(), gpus.owner());
  for (const auto memory : {Gpu::Memory::kPlain, Gpu::Memory::kVirtual}) {
    GpuLinks a(gpu, GpuLinks::Form{.channels = 0}, 2, memory),
        b(gpu, GpuLinks::Form{.channels = 0}, 2, memory);
    const std::vector<GpuLinks::Handle> handles = {a.handle(), b.handle()};
    a.connect(handles, 0);
    b.connect(handles, 1);
    EXPECT_TRUE(a.delivers());
    gpus.write(reinterpret_cast<std::byte*>(handles[0].memory.address) +
                   ZeroCopyLinks::bytes(ZeroCopyLinks::kBounceBytes),
               std::vector<std::byte>(sizeof(Word)));
    EXPECT_FALSE(b.delivers());
  }
}

TEST_F(ZeroCopy, LetsGoOfVirtualMemoryWhenItLeaves) {
  const Gpus& gpus = gpus_;
  auto gpu = std::make_shared<Gpu>(gpus.driver(), gpus.owner());
  GpuLinks links(gpu, GpuLinks::Form{.channels = 0}, 1, Gpu::Memory::kVirtual);
  const GpuLinks::Handle handle = links.handle();
  links.connect({&handle, 1}, 0);
  EXPECT_GE(::fcntl(handle.memory.file.file.fd, F_GETFD), 0);
  EXPECT_TRUE(links.delivers());
  EXPECT_LT(::fcntl(handle.memory.file.file.fd, F_GETFD), 0);  // everybody has it mapped
  EXPECT_TRUE(links.is_alive());
  links.leave();
  EXPECT_FALSE(links.is_alive());
}

TEST_F(ZeroCopy, FailsWithTheDriversErrorAndTellsTheOthers) {
  const Gpus& gpus = gpus_;
  World world(gpus, 2);
  const Buffer one(gpus, world.gpu(), Ints(1000, 1)), two(gpus, world.gpu(), Ints(1000, 2));
  const auto call = [&](const Buffer& buffer) {
    return Call{.in = buffer.at(), .out = buffer.at(), .count = 1000, .type = Type::kInt32};
  };
  Call first = call(one), second = call(two);
  first.collective = second.collective = Collective::kAllreduce;
  const auto go_on = [](ZeroCopyExecutor& executor) {
    while (executor.advance() != ZeroCopyExecutor::State::kDone) continue;
  };
  ZeroCopyExecutor executor(world.links(0), first, true), other(world.links(1), second, true);
  gpus.fail("cuEventQuery", 719);
  EXPECT_THROW(go_on(executor), Error);
  gpus.fail("cuEventQuery", 0);
  world.links(0).abandon();
  EXPECT_THROW(go_on(other), Error);
}

TEST_F(ZeroCopy, KnowsWhatAGpuCannotReduce) {
  EXPECT_TRUE(Gpu::supports(Op::kSum, Type::kBfloat16));
  EXPECT_FALSE(Gpu::supports(Op::kSum, Type::kLongDouble));
  EXPECT_FALSE(Gpu::supports(Op::kMinloc, Type::kLongDoubleInt));
  EXPECT_FALSE(Gpu::supports(Op::kBand, Type::kFloat));
}

}  // namespace
}  // namespace loom::device::cuda
