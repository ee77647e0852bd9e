// Kernels and executors on a GPU, against the host: reductions, collectives of 2 to 8 ranks that share the
// GPU through streams of this process, and zero copy. Skipped where there is no GPU; on the
// virtual one with smaller sizes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <thread>

#include "device/cuda/images.hpp"
#include "device/cuda/kernel_links.hpp"
#include "device/cuda/streamed_copies.hpp"
#include "device/cuda/zero_copy_executor.hpp"
#include "tests/device/cuda/every_kernel.hpp"
#include "tests/device/cuda/real_gpu.hpp"
#include "tests/device/steps/steps_world.hpp"

namespace loom::device::cuda {
namespace {

using steps::Algorithm;
using steps::Bytes;
using steps::Call;
using steps::Protocol;

class CudaKernels : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_kernels()) GTEST_SKIP() << "skipped: this build has no kernels";
    real_ = RealGpu::find();
    if (!real_) GTEST_SKIP() << "skipped: no CUDA device";
  }
  /// On the virtual GPU a fraction of it.
  std::size_t much(std::size_t count) const { return real_->is_virtual() ? count / 100 + 1 : count; }

  std::unique_ptr<RealGpu> real_;
};

template <class T>
void reduce_as_the_host(Gpu& gpu, Op op, Type type, int operands, std::size_t most, int& combinations) {
  const ReduceFn on_host = find_reduce(op, type);
  if (!Gpu::supports(op, type)) return;
  for (const std::size_t count : {std::size_t{1}, most / 100, most})
    for (const std::size_t offset : {0UL, 1UL}) {
      std::vector<std::unique_ptr<GpuBytes>> in;
      Bytes right;
      CombineArgs args{.operands = operands, .results = 1, .count = count};
      for (int k = 0; k < operands; ++k) {
        const Bytes values = steps::elements<T>(count + offset, static_cast<unsigned>(k + 1));
        in.push_back(std::make_unique<GpuBytes>(gpu, values.size()));
        in.back()->write(values);
        args.in[k] = in.back()->at() + offset * sizeof(T);
        if (k == 0)
          right.assign(values.begin() + static_cast<std::ptrdiff_t>(offset * sizeof(T)), values.end());
        else
          on_host(right.data(), right.data(), values.data() + offset * sizeof(T), count);
      }
      args.out[0] = const_cast<void*>(args.in[0]);
      GpuStream stream(gpu);
      stream.combine(op, type, args);
      stream.synchronize();
      Bytes found = in[0]->read();
      found.erase(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(offset * sizeof(T)));
      ASSERT_EQ(steps::first_difference<T>(found, right), -1)
          << "operation " << static_cast<int>(op) << ", type " << static_cast<int>(type) << ", " << count;
    }
  ++combinations;
}
template <class... T>
int every_type(Gpu& gpu, Op op, int operands, std::size_t most, std::tuple<T...>*) {
  int type = 0, combinations = 0;
  (reduce_as_the_host<T>(gpu, op, static_cast<Type>(type++), operands, most, combinations), ...);
  return combinations;
}

TEST_F(CudaKernels, ReduceAsTheHostDoes) {
  Gpu gpu(real_->driver(), real_->owner());
  int combinations = 0;
  for (int op = 0; op < kOpCount; ++op)
    combinations +=
        every_type(gpu, static_cast<Op>(op), 2 + op % 4, much(100'003), static_cast<Types*>(nullptr));
  int right = 0;
  for (const KernelId& kernel : every_kernel())
    for (int type = 0; type < kTypeCount; ++type)
      right += kernel.op != kMove && kernel_type(kernel.op, static_cast<Type>(type)) == kernel.type;
  EXPECT_EQ(combinations, right);
}

/// With links for all-to-alls, though all are on one host.
KernelChannels channels_of(int size, int channels) {
  KernelChannels all = plain_kernel_channels(size, channels);
  all.hosts.assign(static_cast<std::size_t>(size), 0);
  all.exchange = true;
  return all;
}

/// Ranks on one GPU, each with a stream of its own.
class Ranks {
 public:
  Ranks(const RealGpu& real, int size, int channels) : channels_(channels) {
    std::vector<std::byte*> memory;
    for (int r = 0; r < size; ++r) {
      gpus_.push_back(std::make_unique<Gpu>(real.driver(), real.owner()));
      streams_.push_back(std::make_unique<GpuStream>(*gpus_.back()));
      memory_.push_back(
          std::make_unique<GpuBytes>(*gpus_.back(), kernel_bytes(size, channels_of(size, channels))));
      memory.push_back(memory_.back()->at());
    }
    for (int r = 0; r < size; ++r)
      links_.push_back(std::make_unique<KernelLinks>(*streams_[static_cast<std::size_t>(r)], r, memory,
                                                     channels_of(size, channels)));
  }
  Gpu& gpu(int rank) { return *gpus_[static_cast<std::size_t>(rank)]; }
  KernelLinks& links(int rank) { return *links_[static_cast<std::size_t>(rank)]; }
  GpuStream& stream(int rank) { return *streams_[static_cast<std::size_t>(rank)]; }

  template <class T>
  void check(const Call& call, std::optional<Op> op, Type type) {
    SCOPED_TRACE(::testing::Message() << "algorithm " << static_cast<int>(call.algorithm) << ", protocol "
                                      << static_cast<int>(call.protocol) << ", " << call.size << " ranks, "
                                      << call.count << " elements of type " << static_cast<int>(type));
    std::vector<Bytes> in, before;
    std::vector<std::unique_ptr<GpuBytes>> ins, outs;
    for (int r = 0; r < call.size; ++r) {
      in.push_back(steps::elements<T>(call.in_count(r), static_cast<unsigned>(r + 1)));
      before.emplace_back(call.out_count(r) * sizeof(T), std::byte{0x5a});
      ins.push_back(std::make_unique<GpuBytes>(gpu(r), in.back().size()));
      outs.push_back(std::make_unique<GpuBytes>(gpu(r), before.back().size()));
      ins.back()->write(in.back());
      outs.back()->write(before.back());
    }
    // Data that is only moved goes as bytes.
    const std::size_t units = call.moves() ? sizeof(T) : 1;
    if (call.moves()) op.reset(), type = Type::kUint8;
    for (auto& links : links_) links->prepare(op, type);
    const KernelWay way = {call.algorithm, call.protocol, channels_, call.slice_bytes};
    for (int r = 0; r < call.size; ++r) {
      std::vector<Part> blocks;
      if (call.lists_blocks()) blocks = call.blocks(r);
      for (Part& block : blocks) block = {block.first * units, block.length * units};
      steps::Task task = blocks.empty() ? divide(way, call.count * units, sizeof(T) / units, call.size)
                                        : divide(way, blocks);
      task.root = call.root;
      task.in = ins[static_cast<std::size_t>(r)]->at();
      task.out = outs[static_cast<std::size_t>(r)]->at();
      links(r).start(task, op, type, channels_, blocks);
    }
    // A kernel whose partner comes late leaves, and goes on when it is looked at: so all are, in turn.
    for (bool all = false; !all;) {
      all = true;
      for (auto& links : links_) all &= links->has_ended();
      std::this_thread::yield();
    }
    for (auto& links : links_) ASSERT_TRUE(links->finish());
    for (int r = 0; r < call.size; ++r) {
      // An all-reduce over a ring is cut into other chunks here than expected() has: only the order of
      // operands depends on it, which none of the types here feels.
      const Bytes right = steps::expected(call, in, r, before[static_cast<std::size_t>(r)]);
      ASSERT_EQ(steps::first_difference<T>(outs[static_cast<std::size_t>(r)]->read(), right), -1)
          << "rank " << r;
    }
  }

 private:
  int channels_;
  std::vector<std::unique_ptr<Gpu>> gpus_;
  std::vector<std::unique_ptr<GpuStream>> streams_;
  std::vector<std::unique_ptr<GpuBytes>> memory_;
  std::vector<std::unique_ptr<KernelLinks>> links_;
};

/// Entries of any lengths and distances, one behind the other in a buffer, in units of so many bytes. Where
/// they lie in the packed buffer has nothing to do with their order there.
struct Apart {
  Apart(int entries, std::size_t unit, std::mt19937& random) {
    const auto upto = [&](std::size_t most) {
      return std::uniform_int_distribution<std::size_t>(0, most)(random);
    };
    for (int i = 0; i < entries; ++i) {
      PackedRows each{};
      each.row_bytes = (1 + upto(i % 5 == 0 ? 700 : 6)) * unit;
      each.rows = 1 + upto(9);
      const std::size_t distance = each.row_bytes + upto(3) * unit;
      each.packed_distance = each.row_bytes + upto(1) * unit;
      each.packed = packed;
      packed += each.rows * each.packed_distance;
      const bool backwards = upto(1) == 1;
      firsts.push_back(bytes + (backwards ? (each.rows - 1) * distance : 0));
      each.distance = static_cast<std::ptrdiff_t>(distance) * (backwards ? -1 : 1);
      bytes += each.rows * distance + upto(2) * unit;
      rows.push_back(each);
    }
  }
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (std::size_t row = 0; row < rows[i].rows; ++row)
        for (std::size_t at = 0; at < rows[i].row_bytes; ++at)
          visit(
              firsts[i] + static_cast<std::size_t>(static_cast<std::ptrdiff_t>(row) * rows[i].distance) + at,
              rows[i].packed + row * rows[i].packed_distance + at);
  }
  std::vector<PackedRows> rows;
  std::vector<std::size_t> firsts;  ///< where they begin in the buffer
  std::size_t bytes = 0, packed = 0;
};

/// In whatever units both places are aligned for: blocks of one copy each, and one operand for several
/// results.
TEST_F(CudaKernels, MoveDataFromAndToAnyAddress) {
  using How = CombineArgs::How;
  Gpu gpu(real_->driver(), real_->owner());
  GpuStream stream(gpu);
  constexpr std::size_t kAddresses[] = {0, 1, 2, 4, 8, 12, 3};
  constexpr int kBlocks = static_cast<int>(std::size(kAddresses));
  for (const std::size_t count : {1UL, 15UL, 16UL, 33UL, 5003UL})
    for (const std::size_t from : kAddresses)
      for (const How how : {How::kCopies, How::kFold}) {
        const std::size_t room = (count + 63) / 16 * 16;
        const auto own = [&](int k) {
          return how == How::kFold ? std::size_t{0} : static_cast<std::size_t>(k);
        };
        Bytes values = steps::elements<std::uint8_t>(room * kBlocks, 5), right(room * kBlocks, std::byte{9});
        GpuBytes in(gpu, values.size()), out(gpu, right.size());
        in.write(values);
        out.write(right);
        CombineArgs args{
            .how = how, .operands = how == How::kFold ? 1 : kBlocks, .results = kBlocks, .count = count};
        for (int k = 0; k < kBlocks; ++k) {
          const std::size_t first = own(k) * room + from,
                            to = static_cast<std::size_t>(k) * room + kAddresses[k];
          args.in[k] = in.at() + first;
          args.out[k] = out.at() + to;
          args.counts[k] = count;
          std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(first), count,
                      right.begin() + static_cast<std::ptrdiff_t>(to));
        }
        stream.combine({}, Type::kUint8, args);
        stream.synchronize();
        EXPECT_EQ(out.read(), right) << count << " bytes from address " << from
                                     << (how == How::kFold ? ", one operand" : "");
      }
}

TEST_F(CudaKernels, PackRowsThatLieApart) {
  Gpu gpu(real_->driver(), real_->owner());
  GpuStream stream(gpu);
  std::mt19937 random(7);
  for (const std::size_t unit : {1UL, 2UL, 4UL, 8UL, 16UL})
    for (const int entries :
         unit == 8 ? std::vector{1500} : std::vector{1, 3, 50}) {  // more than blocks, and fewer
      Apart apart(entries, unit, random);
      const Bytes values = steps::elements<std::uint8_t>(apart.bytes, 3), nothing(apart.packed),
                  untouched = steps::elements<std::uint8_t>(apart.bytes, 4);
      Bytes packed = nothing, unpacked = untouched;
      apart.for_each([&](std::size_t from, std::size_t to) {
        packed[to] = values[from];
        unpacked[from] = values[from];
      });
      GpuBytes buffer(gpu, apart.bytes), together(gpu, apart.packed),
          table(gpu, apart.rows.size() * sizeof(PackedRows));
      for (std::size_t i = 0; i < apart.rows.size(); ++i)
        apart.rows[i].first = reinterpret_cast<char*>(buffer.at()) + apart.firsts[i];
      const auto* const begin = reinterpret_cast<const std::byte*>(apart.rows.data());
      table.write(Bytes(begin, begin + apart.rows.size() * sizeof(PackedRows)));
      const PackArgs args{reinterpret_cast<const PackedRows*>(table.at()), entries, unit, together.at()};
      const std::string what = std::to_string(entries) + " entries of " + std::to_string(unit);
      buffer.write(values);
      together.write(nothing);
      stream.move_rows(true, args, apart.packed);
      stream.synchronize();
      EXPECT_EQ(together.read(), packed) << what;
      EXPECT_EQ(buffer.read(), values) << what;
      buffer.write(untouched);
      stream.move_rows(false, args, apart.packed);
      stream.synchronize();
      EXPECT_EQ(buffer.read(), unpacked) << what;
    }
}

TEST_F(CudaKernels, PerformEveryCollectiveOfRanksThatShareAGpu) {
  for (const int size : {2, 3, 4, 8})
    for (const int channels : {1, 4}) {
      if (real_->is_virtual() && size != (channels == 1 ? 2 : 3)) continue;
      Ranks ranks(*real_, size, channels);
      for (const auto algorithm :
           {Algorithm::kAllreduceRing, Algorithm::kReduceScatterRing, Algorithm::kAllGatherRing,
            Algorithm::kBroadcastChain, Algorithm::kReduceChain, Algorithm::kOneShot, Algorithm::kTwoShot,
            Algorithm::kAllreduceTree, Algorithm::kBroadcastTree, Algorithm::kReduceTree,
            Algorithm::kAllGatherTree, Algorithm::kReduceScatterTree})
        for (const auto protocol : {Protocol::kSimple, Protocol::kLL, Protocol::kLL128})
          for (const std::size_t count : {std::size_t{1}, much(1000), much(300'007)})
            ranks.check<int>({algorithm,
                              protocol,
                              size,
                              size - 1,
                              count,
                              sizeof(int),
                              find_reduce(Op::kSum, Type::kInt32),
                              false,
                              {},
                              channels == 1 ? 0UL : 4096UL},
                             Op::kSum, Type::kInt32);
    }
}

TEST_F(CudaKernels, PerformSmallCollectives) {
  Ranks ranks(*real_, 2, 1);
  for (const auto algorithm :
       {Algorithm::kAllreduceRing, Algorithm::kReduceScatterRing, Algorithm::kAllGatherRing,
        Algorithm::kBroadcastChain, Algorithm::kReduceChain, Algorithm::kOneShot, Algorithm::kTwoShot,
        Algorithm::kAllreduceTree, Algorithm::kBroadcastTree, Algorithm::kReduceTree,
        Algorithm::kAllGatherTree, Algorithm::kReduceScatterTree})
    for (const auto protocol : {Protocol::kSimple, Protocol::kLL, Protocol::kLL128})
      ranks.check<int>({algorithm, protocol, 2, 0, 1003, sizeof(int), find_reduce(Op::kSum, Type::kInt32)},
                       Op::kSum, Type::kInt32);
}

/// Where blocks begin, a kernel reads in memory of its GPU, which the next call uses again.
TEST_F(CudaKernels, CarryBlocksOfDifferentLengths) {
  Ranks ranks(*real_, 3, 2);
  for (const std::vector<std::size_t>& counts :
       {std::vector<std::size_t>{5, 0, 1003}, {700, 1, 0}, {0, 0, 1}, {64, 64, 65}})
    for (const auto algorithm : {Algorithm::kReduceScatterRing, Algorithm::kAllGatherRing})
      ranks.check<int>({algorithm, Protocol::kLL, 3, 0, 0, sizeof(int), find_reduce(Op::kSum, Type::kInt32),
                        false, counts},
                       Op::kSum, Type::kInt32);
}

TEST_F(CudaKernels, ExchangeBlocksOfAnyLength) {
  for (const auto& [size, channels] : {std::pair(2, 3), std::pair(4, 2)}) {
    Ranks ranks(*real_, size, channels);
    Call call{Algorithm::kAllToAll, Protocol::kSimple, size, 0, 1003, 1, nullptr};
    ranks.check<std::uint8_t>(call, {}, Type::kUint8);
    std::mt19937_64 random(static_cast<unsigned>(size));
    for (int i = 0; i < 3; ++i) {
      for (int pair = 0; pair < size * size; ++pair)
        call.counts.push_back(random() % 3 == 0 ? 0 : random() % much(300'000));
      ranks.check<std::uint8_t>(call, {}, Type::kUint8);
      call.counts.clear();
    }
  }
}

TEST_F(CudaKernels, CarryElementsOf16Bytes) {
  Ranks ranks(*real_, 3, 2);
  for (const auto algorithm : {Algorithm::kAllreduceRing, Algorithm::kOneShot, Algorithm::kTwoShot})
    for (const auto protocol : {Protocol::kSimple, Protocol::kLL, Protocol::kLL128})
      ranks.check<Pair<double, int>>({algorithm, protocol, 3, 0, much(10'001), sizeof(Pair<double, int>),
                                      find_reduce(Op::kMaxloc, Type::kDoubleInt)},
                                     Op::kMaxloc, Type::kDoubleInt);
}

/// Counters of the links go on from call to call, and slots are used again.
TEST_F(CudaKernels, GoOnFromCallToCall) {
  Ranks ranks(*real_, 4, 2);
  for (int round = 0; round < (real_->is_virtual() ? 16 : 50); ++round)
    ranks.check<int>(
        {round % 2 == 0 ? Algorithm::kTwoShot : Algorithm::kAllreduceRing, Protocol::kLL128, 4, 0,
         much(static_cast<std::size_t>(1 + round * 997)), sizeof(int), find_reduce(Op::kSum, Type::kInt32)},
        Op::kSum, Type::kInt32);
}

TEST_F(CudaKernels, LeaveWhenTheCommunicatorIsAbandoned) {
  Ranks ranks(*real_, 2, 1);
  GpuBytes buffer(ranks.gpu(0), 4096);
  steps::Task task = divide({Algorithm::kAllreduceRing, Protocol::kSimple, 1}, 1024, 4, 2);
  task.in = task.out = buffer.at();
  ranks.links(0).start(task, Op::kSum, Type::kInt32, 1);  // rank 1 never comes
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ranks.links(0).abandon();
  EXPECT_FALSE(ranks.links(0).finish());
}

TEST_F(CudaKernels, ReachTheBuffersOfAllRanks) {
  for (const int size : {2, 3, 8}) {
    std::vector<std::shared_ptr<Gpu>> gpus;
    std::vector<std::unique_ptr<GpuLinks>> links;
    std::vector<GpuLinks::Handle> handles;
    for (int r = 0; r < size; ++r) {
      gpus.push_back(std::make_shared<Gpu>(real_->driver(), real_->owner()));
      const bool in_files = size == 3 && gpus.back()->facts().virtual_memory;
      links.push_back(std::make_unique<GpuLinks>(gpus.back(), GpuLinks::Form{.channels = 0}, size,
                                                 in_files ? Gpu::Memory::kVirtual : Gpu::Memory::kPlain));
      handles.push_back(links.back()->handle());
    }
    for (int r = 0; r < size; ++r) links[static_cast<std::size_t>(r)]->connect(handles, r);
    for (auto& each : links) ASSERT_TRUE(each->delivers());
    for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, much(5'000'003)}) {
      std::vector<Bytes> in;
      std::vector<std::unique_ptr<GpuBytes>> buffers;
      for (int r = 0; r < size; ++r) {
        in.push_back(steps::elements<float>(count, static_cast<unsigned>(r + 1)));
        buffers.push_back(std::make_unique<GpuBytes>(*gpus.back(), in.back().size()));
        buffers.back()->write(in.back());
      }
      std::vector<std::jthread> threads;
      for (int r = 0; r < size; ++r)
        threads.emplace_back([&, r] {
          std::byte* const at = buffers[static_cast<std::size_t>(r)]->at();
          ZeroCopyExecutor executor(*links[static_cast<std::size_t>(r)],
                                    {.collective = Collective::kAllreduce,
                                     .in = at,
                                     .out = at,
                                     .count = count,
                                     .type = Type::kFloat},
                                    true);
          while (executor.advance() != ZeroCopyExecutor::State::kDone) std::this_thread::yield();
        });
      threads.clear();
      const Call call{Algorithm::kTwoShot,
                      Protocol::kLL,
                      size,
                      0,
                      count,
                      sizeof(float),
                      find_reduce(Op::kSum, Type::kFloat)};
      const Bytes right = steps::expected(call, in, 0, in[0]);  // in order of rank
      for (auto& buffer : buffers) ASSERT_EQ(steps::first_difference<float>(buffer->read(), right), -1);
    }
    for (auto& each : links) each->leave();
  }
}

/// What the program has put into streams that synchronise with the default one comes before a call's copies.
TEST_F(CudaKernels, StreamedCopiesWaitForStreamsOfTheProgram) {
  const std::size_t bytes = much(64 << 20);
  const auto create = real_->call<int(void**, unsigned)>("cuStreamCreate");
  const auto fill = real_->call<int(std::byte*, unsigned char, std::size_t, void*)>("cuMemsetD8Async");
  Gpu gpu(real_->driver(), real_->owner());
  const GpuBytes memory(gpu, bytes);
  void* stream = nullptr;
  ASSERT_EQ(real_->call<int(void*)>("cuCtxPushCurrent_v2")(real_->owner().context), 0);
  ASSERT_EQ(create(&stream, 0), 0);
  Staging staging(Driver::open("libcuda.so.1", true), 2 * bytes);
  StridedRegion region{memory.at(), nullptr, bytes, 1, 0};
  const auto staging_buffer = staging.staging_buffer(memory.at(), {&region, 1}, {});
  const auto keep_busy = [&](unsigned char last) {
    for (unsigned i = 0; i < 500; ++i) fill(memory.at(), static_cast<unsigned char>(i), bytes, stream);
    fill(memory.at(), last, bytes, stream);
  };
  {
    const StreamedSide side{staging_buffer.get(), region, {}};
    keep_busy(201);
    StreamedCopies copies(std::span(&side, 1));
    copies.need(region.host, bytes);
    EXPECT_EQ(std::ranges::count(std::span(region.host, bytes), std::byte{201}),
              static_cast<std::ptrdiff_t>(bytes));
  }
  {
    const StreamedSide side{staging_buffer.get(), {}, region};
    keep_busy(202);
    StreamedCopies copies(std::span(&side, 1));
    std::memset(region.host, 203, bytes);
    copies.have(region.host, bytes);
    copies.finish();
  }
  Bytes found(bytes);
  gpu.copy(found.data(), memory.at(), bytes);
  EXPECT_EQ(std::ranges::count(found, std::byte{203}), static_cast<std::ptrdiff_t>(bytes));
  real_->call<int(void*)>("cuStreamDestroy_v2")(stream);
  void* context;
  real_->call<int(void**)>("cuCtxPopCurrent_v2")(&context);
}

/// A memory's file descriptor leads to it, in its own process as in any other.
TEST_F(CudaKernels, ReachVirtualMemoryAtEveryMapping) {
  Gpu gpu(real_->driver(), real_->owner());
  if (!gpu.facts().virtual_memory) GTEST_SKIP() << "skipped: the device has no virtual memory management";
  const Bytes values = steps::elements<int>(300'007, 1);
  const VirtualMemory mine = VirtualMemory::create(real_->driver(), 0, values.size());
  const VirtualMemory attached = VirtualMemory::attach(real_->driver(), 0, ::getpid(), mine.file());
  Bytes found(values.size());
  gpu.copy(mine.data(), values.data(), values.size());
  gpu.copy(found.data(), attached.data(), found.size());
  EXPECT_EQ(steps::first_difference<int>(found, values), -1);
}

}  // namespace
}  // namespace loom::device::cuda
