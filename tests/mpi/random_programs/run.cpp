#include "tests/mpi/random_programs/run.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <thread>

#include "base/format.hpp"
#include "tests/mpi/random_programs/draw.hpp"

namespace loom::random_programs {
namespace {

/// A message, of one rank or both.
struct Message {
  std::vector<unsigned char> sent, received;
  MPI_Request receive = MPI_REQUEST_NULL;
};

/// A persistent request of this rank.
struct Persistent {
  std::unique_ptr<Operands> operands;
  MPI_Request request = MPI_REQUEST_NULL;
};

/// An active request, to be waited for.
struct Pending {
  MPI_Request request = MPI_REQUEST_NULL;
  int persistent = -1;                 ///< or that of a call that does not wait:
  std::unique_ptr<Operands> operands;  ///< or that of a message:
  std::unique_ptr<Message> message;
  std::string what;
};

class Runner {
 public:
  Runner(const Program& program, const Environment& environment, Totals& totals, std::vector<Place> made)
      : program_(program),
        environment_(environment),
        totals_(totals),
        are_made_(!made.empty()),
        places_(are_made_ ? std::move(made) : std::vector<Place>(program.comms.size())),
        requests_(program.requests.size()) {}

  std::vector<Place> make_all() {
    for (const Step& step : program_.steps)
      if (step.kind == Step::kMake && !step.dropped && parent_of(step.call.comm).ranks > 0)
        make(step.call.comm);
    for (const std::string& what : wrong_) loom::print(stderr, "{}\n", what);
    if (!wrong_.empty()) MPI_Abort(environment_.base, 1);
    return std::move(places_);
  }

  std::vector<std::string> run() {
    for (std::size_t index = 0; index < program_.steps.size(); ++index) {
      const Step& step = program_.steps[index];
      if (!step.dropped) come_to(step);
      for (const Action& action : actions_after(program_, static_cast<int>(index), environment_.rank))
        act(action);
      look_at_some(static_cast<int>(index));
    }
    clean_up();
    return std::move(wrong_);
  }

 private:
  template <class... Arguments>
  void trace(FormatString<Arguments...> format, Arguments&&... arguments) const {
    if (!environment_.traces) return;
    loom::print(stderr, "rank {}: {}\n", environment_.rank,
                loom::format(format, std::forward<Arguments>(arguments)...));
  }
  Place& place_of(int comm) { return places_[static_cast<std::size_t>(comm)]; }
  Place& place_of(const Step& step) { return place_of(step.call.comm); }
  std::uint64_t name_of(int number) const {
    return hash({program_.options.seed, static_cast<std::uint64_t>(number)});
  }
  std::unique_ptr<Operands> operands_of(const Step& step) {
    return std::make_unique<Operands>(step.call, place_of(step), environment_.operations,
                                      name_of(step.number), environment_.memory);
  }
  void judge(Operands& operands, const std::string& what) {
    ++totals_.checks;
    if (const auto difference = operands.wrong()) wrong_.push_back(loom::format("{}: {}", what, *difference));
  }

  void come_to(const Step& step) {
    const auto collective = static_cast<std::size_t>(step.call.collective);
    if (step.kind != Step::kMake && place_of(step).ranks == 0) return;
    if (step.kind == Step::kMake && (are_made_ || parent_of(step.call.comm).ranks == 0)) return;
    trace("comes to [{}]", step.number);
    switch (step.kind) {
      case Step::kNothing:
        break;
      case Step::kMake:
        make(step.call.comm);
        break;
      case Step::kFree:
        ++totals_.freed_communicators;
        MPI_Comm_free(&place_of(step).comm);
        break;
      case Step::kInit: {
        ++totals_.requests[collective];
        Persistent& made = requests_[static_cast<std::size_t>(step.request)];
        made.operands = operands_of(step);
        made.operands->call(Form::kPersistent, &made.request);
        break;
      }
      case Step::kBlocking: {
        ++totals_.blocking[collective];
        const auto operands = operands_of(step);
        operands->fill(0);
        operands->call(Form::kBlocking, nullptr);
        judge(*operands, loom::format("[{}] blocking {}", step.number, describe(step.call)));
        break;
      }
      case Step::kNonblocking: {
        ++totals_.nonblocking[collective];
        Pending& pending = pending_[step.number];
        pending.operands = operands_of(step);
        pending.operands->fill(0);
        pending.operands->call(Form::kNonblocking, &pending.request);
        pending.what = loom::format("[{}] nonblocking {}", step.number, describe(step.call));
        break;
      }
      case Step::kMessage:
        exchange(step);
        break;
    }
    trace("is through [{}]", step.number);
  }

  /// What a communicator is made from.
  Place parent_of(int comm) {
    const int parent = program_.comms[static_cast<std::size_t>(comm)].parent;
    if (parent != Communicator::kBase) return place_of(parent);
    return {environment_.base, 0, environment_.rank, environment_.ranks};
  }

  /// Of all of a communicator's ranks: its two halves, joined again.
  MPI_Comm merged(const Place& parent) {
    const int half = parent.ranks / 2;
    const bool is_upper = parent.rank >= half;
    MPI_Comm own, between, result;
    MPI_Comm_split(parent.comm, is_upper ? 1 : 0, parent.rank, &own);
    MPI_Intercomm_create(own, 0, parent.comm, is_upper ? 0 : half, 0, &between);
    int mine = parent.rank, others = -1;
    MPI_Allreduce(&mine, &others, 1, MPI_INT, MPI_SUM, between);
    const int first = is_upper ? 0 : half, end = is_upper ? half : parent.ranks;
    if (others != (first + end - 1) * (end - first) / 2)
      wrong_.push_back(loom::format("an allreduce on an intercommunicator sums up to {}", others));
    MPI_Intercomm_merge(between, is_upper ? 1 : 0, &result);
    MPI_Comm_free(&between);
    MPI_Comm_free(&own);
    return result;
  }

  void make(int comm) {
    const Communicator& made = program_.comms[static_cast<std::size_t>(comm)];
    const int group = group_of(program_, comm, environment_.rank);
    Place& place = place_of(comm);
    const Place parent = parent_of(comm);
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, environment_.ordered_key.c_str(), "true");
    const bool duplicates = made.assertion == Assertion::kAtDuplication;
    if (made.membership == Membership::kWorld) {
      place.comm = environment_.base;
    } else if (made.membership == Membership::kMerged && parent.ranks > 1) {
      place.comm = merged(parent);
    } else if (made.membership == Membership::kDuplicate) {
      MPI_Comm_dup(parent.comm, &place.comm);
    } else {
      const int key = made.membership == Membership::kReversed ? -parent.rank : parent.rank;
      MPI_Comm_split(parent.comm, group < 0 ? MPI_UNDEFINED : group, key, &place.comm);
    }
    if (duplicates && group >= 0 && made.membership != Membership::kWorld) {
      MPI_Comm without = place.comm;
      MPI_Comm_dup_with_info(without, info, &place.comm);
      MPI_Comm_free(&without);
    }
    if (made.assertion == Assertion::kSetLater && group >= 0) MPI_Comm_set_info(place.comm, info);
    MPI_Info_free(&info);
    if (group < 0) return;
    place.group = group;
    MPI_Comm_rank(place.comm, &place.rank);
    MPI_Comm_size(place.comm, &place.ranks);
  }

  void exchange(const Step& step) {
    const Place& place = place_of(step);
    const int from = step.from % place.ranks, to = step.to % place.ranks,
              bytes = static_cast<int>(step.call.bytes);
    if (place.rank != from && place.rank != to) return;
    ++totals_.messages;
    auto message = std::make_unique<Message>();
    if (place.rank == from) message->sent.assign(step.call.bytes, byte_of(step));
    if (place.rank == to) message->received.assign(step.call.bytes, 0xee);
    const bool waits = step.waits && from != to;
    if (waits && place.rank == from)
      MPI_Send(message->sent.data(), bytes, MPI_BYTE, to, step.number, place.comm);
    else if (waits)
      MPI_Recv(message->received.data(), bytes, MPI_BYTE, from, step.number, place.comm, MPI_STATUS_IGNORE);
    if (waits) return judge(*message, step);
    MPI_Request request = MPI_REQUEST_NULL;
    if (place.rank == to)
      MPI_Irecv(message->received.data(), bytes, MPI_BYTE, from, step.number, place.comm, &request);
    if (from == to) {
      MPI_Send(message->sent.data(), bytes, MPI_BYTE, to, step.number, place.comm);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      return judge(*message, step);
    }
    if (place.rank == from)
      MPI_Isend(message->sent.data(), bytes, MPI_BYTE, to, step.number, place.comm, &request);
    Pending& pending = pending_[step.number];
    pending.request = request;
    pending.message = std::move(message);
  }
  unsigned char byte_of(const Step& step) const { return static_cast<unsigned char>(name_of(step.number)); }
  void judge(const Message& message, const Step& step) {
    const unsigned char expected = byte_of(step);
    for (const unsigned char byte : message.received)
      if (byte != expected) {
        wrong_.push_back(
            loom::format("[{}] a message of {} bytes on communicator {}: has a byte {}, expected {}",
                         step.number, step.call.bytes, step.call.comm, byte, expected));
        return;
      }
  }

  void act(const Action& action) {
    if (action.kind == Action::kPause) {
      trace("pauses for {} ms", action.which.front());
      std::this_thread::sleep_for(std::chrono::milliseconds(action.which.front()));
    } else if (action.kind == Action::kStart || action.kind == Action::kStartall) {
      start(action);
    } else if (action.kind == Action::kFree) {
      trace("frees request {}", action.which.front());
      MPI_Request_free(&requests_[static_cast<std::size_t>(action.which.front())].request);
      requests_[static_cast<std::size_t>(action.which.front())].operands.reset();
    } else {
      std::vector<int> waiting;
      for (const int number : action.which)
        if (pending_.contains(number)) waiting.push_back(number);
      complete(action.kind, waiting);
    }
  }

  void start(const Action& action) {
    std::vector<MPI_Request> handles;
    for (const int index : action.which) {
      const Start& start = program_.starts[static_cast<std::size_t>(index)];
      const Call& call = program_.call_of(start);
      trace("starts {} (request {})", start.number, start.request);
      ++totals_.starts[static_cast<std::size_t>(call.collective)];
      if (program_.comms[static_cast<std::size_t>(call.comm)].assertion != Assertion::kNone)
        ++totals_.asserted_starts[static_cast<std::size_t>(call.collective)];
      Persistent& of = requests_[static_cast<std::size_t>(start.request)];
      of.operands->fill(static_cast<std::uint64_t>(start.number) + 1);
      handles.push_back(of.request);
    }
    if (action.kind == Action::kStart)
      MPI_Start(handles.data());
    else
      MPI_Startall(static_cast<int>(handles.size()), handles.data());
    for (std::size_t i = 0; i < handles.size(); ++i) {
      const Start& start = program_.starts[static_cast<std::size_t>(action.which[i])];
      requests_[static_cast<std::size_t>(start.request)].request = handles[i];
      Pending& pending = pending_[start.number];
      pending.request = handles[i];
      pending.persistent = start.request;
      pending.what = loom::format("start {} of request {}: {}", start.number, start.request,
                                  describe(program_.call_of(start)));
    }
  }

  /// Some of the functions that complete requests, for all of them.
  void complete(Action::Kind how, const std::vector<int>& numbers) {
    if (numbers.empty()) return;
    std::vector<MPI_Request> handles;
    handles.reserve(numbers.size());
    for (const int number : numbers) handles.push_back(pending_[number].request);
    const int n = static_cast<int>(numbers.size());
    const auto done = [&](int i) {
      pending_[numbers[static_cast<std::size_t>(i)]].request = handles[static_cast<std::size_t>(i)];
      finish(numbers[static_cast<std::size_t>(i)]);
    };
    trace("{} of {}", name(how), loom::join(numbers, " "));
    std::vector<int> which(numbers.size());
    int flag = 0, some = 0, left = n;
    switch (how) {
      case Action::kWaitany:
        for (; left > 0; --left) {
          MPI_Waitany(n, handles.data(), which.data(), MPI_STATUS_IGNORE);
          done(which[0]);
        }
        break;
      case Action::kWaitsome:
      case Action::kTestsome:
        for (; left > 0; left -= some) {
          if (how == Action::kWaitsome)
            MPI_Waitsome(n, handles.data(), &some, which.data(), MPI_STATUSES_IGNORE);
          else
            MPI_Testsome(n, handles.data(), &some, which.data(), MPI_STATUSES_IGNORE);
          for (int i = 0; i < some; ++i) done(which[static_cast<std::size_t>(i)]);
        }
        break;
      default:
        if (how == Action::kWait) MPI_Wait(handles.data(), MPI_STATUS_IGNORE);
        if (how == Action::kWaitall) MPI_Waitall(n, handles.data(), MPI_STATUSES_IGNORE);
        while (how == Action::kTest && !flag) MPI_Test(handles.data(), &flag, MPI_STATUS_IGNORE);
        while (how == Action::kTestall && !flag) MPI_Testall(n, handles.data(), &flag, MPI_STATUSES_IGNORE);
        for (int i = 0; i < n; ++i) done(i);
    }
  }

  /// A request that is complete.
  void finish(int number) {
    const auto found = pending_.find(number);
    Pending& pending = found->second;
    trace("has completed {}", number);
    if (pending.persistent >= 0) {
      Persistent& of = requests_[static_cast<std::size_t>(pending.persistent)];
      if (pending.request == MPI_REQUEST_NULL)
        wrong_.push_back(pending.what + ": completing it has freed it");
      judge(*of.operands, pending.what);
    } else {
      if (pending.request != MPI_REQUEST_NULL)
        wrong_.push_back(loom::format("[{}]: completing it has left it", number));
      if (pending.operands) judge(*pending.operands, pending.what);
      if (pending.message)
        judge(*pending.message, *std::find_if(program_.steps.begin(), program_.steps.end(),
                                              [&](const Step& step) { return step.number == number; }));
    }
    pending_.erase(found);
  }

  /// Now and then MPI_Test of active requests, which may complete them early.
  void look_at_some(int step) {
    const std::uint64_t which = hash({program_.options.seed, static_cast<std::uint64_t>(environment_.rank),
                                      kTest, static_cast<std::uint64_t>(step)});
    if (which % 4 != 0 || pending_.empty()) return;
    const auto one = std::next(pending_.begin(), static_cast<std::ptrdiff_t>(which / 4 % pending_.size()));
    int flag = 0;
    MPI_Test(&one->second.request, &flag, MPI_STATUS_IGNORE);
    if (flag) finish(one->first);
  }

  void clean_up() {
    std::vector<std::size_t> order;
    for (std::size_t index = 0; index < requests_.size(); ++index) order.push_back(index);
    const auto key = [&](std::size_t index) {
      return hash({program_.options.seed, static_cast<std::uint64_t>(environment_.rank), kFree, index});
    };
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
    for (const std::size_t index : order)
      if (requests_[index].request != MPI_REQUEST_NULL) MPI_Request_free(&requests_[index].request);
    requests_.clear();
    for (Place& place : places_)
      if (place.comm != MPI_COMM_NULL && place.comm != environment_.base) MPI_Comm_free(&place.comm);
  }

  const Program& program_;
  const Environment& environment_;
  Totals& totals_;
  bool are_made_;
  std::vector<Place> places_;
  std::vector<Persistent> requests_;
  std::map<int, Pending> pending_;  ///< by number
  std::vector<std::string> wrong_;
};

}  // namespace

std::vector<Place> make_communicators(const Program& program, const Environment& environment) {
  Totals nothing;
  return Runner(program, environment, nothing, {}).make_all();
}

std::vector<std::string> run(const Program& program, const Environment& environment, Totals& totals,
                             std::vector<Place> made) {
  return Runner(program, environment, totals, std::move(made)).run();
}

}  // namespace loom::random_programs
