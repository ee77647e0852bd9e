// The kernel executor and its links, on a driver without a GPU (tests/virtual_gpu); ranks are threads.
// Between processes: tests/mpi.
#include "device/cuda/kernel_executor.hpp"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <numeric>

#include "device/cuda/images.hpp"
#include "device/cuda/link_check.hpp"
#include "device/cuda/streams.hpp"
#include "tests/device/cuda/gpu_world.hpp"

namespace loom::device::cuda {
namespace {

using namespace std::chrono_literals;

void* const kLegacyStream = reinterpret_cast<void*>(std::uintptr_t{1});  // CU_STREAM_LEGACY

GpuLinks::Form one_channel() {
  GpuLinks::Form form{.bounce_bytes = 0};
  form.channels = 1;
  form.kernels.may_ll128 = true;
  return form;
}

class Kernels : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_kernels()) GTEST_SKIP() << "skipped: this build has no kernels";
  }
};

Call sum_of(const Buffer& buffer, std::size_t count) {
  return {.collective = Collective::kAllreduce,
          .in = buffer.at(),
          .out = buffer.at(),
          .count = count,
          .type = Type::kInt32};
}

/// Kernels leave where others have left, so all go on by turns.
void end_all(std::vector<KernelExecutor*> executors) {
  while (!executors.empty()) {
    std::erase_if(executors, [](KernelExecutor* executor) {
      return executor->advance() == KernelExecutor::State::kDone;
    });
    std::this_thread::yield();
  }
}

/// Kernels of one communicator wait for each other, and hold up neither those of another one, whatever the
/// order in which ranks start them, nor what the program has put into its own stream since.
TEST_F(Kernels, OfTwoCommunicatorsBeginInAnyOrder) {
  const Gpus gpus;
  World a(gpus, 2, Gpu::Memory::kPlain, one_channel()), b(gpus, 2, Gpu::Memory::kPlain, one_channel());
  const Buffer of_a0(gpus, a.gpu(), Ints(100, 1)), of_a1(gpus, a.gpu(), Ints(100, 2)),
      of_b0(gpus, a.gpu(), Ints(100, 10)), of_b1(gpus, a.gpu(), Ints(100, 20)),
      other(gpus, a.gpu(), Ints(10, 7));
  for (World* world : {&a, &b})
    for (int rank : {0, 1}) world->links(rank).kernels().prepare(Op::kSum, Type::kInt32);
  KernelExecutor a0(a.links(0), sum_of(of_a0, 100), 0, 2), b0(b.links(0), sum_of(of_b0, 100), 0, 2),
      b1(b.links(1), sum_of(of_b1, 100), 1, 2), a1(a.links(1), sum_of(of_a1, 100), 1, 2);
  // Each advance starts one. None but the first two of a communicator can end.
  for (KernelExecutor* executor : {&a0, &b0}) EXPECT_EQ(executor->advance(), KernelExecutor::State::kMoved);
  EXPECT_EQ(other.read(), Ints(10, 7)) << "a copy in the default stream, which waits for no kernel of theirs";
  for (KernelExecutor* executor : {&b1, &a1}) EXPECT_EQ(executor->advance(), KernelExecutor::State::kMoved);
  end_all({&a1, &b0, &a0, &b1});
  EXPECT_EQ(of_a0.read(), Ints(100, 3));
  EXPECT_EQ(of_b1.read(), Ints(100, 30));
}

/// Nobody is late while the program's own work takes its time.
TEST_F(Kernels, CountWhatTheProgramDoesFirstAsAStep) {
  const Gpus gpus;
  World world(gpus, 2, Gpu::Memory::kPlain, one_channel());
  const Buffer of_0(gpus, world.gpu(), Ints(100, 1)), of_1(gpus, world.gpu(), Ints(100, 2));
  for (int rank : {0, 1}) world.links(rank).kernels().prepare(Op::kSum, Type::kInt32);
  std::atomic<bool> ends = false;
  const auto program = [](void* until) { static_cast<std::atomic<bool>*>(until)->wait(false); };
  gpus.call("cuLaunchHostFunc", kLegacyStream, static_cast<void (*)(void*)>(program),
            static_cast<void*>(&ends));
  KernelExecutor first(world.links(0), sum_of(of_0, 100), 0, 2),
      second(world.links(1), sum_of(of_1, 100), 1, 2);
  EXPECT_EQ(first.advance(), KernelExecutor::State::kMoved);
  for (int moved = 0; moved < 2; std::this_thread::yield())
    moved += first.advance() == KernelExecutor::State::kMoved;
  ends = true;
  ends.notify_all();
  gpus.call("cuStreamSynchronize", kLegacyStream);
  const auto end = std::chrono::steady_clock::now() + 300ms;  // more than it lets pass before it asks
  while (std::chrono::steady_clock::now() < end)
    ASSERT_EQ(first.advance(), KernelExecutor::State::kBlocked) << "it waits for a rank that is late";
  EXPECT_EQ(second.advance(), KernelExecutor::State::kMoved);
  end_all({&first, &second});
  EXPECT_EQ(of_0.read(), Ints(100, 3));
}

/// By what the ranks tell each other in host memory, for who waits too long.
TEST_F(Kernels, KnowWhoHoldsThemUp) {
  const Gpus gpus;
  World world(gpus, 3, Gpu::Memory::kPlain, one_channel());
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::vector<std::unique_ptr<KernelExecutor>> executors;
  for (int rank = 0; rank < 3; ++rank) {
    world.links(rank).kernels().prepare(Op::kSum, Type::kInt32);
    buffers.push_back(std::make_unique<Buffer>(gpus, world.gpu(), Ints(100, rank)));
    executors.push_back(
        std::make_unique<KernelExecutor>(world.links(rank), sum_of(*buffers.back(), 100), rank, 3));
  }
  std::atomic<bool> ends = false;
  const auto program = [](void* until) { static_cast<std::atomic<bool>*>(until)->wait(false); };
  gpus.call("cuLaunchHostFunc", kLegacyStream, static_cast<void (*)(void*)>(program),
            static_cast<void*>(&ends));
  for (const int rank : {0, 2}) executors[static_cast<std::size_t>(rank)]->advance();
  EXPECT_EQ(executors[0]->awaited(), 1);
  EXPECT_EQ(executors[0]->standing(), "which has not begun this call");
  executors[1]->advance();
  EXPECT_EQ(executors[1]->awaited(), 0) << "all are behind the program's work";
  EXPECT_EQ(executors[1]->standing(),
            "whose program has work on its GPU ahead of this call, which has not ended");
  ends = true;
  ends.notify_all();
  end_all({executors[0].get(), executors[1].get(), executors[2].get()});
  EXPECT_EQ(buffers[1]->read(), Ints(100, 3));
}

/// A rank may end a call too soon to ask the driver after the program's work. The ranks that it leaves behind
/// do not hold that work responsible.
TEST_F(Kernels, ThatHaveEndedHoldNobodyUp) {
  const Gpus gpus;
  World world(gpus, 3, Gpu::Memory::kPlain, one_channel());
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::vector<std::unique_ptr<KernelExecutor>> executors;
  for (int rank = 0; rank < 3; ++rank) {
    world.links(rank).kernels().prepare(Op::kSum, Type::kInt32);
    buffers.push_back(std::make_unique<Buffer>(gpus, world.gpu(), Ints(100, rank)));
    executors.push_back(
        std::make_unique<KernelExecutor>(world.links(rank), sum_of(*buffers.back(), 100), rank, 3));
  }
  for (const auto& executor : executors) EXPECT_EQ(executor->advance(), KernelExecutor::State::kMoved);
  end_all({executors[0].get()});
  EXPECT_NE(executors[1]->awaited(), 0) << executors[1]->standing();
  end_all({executors[1].get(), executors[2].get()});
}

/// More than have links between every two of them.
TEST_F(Kernels, OfSixteenRanksGoByRingsAndTrees) {
  constexpr int kRanks = 16, kCount = 100;
  const Gpus gpus;
  World world(gpus, kRanks, Gpu::Memory::kPlain, one_channel());
  for (const KernelLinkage linkage : {KernelLinkage::kRings, KernelLinkage::kTrees}) {
    std::vector<std::unique_ptr<Buffer>> buffers;
    std::vector<std::unique_ptr<KernelExecutor>> executors;
    for (int rank = 0; rank < kRanks; ++rank) {
      world.links(rank).kernels().prepare(Op::kSum, Type::kInt32);
      buffers.push_back(std::make_unique<Buffer>(gpus, world.gpu(), Ints(kCount, 1 << rank)));
      executors.push_back(std::make_unique<KernelExecutor>(world.links(rank), sum_of(*buffers.back(), kCount),
                                                           rank, kRanks, linkage));
      EXPECT_EQ(executors.back()->advance(), KernelExecutor::State::kMoved);
    }
    std::vector<KernelExecutor*> all;
    for (const auto& executor : executors) all.push_back(executor.get());
    end_all(std::move(all));
    for (const auto& buffer : buffers) EXPECT_EQ(buffer->read(), Ints(kCount, (1 << kRanks) - 1));
  }
}

/// The word is there as soon as the results are: nobody waits for the driver.
TEST_F(Kernels, AreWaitedForByAWord) {
  const Gpus gpus;
  World world(gpus, 1, Gpu::Memory::kPlain, one_channel());
  KernelLinks& kernels = world.links(0).kernels();
  kernels.prepare(Op::kSum, Type::kInt32);
  EXPECT_TRUE(kernels.has_ended());
  kernels.start({}, Op::kSum, Type::kInt32, 1);
  gpus.fail("cuStreamQuery", 719);
  world.links(0).stream().synchronize();
  EXPECT_TRUE(kernels.has_ended());
  gpus.fail("cuStreamQuery", 0);
}

/// One that faults writes no word: the driver says so.
TEST_F(Kernels, ThatFaultAreNotWaitedForForEver) {
  const Gpus gpus;
  World world(gpus, 2, Gpu::Memory::kPlain, one_channel());
  KernelLinks& kernels = world.links(0).kernels();
  kernels.prepare(Op::kSum, Type::kInt32);
  steps::Task task = divide({steps::Algorithm::kOneShot, steps::Protocol::kLL, 1}, 10, sizeof(int), 2);
  task.in = reinterpret_cast<void*>(std::uintptr_t{64});
  task.out = reinterpret_cast<void*>(std::uintptr_t{64});
  kernels.start(task, Op::kSum, Type::kInt32, 1);
  const auto wait = [&] {
    while (!kernels.has_ended()) std::this_thread::yield();
  };
  EXPECT_THROW(wait(), Error);
  gpus.call("cuDevicePrimaryCtxReset_v2", 0);  // all calls in the context fail from now on
}

/// What check_links() throws on each rank; "" where it throws nothing.
std::vector<std::string> check_all(const std::vector<KernelLinks*>& links,
                                   const std::vector<GpuStream*>& streams, std::chrono::milliseconds limit) {
  std::vector<std::string> errors(links.size());
  std::vector<std::jthread> ranks;
  for (std::size_t rank = 0; rank < links.size(); ++rank)
    ranks.emplace_back([&, rank] {
      try {
        const int size = static_cast<int>(links.size());
        check_links(*links[rank], *streams[rank], static_cast<int>(rank), plain_kernel_channels(size, 1),
                    size, limit, [] {});
      } catch (const Error& error) {
        errors[rank] = error.what();
      }
    });
  ranks.clear();
  return errors;
}

TEST_F(Kernels, FindTheirLinksInOrder) {
  const Gpus gpus;
  for (const int size : {2, 3}) {
    World world(gpus, size, Gpu::Memory::kPlain, one_channel());
    std::vector<KernelLinks*> links;
    std::vector<GpuStream*> streams;
    for (int rank = 0; rank < size; ++rank) {
      links.push_back(&world.links(rank).kernels());
      streams.push_back(&world.links(rank).stream());
    }
    EXPECT_EQ(check_all(links, streams, 60s), std::vector<std::string>(links.size()));
  }
}

/// What rank 1 writes never comes to rank 0.
TEST_F(Kernels, SayWhichLinksDeliverNothing) {
  const Gpus gpus;
  Gpu gpu(gpus.driver(), gpus.owner());
  GpuStream stream0(gpu), stream1(gpu);
  std::vector<std::byte*> memory, as_1_sees_it;
  for (int i = 0; i < 3; ++i) memory.push_back(gpu.allocate(kernel_bytes(2, plain_kernel_channels(2, 1))));
  as_1_sees_it = {memory[2], memory[1]};
  memory.pop_back();
  {
    KernelLinks links0(stream0, 0, memory, plain_kernel_channels(2, 1)),
        links1(stream1, 1, as_1_sees_it, plain_kernel_channels(2, 1));
    for (const std::string& error : check_all({&links0, &links1}, {&stream0, &stream1}, 50ms))
      EXPECT_EQ(error, "Kernels try rings by Simple: They have not ended within 50 ms.");
  }
  for (std::byte* each : {memory[0], memory[1], as_1_sees_it[0]}) gpu.release(each);
}

/// Of no host.
struct Peers final : Carrier {
  void enter(steps::LinkKind) noexcept override {}
  void advance() override {
    if (is_lost) throw Error(ErrorCode::kPeerFailed, "A peer is lost.");
    ++carried;
  }
  std::optional<int> not_quiet() override {
    ++asked;
    return is_quiet ? std::nullopt : std::optional(1);
  }
  std::uint64_t moves() const noexcept override { return carried; }
  void abandon() noexcept override {}
  void say_waiting() noexcept override {}
  std::optional<bool> waits(int) const noexcept override { return {}; }
  std::optional<int> awaited() const override { return {}; }
  std::string standing(int) const override { return {}; }

  bool is_lost = false, is_quiet = false;
  std::uint64_t carried = 0;
  int asked = 0;
};

/// Whoever sends it nothing further may be gone by then.
TEST_F(Kernels, WaitForWhomTheyHaveSentToAloneOnceTheyHaveEnded) {
  const Gpus gpus;
  World world(gpus, 2, Gpu::Memory::kPlain, one_channel());
  Peers peers;
  world.links(0).kernels().carry_by(peers);
  Buffer of_0(gpus, world.gpu(), Ints(100, 1)), of_1(gpus, world.gpu(), Ints(100, 2));
  KernelExecutor first(world.links(0), sum_of(of_0, 100), 0, 2),
      second(world.links(1), sum_of(of_1, 100), 1, 2);
  bool second_ends = false;
  for (; peers.carried == 0; std::this_thread::yield())  // alone it does not end
    EXPECT_NE(first.advance(), KernelExecutor::State::kDone);
  for (; peers.asked == 0; std::this_thread::yield()) {
    EXPECT_NE(first.advance(), KernelExecutor::State::kDone);
    second_ends = second_ends || second.advance() == KernelExecutor::State::kDone;
  }
  const std::uint64_t carried = peers.carried;
  peers.is_lost = true;
  EXPECT_NE(first.advance(), KernelExecutor::State::kDone);
  EXPECT_EQ(peers.asked, 2);
  peers.is_quiet = true;
  EXPECT_EQ(first.advance(), KernelExecutor::State::kDone);
  EXPECT_EQ(peers.carried, carried);
  if (!second_ends) end_all({&second});
  EXPECT_EQ(of_0.read(), Ints(100, 3));
}

/// As a network has it, which may send what has been given up.
class MappedMemoryOfAGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_kernels()) GTEST_SKIP() << "skipped: this build has no kernels";
  }
};

TEST_F(MappedMemoryOfAGpu, StaysAsLongAsSomebodyHasIt) {
  const Gpus gpus;
  Gpu gpu(gpus.driver(), gpus.owner());
  const std::uint64_t room = gpu.room();
  EXPECT_THROW(MappedMemory(gpu, room + 1), Error);
  std::shared_ptr<std::byte> kept;
  {
    const MappedMemory memory(gpu, 5000);
    kept = memory.on_host();
    for (int i = 0; i < 5000; ++i) ASSERT_EQ(kept.get()[i], std::byte{0});
    EXPECT_EQ(gpus.counts().registered, 5000U);
    EXPECT_EQ(gpu.room(), room - 5000) << "as memory of the GPU";
    kept.get()[4999] = std::byte{7};
    std::byte found{};
    gpu.copy(&found, memory.on_gpu() + 4999, 1);
    EXPECT_EQ(found, std::byte{7});
  }
  EXPECT_EQ(gpus.counts().registered, 0U);
  EXPECT_EQ(gpu.room(), room);
  EXPECT_EQ(kept.get()[4999], std::byte{7});
}

/// Else the first to write a page after a fork goes on with a copy of it.
TEST_F(MappedMemoryOfAGpu, IsTheSameInAChild) {
  const Gpus gpus;
  Gpu gpu(gpus.driver(), gpus.owner());
  const MappedMemory memory(gpu, 1);
  std::byte* const at = memory.on_host().get();
  *at = std::byte{1};
  const pid_t child = ::fork();
  ASSERT_NE(child, -1);
  if (child == 0) {
    *at = std::byte{2};
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(*at, std::byte{2});
}

/// After a reset of the device, contexts and memory get the addresses of old ones.
TEST_F(Kernels, LinksAreNotThoseOfAnEarlierContextAtTheSameAddress) {
  const Gpus gpus;
  auto gpu = std::make_shared<Gpu>(gpus.driver(), gpus.owner());
  GpuLinks links(gpu, one_channel(), 1);
  const GpuLinks::Handle handle = links.handle();
  links.connect({&handle, 1}, 0);
  EXPECT_TRUE(links.is_alive());
  const auto before = gpus.counts().allocations;
  gpus.call("cuDevicePrimaryCtxReset_v2", 0);
  EXPECT_FALSE(links.is_alive());
  void* const context = gpus.context(0);
  gpus.call("cuCtxPushCurrent_v2", context);
  std::vector<std::uint64_t> memory(64 * before);
  for (std::uint64_t& address : memory) gpus.call("cuMemAlloc_v2", &address, std::size_t{8});
  const auto recurs = [&](std::byte* old) {
    const auto owner = gpus.driver().owner_of(old);
    return owner && owner->context == context;
  };
  EXPECT_TRUE(recurs(reinterpret_cast<std::byte*>(handle.memory.address))) << "else this test shows nothing";
  EXPECT_FALSE(links.is_alive());
  links.leave();
  for (const std::uint64_t address : memory)
    EXPECT_EQ(gpus.call("cuMemFree_v2", address), 0) << "it was another's";
}

}  // namespace
}  // namespace loom::device::cuda
