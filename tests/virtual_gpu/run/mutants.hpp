// mutants.hpp -- loom's kernels with one instruction of their PTX taken out or weakened, and the course on
// which each mode of the virtual GPU tries them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <regex>
#include <sstream>

#include "tests/virtual_gpu/run/kernels_world.hpp"

namespace virtual_gpu::run {

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
inline constexpr Mutation kMutations[] = {
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
    {"relaxed count of blocks", R"(atom\.acq_rel)", "atom.relaxed", true},
    {"acquire from the GPU alone", R"(ld\.acquire\.sys)", "ld.acquire.gpu", true},
    {"no load of a line", R"(ld\.relaxed\.sys[^;]*;)", "", true},
    {"weak load of a line", R"(ld\.relaxed\.sys)", "ld", true},
    {"load of a line at the GPU's scope", R"(ld\.relaxed\.sys)", "ld.relaxed.gpu", true},
    {"weak store of a line", R"(st\.relaxed\.sys)", "st", true},
    {"store of a line at the GPU's scope", R"(st\.relaxed\.sys)", "st.relaxed.gpu", true},
    {"a line in two stores", R"(st\.relaxed\.sys\.global\.v2\.u64\s+\[(%rd\d+)\], \{(%rd\d+), (%rd\d+)\};)",
     "st.relaxed.sys.global.u64 [$1], $2; st.relaxed.sys.global.u64 [$1+8], $3;", true},
};
#undef GROUP_VOTE

/// Whether a line may match: what is not found needs no regular expression, which is slow.
inline bool may_match(const std::string& line, const Mutation& mutation) {
  const std::string_view from = mutation.from;
  return line.find(from.substr(0, from.find('\\'))) != line.npos;
}

/// PTX by lines, from line 1.
inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines(1);
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}
inline std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (std::size_t i = 1; i < lines.size(); ++i) text += lines[i] + "\n";
  return text;
}

/// An occurrence, or all at a time.
inline constexpr std::size_t kAll = 0;
struct Mutant {
  const Mutation* mutation;
  std::size_t line;
  std::string function;  ///< that it is in
};

// ------------------------------------------------------------------------------------------------- courses

struct Mode {
  const char* name;
  Settings settings;
  std::uint64_t seeds;
};
inline const Mode kModes[] = {
    {"in turn", Settings{}, 1},
    {"votes", {.meeting = Meeting::kVotesOnly, .random_order = true}, 3},
    {"weak", {.random_order = true, .weak_memory = true}, 6},
    {"weak, votes", {.meeting = Meeting::kVotesOnly, .random_order = true, .weak_memory = true}, 10},
};

/// What kernels are tried on. Empty: all is right.
using Case = std::function<std::string(const Program&, const Settings&)>;

inline constexpr Algorithm kMoves[] = {Algorithm::kAllGatherRing, Algorithm::kBroadcastChain,
                                       Algorithm::kBroadcastTree},
                           kReductions[] = {Algorithm::kAllreduceRing, Algorithm::kReduceScatterRing,
                                            Algorithm::kReduceChain,   Algorithm::kOneShot,
                                            Algorithm::kTwoShot,       Algorithm::kAllreduceTree,
                                            Algorithm::kReduceTree};

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
                return std::string(mode.name) + ", " + error.substr(0, error.find("\n  warp"));
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
    for (const char* name : {"SimpleMove", "LLMove", "LL128Move", "by_ring", "by_chain", "by_one_shot",
                             "by_two_shot", "by_trees", "combine", "collective"})
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
    add_calls(algorithm, protocol);
    if (!whole_) return;
    add_resumed(algorithm, protocol);
    add_abandoned(algorithm, protocol);
    add_bounds(algorithm, protocol);
  }
  /// Calls one after the other. Those up or down a tree take turns with the root, so that its links have
  /// directions that a call passes over and the next one uses.
  std::string perform(World& world, const Program& program, const Settings& settings, int calls,
                      steps::Call call) const {
    std::string error;
    const int last = call.size - 1;
    for (int i = 0; i < calls && error.empty(); ++i) {
      if (call.algorithm > Algorithm::kAllreduceTree) call.root = i % 2 == 0 ? 0 : last;
      error = world.perform<T>(program, kernel_.name("collective"), call, 64, settings, 0);
    }
    return error;
  }
  void add_calls(Algorithm algorithm, Protocol protocol) {
    // Slots are used again and again, so that there are old data in them. Who exchanges messages one by one
    // needs to wait for room only if there is no more than one.
    const std::size_t fewest = algorithm == Algorithm::kOneShot ? 1 : 2;
    const bool by_two = protocol == Protocol::kSimple && algorithm <= Algorithm::kAllGatherRing;
    const int calls = algorithm > Algorithm::kAllreduceTree ? 3 : 2;
    for (const auto& [ranks, slots, channels] :
         {std::tuple{2, std::size_t{4}, by_two ? 2 : 1}, std::tuple{3, fewest, 1}})
      ordering_.push_back({[=, this, ranks = ranks, slots = slots, channels = channels](
                               const Program& program, const Settings& settings) {
        World world(ranks, channels, 256, slots, kWatched);
        return perform(world, program, settings, calls, call(algorithm, protocol, ranks, 1203 / sizeof(T)));
      }});
  }
  /// Kernels leave, and are launched again; one at a time, or all.
  void add_resumed(Algorithm algorithm, Protocol protocol) {
    for (const bool by_turns : {true, false})
      ordering_.push_back({[=, this](const Program& program, const Settings& settings) {
                             World world(2, 1, 256, 2, kWatched);
                             world.leave_after(by_turns ? 2 : 50, by_turns);
                             return perform(world, program, settings, 2,
                                            call(algorithm, protocol, 2, 1203 / sizeof(T)));
                           },
                           2});
  }
  void add_abandoned(Algorithm algorithm, Protocol protocol) {
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
    const bool is_one_way = algorithm == Algorithm::kBroadcastChain || algorithm == Algorithm::kReduceChain ||
                            algorithm > Algorithm::kAllreduceTree;
    if (algorithm != Algorithm::kReduceChain) abandons(World::Hindrance::kFull, 2000);
    if (!is_one_way) abandons(World::Hindrance::kAbsent, 2000);
    if (algorithm == Algorithm::kAllGatherRing || algorithm == Algorithm::kOneShot)
      if (protocol != Protocol::kSimple)
        abandons(World::Hindrance::kPart, protocol == Protocol::kLL ? 100 : 200);
  }
  /// All remainders of a vector, in all places of a thread's vectors; aligned or not.
  void add_bounds(Algorithm algorithm, Protocol protocol) {
    constexpr std::size_t kThreads = 32, kVector = 16 / sizeof(T);
    const auto groups = static_cast<std::size_t>(steps::groups_of(algorithm));
    for (std::size_t place = 0; place < 4; ++place)
      for (std::size_t rest = 0; rest < kVector; ++rest)
        for (const std::size_t offset : {std::size_t{0}, sizeof(T)}) {
          const int ranks = 2 + static_cast<int>(rest % 2);
          bounds_.push_back({[=, this](const Program& program, const Settings& settings) {
            World world(ranks, 1, 4096, 4, kWatched);
            return world.perform<T>(program, kernel_.name("collective"),
                                    call(algorithm, protocol, ranks, (place * kThreads + 1) * kVector + rest),
                                    kThreads * static_cast<unsigned>(groups), settings, offset);
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

}  // namespace virtual_gpu::run
