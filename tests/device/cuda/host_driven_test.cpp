// The host-driven executor and its links, on a driver without a GPU (tests/virtual_gpu); ranks are threads.
// Between processes: tests/mpi.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "device/cuda/gpu_links.hpp"
#include "device/cuda/images.hpp"
#include "tests/device/cuda/gpu_world.hpp"

namespace loom::device::cuda {
namespace {

int value(int rank, std::size_t i) {
  return static_cast<int>(i % 1000) * 7 + rank * 10'000;
}

void check(const Gpus& gpus, World& world, Collective collective, std::size_t count, bool in_place) {
  SCOPED_TRACE(::testing::Message() << "collective " << static_cast<int>(collective) << ", " << world.size()
                                    << " ranks, " << count << " elements, in place " << in_place);
  const auto ranks = static_cast<std::size_t>(world.size());
  const int root = world.size() - 1;
  const bool many_in = collective == Collective::kReduceScatter || collective == Collective::kAllToAll;
  const bool many_out = collective == Collective::kAllGather || collective == Collective::kAllToAll;
  const std::size_t in_count = many_in ? ranks * count : count, out_count = many_out ? ranks * count : count;
  std::vector<std::unique_ptr<Buffer>> ins, outs;
  std::vector<Call> calls;
  for (int rank = 0; rank < world.size(); ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    Ints in(in_count);
    for (std::size_t i = 0; i < in_count; ++i) in[i] = value(rank, i);
    Ints out(std::max(in_count, out_count), -1);
    const std::size_t own = collective == Collective::kAllGather ? r * count : 0;
    if (in_place) std::copy(in.begin(), in.end(), out.begin() + static_cast<std::ptrdiff_t>(own));
    ins.push_back(std::make_unique<Buffer>(gpus, world.gpu(), in));
    outs.push_back(std::make_unique<Buffer>(gpus, world.gpu(), out));
    Call call{.collective = collective,
              .in = in_place ? outs[r]->at(own) : ins[r]->at(),
              .out = outs[r]->at(),
              .count = count,
              .type = Type::kInt32,
              .root = root};
    calls.push_back(call);
  }
  world.perform(calls);
  for (int rank = 0; rank < world.size(); ++rank) {
    const Ints found = outs[static_cast<std::size_t>(rank)]->read();
    const auto sum = [&](std::size_t i) {
      int total = 0;
      for (int q = 0; q < world.size(); ++q) total += value(q, i);
      return total;
    };
    const bool has_result = !(collective == Collective::kReduce && rank != root) &&
                            !(collective == Collective::kBroadcast && rank == root);
    for (std::size_t i = 0; i < out_count && has_result; ++i) {
      const auto r = static_cast<std::size_t>(rank);
      int right = 0;
      switch (collective) {
        case Collective::kReduceScatter:
          right = sum(r * count + i);
          break;
        case Collective::kBroadcast:
          right = value(root, i);
          break;
        case Collective::kAllGather:
          right = value(static_cast<int>(i / count), i % count);
          break;
        case Collective::kAllToAll:
          right = value(static_cast<int>(i / count), r * count + i % count);
          break;
        default:
          right = sum(i);
      }
      ASSERT_EQ(found[i], right) << "rank " << rank << ", element " << i;
    }
  }
}

class HostDriven : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_kernels()) GTEST_SKIP() << "skipped: this build has no kernels";
  }
};

TEST_F(HostDriven, CarriesEveryCollectiveOnDeviceBuffers) {
  const Gpus gpus;
  for (const int size : {2, 3, 5, 9}) {
    World world(gpus, size, size == 3 ? Gpu::Memory::kVirtual : Gpu::Memory::kPlain);
    for (const auto collective : {Collective::kAllreduce, Collective::kReduce, Collective::kReduceScatter,
                                  Collective::kBroadcast, Collective::kAllGather, Collective::kAllToAll})
      for (const std::size_t count : {1UL, 1000UL, 200'003UL})
        for (const bool in_place : {false, true}) {
          if (count > 1000 && size > 3) continue;
          check(gpus, world, collective, count, in_place);
        }
  }
}

/// More than a bank holds, so that all banks are used again.
TEST_F(HostDriven, WorksInManyRounds) {
  const Gpus gpus;
  World world(gpus, 2);
  constexpr std::size_t kCount = 7 * GpuCicoBuffers::kBankBytes / sizeof(int) + 3;
  for (const auto collective : {Collective::kAllreduce, Collective::kBroadcast, Collective::kReduceScatter})
    check(gpus, world, collective, kCount, true);
}

TEST(GpuLinksForm, IsAsLargeAsThereIsRoom) {
  using Kind = GpuLinks::Kind;
  constexpr std::uint64_t kMiB = 1 << 20;
  for (const int ranks : {2, 3, 8})
    for (const Kind kind : {Kind::kHostDriven, Kind::kKernel, Kind::kBoth}) {
      const GpuLinks::Form whole = kind;
      const auto with_room = GpuLinks::fitting(kind, ranks, 1024 * kMiB);
      ASSERT_TRUE(with_room);
      EXPECT_EQ(with_room->bytes(ranks), whole.bytes(ranks));
      EXPECT_FALSE(GpuLinks::fitting(kind, ranks, kMiB));
      std::size_t before = whole.bytes(ranks);
      for (std::uint64_t room = before + 3 * kMiB; room > 0; room -= std::min<std::uint64_t>(room, 100'000)) {
        const auto form = GpuLinks::fitting(kind, ranks, room);
        if (!form) break;
        EXPECT_LT(form->bytes(ranks), room);
        EXPECT_LE(form->bytes(ranks), before) << room;
        EXPECT_TRUE(form->kind == kind || (kind == Kind::kBoth && form->kind == Kind::kHostDriven));
        EXPECT_GE(form->channels, 1);
        before = form->bytes(ranks);
      }
    }
}

TEST_F(HostDriven, MemoryEndsAtItsLimit) {
  const Gpus gpus;
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

TEST_F(HostDriven, WorksWithSmallBanks) {
  const Gpus gpus;
  const auto form = GpuLinks::fitting(GpuLinks::Kind::kHostDriven, 3, 4 << 20);
  ASSERT_TRUE(form);
  ASSERT_LT(form->bank_bytes, GpuCicoBuffers::kBankBytes);
  World world(gpus, 3, Gpu::Memory::kPlain, *form);
  for (const auto collective : {Collective::kAllreduce, Collective::kBroadcast, Collective::kAllToAll})
    check(gpus, world, collective, 300'001, true);
}

TEST_F(HostDriven, FreesItsCicoBufferWhenAllHaveLeft) {
  const Gpus gpus;
  auto gpu = std::make_shared<Gpu>(gpus.driver(), gpus.owner());
  const std::uint64_t before = gpus.counts().allocations;
  const auto make = [&] { return std::make_unique<GpuLinks>(gpu, GpuLinks::Kind::kHostDriven, 2); };
  auto a = make(), b = make();
  const std::vector<GpuLinks::Handle> handles = {a->handle(), b->handle()};
  a->connect(handles, 0);
  b->connect(handles, 1);
  EXPECT_EQ(gpus.counts().allocations, before + 4);  // a CICO buffer and a word each
  a->leave();
  EXPECT_FALSE(a->all_have_left());
  EXPECT_EQ(gpus.counts().allocations, before + 3);
  b.reset();
  EXPECT_TRUE(a->all_have_left());
  a.reset();
  EXPECT_EQ(gpus.counts().allocations, before);
}

TEST_F(HostDriven, FreesACicoBufferWhoseHandleNobodyHas) {
  const Gpus gpus;
  auto gpu = std::make_shared<Gpu>(gpus.driver(), gpus.owner());
  const std::uint64_t before = gpus.counts().allocations;
  for (const auto memory : {Gpu::Memory::kPlain, Gpu::Memory::kVirtual})
    GpuLinks(gpu, GpuLinks::Kind::kBoth, 2, memory);
  gpus.fail("cuIpcGetMemHandle", 801);
  EXPECT_THROW(GpuLinks(gpu, GpuLinks::Kind::kHostDriven, 2), Error);
  gpus.fail("cuIpcGetMemHandle", 0);
  EXPECT_EQ(gpus.counts().allocations, before);
  EXPECT_EQ(gpus.counts().reservations, 0U);
}

TEST_F(HostDriven, SaysSoWhereTheWordOfARankIsNotItsOwn) {
  const Gpus gpus;
  auto gpu = std::make_shared<Gpu>(gpus.driver(), gpus.owner());
  for (const auto memory : {Gpu::Memory::kPlain, Gpu::Memory::kVirtual}) {
    GpuLinks a(gpu, GpuLinks::Kind::kHostDriven, 2, memory), b(gpu, GpuLinks::Kind::kHostDriven, 2, memory);
    const std::vector<GpuLinks::Handle> handles = {a.handle(), b.handle()};
    a.connect(handles, 0);
    b.connect(handles, 1);
    EXPECT_TRUE(a.delivers());
    gpus.write(reinterpret_cast<std::byte*>(handles[0].memory.address) +
                   GpuCicoBuffers::bytes(GpuCicoBuffers::kBankBytes),
               std::vector<std::byte>(sizeof(Word)));
    EXPECT_FALSE(b.delivers());
  }
}

TEST_F(HostDriven, LetsGoOfVirtualMemoryWhenItLeaves) {
  const Gpus gpus;
  auto gpu = std::make_shared<Gpu>(gpus.driver(), gpus.owner());
  GpuLinks links(gpu, GpuLinks::Kind::kHostDriven, 1, Gpu::Memory::kVirtual);
  const GpuLinks::Handle handle = links.handle();
  links.connect({&handle, 1}, 0);
  EXPECT_GE(::fcntl(handle.memory.file.file.fd, F_GETFD), 0);
  EXPECT_TRUE(links.delivers());
  EXPECT_LT(::fcntl(handle.memory.file.file.fd, F_GETFD), 0);  // everybody has it mapped
  EXPECT_TRUE(links.is_alive());
  links.leave();
  EXPECT_FALSE(links.is_alive());
}

TEST_F(HostDriven, FailsWithTheDriversErrorAndTellsTheOthers) {
  const Gpus gpus;
  World world(gpus, 2);
  const Buffer one(gpus, world.gpu(), Ints(1000, 1)), two(gpus, world.gpu(), Ints(1000, 2));
  const auto call = [&](const Buffer& buffer) {
    return Call{.in = buffer.at(), .out = buffer.at(), .count = 1000, .type = Type::kInt32};
  };
  Call first = call(one), second = call(two);
  first.collective = second.collective = Collective::kAllreduce;
  HostDrivenExecutor executor(world.links(0).cico(), first);
  gpus.fail("cuMemcpyAsync", 719);
  EXPECT_THROW(executor.advance(), Error);
  gpus.fail("cuMemcpyAsync", 0);
  world.links(0).cico().abandon();
  HostDrivenExecutor other(world.links(1).cico(), second);
  const auto go_on = [&] {
    while (other.advance() != CicoWalk::State::kDone) continue;
  };
  EXPECT_THROW(go_on(), Error);
}

TEST_F(HostDriven, KnowsWhatAGpuCannotReduce) {
  EXPECT_TRUE(Gpu::supports(Op::kSum, Type::kBfloat16));
  EXPECT_FALSE(Gpu::supports(Op::kSum, Type::kLongDouble));
  EXPECT_FALSE(Gpu::supports(Op::kMinloc, Type::kLongDoubleInt));
  EXPECT_FALSE(Gpu::supports(Op::kBand, Type::kFloat));
}

}  // namespace
}  // namespace loom::device::cuda
