// Who judges the judge: loom's kernels with one instruction of their PTX taken out or weakened, one at a
// time. A mode of the virtual GPU must find each of these mistakes, or kSurvivors says why none can.
//
// A sample of those that order something runs; with LOOM_TEST_FULL=1 all of them, or those whose names have
// the text LOOM_TEST_MUTATION. LOOM_TEST_REPORT=1 prints which mode has found which, and how.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>

#include "tests/virtual_gpu/run/mutants.hpp"

namespace virtual_gpu::run {
namespace {

bool is_set(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && std::string(value) != "0";
}
bool takes_all() {
  return is_set("LOOM_TEST_FULL");
}
bool reports() {
  return is_set("LOOM_TEST_REPORT");
}

class Mutations : public ::testing::TestWithParam<Compiler> {
 protected:
  void SetUp() override {
    if (cuda::kernels_by(GetParam()).empty())
      GTEST_SKIP() << "skipped: this build has no kernels of this compiler";
  }
};

/// How many mutants nothing finds, and why that is so.
struct Survivors {
  const char* function;
  const char* mutation;
  std::size_t by_nvcc, by_clang;  ///< at the most, of each kernel
  const char* reason;
};
constexpr const char* kThereIsOne = "of the first element of a vector: there is one";
constexpr const char* kVoteOfNobody = "the barrier is what counts: nobody looks at the result";
constexpr const char* kAlone = "of `abandoned`: the word alone counts, nothing is read behind it";
constexpr const char* kHasLeft =
    "PTX needs it, here all see what has left a block, and a block that ends has loaded: of words for the "
    "host, which come behind each block's last release at system scope, and of links that a call up or down "
    "a tree passes over, from which only calls have loaded that have ended";
constexpr const char* kFlagInEachWord = "each word of 8 bytes has a flag of its own, and is stored whole";
constexpr Survivors kSurvivors[] = {
    {"SimpleMove", "no bounds check", 14, 12,
     "of the first element of a vector, and of a thread's first vector: there is one; of vectors of a "
     "buffer: its elements have checks of their own"},
    {"LLMove", "no bounds check", 3, 3, kThereIsOne},
    {"by_ring", "no bounds check", 1, 1,
     "of rounds that end early: without it ranks send each other empty messages, all alike"},
    {"LL128Move", "lanes do not join", 2, 2,
     "before loads: the vote between brings them together, and here no load overtakes it, as PTX lets "
     "relaxed ones do"},
    {"collective", "no barrier", 1, 1,
     "before blocks are counted: where a block is one group, as for moves, its thread 0 has met all that "
     "have stored what the host reads behind `ended`"},
    {"collective", "a vote of the group without barrier", 1, 1,
     "before counters are stored: each message has barriers, and without a message they stay as they are"},
    {"collective", "a barrier without vote", 1, 1,
     "thread 0 looks for itself: where it no longer finds the call abandoned, the kernel is launched again"},
    {"SimpleMove", "a barrier without vote", 1, 1, kVoteOfNobody},
    {"LL128Move", "any lane's vote", 1, 1, "of the way out: lanes leave together, only later"},
    {"collective", "relaxed for release", 4, 4, kHasLeft},
    {"collective", "release to the GPU alone", 4, 4, kHasLeft},
    {"collective", "relaxed count of blocks", 1, 1, kHasLeft},
    {"collective", "relaxed for acquire", 1, 1, kAlone},
    {"SimpleMove", "relaxed for acquire", 2, 2, kAlone},
    {"LLMove", "relaxed for acquire", 2, 2, kAlone},
    {"LL128Move", "relaxed for acquire", 2, 2, kAlone},
    {"collective", "acquire from the GPU alone", 1, 1, kAlone},
    {"SimpleMove", "acquire from the GPU alone", 2, 2, kAlone},
    {"LLMove", "acquire from the GPU alone", 2, 2, kAlone},
    {"LL128Move", "acquire from the GPU alone", 2, 2, kAlone},
    {"LLMove", "a line in two stores", 2, 2, kFlagInEachWord},
};

/// Those of one mutation in one function.
struct Kind {
  const Survivors* survivors = nullptr;
  std::size_t mutants = 0, found = 0;
  std::string names;  ///< of the survivors
};

template <class T>
void check(const KernelOf& kernel) {
  const Course<T> course(kernel, true);
  std::map<std::string, Kind> kinds;
  for (const Mutant& mutant : course.mutants()) {
    const std::string name = mutant.function + ", " + mutant.mutation->name;
    const auto row = std::ranges::find_if(kSurvivors, [&](const Survivors& each) {
      return each.function == mutant.function && std::string(each.mutation) == mutant.mutation->name;
    });
    if (const char* const wanted = std::getenv("LOOM_TEST_MUTATION"))
      if (name.find(wanted) == name.npos) continue;
    Kind& kind = kinds[name];
    if (row != std::end(kSurvivors)) kind.survivors = row;
    ++kind.mutants;
    const std::string where = " " + std::to_string(mutant.line) + ": " + course.line(mutant.line);
    const std::string finder = course.found(mutant);
    if (reports())
      std::cout << name << where << (finder.empty() ? " SURVIVES" : " is found: " + finder) << std::endl;
    kind.found += !finder.empty();
    if (finder.empty()) kind.names += "\n" + where;
  }
  EXPECT_FALSE(kinds.empty());
  for (const auto& [name, kind] : kinds) {
    std::size_t most = 0;
    if (kind.survivors != nullptr)
      most = kernel.compiler == Compiler::kNvcc ? kind.survivors->by_nvcc : kind.survivors->by_clang;
    EXPECT_LE(kind.mutants - kind.found, most) << name << ": nothing finds" << kind.names;
  }
}

/// In all places at a time, in the strictest mode: what is found so at once, without an end of the
/// communicator.
TEST_P(Mutations, InAllPlacesAreFound) {
  const Course<std::uint8_t> course({GetParam(), cuda::kMove, Type::kUint8}, false);
  for (const char* name : {"lanes do not join", "no barrier", "a vote of the group without barrier",
                           "no vote of lanes", "any lane's vote", "no release", "relaxed for release",
                           "release to the GPU alone", "relaxed for acquire", "acquire from the GPU alone",
                           "no load of a line", "weak load of a line", "a line in two stores"}) {
    const auto mutation = std::ranges::find(kMutations, std::string(name), &Mutation::name);
    const std::string finder = course.found({&*mutation, kAll, ""});
    EXPECT_NE(finder, "") << name;
    if (reports()) std::cout << name << " is found: " << finder << std::endl;
  }
}
TEST_P(Mutations, InEachPlaceOfMovesAreFound) {
  if (!takes_all()) GTEST_SKIP() << "skipped: takes long; LOOM_TEST_FULL=1 runs it";
  check<std::uint8_t>({GetParam(), cuda::kMove, Type::kUint8});
}
TEST_P(Mutations, InEachPlaceOfSumsAreFound) {
  if (!takes_all()) GTEST_SKIP() << "skipped: takes long; LOOM_TEST_FULL=1 runs it";
  check<std::uint32_t>({GetParam(), 0, Type::kUint32});
}

INSTANTIATE_TEST_SUITE_P(By, Mutations, ::testing::ValuesIn(cuda::kCompilers),
                         [](const auto& test) { return test.param == Compiler::kNvcc ? "nvcc" : "clang"; });

}  // namespace
}  // namespace virtual_gpu::run
