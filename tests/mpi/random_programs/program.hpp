// program.hpp -- a random MPI program around persistent collective requests, as a value: a function of a
// seed, the number of ranks and options, the same on every rank.
//
// It consists of steps, which all ranks reach in the same order, and of starts of persistent requests. After
// each step a rank starts requests, then waits for some, then frees some. Where a rank starts a request, and
// where it waits for it, is drawn for each rank in two windows of steps; the first window ends no later than
// the second begins. So no rank waits for what another rank starts only after a later step, and the program
// ends if MPI does what the standard says: a start is local, and calls that wait come in one order over all
// communicators.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace loom::random_programs {

enum class Collective {
  kAllreduce,
  kReduce,
  kReduceScatterBlock,
  kReduceScatter,
  kScan,
  kExscan,
  kBcast,
  kAllgather,
  kAllgatherv,
  kGather,
  kGatherv,
  kScatter,
  kScatterv,
  kAlltoall,
  kAlltoallv,
  kAlltoallw,
  kBarrier
};
inline constexpr std::string_view kCollectiveNames[] = {"allreduce",      "reduce",    "reduce_scatter_block",
                                                        "reduce_scatter", "scan",      "exscan",
                                                        "bcast",          "allgather", "allgatherv",
                                                        "gather",         "gatherv",   "scatter",
                                                        "scatterv",       "alltoall",  "alltoallv",
                                                        "alltoallw",      "barrier"};
inline constexpr int kCollectives = static_cast<int>(std::size(kCollectiveNames));
inline std::string_view name(Collective collective) {
  return kCollectiveNames[static_cast<std::size_t>(collective)];
}
inline bool reduces(Collective collective) {
  return collective <= Collective::kExscan;
}
bool has_root(Collective collective);
bool has_in_place(Collective collective);
/// Whether the buffer that `bytes` of a call means has a block for each rank.
bool has_blocks(Collective collective);

/// Triples are three ints, with gaps or without: ranks may differ. Pairs are for kCompose alone.
enum class Element { kInt, kDouble, kTriple, kPair, kGappedPair };
/// kUserSum: a sum, as an operation of the program's. kCompose: of functions x -> a x + b, which does not
/// commute.
enum class Operation { kSum, kMax, kUserSum, kCompose };

struct Call {
  Collective collective = Collective::kBarrier;
  int comm = 0;
  int root = 0;           ///< modulo the size of the communicator
  std::size_t bytes = 0;  ///< of data in the largest buffer of a rank, at most
  Element element = Element::kInt;
  Operation operation = Operation::kSum;
  bool in_place = false;
};

/// Places of a program: after each of the steps [first, last].
struct Window {
  int first = 0, last = 0;
};

/// Which ranks of its parent a communicator has. kHalves: the lower half of the ranks has one, the upper half
/// another. kMerged: all ranks, of an intercommunicator between such halves.
enum class Membership { kWorld, kDuplicate, kReversed, kPart, kHalves, kMerged };
/// Whether, and how, the communicator promises that persistent collectives start in one order on all ranks.
enum class Assertion { kNone, kAtDuplication, kSetLater };

struct Communicator {
  static constexpr int kBase = -1;  ///< the one that the program begins with
  Membership membership = Membership::kWorld;
  Assertion assertion = Assertion::kNone;
  int parent = kBase;  ///< which communicator of the program it is made from
  /// World ranks in order of rank, for each existing communicator.
  std::vector<std::vector<int>> groups;
};

/// What all ranks of the communicator do in the same order.
struct Step {
  enum Kind { kNothing, kMake, kFree, kInit, kBlocking, kNonblocking, kMessage };
  Kind kind = kNothing;
  int number = -1;  ///< by which it is left out
  bool dropped = false;
  Call call;             ///< of kInit, kBlocking and kNonblocking; of the others its communicator
  int request = 0;       ///< kInit
  int from = 0, to = 0;  ///< kMessage: as `root`
  bool waits = true;     ///< kMessage: MPI_Send and MPI_Recv
  Window wait;           ///< kNonblocking, and kMessage that does not wait
};

struct Start {
  int number = -1;
  bool dropped = false;
  int request = 0;
  Window start, wait;
};

struct Request {
  int step = 0;        ///< that makes it
  bool freed = false;  ///< before the end
  Window free;
};

enum class Asserted { kNever, kAlways, kRandom };

struct Options {
  std::uint64_t seed = 1;
  int ranks = 2;
  std::size_t max_bytes = 4 << 20;
  Asserted asserted = Asserted::kRandom;
  bool freed_communicators = true;
  bool same_starts = false;  ///< all ranks start in one order, and after the same steps
  std::set<int> without;     ///< numbers that are left out, and what needs them
};

struct Program {
  Options options;
  std::vector<Communicator> comms;
  std::vector<Step> steps;
  std::vector<Start> starts;
  std::vector<Request> requests;
  int numbers = 0;  ///< elements have numbers [0, that)

  const Call& call_of(const Start& start) const {
    return steps[static_cast<std::size_t>(requests[static_cast<std::size_t>(start.request)].step)].call;
  }
};

Program generate(const Options& options);

/// What a rank does by itself after a step.
struct Action {
  enum Kind {
    kStart,
    kStartall,
    kWait,
    kWaitall,
    kWaitany,
    kWaitsome,
    kTest,
    kTestall,
    kTestsome,
    kFree,
    kPause  ///< without a call of MPI
  };
  Kind kind;
  /// kStart and kStartall: indices of starts; kFree: of requests; kPause: milliseconds; else numbers
  std::vector<int> which;
};
std::string_view name(Action::Kind kind);
/// In the order in which the rank does them.
std::vector<Action> actions_after(const Program& program, int step, int rank);

/// The group of a communicator in which the rank is, or -1.
int group_of(const Program& program, int comm, int rank);

std::string describe(const Call& call);
std::string describe(const Program& program);

}  // namespace loom::random_programs
