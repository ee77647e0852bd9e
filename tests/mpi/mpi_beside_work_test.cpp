// mpi_beside_work_test -- calls on GPUs beside work of the program that waits for the host: it ends only when
// the call has returned, so one that waits for it has no end. On tests/virtual_gpu. Exit code 1: wrong, or no
// end.
//
//   mpi_beside_work_test CASE    which of `cases` below
#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "tests/mpi/beside_work.hpp"

namespace {

using namespace loom::mpi_test;
using namespace std::chrono_literals;

/// One rank has its buffers on the host, the others on GPUs.
void mixed(MPI_Comm comm) {
  const bool on_host = rank == ranks - 1;
  const MemoryKind kind = on_host ? MemoryKind::kHost : MemoryKind::kDevice;
  Ints in(kCount, mine, kind), out(kCount, nothing, kind);
  const auto allreduce = [&] { MPI_Allreduce(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, comm); };
  for (int i = 0; i < 2; ++i) allreduce();
  out.fill(nothing);
  stays_on_gpus("allreduce", [&] {
    const Work work(nullptr, on_host);
    allreduce();
  });
  out.is(sum, "an allreduce with a rank on the host is wrong");
}

/// One rank has no bytes in the call.
void nobytes(MPI_Comm comm) {
  const int root = ranks - 1, own = rank == 0 ? 0 : kCount;
  std::vector<int> lengths, places;
  for (int r = 0; r < ranks; ++r) {
    lengths.push_back(r == 0 ? 0 : kCount);
    places.push_back(r * kCount);
  }
  Ints in(kCount, mine, MemoryKind::kDevice), out(ranks * kCount, nothing, MemoryKind::kDevice);
  const auto judge = [&] {
    out.is([&](int i) { return rank == root && i >= kCount ? of_rank(i / kCount, i % kCount) : -1; },
           "a gatherv is wrong");
    out.fill(nothing);
  };
  const auto gather = [&](bool waits) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (waits)
      MPI_Gatherv(in.at(), own, MPI_INT, out.at(), lengths.data(), places.data(), MPI_INT, root, comm);
    else
      MPI_Igatherv(in.at(), own, MPI_INT, out.at(), lengths.data(), places.data(), MPI_INT, root, comm,
                   &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  };
  for (const bool waits : {true, false}) {
    for (int i = 0; i < 2; ++i) gather(waits);
    MPI_Barrier(comm);  // makes what a call has lacked that does not wait
    judge();
    stays_on_gpus("gatherv", [&] {
      const Work work;
      gather(waits);
    });
    judge();
  }
}

/// A call has to unlock pages, and CUDA waits for work that another thread ends once it has staged a call,
/// too.
void locked_pages(MPI_Comm comm) {
  constexpr int kShort = 100, kKept = 16'384, kLong = 60'000;
  MPI_Comm of_thread;
  MPI_Comm_dup(comm, &of_thread);
  struct Buffers {
    explicit Buffers(int n)
        : count(n), in(n, rank, MemoryKind::kDevice), out(n, nothing, MemoryKind::kDevice) {}
    void judge() {
      out.is([](int) { return ranks * (ranks - 1) / 2; }, "a staged allreduce is wrong");
    }
    int count;
    Ints in, out;
  };
  Buffers few(kShort), kept(kKept), more(kLong);
  const auto allreduce = [](Buffers& buffers, MPI_Comm of) {
    MPI_Allreduce(buffers.in.at(), buffers.out.at(), buffers.count, MPI_INT, MPI_SUM, of);
  };
  allreduce(few, of_thread);
  allreduce(kept, comm);
  require(counts().registered > 0, "no pages are locked");
  few.out.fill(nothing);
  MPI_Barrier(MPI_COMM_WORLD);
  {
    Work work(stream_apart());
    const std::jthread thread([&] {
      Driver::get().use(0);
      std::this_thread::sleep_for(1s);  // the call below waits by then
      MPI_Request request;
      MPI_Iallreduce(few.in.at(), few.out.at(), kShort, MPI_INT, MPI_SUM, of_thread, &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      work.end();
      Driver::get().leave();
    });
    allreduce(more, comm);
  }
  for (Buffers* const buffers : {&few, &kept, &more}) buffers->judge();
  MPI_Comm_free(&of_thread);
}

/// A reduction on GPU 1 beside work on GPU 0, and beside a reduction behind that work.
void other_gpu(MPI_Comm) {
  Driver& driver = Driver::get();
  const auto reduce = [](Ints& in, Ints& inout) {
    MPI_Reduce_local(in.at(), inout.at(), kCount, MPI_INT, MPI_SUM);
  };
  Ints in(kCount, 1, MemoryKind::kDevice), inout(kCount, 0, MemoryKind::kDevice);
  driver.use(1);
  Ints other_in(kCount, 1, MemoryKind::kDevice), other_inout(kCount, 0, MemoryKind::kDevice);
  driver.leave();
  reduce(in, inout);  // makes what the GPU takes
  for (const bool two_threads : {false, true}) {
    Waiting work;
    std::jthread behind;
    if (two_threads) {
      behind = std::jthread([&] {
        driver.use(0);
        reduce(in, inout);
        driver.leave();
      });
      std::this_thread::sleep_for(500ms);  // it waits by then
    }
    driver.use(1);
    reduce(other_in, other_inout);
    driver.leave();
    work.end();
  }
  inout.is([](int) { return 2; }, "reduce_local behind work is wrong");
  other_inout.is([](int) { return 2; }, "reduce_local on another GPU is wrong");
}

/// A request needs more memory to pack its buffer than calls before.
void gaps(MPI_Comm comm) {
  constexpr int kFew = 100, kMany = 100'000;
  MPI_Datatype few = every_second(kFew), many = every_second(kMany);
  Ints both(2 * kMany, mine, MemoryKind::kDevice);
  for (int i = 0; i < 2; ++i) MPI_Bcast(both.at(), 1, few, 0, comm);
  MPI_Barrier(comm);
  MPI_Request request;
  {
    const Work work;
    INIT(Bcast)(both.at(), 1, many, 0, comm, MPI_INFO_NULL, &request);
  }
  MPI_Start(&request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  both.is([](int i) { return i % 2 == 0 ? of_rank(0, i) : mine(i); }, "a persistent bcast is wrong");
  MPI_Request_free(&request);
  for (MPI_Datatype* const type : {&few, &many}) MPI_Type_free(type);
}

void add(void* in, void* inout, int* count, MPI_Datatype*) {
  for (int i = 0; i < *count; ++i) static_cast<int*>(inout)[i] += static_cast<int*>(in)[i];
}

/// The last call of a communicator ends it, and CUDA frees no memory beside work: of its links, of packed
/// buffers, of results that a call in place puts elsewhere. on_host: that call is Open MPI's.
void end_with_call(bool on_host) {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Datatype type = every_second(kCount / 2);
  MPI_Op op;
  MPI_Op_create(add, 1, &op);
  std::vector<int> parts(static_cast<std::size_t>(ranks), 100);
  parts[0] = 200;
  Ints in(kCount, mine, MemoryKind::kDevice), out(kCount, nothing, MemoryKind::kDevice);
  for (int i = 0; i < 2; ++i) {
    MPI_Allreduce(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, comm);
    MPI_Bcast(out.at(), 1, type, 0, comm);
    MPI_Reduce_scatter(MPI_IN_PLACE, out.at(), parts.data(), MPI_INT, MPI_SUM, comm);
  }
  out.fill(nothing);
  int one = 1, all = 0;
  MPI_Request request;
  if (on_host)
    MPI_Iallreduce(&one, &all, 1, MPI_INT, op, comm, &request);
  else
    MPI_Iallreduce(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, comm, &request);
  MPI_Comm_free(&comm);
  {
    const Work work(stream_apart());
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  if (on_host)
    require(all == ranks, "a call that falls back is wrong on a freed communicator");
  else
    out.is(sum, "an allreduce of a freed communicator is wrong");
  MPI_Op_free(&op);
  MPI_Type_free(&type);
}
void freed(MPI_Comm) {
  end_with_call(false);
}
void freed_by_fallback(MPI_Comm) {
  end_with_call(true);
}

/// The root's result is copied in two blocks, of which the first takes a second. Meanwhile another call
/// fails, and with it all of the communicator. The buffer is the program's then.
void late_copy(MPI_Comm comm) {
  constexpr int kLong = 125'000, kShort = 2500, kAll = kLong + kShort, kSeven = 7;
  for (const MPI_Comm of : {MPI_COMM_WORLD, comm}) MPI_Comm_set_errhandler(of, MPI_ERRORS_RETURN);
  const bool is_root = rank == 1;  // the other one has its buffers on the host, so that the call is staged
  require(ranks == 2, "this case is for two ranks");
  const MemoryKind kind = is_root ? MemoryKind::kDevice : MemoryKind::kHost;
  const int lengths[] = {kLong, kShort}, places[] = {0, kLong}, own = lengths[rank];
  Ints to_fail(kCount, mine, MemoryKind::kDevice), failed(kCount, nothing, MemoryKind::kDevice);
  Ints in(own, mine, kind), out(is_root ? kAll : 1, nothing, kind);
  MPI_Request other, request;
  INIT(Allreduce)
  (to_fail.at(), failed.at(), kCount, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &other);
  MPI_Barrier(comm);
  const std::uint64_t before = counts().copies;
  MPI_Igatherv(in.at(), own, MPI_INT, out.at(), lengths, places, MPI_INT, 1, comm, &request);
  if (is_root) {
    int done = 0;
    // The first one is of the operand.
    while (!done && counts().copies < before + 2) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    require(!done, "a call has ended before it could be called off");
    fail("cuEventCreate", 0, 1);
    const bool fails = MPI_Start(&other) != MPI_SUCCESS || MPI_Wait(&other, MPI_STATUS_IGNORE) != MPI_SUCCESS;
    fail("cuEventCreate", 0, 0);
    require(fails, "a call does not fail");
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    Driver& driver = Driver::get();
    void* const apart = stream_apart();
    const auto set = driver.function<int(int*, unsigned, std::size_t, void*)>("cuMemsetD32Async");
    require(set(out.at(), kSeven, kAll, apart) == 0, "the GPU has failed");
    // That alone is waited for first, then whatever else is on its way.
    require(driver.function<int(void*)>("cuStreamSynchronize")(apart) == 0, "the GPU has failed");
    require(driver.function<int()>("cuCtxSynchronize")() == 0, "the GPU has failed");
    out.is([](int) { return kSeven; }, "a result is written after its call has ended");
  } else {
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  for (MPI_Request* const each : {&request, &other})  // Open MPI keeps one that has failed
    if (*each != MPI_REQUEST_NULL) MPI_Request_free(each);
}

/// Work in a stream that does not synchronise with the default one holds no call up, whatever it has to make.
void other_stream(MPI_Comm comm) {
  Ints in(kCount, mine, MemoryKind::kDevice), out(kCount, nothing, MemoryKind::kDevice);
  const auto reduce = [&] {
    MPI_Request request;
    MPI_Iallreduce(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  };
  for (int i = 0; i < 4; ++i) reduce();
  {
    const Work work(rank == 0 ? stream_apart() : nullptr);
    MPI_Barrier(comm);
    MPI_Allreduce(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, comm);
    for (const int n : {kCount / 4, kCount / 2}) {  // packed
      MPI_Datatype type = every_second(n);
      MPI_Bcast(in.at(), 1, type, 0, comm);
      MPI_Type_free(&type);
    }
  }
  out.is(sum, "an allreduce beside work in another stream is wrong");
}

constexpr Case cases[] = {{"mixed", mixed},
                          {"nobytes", nobytes},
                          {"other_stream", other_stream},
                          {"locked_pages", locked_pages},
                          {"other_gpu", other_gpu},
                          {"gaps", gaps},
                          {"freed", freed},
                          {"freed_by_fallback", freed_by_fallback},
                          {"late_copy", late_copy}};

}  // namespace

int main(int argc, char** argv) {
  run_case(argc, argv, cases);
  return 0;
}
