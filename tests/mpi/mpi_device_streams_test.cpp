// mpi_device_streams_test -- calls on device buffers beside work of the program in the legacy default stream
// that waits for the host. On tests/virtual_gpu. Exit code 1: wrong.
#include <algorithm>
#include <string>

#include "device_ints.hpp"
#include "waiting.hpp"

namespace loom::mpi_test {
namespace {

bool is_done(MPI_Request& request) {
  int done;
  MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  return done != 0;
}

void wait_for(MPI_Request& request) {
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

int sum(int times) {
  return ranks * times + ranks * (ranks - 1) / 2;
}

MPI_Op user_sum() {
  MPI_Op op;
  MPI_Op_create(
      [](void* in, void* inout, int* count, MPI_Datatype*) {
        for (int i = 0; i < *count; ++i) static_cast<int*>(inout)[i] += static_cast<int*>(in)[i];
      },
      1, &op);
  return op;
}

constexpr int kTests = 30;

/// Short enough for one copy, and longer than what is copied at a time.
constexpr int kCounts[] = {1000, 700'001};

/// A call is complete although what the program has enqueued after its start is not.
void end_before_later_work(MPI_Comm communicator, MPI_Op op, int count) {
  Ints in(count, rank + 1), out(count);
  MPI_Request request;
  MPI_Iallreduce(in.at(), out.at(), count, MPI_INT, op, communicator, &request);
  {
    Waiting later;
    wait_for(request);
  }
  out.is([](int) { return sum(1); }, "a call that ends before later work is wrong");
}

/// A start returns, and so do tests, although the operand waits for the host.
void start_after_earlier_work(MPI_Comm communicator, MPI_Op op, int count) {
  Ints in(count, rank + 1, MemoryKind::kDevice), out(count);
  Waiting earlier;
  MPI_Request request;
  MPI_Iallreduce(in.at(), out.at(), count, MPI_INT, op, communicator, &request);
  for (int i = 0; i < kTests; ++i)
    require(!is_done(request), "a call is complete before work that was enqueued ahead of it");
  earlier.end();
  wait_for(request);
  out.is([](int) { return sum(1); }, "a call after work that waits for the host is wrong");
}

/// The same for a persistent call, which starts again and again.
void start_persistent_calls(MPI_Comm communicator, MPI_Op op, int count) {
  Ints in(count, -1, MemoryKind::kDevice), out(count);
  MPI_Request request;
  INIT(Allreduce)(in.at(), out.at(), count, MPI_INT, op, communicator, MPI_INFO_NULL, &request);
  for (int round = 0; round < 3; ++round) {
    in.fill([&](int) { return rank + round; });
    {
      Waiting earlier;
      MPI_Start(&request);
      for (int i = 0; i < kTests; ++i)
        require(!is_done(request), "a persistent call is complete before work ahead of it");
      earlier.end();
      Waiting later;
      wait_for(request);
    }
    out.is([&](int) { return sum(round); }, "a persistent call beside work that waits for the host is wrong");
  }
  MPI_Request_free(&request);
}

/// Calls on other buffers follow one that cannot start yet; on some ranks it can. They stay in their order,
/// and MPI allows to drop their arrays, types and operations.
void keep_their_order(MPI_Comm communicator, MPI_Op op) {
  constexpr int kCount = 500;
  Ints in(kCount, rank + 1), out(kCount);
  int on_host = rank + 2, other = 0, from_root = rank == 0 ? 77 : 0;
  std::vector<int> gathered(static_cast<std::size_t>(ranks * 2), -1);
  MPI_Request requests[5];
  MPI_Op own = user_sum();
  {
    Waiting earlier;
    MPI_Iallreduce(in.at(), out.at(), kCount, MPI_INT, op, communicator, &requests[0]);
    MPI_Iallreduce(&on_host, &other, 1, MPI_INT, own, communicator, &requests[1]);
    MPI_Op_free(&own);
    MPI_Ibcast(&from_root, 1, MPI_INT, 0, communicator, &requests[2]);
    {
      std::vector<int> counts(static_cast<std::size_t>(ranks), 1), at(static_cast<std::size_t>(ranks));
      for (int of = 0; of < ranks; ++of) at[static_cast<std::size_t>(of)] = 2 * of;
      MPI_Datatype number;
      MPI_Type_dup(MPI_INT, &number);
      MPI_Iallgatherv(&rank, 1, MPI_INT, gathered.data(), counts.data(), at.data(), number, communicator,
                      &requests[3]);
      MPI_Type_free(&number);
      std::fill(counts.begin(), counts.end(), 1 << 20);
    }
    MPI_Ibarrier(communicator, &requests[4]);
    // Where the operand is on the host this rank may be the last one: the others' work has ended by then.
    for (int i = 0; i < kTests; ++i) {
      int done;
      MPI_Testall(5, requests, &done, MPI_STATUSES_IGNORE);
      require(!done || !in.is_on_device(),
              "all calls are complete before work that was enqueued ahead of them");
    }
    earlier.end();
  }
  int blocking = 1;
  MPI_Allreduce(MPI_IN_PLACE, &blocking, 1, MPI_INT, MPI_SUM, communicator);
  MPI_Waitall(5, requests, MPI_STATUSES_IGNORE);
  require(blocking == ranks, "a blocking call after calls that could not start yet is wrong");
  out.is([](int) { return sum(1); }, "the call that could not start yet is wrong");
  require(other == sum(2) && from_root == 77, "a call after one that could not start yet is wrong");
  for (int i = 0; i < 2 * ranks; ++i)
    require(gathered[static_cast<std::size_t>(i)] == (i % 2 == 0 ? i / 2 : -1),
            "an allgatherv after a call that could not start yet is wrong");
}

/// The starts of persistent calls stay in their order, too, whether loom copies their buffers or not.
void keep_the_order_of_starts(MPI_Comm communicator) {
  constexpr int kCount = 500;
  Ints in(kCount, rank + 1), out(kCount);
  int on_host = rank + 2, other = 0;
  MPI_Request requests[2];
  INIT(Allreduce)(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, communicator, MPI_INFO_NULL, &requests[0]);
  INIT(Allreduce)(&on_host, &other, 1, MPI_INT, MPI_SUM, communicator, MPI_INFO_NULL, &requests[1]);
  for (int round = 0; round < 3; ++round) {
    Waiting earlier;
    MPI_Startall(2, requests);
    for (int i = 0; i < kTests; ++i) static_cast<void>(is_done(requests[0]));
    earlier.end();
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    require(other == sum(2), "a persistent call after one that could not start yet is wrong");
    other = 0;
  }
  out.is([](int) { return sum(1); }, "a persistent call that could not start yet is wrong");
  for (MPI_Request& request : requests) MPI_Request_free(&request);
}

void call_neighbours() {
  MPI_Comm ring;
  const int periodic = 1;
  MPI_Cart_create(MPI_COMM_WORLD, 1, &ranks, &periodic, 0, &ring);
  const int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
  Ints in(300, rank), out(600), apart(605);
  MPI_Request requests[2];
  Waiting earlier;
  MPI_Ineighbor_allgather(in.at(), 300, MPI_INT, out.at(), 300, MPI_INT, ring, &requests[0]);
  {
    int counts[] = {300, 300}, at[] = {305, 0};
    MPI_Ineighbor_allgatherv(in.at(), 300, MPI_INT, apart.at(), counts, at, MPI_INT, ring, &requests[1]);
    at[0] = counts[0] = 1 << 20;
  }
  for (int i = 0; i < kTests; ++i) static_cast<void>(is_done(requests[1]));
  earlier.end();
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  out.is([&](int i) { return i < 300 ? left : right; }, "a neighbour iallgather is wrong");
  apart.is([&](int i) { return i < 300 ? right : i < 305 ? -1 : left; }, "a neighbour iallgatherv is wrong");
  MPI_Comm_free(&ring);
}

/// The program frees the communicator of calls that could not start yet.
void free_the_communicator() {
  MPI_Comm copy;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  Ints in(1000, rank + 1), out(1000);
  MPI_Request request;
  {
    Waiting earlier;
    MPI_Iallreduce(in.at(), out.at(), 1000, MPI_INT, MPI_SUM, copy, &request);
    earlier.end();  // MPI_Comm_free may wait
    MPI_Comm_free(&copy);
  }
  wait_for(request);
  out.is([](int) { return sum(1); }, "a call on a freed communicator is wrong");
}

}  // namespace
}  // namespace loom::mpi_test

int main(int argc, char** argv) {
  using namespace loom::mpi_test;
  begin(argc, argv);
  MPI_Info ordered;
  MPI_Info_create(&ordered);
  MPI_Info_set(ordered, "coll_loom_ordered_starts", "true");
  MPI_Op own = user_sum();
  for (const MPI_Op op : {MPI_SUM, own}) {
    MPI_Comm fresh;
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, ordered, &fresh);
    start_after_earlier_work(fresh, op, 1000);  // before the ranks are connected
    for (const int count : kCounts) {
      end_before_later_work(fresh, op, count);
      start_after_earlier_work(fresh, op, count);
      start_persistent_calls(fresh, op, count);
      start_persistent_calls(MPI_COMM_WORLD, op, count);
    }
    keep_their_order(fresh, op);
    MPI_Comm_free(&fresh);
  }
  MPI_Op_free(&own);
  MPI_Comm started;
  MPI_Comm_dup_with_info(MPI_COMM_WORLD, ordered, &started);
  keep_the_order_of_starts(started);
  MPI_Comm_free(&started);
  MPI_Info_free(&ordered);
  call_neighbours();
  free_the_communicator();
  require(counts().streams == 0, "streams or events are left");
  MPI_Finalize();
}
