// How a program is drawn.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "tests/mpi/random_programs/draw.hpp"
#include "tests/mpi/random_programs/program.hpp"

namespace loom::random_programs {

bool has_root(Collective collective) {
  switch (collective) {
    case Collective::kReduce:
    case Collective::kBcast:
    case Collective::kGather:
    case Collective::kGatherv:
    case Collective::kScatter:
    case Collective::kScatterv:
      return true;
    default:
      return false;
  }
}
bool has_in_place(Collective collective) {
  return collective != Collective::kBcast && collective != Collective::kBarrier;
}
bool has_blocks(Collective collective) {
  switch (collective) {
    case Collective::kAllreduce:
    case Collective::kReduce:
    case Collective::kScan:
    case Collective::kExscan:
    case Collective::kBcast:
    case Collective::kBarrier:
      return false;
    default:
      return true;
  }
}

namespace {

constexpr std::size_t kBytesOfProgram = 64 << 20;  ///< of buffers, on each rank
constexpr int kMostRequests = 20;

/// `all`: the ranks of the communicator that it is made from.
std::vector<std::vector<int>> groups_of(Membership membership, std::vector<int> all, Draw& draw) {
  const auto ranks = static_cast<int>(all.size());
  switch (membership) {
    case Membership::kWorld:
    case Membership::kDuplicate:
    case Membership::kMerged:
      return {all};
    case Membership::kReversed:
      return {std::vector<int>(all.rbegin(), all.rend())};
    case Membership::kPart: {
      const int most = std::max(1, ranks - 1);
      const auto members = static_cast<std::size_t>(draw.between(std::min(2, most), most));
      while (all.size() > members) all.erase(all.begin() + draw.below(static_cast<int>(all.size())));
      return {all};
    }
    case Membership::kHalves:
      break;
  }
  if (ranks == 1) return {all};
  return {std::vector<int>(all.begin(), all.begin() + ranks / 2),
          std::vector<int>(all.begin() + ranks / 2, all.end())};
}

class Generator {
 public:
  explicit Generator(const Options& options) : draw_(options.seed) { program_.options = options; }

  Program generate() {
    // Small messages in some programs make them quick, and show calls that overtake each other.
    const int scale = draw_.below(3);
    max_bytes_ = scale == 0 ? 1 << 10 : scale == 1 ? 64 << 10 : kBytesOfProgram;
    max_bytes_ = std::min(max_bytes_, program_.options.max_bytes);
    const int comms = draw_.between(1, 5), rounds = draw_.between(1, 5);
    in_all_ = draw_.chance(0.3) ? draw_.between(1, 4) : draw_.between(1, kMostRequests);
    alike_ = draw_.chance(0.3) ? 0.8 : 0;
    many_calls_ = draw_.chance(0.3);
    for (int comm = 0; comm < comms; ++comm) {
      program_.comms.push_back(communicator());
      made_.push_back(false);
      freed_.push_back(false);
    }
    for (int round = 0; round < rounds; ++round) draw_round(round, rounds);
    free_requests();
    number();
    leave_out();
    return std::move(program_);
  }

 private:
  int last_step() const { return static_cast<int>(program_.steps.size()) - 1; }

  Communicator communicator() {
    Communicator result;
    const int which = draw_.below(10);
    result.membership = which < 1   ? Membership::kWorld
                        : which < 4 ? Membership::kDuplicate
                        : which < 5 ? Membership::kMerged
                        : which < 7 ? Membership::kReversed
                        : which < 9 ? Membership::kPart
                                    : Membership::kHalves;
    const Asserted asserted = program_.options.asserted;
    // Others use the world, too, so it makes no promise.
    if (result.membership == Membership::kWorld && asserted == Asserted::kAlways)
      result.membership = Membership::kDuplicate;
    const bool drawn = draw_.chance(0.5), at_duplication = draw_.chance(0.5);
    if (result.membership == Membership::kWorld) return result;
    if (asserted == Asserted::kAlways || (asserted == Asserted::kRandom && drawn))
      result.assertion = at_duplication ? Assertion::kAtDuplication : Assertion::kSetLater;
    return result;
  }

  /// A communicator that can be used, or -1.
  int any_comm() {
    std::vector<int> usable;
    for (std::size_t comm = 0; comm < made_.size(); ++comm)
      if (made_[comm] && !freed_[comm]) usable.push_back(static_cast<int>(comm));
    return usable.empty() ? -1
                          : usable[static_cast<std::size_t>(draw_.below(static_cast<int>(usable.size())))];
  }

  /// From the program's own, or from one that is there.
  void make(int comm) {
    Communicator& made = program_.comms[static_cast<std::size_t>(comm)];
    std::vector<int> all(static_cast<std::size_t>(program_.options.ranks));
    std::iota(all.begin(), all.end(), 0);
    std::vector<std::vector<int>> parents{all};
    if (const int parent = any_comm();
        made.membership != Membership::kWorld && parent >= 0 && draw_.chance(0.4)) {
      made.parent = parent;
      const Communicator& from = program_.comms[static_cast<std::size_t>(parent)];
      parents = from.groups;
      // MPI_Comm_dup copies hints up to MPI 3.1.
      if (made.membership == Membership::kDuplicate && made.assertion == Assertion::kNone &&
          from.assertion != Assertion::kNone)
        made.assertion = Assertion::kSetLater;
    }
    for (const std::vector<int>& parent : parents)
      for (std::vector<int>& group : groups_of(made.membership, parent, draw_))
        made.groups.push_back(std::move(group));
    add(Step::kMake, comm);
    made_[static_cast<std::size_t>(comm)] = true;
  }

  Step& add(Step::Kind kind, int comm) {
    Step step;
    step.kind = kind;
    step.call.comm = comm;
    program_.steps.push_back(step);
    return program_.steps.back();
  }

  std::size_t any_bytes() {
    if (draw_.chance(0.08)) return 0;
    // The share is drawn before the limit is known: a smaller limit gives the same program with less data.
    const double share = draw_.share();
    const std::size_t most = std::min(max_bytes_, (kBytesOfProgram - used_) / 8);
    const auto bytes =
        static_cast<std::size_t>(std::exp2(2 + share * (std::log2(static_cast<double>(most) + 8) - 2)));
    used_ += 2 * bytes;
    return bytes;
  }

  /// In some programs many calls are alike: if one takes another's data, nothing but the data shows it.
  Call any_call(int comm, bool blocking) {
    const bool repeats = draw_.chance(alike_), same_root = draw_.chance(0.5);
    Call call = new_call(comm);
    if (last_ && repeats && used_ + 2 * last_->bytes < kBytesOfProgram) {
      used_ += 2 * last_->bytes;
      const int root = same_root ? last_->root : call.root;
      call = *last_;
      call.comm = comm;
      call.root = root;
    }
    last_ = call;
    const bool exchanges =
        call.collective == Collective::kAlltoallv || call.collective == Collective::kAlltoallw;
    if (!blocking && exchanges) call.in_place = false;  // Open MPI's own are wrong (docs/conformance.md)
    return call;
  }

  Call new_call(int comm) {
    Call call;
    call.comm = comm;
    call.collective = static_cast<Collective>(draw_.below(kCollectives));
    call.root = draw_.below(program_.options.ranks);
    call.bytes = any_bytes();
    call.in_place = draw_.chance(0.25) && has_in_place(call.collective);
    if (!reduces(call.collective)) {
      call.element = static_cast<Element>(draw_.below(3));
      return call;
    }
    call.operation = static_cast<Operation>(draw_.below(4));
    call.element = call.operation == Operation::kCompose
                       ? (draw_.chance(0.7) ? Element::kPair : Element::kGappedPair)
                       : static_cast<Element>(draw_.below(2));
    return call;
  }

  void add_request(int comm) {
    Step& step = add(Step::kInit, comm);
    step.call = any_call(comm, false);
    step.request = static_cast<int>(program_.requests.size());
    Request request;
    request.step = last_step();
    program_.requests.push_back(request);
    busy_until_.push_back(last_step() - 1);
  }

  /// A window that begins no earlier than `first`.
  Window window(int first) {
    const int begin = draw_.chance(0.4) ? first : draw_.between(first, last_step());
    return {begin, draw_.chance(0.4) ? last_step() : draw_.between(begin, last_step())};
  }

  void add_calls() {
    for (int i = many_calls_ ? draw_.between(8, 25) : draw_.below(7); i > 0; --i) {
      const int comm = any_comm();
      const double kind = draw_.share();
      if (comm < 0 || kind < 0.1) {
        add(Step::kNothing, 0);
      } else if (kind < 0.5) {
        add(Step::kBlocking, comm).call = any_call(comm, true);
      } else if (kind < 0.75) {
        add(Step::kNonblocking, comm).call = any_call(comm, false);
      } else if (kind < 0.94) {
        const int ranks = program_.options.ranks;
        Step& step = add(Step::kMessage, comm);
        step.from = draw_.below(ranks);
        step.to = draw_.below(ranks);
        step.waits = draw_.chance(0.5);
        step.call.bytes = std::min<std::size_t>(any_bytes(), 256 << 10);
      } else {
        const bool is_world = program_.comms[static_cast<std::size_t>(comm)].membership == Membership::kWorld;
        const bool has_requests =
            std::any_of(program_.requests.begin(), program_.requests.end(), [&](const Request& request) {
              return program_.steps[static_cast<std::size_t>(request.step)].call.comm == comm;
            });
        if (is_world || !has_requests) continue;
        add(Step::kFree, comm);
        freed_[static_cast<std::size_t>(comm)] = true;
      }
    }
  }

  void draw_round(int round, int rounds) {
    for (std::size_t comm = 0; comm < made_.size(); ++comm)
      if (!made_[comm] && (round + 1 == rounds || draw_.chance(0.8))) {
        make(static_cast<int>(comm));
      }
    const int left = in_all_ - static_cast<int>(program_.requests.size());
    int more = round == 0 ? draw_.between((left + 1) / 2, left) : draw_.below(left + 1) / 2;
    for (; more > 0; --more)
      if (const int comm = any_comm(); comm >= 0) add_request(comm);
    add(Step::kNothing, 0);
    const int first = last_step();
    add_calls();
    add(Step::kNothing, 0);
    const int last = last_step();

    // What earlier rounds have left active ends here.
    for (const std::size_t start : std::exchange(left_active_, {})) {
      program_.starts[start].wait = window(first);
      busy_until_[static_cast<std::size_t>(program_.starts[start].request)] = last;
    }
    for (int index = first; index <= last; ++index) {
      Step& step = program_.steps[static_cast<std::size_t>(index)];
      if (step.kind == Step::kNonblocking || step.kind == Step::kMessage) step.wait = window(index);
    }
    const double density = draw_.chance(0.3) ? 1 : draw_.chance(0.5) ? 0.7 : 0.4;
    for (std::size_t request = 0; request < program_.requests.size(); ++request) {
      if (busy_until_[request] >= first || !draw_.chance(density)) continue;
      Start start;
      start.request = static_cast<int>(request);
      start.start = window(first);
      start.wait = window(start.start.last);
      busy_until_[request] = start.wait.last;
      if (round + 1 < rounds && draw_.chance(0.15)) {
        left_active_.push_back(program_.starts.size());
        start.wait = {};
      }
      program_.starts.push_back(start);
    }
  }

  void free_requests() {
    for (std::size_t request = 0; request < program_.requests.size(); ++request) {
      if (!draw_.chance(0.3)) continue;
      int first = program_.requests[request].step;
      for (const Start& start : program_.starts)
        if (start.request == static_cast<int>(request)) first = std::max(first, start.wait.last);
      program_.requests[request].freed = true;
      program_.requests[request].free = window(first);
    }
  }

  void number() {
    for (Step& step : program_.steps)
      if (step.kind == Step::kNothing)
        step.dropped = true;
      else
        step.number = program_.numbers++;
    for (Start& start : program_.starts) start.number = program_.numbers++;
  }

  /// Also what needs something that is left out.
  void leave_out() {
    const Options& options = program_.options;
    std::vector<bool> has_comm(program_.comms.size(), false), has_request(program_.requests.size(), false);
    for (Step& step : program_.steps) {
      if (options.without.contains(step.number)) step.dropped = true;
      if (step.kind == Step::kFree && !options.freed_communicators) step.dropped = true;
      const int parent = program_.comms[static_cast<std::size_t>(step.call.comm)].parent;
      if (step.kind == Step::kMake && parent != Communicator::kBase &&
          !has_comm[static_cast<std::size_t>(parent)])
        step.dropped = true;
      if (step.kind == Step::kMake)
        has_comm[static_cast<std::size_t>(step.call.comm)] = !step.dropped;
      else if (!has_comm[static_cast<std::size_t>(step.call.comm)])
        step.dropped = true;
      if (step.kind == Step::kInit) has_request[static_cast<std::size_t>(step.request)] = !step.dropped;
    }
    for (Start& start : program_.starts)
      start.dropped =
          options.without.contains(start.number) || !has_request[static_cast<std::size_t>(start.request)];
  }

  Program program_;
  Draw draw_;
  std::size_t max_bytes_ = 0, used_ = 0;
  int in_all_ = 0;
  double alike_ = 0;         ///< the share of calls that equal the one before
  bool many_calls_ = false;  ///< that are not persistent
  std::optional<Call> last_;
  std::vector<bool> made_, freed_;        ///< communicators
  std::vector<int> busy_until_;           ///< of each request: the step after which it may be active
  std::vector<std::size_t> left_active_;  ///< starts that are waited for in the next round
};

}  // namespace

Program generate(const Options& options) {
  return Generator(options).generate();
}

}  // namespace loom::random_programs
