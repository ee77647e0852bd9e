// mpi_renewed_memory_test -- calls on memory of GPUs that was freed and allocated anew, beside work of the
// program that keeps the peers from closing what lay there before; at odd addresses, of several kinds, and
// memory of loom's that a request has given back. On tests/virtual_gpu. Exit code 1: wrong, or no end.
//
//   mpi_renewed_memory_test CASE    which of `cases` below
#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/mpi/beside_work.hpp"

namespace {

using namespace loom::mpi_test;
using namespace std::chrono_literals;

std::uint64_t staged_bytes() {
  return tools->counter("coll_loom_staged_bytes").value_or(0);
}

std::unique_ptr<Ints> new_operand() {
  return std::make_unique<Ints>(kCount, mine, MemoryKind::kDevice);
}

/// Other memory at the same address, which the peers still have open.
void renew(std::unique_ptr<Ints>& in) {
  const int* const before = in->at();
  in.reset();
  in = new_operand();
  require(in->at() == before, "the driver does not give out an address again");
}

/// As drivers do that have older memory open at the same address: on rank 0, whose work keeps it open.
void refuse_memory(bool refuses) {
  constexpr int kAlreadyMapped = 208;
  if (rank == 0) fail("cuIpcOpenMemHandle", 0, refuses ? kAlreadyMapped : 0);
}

/// A call that does not wait has seen that memory is gone; the next one may wait, but not for a GPU.
void host_call(MPI_Comm comm) {
  std::unique_ptr<Ints> in = new_operand();
  Ints out(kCount, nothing, MemoryKind::kDevice);
  for (const bool scans : {true, false}) {
    const auto reduce = scans ? MPI_Scan : MPI_Allreduce;
    const auto start = scans ? MPI_Iscan : MPI_Iallreduce;
    const int operands = scans ? rank + 1 : ranks;
    for (int i = 0; i < 2; ++i) reduce(in->at(), out.at(), kCount, MPI_INT, MPI_SUM, comm);
    renew(in);
    out.fill(nothing);
    stays_on_gpus(scans ? "scan" : "allreduce", [&] {
      MPI_Request request;
      start(in->at(), out.at(), kCount, MPI_INT, MPI_SUM, comm, &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    });
    out.is([&](int i) { return sum_of(operands, i); }, "a reduction of renewed memory is wrong");
    const std::vector<int> ones(kCount, 1);
    std::vector<int> result(kCount);
    {
      const Work work;
      reduce(ones.data(), result.data(), kCount, MPI_INT, MPI_SUM, comm);
    }
    require(result == std::vector<int>(kCount, operands), "a reduction on the host is wrong");
  }
}

/// A request waits until what is in the way of renewed memory is closed, and tests of it return. Another one
/// may have that open, too.
void start_renewed(MPI_Comm comm, std::size_t requests_of_buffers) {
  std::unique_ptr<Ints> in = new_operand();
  Ints out(kCount, nothing, MemoryKind::kDevice);
  std::vector<MPI_Request> requests(requests_of_buffers);
  for (MPI_Request& request : requests)
    INIT(Allreduce)(in->at(), out.at(), kCount, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
  const auto start = [&](MPI_Request& request) {
    out.fill(nothing);
    stays_on_gpus("allreduce", [&] {
      MPI_Start(&request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    });
    out.is(sum, "a persistent allreduce is wrong");
  };
  start(requests.front());
  const std::uint64_t peers = counts().peers;
  renew(in);
  out.fill(nothing);
  MPI_Barrier(comm);
  {
    const Work work(stream_apart());
    refuse_memory(true);
    MPI_Start(&requests.front());
    const double until = MPI_Wtime() + 1;
    for (int done = 0; !done && MPI_Wtime() < until;) MPI_Test(&requests.front(), &done, MPI_STATUS_IGNORE);
    refuse_memory(false);
  }
  MPI_Wait(&requests.front(), MPI_STATUS_IGNORE);
  out.is(sum, "a persistent allreduce of renewed memory is wrong");
  for (MPI_Request& request : requests) start(request);
  for (int i = 0; i < 1000 && counts().peers > peers; ++i) std::this_thread::sleep_for(10ms);
  require(counts().peers <= peers, "memory that a peer has freed stays open");
  for (MPI_Request& request : requests) MPI_Request_free(&request);
}
void start_stream(MPI_Comm comm) {
  start_renewed(comm, 1);
}
void two_requests(MPI_Comm comm) {
  start_renewed(comm, 2);
}

/// Both have the old memory open. The renewed one bounces, but not for ever.
void two_comms(MPI_Comm comm) {
  constexpr int kMostCalls = 100;
  MPI_Comm other;
  MPI_Comm_dup(comm, &other);
  std::unique_ptr<Ints> in = new_operand();
  Ints out(kCount, nothing, MemoryKind::kDevice);
  const auto allreduce = [&](MPI_Comm of) {
    MPI_Allreduce(in->at(), out.at(), kCount, MPI_INT, MPI_SUM, of);
  };
  for (const MPI_Comm of : {comm, other}) allreduce(of);
  renew(in);
  MPI_Barrier(comm);
  {
    const Work work(stream_apart());
    refuse_memory(true);
    for (const MPI_Comm of : {comm, other}) allreduce(of);
    refuse_memory(false);
  }
  out.is(sum, "an allreduce of memory that is refused is wrong");
  for (const MPI_Comm of : {comm, other}) {
    std::uint64_t copies = 1;
    for (int call = 0; call < kMostCalls && copies > 0; ++call) {
      const std::uint64_t before = counts().copies;
      stays_on_gpus("allreduce", [&] { allreduce(of); });
      copies = counts().copies - before;
      MPI_Allreduce(MPI_IN_PLACE, &copies, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    }
    require(copies == 0, "renewed memory bounces in every call");
    out.is(sum, "an allreduce of renewed memory is wrong");
  }
  MPI_Comm_free(&other);
}

/// A call that waits does not wait until the old memory is closed.
void stream(MPI_Comm comm) {
  std::unique_ptr<Ints> in = new_operand();
  Ints out(kCount, nothing, MemoryKind::kDevice);
  const auto allreduce = [&] { MPI_Allreduce(in->at(), out.at(), kCount, MPI_INT, MPI_SUM, comm); };
  for (int i = 0; i < 2; ++i) allreduce();
  renew(in);
  out.fill(nothing);
  MPI_Barrier(comm);
  stays_on_gpus("allreduce", [&] {
    const Work work(stream_apart());
    allreduce();
  });
  out.is(sum, "an allreduce of renewed memory is wrong");
}

/// Doubles at addresses that kernels cannot load them from, in every form.
void misaligned(MPI_Comm comm) {
  constexpr std::size_t kShift = 4;
  loom::mpi::Memory in(kCount * sizeof(double) + kShift, MemoryKind::kDevice),
      out(kCount * sizeof(double) + kShift, MemoryKind::kDevice);
  const auto set = [](loom::mpi::Memory& memory, double times) {
    for (std::size_t i = 0; i < kCount; ++i) {
      const double value = times * (static_cast<double>(i) + 0.5);
      std::memcpy(memory.mirror.data() + kShift + i * sizeof value, &value, sizeof value);
    }
    memory.upload();
  };
  void *const from = in.address() + kShift, *const to = out.address() + kShift;
  const int all = ranks * (ranks + 1) / 2;
  MPI_Request request;
  struct Form {
    const char* name;
    int times;  ///< as much as the operand of rank 0
    std::function<void()> call;
  };
  const Form forms[] = {
      {"allreduce", all, [&] { MPI_Allreduce(from, to, kCount, MPI_DOUBLE, MPI_SUM, comm); }},
      {"scan", (rank + 1) * (rank + 2) / 2, [&] { MPI_Scan(from, to, kCount, MPI_DOUBLE, MPI_SUM, comm); }},
      {"reduce_local", rank + 1, [&] { MPI_Reduce_local(from, to, kCount, MPI_DOUBLE, MPI_SUM); }},
      {"iallreduce", all,
       [&] {
         MPI_Iallreduce(from, to, kCount, MPI_DOUBLE, MPI_SUM, comm, &request);
         MPI_Wait(&request, MPI_STATUS_IGNORE);
       }},
      {"persistent allreduce", all, [&] {
         INIT(Allreduce)(from, to, kCount, MPI_DOUBLE, MPI_SUM, comm, MPI_INFO_NULL, &request);
         MPI_Start(&request);
         MPI_Wait(&request, MPI_STATUS_IGNORE);
         MPI_Request_free(&request);
       }}};
  set(in, rank + 1);
  for (const auto& [name, times, call] : forms) {
    set(out, 0);
    call();
    out.download();
    const std::vector<std::byte> found = out.mirror;
    set(out, times);
    require(found == out.mirror, (std::string(name) + " of misaligned doubles is wrong").c_str());
  }
}

/// Operand and result are memory of one GPU that was allocated in different ways.
void kinds(MPI_Comm comm) {
  using enum MemoryKind;
  const auto allreduce = [&](MemoryKind of_in, MemoryKind of_out) {
    Ints in(kCount, mine, of_in), out(kCount, nothing, of_out);
    MPI_Allreduce(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, comm);
    out.is(sum, "an allreduce from one kind of memory to another is wrong");
  };
  allreduce(kDevice, kDevice);
  for (const auto& of : {std::pair(kPool, kDevice), std::pair(kDevice, kPool), std::pair(kManaged, kPool)}) {
    const std::uint64_t staged = staged_bytes();
    stays_on_gpus("allreduce", [&] { allreduce(of.first, of.second); });
    require(staged_bytes() == staged, "memory of one GPU is staged");
  }
}

/// There is memory to pack buffers for one call at a time; a request that is freed gives its own back.
void lane(MPI_Comm comm) {
  constexpr int kMany = 1'200'000;
  MPI_Datatype many = every_second(kMany);
  Ints few(kCount, mine, MemoryKind::kDevice), both(2 * kMany, mine, MemoryKind::kDevice);
  for (int i = 0; i < 2; ++i) MPI_Bcast(few.at(), kCount, MPI_INT, 0, comm);
  const auto is_staged = [](const std::function<void()>& call) {
    const std::uint64_t before = staged_bytes();
    call();
    return staged_bytes() != before;
  };
  const auto bcast = [&] { MPI_Bcast(both.at(), 1, many, 0, comm); };
  MPI_Request request;
  const auto make = [&] {
    INIT(Bcast)(both.at(), 1, many, 0, comm, MPI_INFO_NULL, &request);
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  };
  require(!is_staged(make), "a persistent bcast is staged");
  MPI_Request_free(&request);
  both.fill(mine);
  for (int i = 0; i < 2; ++i) require(!is_staged(bcast), "a bcast is staged after a request has been freed");
  both.is([](int i) { return i % 2 == 0 ? of_rank(0, i) : mine(i); }, "a bcast with gaps is wrong");
  make();
  require(is_staged(bcast), "there is memory for two calls, so that this shows nothing");
  MPI_Request_free(&request);
  MPI_Type_free(&many);
}

constexpr Case cases[] = {{"host_call", host_call},
                          {"two_requests", two_requests},
                          {"two_comms", two_comms},
                          {"stream", stream},
                          {"start_stream", start_stream},
                          {"misaligned", misaligned},
                          {"kinds", kinds},
                          {"lane", lane}};

}  // namespace

int main(int argc, char** argv) {
  run_case(argc, argv, cases);
  return 0;
}
