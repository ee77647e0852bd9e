// Who judges the judge: loom's kernels with one instruction of their PTX taken out or weakened, one at a
// time. A mode of the virtual GPU must find each of these mistakes, or kSurvivors says why none can.
//
// A sample of those that order something runs; with LOOM_TEST_FULL=1 all of them. LOOM_TEST_REPORT=1 prints
// which mode has found which, and how.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <regex>
#include <sstream>

#include "tests/virtual_gpu/run/kernels_world.hpp"

namespace virtual_gpu::run {
namespace {

using cuda::Compiler;
using loom::device::Op;
using loom::device::Type;
using steps::Algorithm;
using steps::Protocol;

// ---------------------------------------------------------------------------------------------- mutations

/// Of all instructions that match; $1 and on are what the pattern has in brackets.
struct Mutation {
  const char* name;
  const char* from;
  const char* to;
  bool orders;  ///< threads or memory; else it is a matter of values
};
#define GROUP_VOTE R"(barrier\.red\.or\.pred\s+([\w%$]+), ([^,]+), ([^,]+), (!?[\w%$]+);)"
constexpr Mutation kMutations[] = {
    // Both compilers write "leave out an element that is no longer in the buffer" so.
    {"no bounds check", R"(setp\.ge\.u64\s+(%p\d+), [^;]*;)", "setp.ne.u32 $1, 0, 0;", false},
    {"no fence", R"(fence\.[^;]*;)", "", true},
    {"no fence", R"(membar\.[^;]*;)", "", true},
    {"lanes do not join", R"(bar\.warp\.sync[^;]*;)", "", true},
    {"no barrier", R"(bar\.sync[^;]*;)", "", true},
    {"a vote of the group without barrier", GROUP_VOTE,
     "selp.b32 %mutant, 1, 0, $4; setp.ne.u32 $1, %mutant, 0;", true},
    {"a barrier without vote", GROUP_VOTE,
     "barrier.sync $2, $3; selp.b32 %mutant, 1, 0, $4; setp.ne.u32 $1, %mutant, 0;", true},
    {"no vote of lanes", R"(vote\.sync\.all\.pred\s+(%p\d+), (!?%p\d+), [^;]*;)",
     "selp.b32 %mutant, 1, 0, $2; setp.ne.u32 $1, %mutant, 0;", true},
    {"any lane's vote", R"(vote\.sync\.all)", "vote.sync.any", true},
    {"no release", R"(st\.release[^;]*;)", "", true},
    {"relaxed for release", R"(st\.release)", "st.relaxed", true},
    {"release to the GPU alone", R"(st\.release\.sys)", "st.release.gpu", true},
    {"relaxed for acquire", R"(ld\.acquire)", "ld.relaxed", true},
    {"acquire from the GPU alone", R"(ld\.acquire\.sys)", "ld.acquire.gpu", true},
    {"no load of a line", R"(ld\.relaxed\.sys[^;]*;)", "", true},
    {"weak load of a line", R"(ld\.relaxed\.sys)", "ld", true},
    {"load of a line at the GPU's scope", R"(ld\.relaxed\.sys)", "ld.relaxed.gpu", true},
    {"weak store of a line", R"(st\.relaxed\.sys)", "st", true},
    {"store of a line at the GPU's scope", R"(st\.relaxed\.sys)", "st.relaxed.gpu", true},
    {"a line in two stores", R"(st\.relaxed\.sys\.global\.v2\.u64\s+\[(%rd\d+)\], \{(%rd\d+), (%rd\d+)\};)",
     "st.relaxed.sys.global.u64 [$1], $2; st.relaxed.sys.global.u64 [$1+8], $3;", true},
};

/// Whether a line may match: what is not found needs no regular expression, which is slow.
bool may_match(const std::string& line, const Mutation& mutation) {
  const std::string_view from = mutation.from;
  return line.find(from.substr(0, from.find('\\'))) != line.npos;
}

/// PTX by lines, from line 1.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines(1);
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}
std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (std::size_t i = 1; i < lines.size(); ++i) text += lines[i] + "\n";
  return text;
}

/// An occurrence, or all at a time.
constexpr std::size_t kAll = 0;
struct Mutant {
  const Mutation* mutation;
  std::size_t line;
  std::string function;  ///< SimpleMove, LLMove, LL128Move, reduce or collective
};

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

// ------------------------------------------------------------------------------------------------- courses

struct Mode {
  const char* name;
  Settings settings;
  std::uint64_t seeds;
};
const Mode kModes[] = {
    {"in turn", Settings{}, 1},
    {"votes", {.meeting = Meeting::kVotesOnly, .random_order = true}, 3},
    {"weak", {.random_order = true, .weak_memory = true}, 6},
    {"weak, votes", {.meeting = Meeting::kVotesOnly, .random_order = true, .weak_memory = true}, 10},
};

/// What kernels are tried on. Empty: all is right.
using Case = std::function<std::string(const Program&, const Settings&)>;

constexpr Algorithm kMoves[] = {Algorithm::kAllGatherRing, Algorithm::kBroadcastChain},
                    kReductions[] = {Algorithm::kAllreduceRing, Algorithm::kReduceScatterRing,
                                     Algorithm::kReduceChain, Algorithm::kOneShot, Algorithm::kTwoShot};

template <class T>
class Course {
 public:
  Course(const KernelOf& kernel, bool whole)
      : kernel_(kernel), whole_(whole), text_(lines_of(ptx_of(kernel))) {
    const bool moves = kernel.op == cuda::kMove;
    for (const Algorithm algorithm : moves ? std::span<const Algorithm>(kMoves) : kReductions)
      for (const Protocol protocol :
           {steps::is_pairwise(algorithm) ? Protocol::kLL : Protocol::kSimple, Protocol::kLL128})
        add(algorithm, protocol);
    if (moves)  // no collective moves data by LL
      for (const Algorithm algorithm : {Algorithm::kOneShot, Algorithm::kTwoShot})
        add(algorithm, Protocol::kLL);
    cover();
  }

  /// Of all mutations in what the course runs.
  std::vector<Mutant> mutants() const {
    std::vector<Mutant> all;
    for (const Mutation& mutation : kMutations) {
      if (!mutation.orders && !whole_) continue;
      const std::regex pattern(mutation.from);
      std::string function;
      for (std::size_t i = 1; i < text_.size(); ++i) {
        if (const std::string found = function_of(text_[i]); !found.empty()) function = found;
        if (may_match(text_[i], mutation) && std::regex_search(text_[i], pattern) && runs(i))
          all.push_back({&mutation, i, function});
      }
    }
    return all;
  }
  Program program(const Mutant& mutant) const {
    std::vector<std::string> lines = text_;
    const std::regex from(mutant.mutation->from);
    for (std::size_t i = 1; i < lines.size(); ++i) {
      if (lines[i] == "{") lines[i] += " .reg .b32 %mutant;";
      if ((mutant.line == i || mutant.line == kAll) && may_match(lines[i], *mutant.mutation))
        lines[i] = std::regex_replace(lines[i], from, mutant.mutation->to);
    }
    return Program(ptx::parse(joined(lines)));
  }
  /// Which mode finds the mutant, and how; empty: none does.
  std::string found(const Mutant& mutant) const {
    const Program mutated = program(mutant);
    for (const Mode& mode : kModes) {
      if (mutant.line == kAll && &mode != std::end(kModes) - 1) continue;
      Settings settings = mode.settings;
      for (settings.seed = 0; settings.seed < mode.seeds; ++settings.seed)
        for (const auto* cases : {mutant.mutation->orders ? nullptr : &bounds_, &ordering_})
          for (const Tried& tried : cases != nullptr ? *cases : std::vector<Tried>())
            if ((mutant.line == kAll || tried.runs[mutant.line]) && settings.seed < tried.seeds)
              if (const std::string error = tried.run(mutated, settings); !error.empty())
                return std::string(mode.name) + ", " + error.substr(0, error.find('\n'));
      if (!mutant.mutation->orders) break;  // a matter of values
    }
    return {};
  }
  const std::string& line(std::size_t i) const { return text_[i]; }

 private:
  struct Tried {
    Case run;
    std::uint64_t seeds = ~0ULL;  ///< at the most
    std::vector<bool> runs{};     ///< by line
  };

  static std::string function_of(const std::string& line) {
    if (line.find(".entry") == line.npos && line.find(".func") == line.npos) return {};
    for (const char* name : {"SimpleMove", "LLMove", "LL128Move", "reduce", "collective"})
      if (line.find(name) != line.npos) return name;
    return "another";
  }
  bool runs(std::size_t line) const {
    const auto has = [&](const Tried& tried) { return tried.runs[line]; };
    return std::ranges::any_of(ordering_, has) || std::ranges::any_of(bounds_, has);
  }

  steps::Call call(Algorithm algorithm, Protocol protocol, int ranks, std::size_t count, int root = 0) const {
    return {algorithm,
            protocol,
            ranks,
            root,
            count,
            sizeof(T),
            kernel_.op == cuda::kMove ? take_first
                                      : loom::device::find_reduce(static_cast<Op>(kernel_.op), kernel_.type)};
  }
  static void take_first(std::byte* out, const std::byte* a, const std::byte*, std::size_t count) {
    std::memmove(out, a, count * sizeof(T));
  }
  void add(Algorithm algorithm, Protocol protocol) {
    // Slots are used again and again, so that there are old data in them. Who exchanges messages one by one
    // needs to wait for room only if there is no more than one.
    const std::size_t fewest = algorithm == Algorithm::kOneShot ? 1 : 2;
    for (const auto& [ranks, slots] : {std::pair{2, std::size_t{4}}, std::pair{3, fewest}})
      ordering_.push_back({[=, this](const Program& program, const Settings& settings) {
        World world(ranks, 1, 256, slots);
        std::string error;
        for (int i = 0; i < 2 && error.empty(); ++i)
          error = world.perform<T>(program, kernel_.name("collective"),
                                   call(algorithm, protocol, ranks, 1203 / sizeof(T)), 64, settings, 0);
        return error;
      }});
    if (!whole_) return;
    // A message of which a part comes has threads that have theirs, and others that wait.
    const auto abandons = [&](World::Hindrance hindrance, std::size_t bytes) {
      ordering_.push_back({[=, this](const Program& program, const Settings& settings) {
                             World world(2, 1, 256, 4);
                             return world.abandon<T>(program, kernel_.name("collective"),
                                                     call(algorithm, protocol, 2, bytes / sizeof(T)), 64,
                                                     settings, hindrance);
                           },
                           2});
    };
    const bool is_chain = algorithm == Algorithm::kBroadcastChain || algorithm == Algorithm::kReduceChain;
    if (algorithm != Algorithm::kReduceChain) abandons(World::Hindrance::kFull, 2000);
    if (!is_chain) abandons(World::Hindrance::kAbsent, 2000);
    if (algorithm == Algorithm::kAllGatherRing || algorithm == Algorithm::kOneShot)
      if (protocol != Protocol::kSimple)
        abandons(World::Hindrance::kPart, protocol == Protocol::kLL ? 100 : 200);
    // All remainders of a vector, in all places of a thread's vectors; aligned or not.
    constexpr std::size_t kThreads = 32, kVector = 16 / sizeof(T);
    for (std::size_t place = 0; place < 4; ++place)
      for (std::size_t rest = 0; rest < kVector; ++rest)
        for (const std::size_t offset : {std::size_t{0}, sizeof(T)}) {
          const int ranks = 2 + static_cast<int>(rest % 2);
          bounds_.push_back({[=, this](const Program& program, const Settings& settings) {
            World world(ranks, 1, 4096, 4);
            return world.perform<T>(program, kernel_.name("collective"),
                                    call(algorithm, protocol, ranks, (place * kThreads + 1) * kVector + rest),
                                    kThreads, settings, offset);
          }});
        }
  }
  /// Which case runs which lines.
  void cover() {
    for (auto* cases : {&ordering_, &bounds_})
      for (Tried& tried : *cases) {
        std::vector<std::atomic<unsigned>> runs(text_.size() + 1);
        EXPECT_EQ(tried.run(program_of(kernel_), {.runs_of_lines = &runs}), "");
        for (const auto& times : runs) tried.runs.push_back(times > 0);
      }
  }

  KernelOf kernel_;
  bool whole_;
  std::vector<std::string> text_;
  std::vector<Tried> ordering_, bounds_;
};

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
constexpr const char* kVoteOfNobody = "the barrier is what counts: nobody looks at the result";
constexpr const char* kLoadsComeInOrder =
    "of `consumed`: PTX needs it, for loads of the slot come before; here a store never overtakes a load";
constexpr const char* kStoresComeInOrder =
    "of `consumed`: stores to the slot depend on it, and never come before it; of `abandoned`: the word "
    "alone counts";
constexpr const char* kAlone = "the host reads the word alone";
constexpr const char* kEachWordHasAFlag = "of LL: each word has its flag, and what is old is loaded again";
constexpr const char* kAllStoresWait =
    "here weak and relaxed stores leave in the same ways; PTX promises less for weak ones";
constexpr const char* kBehindTheMessage =
    "of the first element of a vector: there is one; of vectors in slots: what lies behind a message is the "
    "links' "
    "memory still, one region here, and elements of buffers have checks of their own";
constexpr Survivors kSurvivors[] = {
    {"SimpleMove", "no bounds check", 20, 18, kBehindTheMessage},
    {"LLMove", "no bounds check", 3, 3, kBehindTheMessage},
    {"collective", "no bounds check", 2, 2,
     "of rounds that end early: without it ranks send each other empty messages, all alike"},
    {"LL128Move", "lanes do not join", 2, 2,
     "before loads: the vote between brings them together, and the load behind it comes after the flag for "
     "each"},
    {"collective", "a vote of the group without barrier", 3, 3,
     "before counters are stored: each message has barriers, and without a message they stay as they are"},
    {"collective", "a barrier without vote", 3, 3, kVoteOfNobody},
    {"SimpleMove", "a barrier without vote", 1, 1, kVoteOfNobody},
    {"LLMove", "a barrier without vote", 1, 1,
     "of the wait for room: when it is abandoned, each thread leaves by itself, and slots are nobody's any "
     "more"},
    {"LL128Move", "any lane's vote", 1, 1, "of the way out: lanes leave together, only later"},
    {"collective", "relaxed for release", 1, 1, kAlone},
    {"collective", "release to the GPU alone", 1, 1, kAlone},
    {"SimpleMove", "relaxed for release", 1, 1, kLoadsComeInOrder},
    {"LLMove", "relaxed for release", 1, 1, kLoadsComeInOrder},
    {"LL128Move", "relaxed for release", 1, 1, kLoadsComeInOrder},
    {"SimpleMove", "release to the GPU alone", 1, 1, kLoadsComeInOrder},
    {"LLMove", "release to the GPU alone", 1, 1, kLoadsComeInOrder},
    {"LL128Move", "release to the GPU alone", 1, 1, kLoadsComeInOrder},
    {"SimpleMove", "relaxed for acquire", 4, 3, kStoresComeInOrder},
    {"LLMove", "relaxed for acquire", 4, 3, kStoresComeInOrder},
    {"LL128Move", "relaxed for acquire", 4, 3, kStoresComeInOrder},
    {"SimpleMove", "acquire from the GPU alone", 4, 3, kStoresComeInOrder},
    {"LLMove", "acquire from the GPU alone", 4, 3, kStoresComeInOrder},
    {"LL128Move", "acquire from the GPU alone", 4, 3, kStoresComeInOrder},
    {"LLMove", "weak load of a line", 2, 2, kEachWordHasAFlag},
    {"LLMove", "load of a line at the GPU's scope", 2, 2, kEachWordHasAFlag},
    {"LL128Move", "weak load of a line", 1, 1,
     "before the vote: it finds the flag, and the line is loaded again"},
    {"LL128Move", "load of a line at the GPU's scope", 1, 1, "as the weak load"},
    {"LLMove", "weak store of a line", 2, 2, kAllStoresWait},
    {"LL128Move", "weak store of a line", 1, 1, kAllStoresWait},
    {"LLMove", "store of a line at the GPU's scope", 2, 2, kAllStoresWait},
    {"LL128Move", "store of a line at the GPU's scope", 1, 1, kAllStoresWait},
    {"LLMove", "a line in two stores", 2, 2, kEachWordHasAFlag},
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
