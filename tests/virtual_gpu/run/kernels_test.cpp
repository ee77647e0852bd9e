// loom's kernels as nvcc compiles them: reductions, and collectives of ranks that are grids of this process.
// Where there was no nvcc, they are skipped.
#include <gmock/gmock.h>

#include <fstream>
#include <future>
#include <set>
#include <sstream>

#include "device/cuda/kernel_args.hpp"
#include "tests/device/steps/step_calls.hpp"
#include "tests/virtual_gpu/run/launch.hpp"
#include "tests/virtual_gpu/test_space.hpp"

namespace virtual_gpu::run {
namespace {

namespace cuda = loom::device::cuda;
namespace steps = loom::device::steps;
using loom::device::Op;
using loom::device::Type;
using loom::device::Word;
using steps::Algorithm;
using steps::Protocol;

constexpr int kSum = 0, kMin = 2, kMinloc = 10, kMove = cuda::kMove;

/// The PTX of an image; empty if there is none.
std::string ptx_of(int image) {
#ifdef LOOM_PTX_FOLDER
  std::ifstream file(std::string(LOOM_PTX_FOLDER "/kernels_") + std::to_string(image) + ".ptx");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
#else
  static_cast<void>(image);
  return {};
#endif
}
/// Parsed once.
const Program& program_of(int image) {
  static std::map<int, Program> programs;
  const auto found = programs.find(image);
  return found != programs.end() ? found->second
                                 : programs.emplace(image, ptx::parse(ptx_of(image))).first->second;
}

class Kernels : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ptx_of(kMove).empty()) GTEST_SKIP() << "there was no nvcc to compile kernels to PTX";
  }
};

/// Ends grids that do not come to an end.
class Watch {
 public:
  Watch()
      : thread_([this] {
          if (done_.get_future().wait_for(std::chrono::seconds(100)) == std::future_status::timeout)
            stop = true;
        }) {}
  ~Watch() { done_.set_value(); }
  std::atomic<bool> stop = false;

 private:
  std::promise<void> done_;
  std::jthread thread_;
};

template <class Args>
std::span<const std::byte> parameters(const Args& args) {
  return std::as_bytes(std::span(&args, 1));
}
template <class T>
T* device(std::uint64_t address) {
  return reinterpret_cast<T*>(address);
}

// ----------------------------------------------------------------------------------------------- reductions

TEST_F(Kernels, AreAllThereAndKnown) {
  for (const int image : {kSum, kMin, kMinloc, kMove}) {
    const Program& program = program_of(image);
    EXPECT_EQ(program.entries().size(), 2U * loom::device::kTypeCount) << image;
    for (const Entry& entry : program.entries()) {
      const bool reduces = entry.name.starts_with("loom_reduce");
      EXPECT_EQ(entry.parameter_bytes, reduces ? sizeof(cuda::ReduceArgs) : sizeof(cuda::CollectiveArgs));
      EXPECT_EQ(entry.most_threads, (Dim{512, 1, 1}));
    }
  }
}

template <class T>
void check_reduction(int image, Op op, Type type, int operands, std::size_t count, std::size_t offset,
                     const Settings& settings) {
  SCOPED_TRACE(::testing::Message() << "image " << image << ", type " << static_cast<int>(type) << ", "
                                    << operands << " operands of " << count);
  TestSpace space;
  cuda::ReduceArgs args;
  args.operands = operands;
  args.count = count;
  const std::uint64_t out = space.add(count * sizeof(T) + 64, {.tracks_written = true}) + offset;
  args.out = device<void>(out);
  steps::Bytes right;
  for (int k = 0; k < operands; ++k) {
    const steps::Bytes bytes = steps::elements<T>(count, static_cast<unsigned>(k + 1));
    const std::uint64_t in = space.add(bytes.size() + 64) + offset;
    std::memcpy(space.host(in), bytes.data(), bytes.size());
    args.in[k] = device<void>(in);
    if (k == 0)
      right = bytes;
    else
      loom::device::find_reduce(op, type)(right.data(), right.data(), bytes.data(), count);
  }
  const Program& program = program_of(image);
  const Entry* const entry =
      program.find("loom_reduce_" + std::to_string(image) + "_" + std::to_string(static_cast<int>(cuda::kernel_type(image, type))));
  ASSERT_NE(entry, nullptr);
  Watch watch;
  ASSERT_NO_THROW(run(program, *entry, {.grid = {2}, .block = {96}, .parameters = parameters(args)}, space,
                      settings, watch.stop));
  const steps::Bytes found(space.host(out), space.host(out) + count * sizeof(T));
  EXPECT_EQ(steps::first_difference<T>(found, right), -1);
}

template <class T>
void check_reductions(int image, Op op, Type type) {
  for (const Settings& settings :
       {Settings{},
        Settings{.meeting = Meeting::kVotesOnly, .random_order = true, .weak_memory = true, .seed = 3}}) {
    check_reduction<T>(image, op, type, 2, 1000, 0, settings);
    check_reduction<T>(image, op, type, 3, 333, sizeof(T) % 16, settings);
  }
  check_reduction<T>(image, op, type, 8, 1, 0, {});
}

TEST_F(Kernels, ReduceAsTheHostDoes) {
  check_reductions<std::int8_t>(kSum, Op::kSum, Type::kInt8);
  check_reductions<std::uint16_t>(kSum, Op::kSum, Type::kUint16);
  check_reductions<std::int32_t>(kSum, Op::kSum, Type::kInt32);
  check_reductions<std::uint64_t>(kSum, Op::kSum, Type::kUint64);
  check_reductions<float>(kSum, Op::kSum, Type::kFloat);
  check_reductions<double>(kSum, Op::kSum, Type::kDouble);
  check_reductions<loom::device::Half>(kSum, Op::kSum, Type::kHalf);
  check_reductions<loom::device::Bfloat16>(kSum, Op::kSum, Type::kBfloat16);
  check_reductions<loom::device::Complex<double>>(kSum, Op::kSum, Type::kComplexDouble);
  check_reductions<std::int16_t>(kMin, Op::kMin, Type::kInt16);
  check_reductions<float>(kMin, Op::kMin, Type::kFloat);
  check_reductions<loom::device::Half>(kMin, Op::kMin, Type::kHalf);
  check_reductions<loom::device::Pair<double, int>>(kMinloc, Op::kMinloc, Type::kDoubleInt);
  check_reductions<loom::device::Pair<std::int16_t, int>>(kMinloc, Op::kMinloc, Type::kShortInt);
}

// ---------------------------------------------------------------------------------------------- collectives

/// Ranks that reach each other's memory.
class World {
 public:
  World(int size, int channels, std::size_t slot_bytes, std::size_t slots,
        memory::Path path = memory::Path::kNvlink)
      : size_(size), channels_(channels) {
    for (int p = 0; p < steps::kProtocols; ++p)
      form_.ring[p] = form_.tree[p] = form_.pairwise[p] = {slot_bytes, slots};
    const steps::Layout layout(form_, size, steps::channels_with_chains(size, channels));
    std::vector<std::byte*> memory;
    for (int r = 0; r < size; ++r)
      memory.push_back(device<std::byte>(space_.add(layout.bytes(channels), {.path = path})));
    for (int r = 0; r < size; ++r) {
      tables_.push_back(space_.add(layout.table_bytes(channels)));
      const steps::Bytes table = layout.table(memory, r, channels, device<std::byte>(tables_.back()));
      std::memcpy(space_.host(tables_.back()), table.data(), table.size());
      words_.push_back(space_.add(3 * sizeof(Word)));
    }
  }
  void be_patient(unsigned looks) { patience_ = looks; }
  /// Only one rank's kernel runs at a time.
  void go_by_turns() { by_turns_ = true; }
  /// How often kernels were launched in all.
  unsigned launches() const { return launches_; }

  /// What went wrong; empty: all ranks have the right result.
  template <class T>
  std::string perform(const Program& program, const std::string& kernel, const steps::Call& call,
                      unsigned threads, Settings settings, std::size_t offset = 0) {
    const auto ranks = static_cast<std::size_t>(size_);
    std::vector<steps::Bytes> in(ranks);
    std::vector<std::uint64_t> in_at(ranks), out_at(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      in[r] = steps::elements<T>(call.in_count(static_cast<int>(r)), static_cast<unsigned>(settings.seed * 8 + r + 1));
      in_at[r] = space_.add(in[r].size() + 64) + offset;
      out_at[r] = space_.add(call.out_count(static_cast<int>(r)) * sizeof(T) + 64) + offset;
      std::memcpy(space_.host(in_at[r]), in[r].data(), in[r].size());
    }
    Watch watch;
    std::vector<std::string> errors(ranks);
    /// Whether the kernel has left.
    const auto launch = [&](std::size_t r, bool resumes) {
      const std::uint64_t words = words_[r];
      cuda::CollectiveArgs args{
          .task = call.task(static_cast<int>(r), device<void>(in_at[r]), device<void>(out_at[r]),
                            static_cast<unsigned>(channels_), nullptr),
          .form = form_,
          .channels = device<steps::Channel>(tables_[r]),
          .abandoned = device<const Word>(words),
          .failed = device<Word>(words + 8),
          .left = device<Word>(words + 16),
          .patience = patience_};
      args.task.resumes = resumes;
      Settings mine = settings;
      mine.seed = settings.seed * ranks + r;
      ++launches_;
      space_.put(words + 16, Word{0});
      try {
        run(program, *program.find(kernel),
            {.grid = {static_cast<unsigned>(channels_)}, .block = {threads}, .parameters = parameters(args)},
            space_, mine, watch.stop);
      } catch (const std::exception& error) {
        errors[r] = error.what();
        watch.stop = true;
      }
      return !watch.stop && space_.get<Word>(words + 16) != 0;
    };
    if (by_turns_) {
      std::set<std::size_t> unfinished;
      for (std::size_t r = 0; r < ranks; ++r)
        if (launch(r, false)) unfinished.insert(r);
      while (!unfinished.empty()) std::erase_if(unfinished, [&](std::size_t r) { return !launch(r, true); });
    } else {
      std::vector<std::jthread> grids;
      for (std::size_t r = 0; r < ranks; ++r)
        grids.emplace_back([&, r] {
          for (bool resumes = false; launch(r, resumes);) resumes = true;
        });
    }
    for (std::size_t r = 0; r < ranks; ++r)
      if (!errors[r].empty()) return errors[r];
    for (std::size_t r = 0; r < ranks; ++r) {
      const steps::Bytes right =
          steps::expected(call, in, static_cast<int>(r), steps::Bytes(call.out_count(static_cast<int>(r)) * sizeof(T)));
      const steps::Bytes found(space_.host(out_at[r]), space_.host(out_at[r]) + right.size());
      if (const auto at = steps::first_difference<T>(found, right); at >= 0)
        return "rank " + std::to_string(r) + " has a wrong element " + std::to_string(at);
    }
    return {};
  }

 private:
  int size_, channels_;
  steps::ChannelForm form_;
  TestSpace space_;
  std::vector<std::uint64_t> tables_, words_;  ///< by rank
  unsigned patience_ = 0;
  bool by_turns_ = false;
  std::atomic<unsigned> launches_ = 0;
};

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
constexpr Way kMoving[] = {{Algorithm::kAllGatherRing, Protocol::kSimple},
                           {Algorithm::kAllGatherRing, Protocol::kLL128},
                           {Algorithm::kBroadcastChain, Protocol::kSimple},
                           {Algorithm::kBroadcastChain, Protocol::kLL128}};

template <class T>
void check_collectives(int image, Type type, std::span<const Way> ways, int ranks, int channels,
                       std::size_t count, std::size_t offset = 0, unsigned patience = 0, bool by_turns = false) {
  const std::string kernel =
      "loom_collective_" + std::to_string(image) + "_" + std::to_string(static_cast<int>(cuda::kernel_type(image, type)));
  for (const Settings& settings : every_mode()) {
    World world(ranks, channels, 256, 4);
    world.be_patient(patience);
    if (by_turns) world.go_by_turns();
    for (const Way& way : ways) {
      const steps::Call call{
          way.algorithm,
          way.protocol,
          ranks,
          0,
          count,
          sizeof(T),
          image == kMove ? nullptr : loom::device::find_reduce(static_cast<Op>(image), type)};
      EXPECT_EQ(world.perform<T>(program_of(image), kernel, call, 64, settings, offset), "")
          << kernel << ", algorithm " << static_cast<int>(way.algorithm) << ", protocol "
          << static_cast<int>(way.protocol) << ", meeting " << static_cast<int>(settings.meeting) << ", weak "
          << settings.weak_memory << ", seed " << settings.seed;
    }
    if (by_turns) {
      EXPECT_GT(world.launches(), ways.size() * static_cast<unsigned>(ranks));
    }
  }
}

TEST_F(Kernels, PerformCollectivesOfTwoRanks) {
  check_collectives<std::int32_t>(kSum, Type::kInt32, kReducing, 2, 1, 301);
}
TEST_F(Kernels, PerformCollectivesOfThreeRanksAndTwoChannels) {
  check_collectives<float>(kSum, Type::kFloat, kReducing, 3, 2, 203, 4);
}
TEST_F(Kernels, PerformCollectivesOfFourRanks) {
  check_collectives<loom::device::Half>(kMin, Type::kHalf, kReducing, 4, 1, 151);
}
TEST_F(Kernels, MoveDataAsItIs) {
  check_collectives<std::uint8_t>(kMove, Type::kUint8, kMoving, 3, 1, 1001);
  check_collectives<std::uint8_t>(kMove, Type::kUint8, kMoving, 2, 2, 777, 3);
}

TEST_F(Kernels, SumUpAndDownTrees) {
  check_collectives<std::int32_t>(kSum, Type::kInt32, kByTrees, 2, 1, 301);
  check_collectives<std::uint64_t>(kSum, Type::kUint64, kByTrees, 4, 2, 203);
}
TEST_F(Kernels, LeaveAndGoOnAgain) {
  check_collectives<std::int32_t>(kSum, Type::kInt32, kByTrees, 3, 1, 301, 0, 2);
  check_collectives<std::uint8_t>(kMove, Type::kUint8, kMoving, 2, 1, 777, 3, 2);
}
TEST_F(Kernels, ComeToTheirEndWhereOneRunsAtATime) {
  check_collectives<std::int32_t>(kSum, Type::kInt32, kReducing, 2, 1, 301, 0, 2, true);
  check_collectives<std::int32_t>(kSum, Type::kInt32, kByTrees, 3, 1, 301, 0, 2, true);
  check_collectives<std::uint8_t>(kMove, Type::kUint8, kMoving, 2, 1, 777, 3, 2, true);
}

// ------------------------------------------------------------------------------------------------ mistakes

/// Whether kernels that move data come to a wrong result or a fault with one of the seeds. Each slot is
/// used several times, so that there are old data in it.
bool is_found(const Program& program, Protocol protocol, Settings settings, std::uint64_t seeds = 50,
              memory::Path path = memory::Path::kNvlink) {
  for (settings.seed = 0; settings.seed < seeds; ++settings.seed) {
    World world(2, 1, 256, 4, path);
    for (int i = 0; i < 2; ++i) {
      const steps::Call call{Algorithm::kAllGatherRing, protocol, 2, 0, 2003, 1, nullptr};
      if (!world.perform<std::uint8_t>(program, "loom_collective_12_4", call, 64, settings, 3).empty())
        return true;
    }
  }
  return false;
}
/// The program that moves data, with `from` replaced by `to` everywhere.
Program changed(std::string_view from, std::string_view to) {
  std::string text = ptx_of(kMove);
  std::size_t times = 0;
  for (std::size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size(), ++times)
    text.replace(at, from.size(), to);
  EXPECT_GT(times, 0U) << from;
  return Program(ptx::parse(text));
}
const Settings kWeak{.random_order = true, .weak_memory = true};
const Settings kApart{.meeting = Meeting::kVotesOnly, .random_order = true};
const Settings kWeakAndApart{.meeting = Meeting::kVotesOnly, .random_order = true, .weak_memory = true};

class Mistakes : public Kernels {};

TEST_F(Mistakes, AreNoneInTheKernels) {
  for (const Settings& settings : {kWeak, kApart, kWeakAndApart}) {
    EXPECT_FALSE(is_found(program_of(kMove), Protocol::kSimple, settings, 4));
    EXPECT_FALSE(is_found(program_of(kMove), Protocol::kLL128, settings, 4));
  }
}
TEST_F(Mistakes, AreFoundWhenLanesDoNotJoinBeforeALine) {
  const Program program = changed("bar.warp.sync", "// ");
  EXPECT_FALSE(is_found(program, Protocol::kSimple, kApart, 2));
  EXPECT_TRUE(is_found(program, Protocol::kLL128, kApart));
  EXPECT_TRUE(is_found(program, Protocol::kLL128, kWeakAndApart));
}
TEST_F(Mistakes, AreFoundWhenAFlagIsNotReleased) {
  EXPECT_TRUE(is_found(changed("st.release.sys", "st.relaxed.sys"), Protocol::kSimple, kWeak));
}
TEST_F(Mistakes, AreFoundWhenAFlagIsNotAcquired) {
  EXPECT_TRUE(is_found(changed("ld.acquire.sys", "ld.relaxed.sys"), Protocol::kSimple, kWeak));
}
TEST_F(Mistakes, AreFoundWhenTheScopeIsTooNarrow) {
  EXPECT_TRUE(is_found(changed("st.release.sys", "st.release.gpu"), Protocol::kSimple, kWeak));
  EXPECT_TRUE(is_found(changed("ld.acquire.sys", "ld.acquire.gpu"), Protocol::kSimple, kWeak));
}
TEST_F(Mistakes, AreFoundWhenThreadsDoNotMeetBeforeAFlag) {
  EXPECT_TRUE(is_found(changed("barrier.red.or.pred", "// "), Protocol::kSimple, kWeak));
}
TEST_F(Mistakes, AreFoundWhereThePathDoesNotKeepLinesWhole) {
  EXPECT_TRUE(is_found(program_of(kMove), Protocol::kLL128, kWeak, 50, memory::Path::kPcie));
  EXPECT_FALSE(is_found(program_of(kMove), Protocol::kSimple, kWeak, 4, memory::Path::kPcie));
}

}  // namespace
}  // namespace virtual_gpu::run
