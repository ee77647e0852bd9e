// loom's kernels as nvcc and clang compile them: reductions, and collectives of ranks that are grids of this
// process. Those of a compiler that this build has not are skipped.
#include <gmock/gmock.h>

#include "tests/virtual_gpu/run/kernels_world.hpp"

namespace virtual_gpu::run {
namespace {

using cuda::Compiler;
using loom::device::Op;
using loom::device::Type;
using steps::Algorithm;
using steps::Protocol;

constexpr int kSum = 0, kMin = 2, kMinloc = 10, kMove = cuda::kMove;

class Kernels : public ::testing::TestWithParam<Compiler> {
 protected:
  void SetUp() override {
    if (cuda::kernels_by(GetParam()).empty())
      GTEST_SKIP() << "skipped: this build has no kernels of this compiler";
  }
};

// -----------------------------------------------------------------------------------------------
// reductions

TEST_P(Kernels, AreAllThereAndKnown) {
  const std::pair<int, Type> kinds[] = {
      {kSum, Type::kFloat}, {kMin, Type::kInt8}, {kMinloc, Type::kDoubleInt}, {kMove, Type::kUint8}};
  for (const auto& [op, type] : kinds) {
    const KernelOf kernel{GetParam(), op, type};
    const Program& program = program_of(kernel);
    EXPECT_EQ(program.entries().size(), GetParam() == Compiler::kNvcc ? 2U * loom::device::kTypeCount : 2U)
        << op;
    for (const Entry& entry : program.entries()) {
      const bool reduces = entry.name.starts_with("loom_combine");
      EXPECT_EQ(entry.parameter_bytes, reduces ? sizeof(cuda::CombineArgs) : sizeof(cuda::CollectiveArgs));
      EXPECT_EQ(entry.most_threads, (Dim{512, 1, 1}));
    }
  }
}

template <class T>
void check_reduction(const KernelOf& kernel, int operands, std::size_t count, std::size_t offset,
                     const Settings& settings) {
  SCOPED_TRACE(::testing::Message() << kernel.name("combine") << ", " << operands << " operands of "
                                    << count);
  TestSpace space;
  cuda::CombineArgs args;
  args.operands = operands;
  args.results = 1;
  args.count = count;
  const std::uint64_t out = space.add(count * sizeof(T) + 64, {.tracks_written = true}) + offset;
  args.out[0] = device<void>(out);
  steps::Bytes right;
  for (int k = 0; k < operands; ++k) {
    const steps::Bytes bytes = steps::elements<T>(count, static_cast<unsigned>(k + 1));
    const std::uint64_t in = space.add(bytes.size() + 64) + offset;
    std::memcpy(space.host(in), bytes.data(), bytes.size());
    args.in[k] = device<void>(in);
    if (k == 0)
      right = bytes;
    else
      loom::device::find_reduce(static_cast<Op>(kernel.op), kernel.type)(right.data(), right.data(),
                                                                         bytes.data(), count);
  }
  const Program& program = program_of(kernel);
  const Entry* const entry = program.find(kernel.name("combine"));
  ASSERT_NE(entry, nullptr);
  Watch watch;
  ASSERT_NO_THROW(run(program, *entry, {.grid = {2}, .block = {96}, .parameters = parameters(args)}, space,
                      settings, watch.stop));
  const steps::Bytes found(space.host(out), space.host(out) + count * sizeof(T));
  EXPECT_EQ(steps::first_difference<T>(found, right), -1);
}

template <class T>
void check_reductions(Compiler compiler, Op op, Type type) {
  const KernelOf kernel{compiler, static_cast<int>(op), type};
  for (const Settings& settings :
       {Settings{},
        Settings{.meeting = Meeting::kVotesOnly, .random_order = true, .weak_memory = true, .seed = 3}}) {
    check_reduction<T>(kernel, 2, 1000, 0, settings);
    check_reduction<T>(kernel, 3, 333, sizeof(T) % 16, settings);
  }
  check_reduction<T>(kernel, 8, 1, 0, {});
}

TEST_P(Kernels, ReduceAsTheHostDoes) {
  check_reductions<std::int8_t>(GetParam(), Op::kSum, Type::kInt8);
  check_reductions<std::uint16_t>(GetParam(), Op::kSum, Type::kUint16);
  check_reductions<std::int32_t>(GetParam(), Op::kSum, Type::kInt32);
  check_reductions<std::uint64_t>(GetParam(), Op::kSum, Type::kUint64);
  check_reductions<float>(GetParam(), Op::kSum, Type::kFloat);
  check_reductions<double>(GetParam(), Op::kSum, Type::kDouble);
  check_reductions<loom::device::Half>(GetParam(), Op::kSum, Type::kHalf);
  check_reductions<loom::device::Bfloat16>(GetParam(), Op::kSum, Type::kBfloat16);
  check_reductions<loom::device::Complex<double>>(GetParam(), Op::kSum, Type::kComplexDouble);
  check_reductions<std::int16_t>(GetParam(), Op::kMin, Type::kInt16);
  check_reductions<float>(GetParam(), Op::kMin, Type::kFloat);
  check_reductions<loom::device::Half>(GetParam(), Op::kMin, Type::kHalf);
  check_reductions<loom::device::Pair<double, int>>(GetParam(), Op::kMinloc, Type::kDoubleInt);
  check_reductions<loom::device::Pair<std::int16_t, int>>(GetParam(), Op::kMinloc, Type::kShortInt);
}

// ----------------------------------------------------------------------------------------------
// collectives

std::vector<Settings> every_mode() {
  std::vector<Settings> result{{}};
  for (const Meeting meeting : {Meeting::kPostDominators, Meeting::kVotesOnly})
    for (const bool weak : {false, true})
      for (const std::uint64_t seed : {1, 2})
        result.push_back({.meeting = meeting, .random_order = true, .weak_memory = weak, .seed = seed});
  return result;
}

struct Way {
  Algorithm algorithm;
  Protocol protocol;
};
constexpr Way kReducing[] = {{Algorithm::kAllreduceRing, Protocol::kSimple},
                             {Algorithm::kAllreduceRing, Protocol::kLL128},
                             {Algorithm::kReduceScatterRing, Protocol::kSimple},
                             {Algorithm::kReduceChain, Protocol::kLL128},
                             {Algorithm::kReduceChain, Protocol::kLL},
                             {Algorithm::kOneShot, Protocol::kLL},
                             {Algorithm::kOneShot, Protocol::kLL128},
                             {Algorithm::kTwoShot, Protocol::kLL},
                             {Algorithm::kTwoShot, Protocol::kLL128}};
/// Operands in no promised order.
constexpr Way kByTrees[] = {{Algorithm::kAllreduceTree, Protocol::kSimple},
                            {Algorithm::kAllreduceTree, Protocol::kLL},
                            {Algorithm::kAllreduceTree, Protocol::kLL128}};
/// Of four ranks.
constexpr Way kByGrids[] = {{Algorithm::kAllreduceHier, Protocol::kSimple},
                            {Algorithm::kReduceScatterHier, Protocol::kSimple}};
constexpr Way kMovingInGrids[] = {{Algorithm::kAllGatherHier, Protocol::kSimple}};
constexpr Way kMoving[] = {{Algorithm::kAllGatherRing, Protocol::kSimple},
                           {Algorithm::kAllGatherRing, Protocol::kLL128},
                           {Algorithm::kBroadcastChain, Protocol::kSimple},
                           {Algorithm::kBroadcastChain, Protocol::kLL128},
                           {Algorithm::kAllToAll, Protocol::kSimple}};

template <class T>
void check_collectives(const KernelOf& kernel, std::span<const Way> ways, int ranks, int channels,
                       std::size_t count, std::size_t offset = 0, unsigned patience = 0,
                       bool by_turns = false) {
  for (const Settings& settings : every_mode()) {
    World world(ranks, channels, 256, 4, kWatched);
    world.leave_after(patience, by_turns);
    for (const Way& way : ways) {
      const steps::Call call{
          way.algorithm,
          way.protocol,
          ranks,
          0,
          count,
          sizeof(T),
          kernel.op == kMove ? nullptr : loom::device::find_reduce(static_cast<Op>(kernel.op), kernel.type)};
      EXPECT_EQ(world.perform<T>(program_of(kernel), kernel.name("collective"), call, 64, settings, offset),
                "")
          << kernel.name("collective") << ", algorithm " << static_cast<int>(way.algorithm) << ", protocol "
          << static_cast<int>(way.protocol) << ", meeting " << static_cast<int>(settings.meeting) << ", weak "
          << settings.weak_memory << ", seed " << settings.seed;
    }
    if (by_turns) {
      EXPECT_GT(world.launches(), ways.size() * static_cast<unsigned>(ranks));
    }
  }
}

TEST_P(Kernels, PerformCollectivesOfTwoRanks) {
  check_collectives<std::int32_t>({GetParam(), kSum, Type::kInt32}, kReducing, 2, 1, 301);
}
TEST_P(Kernels, PerformCollectivesOfThreeRanksAndTwoChannels) {
  check_collectives<float>({GetParam(), kSum, Type::kFloat}, kReducing, 3, 2, 203, 4);
}
TEST_P(Kernels, PerformCollectivesOfFourRanks) {
  check_collectives<loom::device::Half>({GetParam(), kMin, Type::kHalf}, kReducing, 4, 1, 151);
}
TEST_P(Kernels, MoveDataAsItIs) {
  check_collectives<std::uint8_t>({GetParam(), kMove, Type::kUint8}, kMoving, 3, 1, 1001);
  check_collectives<std::uint8_t>({GetParam(), kMove, Type::kUint8}, kMoving, 2, 2, 777, 3);
}

TEST_P(Kernels, SumUpAndDownTrees) {
  check_collectives<std::int32_t>({GetParam(), kSum, Type::kInt32}, kByTrees, 2, 1, 301);
  check_collectives<std::uint64_t>({GetParam(), kSum, Type::kUint64}, kByTrees, 4, 2, 203);
}
TEST_P(Kernels, PerformCollectivesInGrids) {
  check_collectives<std::int32_t>({GetParam(), kSum, Type::kInt32}, kByGrids, 4, 1, 601);
  check_collectives<std::uint8_t>({GetParam(), kMove, Type::kUint8}, kMovingInGrids, 4, 1, 777, 3);
  check_collectives<std::int32_t>({GetParam(), kSum, Type::kInt32}, kByGrids, 4, 1, 301, 0, 2, true);
}
TEST_P(Kernels, LeaveAndGoOnAgain) {
  check_collectives<std::int32_t>({GetParam(), kSum, Type::kInt32}, kByTrees, 3, 1, 301, 0, 2);
  check_collectives<std::uint8_t>({GetParam(), kMove, Type::kUint8}, kMoving, 2, 1, 777, 3, 2);
}
TEST_P(Kernels, ComeToTheirEndWhereOneRunsAtATime) {
  check_collectives<std::int32_t>({GetParam(), kSum, Type::kInt32}, kReducing, 2, 1, 301, 0, 2, true);
  check_collectives<std::int32_t>({GetParam(), kSum, Type::kInt32}, kByTrees, 3, 1, 301, 0, 2, true);
  check_collectives<std::uint8_t>({GetParam(), kMove, Type::kUint8}, kMoving, 2, 1, 777, 3, 2, true);
}

TEST_P(Kernels, LeaveWhenTheyAreTold) {
  using Hindrance = World::Hindrance;
  for (const Protocol protocol : {Protocol::kSimple, Protocol::kLL128})
    for (const Hindrance hindrance : {Hindrance::kAbsent, Hindrance::kFull})
      for (const bool weak : {false, true}) {
        World world(2, 1, 256, 4);
        const steps::Call call{Algorithm::kAllGatherRing, protocol, 2, 0, 2000, 1, nullptr};
        const KernelOf kernel{GetParam(), kMove, Type::kUint8};
        EXPECT_EQ(world.abandon<std::uint8_t>(program_of(kernel), kernel.name("collective"), call, 64,
                                              {.random_order = weak, .weak_memory = weak}, hindrance),
                  "");
      }
}

TEST_P(Kernels, NeedLinesThatStayWhole) {
  const KernelOf kernel{GetParam(), kMove, Type::kUint8};
  const auto goes_wrong = [&](Protocol protocol, std::uint64_t seeds) {
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      World world(2, 1, 256, 4, {.path = memory::Path::kPcie});
      const steps::Call call{Algorithm::kAllGatherRing, protocol, 2, 0, 2003, 1, nullptr};
      if (!world
               .perform<std::uint8_t>(program_of(kernel), kernel.name("collective"), call, 64,
                                      {.random_order = true, .weak_memory = true, .seed = seed}, 3)
               .empty())
        return true;
    }
    return false;
  };
  EXPECT_TRUE(goes_wrong(Protocol::kLL128, 50));
  EXPECT_FALSE(goes_wrong(Protocol::kSimple, 4));
}

INSTANTIATE_TEST_SUITE_P(By, Kernels, ::testing::ValuesIn(cuda::kCompilers),
                         [](const auto& test) { return test.param == Compiler::kNvcc ? "nvcc" : "clang"; });

}  // namespace
}  // namespace virtual_gpu::run
