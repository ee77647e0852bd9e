// A program as text.
#include "tests/mpi/random_programs/program.hpp"

#include "base/format.hpp"

namespace loom::random_programs {
namespace {

std::string describe(const Communicator& comm) {
  constexpr std::string_view kMemberships[] = {
      "the same",   "a duplicate", "all ranks, in reverse order",
      "some ranks", "two halves",  "all ranks, by an intercommunicator between two halves"};
  constexpr std::string_view kAssertions[] = {"", "; starts are in one order, says MPI_Comm_dup_with_info",
                                              "; starts are in one order, says MPI_Comm_set_info"};
  std::string groups;
  for (const auto& group : comm.groups) groups += loom::format(" {{{}}}", loom::join(group, " "));
  const std::string parent = comm.parent == Communicator::kBase
                                 ? "the program's communicator"
                                 : loom::format("communicator {}", comm.parent);
  return loom::format("of {}, {}: world ranks{}{}", parent,
                      kMemberships[static_cast<std::size_t>(comm.membership)], groups,
                      kAssertions[static_cast<std::size_t>(comm.assertion)]);
}

std::string describe(const Program& program, const Step& step) {
  switch (step.kind) {
    case Step::kNothing:
      break;
    case Step::kMake:
      return loom::format("make communicator {}: {}", step.call.comm,
                          describe(program.comms[static_cast<std::size_t>(step.call.comm)]));
    case Step::kFree:
      return loom::format("free communicator {}", step.call.comm);
    case Step::kInit:
      return loom::format("make request {}: {}", step.request, describe(step.call));
    case Step::kBlocking:
      return loom::format("blocking {}", describe(step.call));
    case Step::kNonblocking:
      return loom::format("nonblocking {}", describe(step.call));
    case Step::kMessage:
      return loom::format("{} of {} bytes from rank {} to {}, modulo the size, of communicator {}",
                          step.waits ? "Send and Recv" : "Isend and Irecv", step.call.bytes, step.from,
                          step.to, step.call.comm);
  }
  return "nothing";
}

std::string describe(const Program& program, const Action& action) {
  std::string which;
  for (const int index : action.which)
    if (action.kind == Action::kStart || action.kind == Action::kStartall) {
      const Start& start = program.starts[static_cast<std::size_t>(index)];
      which += loom::format(" {}(request {})", start.number, start.request);
    } else if (action.kind == Action::kFree) {
      which += loom::format(" request {}", index);
    } else {
      which += loom::format(" {}", index);
    }
  return loom::format("{}{}", name(action.kind), which);
}

}  // namespace

std::string describe(const Call& call) {
  constexpr std::string_view kElements[] = {"ints", "doubles", "triples of ints, with gaps on some ranks",
                                            "pairs", "pairs with gaps"};
  constexpr std::string_view kOperations[] = {"sum", "max", "sum by the program's operation",
                                              "composition, which does not commute"};
  if (call.collective == Collective::kBarrier) return loom::format("barrier on communicator {}", call.comm);
  std::string text = loom::format("{} of {} bytes", name(call.collective), call.bytes);
  if (has_blocks(call.collective)) text += " in all blocks";
  text += loom::format(" of {}", kElements[static_cast<std::size_t>(call.element)]);
  if (reduces(call.collective))
    text += loom::format(", {}", kOperations[static_cast<std::size_t>(call.operation)]);
  if (has_root(call.collective)) text += loom::format(", root {} modulo the size", call.root);
  if (call.in_place) text += ", in place";
  return text + loom::format(", on communicator {}", call.comm);
}

std::string describe(const Program& program) {
  std::string text = loom::format("seed {}, {} ranks, {} elements\n", program.options.seed,
                                  program.options.ranks, program.numbers);
  bool acts = false;  // after the step before
  for (std::size_t index = 0; index < program.steps.size(); ++index) {
    const Step& step = program.steps[index];
    if (!step.dropped)
      text += loom::format("[{}] {}\n", step.number, describe(program, step));
    else if (acts)
      text += "then\n";
    acts = false;
    for (int rank = 0; rank < program.options.ranks; ++rank) {
      std::vector<std::string> done;
      for (const Action& action : actions_after(program, static_cast<int>(index), rank))
        done.push_back(describe(program, action));
      acts = acts || !done.empty();
      if (!done.empty()) text += loom::format("    rank {}: {}\n", rank, loom::join(done, "; "));
    }
  }
  return text + "numbers in [] and of starts are those that --without takes\n";
}

}  // namespace loom::random_programs
