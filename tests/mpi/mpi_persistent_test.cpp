// mpi_persistent_test [CASE...] -- persistent collective requests where ranks differ in what MPI lets them
// differ in: the order of starts, their place among other calls, whether a request is started or freed, when
// its communicator is freed. Exit code 1: wrong. Without a case: all of them.
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "mpi_examples/support/loom_pvars.hpp"
#include "tests/mpi/init_forms.hpp"

namespace {

int rank, ranks;

void require(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "rank %d of %d: %s\n", rank, ranks, what.c_str());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/// A duplicate of a communicator, with an info key; empty: none.
class Comm {
 public:
  explicit Comm(const char* key = "", const char* value = "true", bool by_set_info = false) {
    if (*key == '\0') {
      MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
      return;
    }
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, key, value);
    if (by_set_info) {
      MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
      MPI_Comm_set_info(comm_, info);
    } else {
      MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm_);
    }
    MPI_Info_free(&info);
  }
  ~Comm() { release(); }
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;
  void release() {
    if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
  }
  operator MPI_Comm() const { return comm_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};
constexpr const char* kOrdered = "coll_loom_ordered_starts";
/// As much of mpi_assert_strict_persistent_collective_ordering as MPI_Info_set takes.
std::string standard_key() {
  return std::string("mpi_assert_strict_persistent_collective_ordering").substr(0, MPI_MAX_INFO_KEY - 1);
}

/// A persistent broadcast or sum whose result says which one it is.
struct Call {
  enum class Kind { kBcast, kSum };
  Call(Kind which, int label, int elements, MPI_Comm comm)
      : kind(which), number(label), count(elements), in(size()), out(size()) {
    if (kind == Kind::kBcast)
      INIT(Bcast)(out.data(), count, MPI_INT, 0, comm, MPI_INFO_NULL, &request);
    else
      INIT(Allreduce)(in.data(), out.data(), count, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
  }
  ~Call() {
    if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  std::size_t size() const { return static_cast<std::size_t>(count); }
  void fill(int round) {
    value = 1000 * number + round;
    std::fill(in.begin(), in.end(), value + rank);
    std::fill(out.begin(), out.end(), kind == Kind::kBcast && rank == 0 ? value : -1);
  }
  void check(const std::string& where) const {
    const int expected = kind == Kind::kBcast ? value : ranks * value + ranks * (ranks - 1) / 2;
    for (const int element : out)
      require(element == expected, where + ": request " + std::to_string(number) + " has " +
                                       std::to_string(element) + ", not " + std::to_string(expected));
  }

  Kind kind;
  int number, count, value = 0;
  std::vector<int> in, out;
  MPI_Request request = MPI_REQUEST_NULL;
};
constexpr std::array kCounts = {1, 100, 100'000};

void broadcasts_start_in_opposite_orders() {
  for (const int count : kCounts) {
    const Comm comm;
    Call a(Call::Kind::kBcast, 1, count, comm), b(Call::Kind::kBcast, 2, count, comm);
    for (int round = 0; round < 5; ++round) {
      a.fill(round);
      b.fill(round);
      Call& first = rank == 0 ? a : b;
      Call& second = rank == 0 ? b : a;
      MPI_Start(&first.request);
      MPI_Start(&second.request);
      MPI_Wait(&a.request, MPI_STATUS_IGNORE);
      MPI_Wait(&b.request, MPI_STATUS_IGNORE);
      a.check("two broadcasts");
      b.check("two broadcasts");
    }
  }
}

/// MPI_Startall may start its requests in any order, and the ranks list them in different ones.
void sums_start_together_rotated() {
  for (const int count : kCounts) {
    const Comm comm;
    std::array<std::unique_ptr<Call>, 4> calls;
    for (int i = 0; i < 4; ++i)
      calls[static_cast<std::size_t>(i)] = std::make_unique<Call>(Call::Kind::kSum, i, count, comm);
    for (int round = 0; round < 5; ++round) {
      std::array<MPI_Request, 4> requests;
      for (std::size_t i = 0; i < 4; ++i) {
        const auto which = (i + static_cast<std::size_t>(rank)) % 4;
        calls[which]->fill(round);
        requests[i] = calls[which]->request;
      }
      MPI_Startall(4, requests.data());
      MPI_Waitall(4, requests.data(), MPI_STATUSES_IGNORE);
      for (const auto& call : calls) call->check("four sums by MPI_Startall");
    }
  }
}

/// Rank 0 starts before another call, the others after it. With the promise, too: it covers starts alone.
void start_around(const std::string& where, const char* key, const std::function<void(MPI_Comm, int)>& begin,
                  const std::function<void()>& end) {
  for (const int count : kCounts) {
    const Comm comm(key);
    Call call(Call::Kind::kBcast, 7, count, comm);
    for (int round = 0; round < 5; ++round) {
      call.fill(round);
      if (rank == 0) MPI_Start(&call.request);
      begin(comm, count);
      if (rank != 0) MPI_Start(&call.request);
      MPI_Wait(&call.request, MPI_STATUS_IGNORE);
      end();
      call.check(where);
    }
  }
}

void starts_differ_in_their_place_among_other_calls(const char* key) {
  std::vector<int> other;
  MPI_Request request = MPI_REQUEST_NULL;
  const auto fill = [&](int count) {
    other.assign(static_cast<std::size_t>(count), rank == 0 ? -7 : -1);
    return other.data();
  };
  const auto check = [&] {
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (const int element : other) require(element == -7, "a broadcast among starts has another one's data");
  };
  start_around(
      "a start around a blocking call", key,
      [&](MPI_Comm comm, int count) { MPI_Bcast(fill(count), count, MPI_INT, 0, comm); }, check);
  start_around(
      "a start around a nonblocking call", key,
      [&](MPI_Comm comm, int count) { MPI_Ibcast(fill(count), count, MPI_INT, 0, comm, &request); }, check);
  start_around(
      "a start around a barrier", key, [&](MPI_Comm comm, int) { MPI_Barrier(comm); }, [] {});
}

/// One rank starts a request before it makes another, the others after. Making may wait, but not for a start.
void starts_differ_in_their_place_among_makings(const char* key) {
  const Comm comm(key);
  Call call(Call::Kind::kSum, 1, 1000, comm);
  std::vector<std::unique_ptr<Call>> later;
  for (int round = 0; round < 10; ++round) {
    call.fill(round);
    if (rank == 0) MPI_Start(&call.request);
    later.push_back(std::make_unique<Call>(Call::Kind::kSum, 2 + round, 1 << (2 * round), comm));
    if (rank != 0) MPI_Start(&call.request);
    MPI_Wait(&call.request, MPI_STATUS_IGNORE);
    call.check("a start around the making of a request");
  }
  for (const auto& made : later) {
    made->fill(0);
    MPI_Start(&made->request);
    MPI_Wait(&made->request, MPI_STATUS_IGNORE);
    made->check("a request that was made among starts");
  }
}

/// Requests that are never started, and freed in an order of each rank's own.
void some_are_never_started(const char* key) {
  const Comm comm(key);
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < 12; ++i)
    calls.push_back(
        std::make_unique<Call>(i % 2 == 0 ? Call::Kind::kSum : Call::Kind::kBcast, i, 10 * i + 1, comm));
  const auto drop = [&](std::size_t which) { MPI_Request_free(&calls[which]->request); };
  drop(rank == 0 ? 3 : 4);
  drop(rank == 0 ? 4 : 3);
  for (int round = 0; round < 3; ++round)
    for (const std::size_t which : {0U, 11U, 5U, 8U}) {
      calls[which]->fill(round);
      MPI_Start(&calls[which]->request);
      if (round == 1 && which == 5) drop(rank % 2 == 0 ? 1 : 2);
      MPI_Wait(&calls[which]->request, MPI_STATUS_IGNORE);
      calls[which]->check("a request among those never started");
    }
}

/// MPI_Comm_free marks a communicator, which goes with its last request.
void communicators_are_freed_early(const char* key) {
  for (int round = 0; round < 30; ++round) {
    Comm comm(key);
    Call inactive(Call::Kind::kSum, 1, 100, comm), active(Call::Kind::kBcast, 2, 5000, comm);
    active.fill(round);
    MPI_Start(&active.request);
    comm.release();
    const Comm another(key);  // where the freed one was, if it is gone
    for (int again = 0; again < 3; ++again) {
      inactive.fill(round + again);
      MPI_Start(&inactive.request);
      MPI_Wait(&inactive.request, MPI_STATUS_IGNORE);
      inactive.check("a request on a communicator that was freed before the start");
    }
    MPI_Wait(&active.request, MPI_STATUS_IGNORE);
    active.check("a request on a communicator that was freed after the start");
  }
}

/// A nonblocking call that falls back, because it has a user's operation.
void communicators_are_freed_under_calls_handed_down() {
  MPI_Op op;
  MPI_Op_create(
      [](void* in, void* inout, int* count, MPI_Datatype*) {
        for (int i = 0; i < *count; ++i) static_cast<int*>(inout)[i] += static_cast<int*>(in)[i];
      },
      1, &op);
  for (int round = 0; round < 30; ++round) {
    Comm comm;
    int mine = rank + round, sum = -1;
    MPI_Request request;
    MPI_Iallreduce(&mine, &sum, 1, MPI_INT, op, comm, &request);
    comm.release();
    const Comm another;
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    require(sum == ranks * round + ranks * (ranks - 1) / 2, "a user's sum on a freed communicator is wrong");
  }
  MPI_Op_free(&op);
}

/// One MPI_Startall, in an order of each rank's own; requests with the promise keep one order.
void communicators_are_mixed_in_one_start() {
  const Comm free, ordered(kOrdered), also_free;
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < 9; ++i) {
    const Comm& comm = i % 3 == 0 ? free : i % 3 == 1 ? ordered : also_free;
    calls.push_back(
        std::make_unique<Call>(i % 2 == 0 ? Call::Kind::kSum : Call::Kind::kBcast, i, 1 + 700 * i, comm));
  }
  for (int round = 0; round < 5; ++round) {
    std::vector<std::size_t> order = {0, 2, 3, 5, 6, 8};
    std::rotate(order.begin(), order.begin() + rank % 6, order.end());
    std::size_t at = static_cast<std::size_t>(rank % 3);
    for (const std::size_t which : {1U, 4U, 7U})
      order.insert(order.begin() + static_cast<std::ptrdiff_t>(at += 2), which);
    std::vector<MPI_Request> requests;
    for (const std::size_t which : order) {
      calls[which]->fill(round);
      requests.push_back(calls[which]->request);
    }
    MPI_Startall(static_cast<int>(requests.size()), requests.data());
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
    for (const auto& call : calls) call->check("requests of three communicators");
  }
}

/// One thread starts and waits, while another makes blocking calls on the same communicator.
void threads_share_a_communicator(const char* key) {
  const Comm comm(key);
  Call a(Call::Kind::kBcast, 1, 3000, comm), b(Call::Kind::kSum, 2, 300, comm);
  std::jthread blocking([&] {
    for (int round = 0; round < 200; ++round) {
      int sum = rank + round;
      MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, comm);
      require(sum == ranks * round + ranks * (ranks - 1) / 2, "a sum beside persistent requests is wrong");
    }
  });
  for (int round = 0; round < 200; ++round) {
    a.fill(round);
    b.fill(round);
    MPI_Request both[2] = {a.request, b.request};
    MPI_Startall(2, both);
    MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
    a.check("a request beside another thread's calls");
    b.check("a request beside another thread's calls");
  }
}

/// Each rank starts all of them, or a part that all have in common, in an order of its own, and waits for
/// them in another.
void many_start_in_random_orders() {
  const Comm comm;
  std::vector<std::unique_ptr<Call>> calls;
  std::mt19937 own(static_cast<unsigned>(rank)), same(11);
  constexpr std::array counts = {1, 30, 3000, 50'000, 400'000};
  for (int i = 0; i < 40; ++i)
    calls.push_back(std::make_unique<Call>(i % 3 == 0 ? Call::Kind::kBcast : Call::Kind::kSum, i,
                                           counts[static_cast<std::size_t>(i) % counts.size()], comm));
  std::vector<std::size_t> all(calls.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  for (int round = 0; round < 6; ++round) {
    std::shuffle(all.begin(), all.end(), same);
    std::vector<std::size_t> some(all.begin(), all.begin() + 1 + static_cast<std::ptrdiff_t>(same() % 40));
    std::shuffle(some.begin(), some.end(), own);
    std::vector<MPI_Request> requests;
    for (const std::size_t which : some) {
      calls[which]->fill(round);
      requests.push_back(calls[which]->request);
    }
    if (rank % 2 == 0)
      MPI_Startall(static_cast<int>(requests.size()), requests.data());
    else
      for (MPI_Request& request : requests) MPI_Start(&request);
    std::shuffle(some.begin(), some.end(), own);
    for (const std::size_t which : some) {
      MPI_Wait(&calls[which]->request, MPI_STATUS_IGNORE);
      calls[which]->check("one of many requests");
    }
  }
}

/// Requests are made, started and freed all the time, freed in an order of each rank's own.
void requests_come_and_go() {
  const Comm comm;
  std::vector<std::unique_ptr<Call>> live;
  std::mt19937 own(static_cast<unsigned>(rank)), same(12);
  for (int number = 0; number < 600; ++number) {
    live.push_back(std::make_unique<Call>(number % 2 == 0 ? Call::Kind::kBcast : Call::Kind::kSum, number,
                                          1 << same() % 16, comm));
    if (live.size() < 8) continue;
    std::shuffle(live.begin(), live.end(), own);
    for (const auto& call : live)
      if (call->number % 3 > 0) {
        call->fill(number);
        MPI_Start(&call->request);
      }
    for (const auto& call : live)
      if (call->number % 3 > 0) {
        MPI_Wait(&call->request, MPI_STATUS_IGNORE);
        call->check("a request that comes and goes");
      }
    live.clear();
  }
}

/// Some of a thousand are beyond the memory for them, and go to the fallback component on all ranks alike.
void a_thousand_live_at_a_time() {
  const Comm comm;
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < 1000; ++i)
    calls.push_back(std::make_unique<Call>(i % 2 == 0 ? Call::Kind::kBcast : Call::Kind::kSum, i,
                                           i % 10 == 0 ? 20'000 : 10, comm));
  for (int round = 0; round < 2; ++round) {
    std::vector<MPI_Request> requests;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      Call& call = *calls[rank % 2 == 0 ? i : calls.size() - 1 - i];
      call.fill(round);
      requests.push_back(call.request);
    }
    MPI_Startall(1000, requests.data());
    MPI_Waitall(1000, requests.data(), MPI_STATUSES_IGNORE);
    for (const auto& call : calls) call->check("one of a thousand requests");
  }
}

/// The number of starts that loom carries, of a sum of 1000 elements on such a communicator.
std::uint64_t carried_on(const Comm& comm, bool expects_loom) {
  loom::mpi::ToolInterface tools;
  if (!expects_loom) return 0;
  const auto before = tools.counter("coll_loom_calls", "allreduce");
  require(before.has_value(), "there is no counter of loom's");
  Call call(Call::Kind::kSum, 1, 1000, comm);
  for (int round = 0; round < 3; ++round) {
    call.fill(round);
    MPI_Start(&call.request);
    MPI_Wait(&call.request, MPI_STATUS_IGNORE);
    call.check("a sum by whoever carries it");
  }
  return *tools.counter("coll_loom_calls", "allreduce") - *before;
}

/// On one host, with and without a promise.
void loom_carries_all_within_a_host() {
  require(carried_on(Comm(), true) == 3, "loom does not carry requests whose starts may come in any order");
  require(carried_on(Comm(kOrdered), true) == 3, "loom does not carry requests that start in order");
}

/// On one host, without memory for lanes (coll_loom_lane_bytes 0). loom's counters tell who carries the
/// requests.
void loom_carries_those_that_start_in_order() {
  const std::string standard = standard_key();
  require(carried_on(Comm(), true) == 0, "loom carries requests whose starts may come in any order");
  require(carried_on(Comm(kOrdered, "false"), true) == 0, "loom carries requests in spite of \"false\"");
  require(carried_on(Comm(kOrdered), true) == 3, "loom does not carry requests that start in order");
  require(carried_on(Comm(kOrdered, "True", true), true) == 3, "MPI_Comm_set_info is not seen");
  require(carried_on(Comm(standard.c_str()), true) == 3, "MPI's own key is not seen");
  const Comm changed(kOrdered, "true");
  MPI_Info info;
  MPI_Info_create(&info);
  MPI_Info_set(info, kOrdered, "false");
  MPI_Comm_set_info(changed, info);
  require(carried_on(changed, true) == 0, "a promise that was taken back still counts");
  MPI_Info_set(info, kOrdered, "true");
  MPI_Comm_set_info(changed, info);
  MPI_Info_free(&info);
  require(carried_on(changed, true) == 3, "a promise that was given again does not count");
  Comm copy_of_none;  // MPI 4.0: a duplicate does not inherit hints
  require(carried_on(copy_of_none, true) == 0, "a promise is inherited");
}

struct Case {
  const char* name;
  std::function<void()> run;
  bool needs_settings = false;  ///< of its own: not among all of them
};

}  // namespace

int main(int argc, char** argv) {
  int provided;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const auto with = [](void (*body)(const char*), const char* key) { return [=] { body(key); }; };
  const std::vector<Case> cases = {
      {"opposite", broadcasts_start_in_opposite_orders},
      {"rotated", sums_start_together_rotated},
      {"among_calls", with(starts_differ_in_their_place_among_other_calls, "")},
      {"among_calls_ordered", with(starts_differ_in_their_place_among_other_calls, kOrdered)},
      {"among_makings", with(starts_differ_in_their_place_among_makings, "")},
      {"among_makings_ordered", with(starts_differ_in_their_place_among_makings, kOrdered)},
      {"never_started", with(some_are_never_started, "")},
      {"never_started_ordered", with(some_are_never_started, kOrdered)},
      {"freed_early", with(communicators_are_freed_early, "")},
      {"freed_early_ordered", with(communicators_are_freed_early, kOrdered)},
      {"freed_under_calls", communicators_are_freed_under_calls_handed_down},
      {"mixed", communicators_are_mixed_in_one_start},
      {"threads", with(threads_share_a_communicator, "")},
      {"threads_ordered", with(threads_share_a_communicator, kOrdered)},
      {"random", many_start_in_random_orders},
      {"come_and_go", requests_come_and_go},
      {"thousand", a_thousand_live_at_a_time},
      {"carried", loom_carries_all_within_a_host},
      {"carried_in_order", loom_carries_those_that_start_in_order, true},
  };
  int run = 0;
  for (const Case& one : cases) {
    const bool named = std::find_if(argv + 1, argv + argc, [&](const char* name) {
                         return std::strcmp(name, one.name) == 0;
                       }) != argv + argc;
    if (!named && (argc > 1 || provided < MPI_THREAD_MULTIPLE || one.needs_settings)) continue;
    one.run();
    ++run;
    if (rank == 0) std::printf("%s: right\n", one.name);
  }
  require(run > 0, "there is no such case");
  MPI_Finalize();
  return 0;
}
