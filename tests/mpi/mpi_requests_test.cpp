// mpi_requests_test -- what MPI says of collective calls that do not wait: many outstanding, completed in any
// order and by any function, while other MPI calls go on, on communicators that are freed meanwhile, from
// several threads. Exit code 1: wrong.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "mpi_examples/support/loom_pvars.hpp"
#include "tests/mpi/init_forms.hpp"

namespace {

int rank, ranks;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "rank %d of %d: %s\n", rank, ranks, what);
  std::exit(1);
}

/// A call of one of four kinds with its buffers; equal `kind` and `count` on all ranks.
struct Call {
  Call(int which, int elements, MPI_Comm comm) : kind(which % 4), count(elements), seed(which) {
    const auto n = static_cast<std::size_t>(count), all = n * static_cast<std::size_t>(ranks);
    in.resize(kind == 2 ? all : n);
    out.assign(kind >= 2 ? all : n, -1);
    std::iota(in.begin(), in.end(), seed + rank);
    switch (kind) {
      case 0:
        MPI_Iallreduce(in.data(), out.data(), count, MPI_INT, MPI_SUM, comm, &request);
        break;
      case 1:
        MPI_Iscan(in.data(), out.data(), count, MPI_INT, MPI_SUM, comm, &request);
        break;
      case 2:
        MPI_Ialltoall(in.data(), count, MPI_INT, out.data(), count, MPI_INT, comm, &request);
        break;
      default:
        MPI_Iallgather(in.data(), count, MPI_INT, out.data(), count, MPI_INT, comm, &request);
        break;
    }
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void check() const {
    const int operands = kind == 1 ? rank + 1 : ranks;
    for (int i = 0; i < static_cast<int>(out.size()); ++i) {
      const int from = count == 0 ? 0 : i / count, at = count == 0 ? 0 : i % count;
      const int expected = kind < 2    ? operands * (seed + i) + operands * (operands - 1) / 2
                           : kind == 2 ? seed + from + rank * count + at
                                       : seed + from + at;
      require(out[static_cast<std::size_t>(i)] == expected, "a nonblocking call has a wrong result");
    }
  }
  int kind, count, seed;
  std::vector<int> in, out;
  MPI_Request request = MPI_REQUEST_NULL;
};
using Calls = std::vector<std::unique_ptr<Call>>;

Calls start_many(int number, MPI_Comm comm) {
  std::mt19937 same(static_cast<unsigned>(number));
  Calls calls;
  for (int i = 0; i < number; ++i)
    calls.push_back(std::make_unique<Call>(
        i, same() % 6 == 0 ? static_cast<int>(same() % 60'000) : static_cast<int>(same() % 50), comm));
  return calls;
}

void wait_in_any_order(MPI_Comm comm) {
  Calls calls = start_many(60, comm);
  std::shuffle(calls.begin(), calls.end(), std::mt19937(static_cast<unsigned>(rank)));
  for (const auto& call : calls) {
    MPI_Wait(&call->request, MPI_STATUS_IGNORE);
    require(call->request == MPI_REQUEST_NULL, "MPI_Wait has left a request");
    call->check();
  }
}

void complete_by_every_function(MPI_Comm comm) {
  for (int way = 0; way < 4; ++way) {
    Calls calls = start_many(20, comm);
    std::vector<MPI_Request> requests;
    for (const auto& call : calls) requests.push_back(call->request);
    const int n = static_cast<int>(requests.size());
    std::vector<int> which(requests.size());
    std::vector<MPI_Status> statuses(requests.size());
    int done = 0, some = 0, flag = 0;
    switch (way) {
      case 0:
        MPI_Waitall(n, requests.data(), statuses.data());
        break;
      case 1:
        for (; done < n; done += some) MPI_Waitsome(n, requests.data(), &some, which.data(), statuses.data());
        break;
      case 2:
        while (!flag) MPI_Testall(n, requests.data(), &flag, statuses.data());
        break;
      default:
        for (; done < n; ++done) MPI_Waitany(n, requests.data(), which.data(), statuses.data());
    }
    for (const auto& call : calls) call->check();
  }
}

/// Starting must not wait: a rank comes to the call only after a message from one that has started it.
void start_before_others_can(MPI_Comm comm) {
  for (int round = 0; round < 20; ++round) {
    if (rank > 0) MPI_Recv(nullptr, 0, MPI_INT, rank - 1, 5, comm, MPI_STATUS_IGNORE);
    Call call(round, 1000, comm);
    if (rank < ranks - 1) MPI_Send(nullptr, 0, MPI_INT, rank + 1, 5, comm);
    MPI_Wait(&call.request, MPI_STATUS_IGNORE);
    call.check();
  }
}

/// Rank 0 waits in a receive until the others, who need its part of the call, are through.
void progress_inside_other_calls(MPI_Comm comm) {
  Call call(0, 200'000, comm);
  if (rank == 0) {
    for (int from = 1; from < ranks; ++from)
      MPI_Recv(nullptr, 0, MPI_INT, MPI_ANY_SOURCE, 6, comm, MPI_STATUS_IGNORE);
    MPI_Wait(&call.request, MPI_STATUS_IGNORE);
  } else {
    MPI_Wait(&call.request, MPI_STATUS_IGNORE);
    MPI_Send(nullptr, 0, MPI_INT, 0, 6, comm);
  }
  call.check();
}

/// Rank 0 waits in a collective until the others make that call, which they do once rank 0 has received from
/// them.
void receive_inside_collectives(MPI_Comm comm) {
  for (const int count : {1, 3000, 300'000})
    for (int collective = 0; collective < 6; ++collective) {
      const auto n = static_cast<std::size_t>(count), all = n * static_cast<std::size_t>(ranks);
      std::vector<int> in(all, 1), out(all, -1), messages(static_cast<std::size_t>(ranks) * 1000);
      std::vector<MPI_Request> receives(static_cast<std::size_t>(ranks), MPI_REQUEST_NULL);
      MPI_Request request = MPI_REQUEST_NULL;
      if (rank > 0) MPI_Ssend(in.data(), std::min(count, 1000), MPI_INT, 0, 8, comm);
      for (int from = 1; rank == 0 && from < ranks; ++from)
        MPI_Irecv(messages.data() + from * 1000, 1000, MPI_INT, from, 8, comm,
                  &receives[static_cast<std::size_t>(from)]);
      switch (collective) {
        case 0:
          MPI_Barrier(comm);
          break;
        case 1:
          MPI_Allreduce(in.data(), out.data(), count, MPI_INT, MPI_SUM, comm);
          break;
        case 2:
          MPI_Bcast(in.data(), count, MPI_INT, ranks - 1, comm);
          break;
        case 3:
          MPI_Alltoall(in.data(), count, MPI_INT, out.data(), count, MPI_INT, comm);
          break;
        case 4:
          MPI_Scatter(in.data(), count, MPI_INT, out.data(), count, MPI_INT, ranks - 1, comm);
          break;
        default:
          MPI_Iscan(in.data(), out.data(), count, MPI_INT, MPI_SUM, comm, &request);
          MPI_Wait(&request, MPI_STATUS_IGNORE);
      }
      MPI_Waitall(ranks, receives.data(), MPI_STATUSES_IGNORE);
      if (rank == 0 && ranks > 1) require(messages[1000] == 1, "a message received in a collective is wrong");
    }
}

/// Rank 0 waits in a collective of one communicator until the others are through one of another.
void progress_inside_other_communicators(MPI_Comm comm) {
  MPI_Comm other;
  MPI_Comm_dup(comm, &other);
  for (int round = 0; round < 8; ++round) {
    Call call(round, round < 4 ? 100 : 100'000, comm);
    if (rank > 0) MPI_Wait(&call.request, MPI_STATUS_IGNORE);
    int sum = 1;
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, other);
    require(sum == ranks, "a sum on another communicator is wrong");
    MPI_Wait(&call.request, MPI_STATUS_IGNORE);
    call.check();
  }
  MPI_Comm_free(&other);
}

void mix_with_blocking_calls_and_user_operations(MPI_Comm comm) {
  MPI_Op op;
  MPI_Op_create(
      [](void* in, void* inout, int* count, MPI_Datatype*) {
        for (int i = 0; i < *count; ++i) static_cast<int*>(inout)[i] += static_cast<int*>(in)[i];
      },
      1, &op);
  for (int round = 0; round < 20; ++round) {
    Call first(round, 3000, comm);
    int mine = rank, below = -1, sum = -1;
    MPI_Request request;
    MPI_Iallreduce(&mine, &below, 1, MPI_INT, op, comm, &request);
    Call second(round + 1, 20, comm);
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm);
    MPI_Wait(&second.request, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Wait(&first.request, MPI_STATUS_IGNORE);
    first.check();
    second.check();
    require(sum == ranks * (ranks - 1) / 2 && below == sum, "a sum among outstanding calls is wrong");
  }
  MPI_Op_free(&op);
}

/// MPI_Comm_free lets pending calls complete; those of Open MPI 4.1 itself crash, so only loom's are tried.
/// Types may go as soon as a call has started.
void free_what_is_in_use(MPI_Comm comm) {
  const auto open_files = [] {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return std::distance(begin(files), end(files));
  };
  std::ptrdiff_t before = 0;
  for (int round = 0; round < 60; ++round) {
    if (round == 20) before = open_files();
    MPI_Comm copy;
    MPI_Comm_dup(comm, &copy);
    if (round % 2 == 0) MPI_Barrier(copy);  // connects the ranks; else the calls wait for that
    Call call(round, 5000, copy);
    MPI_Datatype pairs;
    MPI_Type_vector(50, 1, 2, MPI_INT, &pairs);
    MPI_Type_commit(&pairs);
    std::vector<int> gapped(100, rank == 0 ? round : -1);
    MPI_Request request;
    MPI_Ibcast(gapped.data(), 1, pairs, 0, copy, &request);
    MPI_Type_free(&pairs);
    MPI_Comm_free(&copy);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Wait(&call.request, MPI_STATUS_IGNORE);
    call.check();
    for (int i = 0; i < 100; i += 2)
      require(gapped[static_cast<std::size_t>(i)] == round, "a broadcast is wrong");
  }
  require(open_files() <= before, "freed communicators have left files open");
}

void start_persistent_calls_together(MPI_Comm comm) {
  std::vector<int> in(3000), sums(3000), all(static_cast<std::size_t>(ranks)),
      received(static_cast<std::size_t>(ranks));
  MPI_Request requests[3];
  INIT(Allreduce)(in.data(), sums.data(), 3000, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &requests[0]);
  INIT(Allgather)(in.data(), 1, MPI_INT, all.data(), 1, MPI_INT, comm, MPI_INFO_NULL, &requests[1]);
  INIT(Barrier)(comm, MPI_INFO_NULL, &requests[2]);
  int flag = 0;
  MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE);
  require(flag == 1, "an inactive request is not complete");
  for (int round = 0; round < 30; ++round) {
    std::fill(in.begin(), in.end(), round + rank);
    MPI_Startall(3, requests);
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    require(requests[0] != MPI_REQUEST_NULL, "MPI_Wait has freed a persistent request");
    require(sums.back() == ranks * round + ranks * (ranks - 1) / 2, "a persistent allreduce is wrong");
    for (int from = 0; from < ranks; ++from)
      require(all[static_cast<std::size_t>(from)] == round + from, "a persistent allgather is wrong");
  }
  for (MPI_Request& request : requests) MPI_Request_free(&request);
}

/// No elements, and elements of no size: the same to MPI, though a rank may see at once that there is nothing
/// to do. On a fresh communicator, where the first call that waits connects the ranks.
void exchange_nothing(MPI_Comm comm) {
  MPI_Datatype empty;
  MPI_Type_contiguous(0, MPI_INT, &empty);
  MPI_Type_commit(&empty);
  for (int call = 0; call < 6; ++call) {
    MPI_Comm fresh;
    MPI_Comm_dup(comm, &fresh);
    const MPI_Datatype type = rank % 2 == 0 ? MPI_INT : empty;
    const int count = rank % 2 == 0 ? 0 : 3;
    int none = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    switch (call) {
      case 0:
        MPI_Bcast(&none, count, type, 0, fresh);
        break;
      case 1:
        MPI_Gather(&none, count, type, &none, count, type, 0, fresh);
        break;
      case 2:
        MPI_Scatter(&none, count, type, &none, count, type, 0, fresh);
        break;
      case 3:
        MPI_Allgather(&none, count, type, &none, count, type, fresh);
        break;
      case 4:
        MPI_Alltoall(&none, count, type, &none, count, type, fresh);
        break;
      default:
        MPI_Igather(&none, count, type, &none, count, type, 0, fresh, &request);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    int sum = 1;
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, fresh);
    require(sum == ranks, "a sum after an empty call is wrong");
    MPI_Comm_free(&fresh);
  }
  MPI_Type_free(&empty);
}

/// On communicators on which nobody has waited yet: calls are deferred until the ranks are connected. On one
/// host all of them are loom's then.
void connect_meanwhile(MPI_Comm comm) {
  for (const auto scenario : {wait_in_any_order, complete_by_every_function, start_before_others_can,
                              progress_inside_other_calls, mix_with_blocking_calls_and_user_operations}) {
    MPI_Comm fresh;
    MPI_Comm_dup(comm, &fresh);
    scenario(fresh);
    MPI_Comm_free(&fresh);
  }
}

/// Calls on one communicator are deferred while the first call on another connects the ranks.
void connect_one_inside_another(MPI_Comm comm) {
  for (int round = 0; round < 40; ++round) {
    MPI_Comm first, second;
    MPI_Comm_dup(comm, &first);
    MPI_Comm_dup(comm, &second);
    Call one(round, 100, first), two(round + 1, 3000, first);
    int sum = 1;
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, second);
    require(sum == ranks, "a sum while another communicator connects is wrong");
    MPI_Wait(&two.request, MPI_STATUS_IGNORE);
    MPI_Wait(&one.request, MPI_STATUS_IGNORE);
    one.check();
    two.check();
    MPI_Comm_free(&first);
    MPI_Comm_free(&second);
  }
}

/// Types and operations that the program drops as soon as the call has started, on a fresh communicator.
void keep_what_a_call_needs(MPI_Comm comm) {
  for (int round = 0; round < 5; ++round) {
    MPI_Comm fresh;
    MPI_Comm_dup(comm, &fresh);
    MPI_Request requests[3];
    MPI_Datatype pairs;
    MPI_Type_vector(50, 1, 2, MPI_INT, &pairs);
    MPI_Type_commit(&pairs);
    std::vector<int> gapped(100, rank == 0 ? round : -1);
    MPI_Ibcast(gapped.data(), 1, pairs, 0, fresh, &requests[0]);
    MPI_Type_free(&pairs);

    const auto n = static_cast<std::size_t>(ranks);
    std::vector<int> ones(n, 1), disps(n), sent(n, rank), received(n, -1);
    for (std::size_t to = 0; to < n; ++to) disps[to] = static_cast<int>(to * sizeof(int));
    const std::vector<MPI_Datatype> types(n, MPI_INT);
    MPI_Ialltoallw(sent.data(), ones.data(), disps.data(), types.data(), received.data(), ones.data(),
                   disps.data(), types.data(), fresh, &requests[1]);
    MPI_Op op;
    MPI_Op_create(
        [](void* in, void* inout, int* count, MPI_Datatype*) {
          for (int i = 0; i < *count; ++i) static_cast<int*>(inout)[i] += static_cast<int*>(in)[i];
        },
        1, &op);
    int mine = rank, sum = -1;
    MPI_Iallreduce(&mine, &sum, 1, MPI_INT, op, fresh, &requests[2]);
    MPI_Op_free(&op);
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 100; i += 2)
      require(gapped[static_cast<std::size_t>(i)] == round, "a broadcast is wrong");
    for (int from = 0; from < ranks; ++from)
      require(received[static_cast<std::size_t>(from)] == from, "an all-to-all is wrong");
    require(sum == ranks * (ranks - 1) / 2, "a user's sum is wrong");
    MPI_Comm_free(&fresh);
  }
}

/// Each thread has its communicator; all wait at the same time, and so does each in the others' progress.
void run_in_threads(int number) {
  std::vector<MPI_Comm> comms(static_cast<std::size_t>(number));
  for (MPI_Comm& comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  std::vector<std::jthread> threads;
  for (MPI_Comm comm : comms)
    threads.emplace_back([comm] {
      for (int round = 0; round < 5; ++round) {
        if (round > 0) MPI_Barrier(comm);
        wait_in_any_order(comm);
        mix_with_blocking_calls_and_user_operations(comm);
      }
    });
  threads.clear();
  // Calls of one communicator, started in order and waited for by different threads.
  for (int round = 0; round < 20; ++round) {
    Calls calls = start_many(number * 3, comms.front());
    for (int thread = 0; thread < number; ++thread)
      threads.emplace_back([&calls, thread, number] {
        for (std::size_t i = static_cast<std::size_t>(thread); i < calls.size();
             i += static_cast<std::size_t>(number)) {
          MPI_Wait(&calls[i]->request, MPI_STATUS_IGNORE);
          calls[i]->check();
        }
      });
    threads.clear();
  }
  for (MPI_Comm& comm : comms) MPI_Comm_free(&comm);
}

}  // namespace

/// mpi_requests_test [number of threads]
int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 0;
  int provided;
  MPI_Init_thread(&argc, &argv, threads > 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::optional<loom::mpi::ToolInterface> tools(std::in_place);  // destroyed before MPI_Finalize
  const auto not_connected = [&] {
    std::uint64_t calls = 0;
    for (const char* collective : {"allreduce", "scan", "alltoall", "allgather"})
      calls += tools->counter("coll_loom_fallbacks", collective, "not_connected").value_or(0);
    return calls;
  };
  not_connected();  // a counter counts from when it is first asked for
  if (threads > 0) {
    require(provided == MPI_THREAD_MULTIPLE, "MPI_THREAD_MULTIPLE is not provided");
    run_in_threads(threads);
  } else {
    connect_meanwhile(MPI_COMM_WORLD);
    connect_one_inside_another(MPI_COMM_WORLD);
    keep_what_a_call_needs(MPI_COMM_WORLD);
    std::vector<int> large(200'000, 1);  // such a call connects ranks on several hosts too
    MPI_Allreduce(MPI_IN_PLACE, large.data(), 200'000, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (const auto scenario :
         {wait_in_any_order, complete_by_every_function, start_before_others_can, progress_inside_other_calls,
          receive_inside_collectives, progress_inside_other_communicators,
          mix_with_blocking_calls_and_user_operations, start_persistent_calls_together})
      scenario(MPI_COMM_WORLD);
    MPI_Comm host;
    int on_host;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_size(host, &on_host);
    MPI_Comm_free(&host);
    if (on_host == ranks && tools->counter("coll_loom_calls", "allreduce")) {
      free_what_is_in_use(MPI_COMM_WORLD);
      exchange_nothing(MPI_COMM_WORLD);
      require(not_connected() == 0, "calls have gone below because loom had not connected the ranks");
    }
  }
  tools.reset();
  MPI_Finalize();
}
