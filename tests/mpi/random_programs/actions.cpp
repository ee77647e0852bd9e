// What each rank does by itself after each step, which differs from rank to rank.
#include <algorithm>
#include <map>

#include "tests/mpi/random_programs/draw.hpp"
#include "tests/mpi/random_programs/program.hpp"

namespace loom::random_programs {
namespace {

/// Numbers of one rank in one program.
struct Numbers {
  const Program& program;
  int rank;

  std::uint64_t of(Use use, int name) const {
    return hash(
        {program.options.seed, static_cast<std::uint64_t>(rank), use, static_cast<std::uint64_t>(name)});
  }
  int in(const Window& window, Use use, int name) const {
    return window.first +
           static_cast<int>(of(use, name) % static_cast<std::uint64_t>(window.last - window.first + 1));
  }
};

bool ordered(const Program& program, const Start& start) {
  return program.comms[static_cast<std::size_t>(program.call_of(start).comm)].assertion != Assertion::kNone;
}

/// The one order of starts on communicators that promise it: by the end of their windows. So a rank can start
/// each no earlier than the one before, and within its window.
std::vector<int> common_order(const Program& program) {
  std::vector<int> order;
  for (std::size_t start = 0; start < program.starts.size(); ++start)
    order.push_back(static_cast<int>(start));
  const auto key = [&](int index) {
    const Start& start = program.starts[static_cast<std::size_t>(index)];
    return std::pair(start.start.last,
                     hash({program.options.seed, kStartOrder, static_cast<std::uint64_t>(start.number)}));
  };
  std::sort(order.begin(), order.end(), [&](int a, int b) { return key(a) < key(b); });
  return order;
}

/// The starts after a step, in order.
std::vector<int> starts_after(const Numbers& numbers, int step) {
  const Program& program = numbers.program;
  std::vector<int> result;
  std::map<int, int> so_far;                     // by communicator
  std::map<int, std::vector<int>> in_one_order;  // by communicator: of `result`
  for (const int index : common_order(program)) {
    const Start& start = program.starts[static_cast<std::size_t>(index)];
    const int comm = program.call_of(start).comm;
    int at = numbers.in(start.start, kStart, start.number);
    if (ordered(program, start)) at = so_far[comm] = std::max(at, so_far[comm]);
    if (at != step || start.dropped) continue;
    result.push_back(index);
    if (ordered(program, start)) in_one_order[comm].push_back(index);
  }
  const auto key = [&](int index) {
    return numbers.of(kStartOrder, program.starts[static_cast<std::size_t>(index)].number);
  };
  std::sort(result.begin(), result.end(), [&](int a, int b) { return key(a) < key(b); });
  std::map<int, std::size_t> next;
  for (int& index : result) {
    const Start& start = program.starts[static_cast<std::size_t>(index)];
    const int comm = program.call_of(start).comm;
    if (ordered(program, start)) index = in_one_order[comm][next[comm]++];
  }
  return result;
}

/// The numbers of the requests that are waited for after a step, in order.
std::vector<int> waits_after(const Numbers& numbers, int step) {
  const Program& program = numbers.program;
  std::vector<int> result;
  const auto add = [&](const Window& wait, int number, int comm) {
    if (numbers.in(wait, kWait, number) == step && group_of(program, comm, numbers.rank) >= 0)
      result.push_back(number);
  };
  for (const Step& one : program.steps)
    if (!one.dropped && (one.kind == Step::kNonblocking || (one.kind == Step::kMessage && !one.waits)))
      add(one.wait, one.number, one.call.comm);
  for (const Start& start : program.starts)
    if (!start.dropped) add(start.wait, start.number, program.call_of(start).comm);
  std::sort(result.begin(), result.end(),
            [&](int a, int b) { return numbers.of(kWaitOrder, a) < numbers.of(kWaitOrder, b); });
  return result;
}

/// In milliseconds; in some programs some ranks make some.
int pause_after(const Numbers& numbers, int step) {
  if (hash({numbers.program.options.seed, kPauses}) % 4 != 0) return 0;
  const std::uint64_t drawn = numbers.of(kPauses, step);
  return drawn % 8 == 0 ? 1 + static_cast<int>(drawn / 8 % 30) : 0;
}

}  // namespace

std::string_view name(Action::Kind kind) {
  constexpr std::string_view kNames[] = {"Start",    "Startall",     "Wait",        "Waitall",
                                         "Waitany",  "Waitsome",     "Test",        "Testall",
                                         "Testsome", "Request_free", "pause of ms:"};
  return kNames[kind];
}

int group_of(const Program& program, int comm, int rank) {
  const auto& groups = program.comms[static_cast<std::size_t>(comm)].groups;
  for (std::size_t group = 0; group < groups.size(); ++group)
    if (std::find(groups[group].begin(), groups[group].end(), rank) != groups[group].end())
      return static_cast<int>(group);
  return -1;
}

std::vector<Action> actions_after(const Program& program, int step, int rank) {
  const Numbers numbers{program, rank};
  std::vector<Action> actions;
  if (const int pause = pause_after(numbers, step); pause > 0) actions.push_back({Action::kPause, {pause}});
  bool joins = false;
  for (const int index : starts_after({program, program.options.same_starts ? 0 : rank}, step)) {
    if (group_of(program, program.call_of(program.starts[static_cast<std::size_t>(index)]).comm, rank) < 0)
      continue;
    const int number = program.starts[static_cast<std::size_t>(index)].number;
    const std::uint64_t how = numbers.of(kJoin, number);
    if (joins)
      actions.back().which.push_back(index);
    else
      actions.push_back({how % 3 == 0 ? Action::kStart : Action::kStartall, {index}});
    joins = actions.back().kind == Action::kStartall && how / 3 % 4 != 0;
  }
  joins = false;
  for (const int number : waits_after(numbers, step)) {
    const std::uint64_t how = numbers.of(kHow, number);
    if (joins)
      actions.back().which.push_back(number);
    else
      actions.push_back({static_cast<Action::Kind>(Action::kWait + how % 7), {number}});
    const bool takes_one = actions.back().kind == Action::kWait || actions.back().kind == Action::kTest;
    joins = !takes_one && how / 7 % 4 != 0;
  }
  for (std::size_t index = 0; index < program.requests.size(); ++index) {
    const Request& request = program.requests[index];
    const Step& making = program.steps[static_cast<std::size_t>(request.step)];
    if (request.freed && !making.dropped && numbers.in(request.free, kFree, making.number) == step &&
        group_of(program, making.call.comm, rank) >= 0)
      actions.push_back({Action::kFree, {static_cast<int>(index)}});
  }
  return actions;
}

}  // namespace loom::random_programs
