// mpi_device_test -- calls on device buffers that loom does not carry, or that begin or end in unusual ways:
// user-defined operations, intercommunicators, neighbourhoods, reduce_local, MPI_BOTTOM, freed buffers. On
// tests/virtual_gpu. Exit code 1: wrong.
#include <sys/mman.h>
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "device_ints.hpp"
#include "mpi_examples/support/loom_pvars.hpp"

namespace loom::mpi_test {
namespace {

MPI_Op user_sum() {
  MPI_Op op;
  MPI_Op_create(
      [](void* in, void* inout, int* count, MPI_Datatype*) {
        for (int i = 0; i < *count; ++i) static_cast<int*>(inout)[i] += static_cast<int*>(in)[i];
      },
      1, &op);
  return op;
}

/// Short messages, and some so long that they would be copied during the call if loom carried it.
void use_user_defined_operation(MPI_Op op, int count) {
  Ints in(count), out(count);
  const auto sum = [](int i) { return ranks * i + ranks * (ranks - 1) / 2; };
  in.fill([](int i) { return i + rank; });
  MPI_Allreduce(in.at(), out.at(), count, MPI_INT, op, MPI_COMM_WORLD);
  out.is(sum, "an allreduce with an own operation is wrong");
  out.fill([](int i) { return i + rank; });
  MPI_Allreduce(MPI_IN_PLACE, out.at(), count, MPI_INT, op, MPI_COMM_WORLD);
  out.is(sum, "an allreduce in place with an own operation is wrong");
}

void use_user_defined_operations() {
  constexpr int kCount = 3001;
  MPI_Op op = user_sum();
  use_user_defined_operation(op, 400'009);
  use_user_defined_operation(op, kCount);
  Ints in(kCount), out(kCount), scattered(kCount * ranks);
  const auto sum = [](int i) { return ranks * i + ranks * (ranks - 1) / 2; };
  in.fill([](int i) { return i + rank; });
  MPI_Request request;
  out.fill([](int) { return -1; });
  MPI_Iallreduce(in.at(), out.at(), kCount, MPI_INT, op, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  out.is(sum, "an iallreduce with an own operation is wrong");
  scattered.fill([](int i) { return i + rank; });
  MPI_Ireduce_scatter_block(MPI_IN_PLACE, scattered.at(), kCount, MPI_INT, op, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  scattered.is(
      [&](int i) { return i < kCount ? sum(rank * kCount + i) : i + rank; },
      "a reduce_scatter_block in place with an own operation is wrong, or touches more than its result");
  INIT(Scan)(in.at(), out.at(), kCount, MPI_INT, op, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  for (int round = 0; round < 3; ++round) {
    in.fill([&](int i) { return i + rank + round; });
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    out.is([&](int i) { return (rank + 1) * (i + round) + rank * (rank + 1) / 2; },
           "a persistent scan with an own operation is wrong");
  }
  MPI_Request_free(&request);
  in.fill([](int i) { return i + rank; });
  out.fill([](int) { return -5; });
  MPI_Exscan(in.at(), out.at(), kCount, MPI_INT, op, MPI_COMM_WORLD);
  out.is([](int i) { return rank == 0 ? -5 : rank * i + rank * (rank - 1) / 2; },
         "an exscan is wrong, or touches rank 0's buffer");
  MPI_Op_free(&op);
}

/// MPI lets a reduce leave the buffers of others alone: only the root's result counts.
void leave_insignificant_buffers_alone() {
  Ints in(10, rank);
  void* const nowhere = reinterpret_cast<void*>(std::uintptr_t{64});
  Ints out(10);
  MPI_Reduce(in.at(), rank == 0 ? out.at() : nowhere, 10, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) out.is([](int) { return ranks * (ranks - 1) / 2; }, "a reduce is wrong");
}

void reduce_locally() {
  MPI_Op op = user_sum();
  for (const auto& [in_kind, out_kind] :
       {std::pair(MemoryKind::kDevice, MemoryKind::kHost), std::pair(MemoryKind::kHost, MemoryKind::kDevice),
        std::pair(MemoryKind::kDevice, MemoryKind::kPool),
        std::pair(MemoryKind::kManaged, MemoryKind::kDevice)})
    for (const MPI_Op of : {op, MPI_SUM}) {
      Ints in(100, 3, in_kind), inout(100, 4, out_kind);
      MPI_Reduce_local(in.at(), inout.at(), 100, MPI_INT, of);
      inout.is([](int) { return 7; }, "reduce_local is wrong");
      in.is([](int) { return 3; }, "reduce_local changes its operand");
    }
  MPI_Op_free(&op);
}

void call_neighbours() {
  MPI_Comm ring;
  const int periodic = 1;
  MPI_Cart_create(MPI_COMM_WORLD, 1, &ranks, &periodic, 0, &ring);
  const int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
  constexpr int kCount = 500;
  const auto own = [](int i) { return rank * 10'000 + i; };
  const auto gathered = [&](int i) { return (i < kCount ? left : right) * 10'000 + i % kCount; };
  {
    Ints in(kCount), out(2 * kCount);
    in.fill(own);
    MPI_Neighbor_allgather(in.at(), kCount, MPI_INT, out.at(), kCount, MPI_INT, ring);
    out.is(gathered, "a neighbour allgather is wrong");
    out.fill([](int) { return -1; });
    MPI_Request request;
    const int two[] = {kCount, kCount}, at[] = {kCount + 7, 0};
    Ints apart(2 * kCount + 7);
    MPI_Ineighbor_allgatherv(in.at(), kCount, MPI_INT, apart.at(), two, at, MPI_INT, ring, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    apart.is(
        [&](int i) {
          return i < kCount ? right * 10'000 + i : i < kCount + 7 ? -1 : left * 10'000 + i - kCount - 7;
        },
        "a neighbour iallgatherv is wrong");
    INIT(Neighbor_allgather)
    (in.at(), kCount, MPI_INT, out.at(), kCount, MPI_INT, ring, MPI_INFO_NULL, &request);
    for (int round = 0; round < 2; ++round) {
      out.fill([](int) { return -1; });
      MPI_Start(&request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      out.is(gathered, "a persistent neighbour allgather is wrong");
    }
    MPI_Request_free(&request);
  }
  // To the left the first half, to the right the second; of two ranks both neighbours are the same one.
  const auto exchanged = [&](int i) {
    const int from = i < kCount ? left : right;
    return from * 10'000 + (i < kCount ? kCount + i : i - kCount);
  };
  {
    Ints in(2 * kCount), out(2 * kCount);
    in.fill(own);
    if (ranks > 2) {
      MPI_Neighbor_alltoall(in.at(), kCount, MPI_INT, out.at(), kCount, MPI_INT, ring);
      out.is(exchanged, "a neighbour alltoall is wrong");
      const int two[] = {kCount, kCount}, at[] = {0, kCount};
      out.fill([](int) { return -1; });
      MPI_Neighbor_alltoallv(in.at(), two, at, MPI_INT, out.at(), two, at, MPI_INT, ring);
      out.is(exchanged, "a neighbour alltoallv is wrong");
      const MPI_Aint bytes_at[] = {0, kCount * 4};
      const MPI_Datatype types[] = {MPI_INT, MPI_INT};
      out.fill([](int) { return -1; });
      MPI_Request request;
      MPI_Ineighbor_alltoallw(in.at(), two, bytes_at, types, out.at(), two, bytes_at, types, ring, &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      out.is(exchanged, "a neighbour ialltoallw is wrong");
    }
  }
  MPI_Comm_free(&ring);
}

/// Even ranks are one group, odd ranks the other.
void call_between_groups() {
  if (ranks < 2) return;
  MPI_Comm half, inter;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 1, &inter);
  int mine, theirs, my_rank;
  MPI_Comm_size(inter, &mine);
  MPI_Comm_remote_size(inter, &theirs);
  MPI_Comm_rank(inter, &my_rank);
  const bool even = rank % 2 == 0;
  const int root = even ? (my_rank == 0 ? MPI_ROOT : MPI_PROC_NULL) : 0;
  constexpr int kCount = 400;
  const auto sum_of = [&](int parity) {
    int sum = 0;
    for (int r = parity; r < ranks; r += 2) sum += r;
    return sum;
  };
  const auto other = [&](int i) { return 2 * i + (even ? 1 : 0); };  // its rank in the world
  {
    Ints buffer(kCount, rank);
    MPI_Bcast(buffer.at(), kCount, MPI_INT, root, inter);
    buffer.is([&](int) { return even ? rank : 0; }, "a bcast between groups is wrong");
  }
  {
    Ints in(kCount, rank), out(kCount);
    MPI_Allreduce(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, inter);
    out.is([&](int) { return sum_of(even ? 1 : 0); }, "an allreduce between groups is wrong");
    out.fill([](int) { return -1; });
    MPI_Request request;
    MPI_Iallreduce(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, inter, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    out.is([&](int) { return sum_of(even ? 1 : 0); }, "an iallreduce between groups is wrong");
    out.fill([](int) { return -1; });
    MPI_Reduce(in.at(), out.at(), kCount, MPI_INT, MPI_SUM, root, inter);
    out.is([&](int) { return root == MPI_ROOT ? sum_of(1) : -1; }, "a reduce between groups is wrong");
  }
  {
    Ints in(kCount, rank), out(kCount * theirs);
    MPI_Allgather(in.at(), kCount, MPI_INT, out.at(), kCount, MPI_INT, inter);
    out.is([&](int i) { return other(i / kCount); }, "an allgather between groups is wrong");
    out.fill([](int) { return -1; });
    MPI_Gather(in.at(), kCount, MPI_INT, out.at(), kCount, MPI_INT, root, inter);
    out.is([&](int i) { return root == MPI_ROOT ? other(i / kCount) : -1; },
           "a gather between groups is wrong");
  }
  {
    Ints in(kCount * theirs), out(kCount * theirs), one(kCount);
    in.fill([](int i) { return rank * 1000 + i / kCount; });
    MPI_Alltoall(in.at(), kCount, MPI_INT, out.at(), kCount, MPI_INT, inter);
    out.is([&](int i) { return other(i / kCount) * 1000 + my_rank; }, "an alltoall between groups is wrong");
    MPI_Scatter(in.at(), kCount, MPI_INT, one.at(), kCount, MPI_INT, root, inter);
    one.is([&](int) { return even ? -1 : my_rank; }, "a scatter between groups is wrong");
  }
  {
    // Each group scatters as many elements: shares are counted in the own group.
    Ints in(kCount * mine * theirs, rank), out(kCount * theirs);
    MPI_Reduce_scatter_block(in.at(), out.at(), kCount * theirs, MPI_INT, MPI_SUM, inter);
    out.is([&](int) { return sum_of(even ? 1 : 0); }, "a reduce_scatter_block between groups is wrong");
    const std::vector<int> shares(static_cast<std::size_t>(mine), kCount * theirs);
    out.fill([](int) { return -1; });
    MPI_Reduce_scatter(in.at(), out.at(), shares.data(), MPI_INT, MPI_SUM, inter);
    out.is([&](int) { return sum_of(even ? 1 : 0); }, "a reduce_scatter between groups is wrong");
  }
  MPI_Comm_free(&inter);
  MPI_Comm_free(&half);
}

/// Beyond the edges of a grid nobody sends.
void leave_what_has_no_neighbour() {
  MPI_Comm line;
  const int periodic = 0;
  MPI_Cart_create(MPI_COMM_WORLD, 1, &ranks, &periodic, 0, &line);
  constexpr int kCount = 500;
  Ints in(2 * kCount, rank), out(2 * kCount);
  const auto gathered = [](int i) {
    const int from = i < kCount ? rank - 1 : rank + 1;
    return from < 0 || from == ranks ? -1 : from;
  };
  const auto clear = [&] { out.fill([](int) { return -1; }); };
  MPI_Neighbor_allgather(in.at(), kCount, MPI_INT, out.at(), kCount, MPI_INT, line);
  out.is(gathered, "a neighbour allgather at an edge is wrong");
  clear();
  const int counts[] = {kCount, kCount}, at[] = {0, kCount};
  MPI_Request request;
  MPI_Ineighbor_alltoallv(in.at(), counts, at, MPI_INT, out.at(), counts, at, MPI_INT, line, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  out.is(gathered, "a neighbour ialltoallv at an edge is wrong");
  clear();
  INIT(Neighbor_alltoall)
  (in.at(), kCount, MPI_INT, out.at(), kCount, MPI_INT, line, MPI_INFO_NULL, &request);
  MPI_Start(&request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  out.is(gathered, "a persistent neighbour alltoall at an edge is wrong");
  MPI_Request_free(&request);
  MPI_Comm_free(&line);
}

/// A message from MPI_BOTTOM has parts on the device and on the host.
void start_at_the_bottom(int on_host) {
  Ints device(100, 0, MemoryKind::kDevice), host(on_host, 0, MemoryKind::kHost);
  device.fill([](int i) { return rank == 0 ? i : -1; });
  host.fill([](int i) { return rank == 0 ? 1000 + i : -1; });
  MPI_Aint at[2];
  MPI_Get_address(device.at(), &at[0]);
  MPI_Get_address(host.at(), &at[1]);
  const int lengths[] = {100, on_host};
  const MPI_Datatype types[] = {MPI_INT, MPI_INT};
  MPI_Datatype both;
  MPI_Type_create_struct(2, lengths, at, types, &both);
  MPI_Type_commit(&both);
  MPI_Bcast(MPI_BOTTOM, 1, both, 0, MPI_COMM_WORLD);
  device.is([](int i) { return i; }, "a bcast from MPI_BOTTOM is wrong on the device");
  host.is([](int i) { return 1000 + i; }, "a bcast from MPI_BOTTOM is wrong on the host");
  MPI_Type_free(&both);
}

void start_at_the_bottom() {
  for (const int on_host : {50, 100}) start_at_the_bottom(on_host);
  // Rows of one length in two buffers.
  Ints first(100, 0, MemoryKind::kDevice), second(100, 0, MemoryKind::kDevice);
  for (Ints* const ints : {&first, &second})
    ints->fill([&](int i) { return rank == 0 ? i + (ints == &second ? 1000 : 0) : -1; });
  MPI_Aint at[2];
  MPI_Get_address(first.at(), &at[0]);
  MPI_Get_address(second.at(), &at[1]);
  MPI_Datatype both;
  MPI_Type_create_hindexed_block(2, 100, at, MPI_INT, &both);
  MPI_Type_commit(&both);
  MPI_Bcast(MPI_BOTTOM, 1, both, 0, MPI_COMM_WORLD);
  first.is([](int i) { return i; }, "a bcast of two buffers is wrong in the first one");
  second.is([](int i) { return 1000 + i; }, "a bcast of two buffers is wrong in the second one");
  MPI_Type_free(&both);
}

/// Copies come after work in the default stream, and are done when the call returns.
void keep_the_order_of_the_default_stream() {
  const auto fill = [](int* memory, unsigned char value) {
    void* const default_stream = nullptr;
    Driver::get().function<int(int*, unsigned char, std::size_t, void*)>("cuMemsetD8Async")(
        memory, value, 4000, default_stream);
  };
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kManaged, MemoryKind::kPool}) {
    Ints in(1000, 1, kind), out(1000, 0, kind);
    fill(in.at(), 2);
    fill(out.at(), 3);
    MPI_Allreduce(in.at(), out.at(), 1000, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    out.is([](int) { return ranks * 0x02020202; }, "an allreduce after work in the default stream is wrong");
  }
}

/// The same address, first on the device and then the host's.
void reuse_an_address() {
  Driver& driver = Driver::get();
  for (int round = 0; round < 3; ++round) {
    auto* const device = driver.allocate(MemoryKind::kDevice, 8192);
    const std::vector<int> ones(2048, 1);
    driver.to_device(device, ones.data(), 8192);
    MPI_Allreduce(MPI_IN_PLACE, device, 2048, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    driver.release(MemoryKind::kDevice, device);
    void* const host = ::mmap(device, 8192, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    require(host == device, "the address of a freed buffer is taken");
    std::memcpy(host, ones.data(), 8192);
    const std::uint64_t before = counts().copies;
    MPI_Allreduce(MPI_IN_PLACE, host, 2048, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    require(static_cast<int*>(host)[2047] == ranks, "an allreduce at the address of a freed buffer is wrong");
    require(counts().copies == before, "a freed buffer's address is taken for the device's");
    ::munmap(host, 8192);
  }
}

/// Only bytes of the message cross, not those between them.
void copy_no_more_than_the_message() {
  loom::mpi::ToolInterface tools;
  const auto staged = [&] { return tools.counter("coll_loom_staged_bytes").value_or(0); };
  MPI_Datatype pairs, apart;
  MPI_Type_vector(30, 2, 5, MPI_INT, &pairs);
  MPI_Type_commit(&pairs);
  MPI_Type_create_resized(pairs, 0, 777 * 4, &apart);
  MPI_Type_commit(&apart);
  Ints buffer(777 * 40, rank, MemoryKind::kDevice);
  staged();
  const std::uint64_t before = staged();
  MPI_Bcast(buffer.at(), 40, apart, 0, MPI_COMM_WORLD);
  // Open MPI itself ends a bcast to nobody. Without the rule it stays on the device.
  const char* const rules = std::getenv("OMPI_MCA_coll_loom_tune");
  const bool is_staged = rules != nullptr && std::strcmp(rules, "all:staged") == 0;
  require(staged() - before == (is_staged && ranks > 1 ? 40 * 60 * 4 : 0),
          "a bcast copies other bytes to the host than those of the message");
  buffer.is([](int i) { return i % 777 < 147 && i % 777 % 5 < 2 ? 0 : rank; }, "a bcast of pairs is wrong");
  MPI_Type_free(&apart);
  MPI_Type_free(&pairs);
}

void start_many_and_free_their_communicator() {
  for (int round = 0; round < 5; ++round) {
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Barrier(copy);
    MPI_Op op = user_sum();
    std::vector<std::unique_ptr<Ints>> in, out;
    std::vector<MPI_Request> requests(30);
    for (int i = 0; i < 30; ++i) {
      in.push_back(std::make_unique<Ints>(10 + i * 50, rank + i));
      out.push_back(std::make_unique<Ints>(10 + i * 50));
      MPI_Iallreduce(in.back()->at(), out.back()->at(), 10 + i * 50, MPI_INT,
                     i % 4 == 0 && round > 0 ? op : MPI_SUM, round > 0 ? MPI_COMM_WORLD : copy,
                     &requests[static_cast<std::size_t>(i)]);
    }
    MPI_Comm_free(&copy);
    MPI_Op_free(&op);
    for (int i = 0; i < 30; ++i) {  // another order on each rank
      const int which = (i * 7 + rank) % 30;
      MPI_Wait(&requests[static_cast<std::size_t>(which)], MPI_STATUS_IGNORE);
      out[static_cast<std::size_t>(which)]->is([&](int) { return ranks * which + ranks * (ranks - 1) / 2; },
                                               "one of many iallreduces is wrong");
    }
  }
}

void call_from_a_thread_without_a_context() {
  Ints in(5000, rank, MemoryKind::kDevice), out(5000, -1, MemoryKind::kDevice);
  std::thread([&] { MPI_Allreduce(in.at(), out.at(), 5000, MPI_INT, MPI_SUM, MPI_COMM_WORLD); }).join();
  out.is([](int) { return ranks * (ranks - 1) / 2; }, "an allreduce from another thread is wrong");
}

/// What CUDA is asked for calls on the host's buffers: where one lies, if it may be freed and become a
/// device's.
void ask_no_more_than_needed() {
  if (!all_are_staged()) return;  // then more is asked
  static int in_the_program[10];
  int on_the_stack[10] = {};
  constexpr int kCount = 100'000;
  const auto map = [] {
    return static_cast<int*>(
        ::mmap(nullptr, kCount * sizeof(int), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  };
  int *const mapped = map(), *const too = map();
  const auto asks = [](const void* in, void* out, int count) {
    const std::uint64_t before = counts().looks;
    MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return counts().looks - before;
  };
  require(asks(on_the_stack, in_the_program, 10) == 0, "CUDA is asked about the program's own memory");
  require(asks(MPI_IN_PLACE, in_the_program, 10) == 0, "CUDA is asked about memory in place");
  require(asks(MPI_IN_PLACE, mapped, kCount) == 1, "CUDA is asked twice about a buffer");
  require(asks(mapped, too, kCount) == 2, "CUDA is asked more than once for each buffer");
  require(asks(mapped, in_the_program, 10) == 1, "CUDA is asked about more than it may have");
  for (int* memory : {mapped, too}) ::munmap(memory, kCount * sizeof(int));
}

void use_two_devices() {
  Driver& driver = Driver::get();
  Ints in(3000, rank, MemoryKind::kDevice);
  driver.use(1);
  Ints out(3000, -1, MemoryKind::kDevice);
  const std::uint64_t before = counts().foreign_context;
  MPI_Allreduce(in.at(), out.at(), 3000, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  require(counts().foreign_context == before, "a copy does not go through the context of its memory");
  out.is([](int) { return ranks * (ranks - 1) / 2; }, "an allreduce from one device to another is wrong");
  driver.leave();
}

}  // namespace
}  // namespace loom::mpi_test

int main(int argc, char** argv) {
  using namespace loom::mpi_test;
  begin(argc, argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  use_user_defined_operations();  // on ranks that have not met: some of these fall back
  MPI_Barrier(MPI_COMM_WORLD);
  for (const auto scenario : {use_user_defined_operations, leave_insignificant_buffers_alone, reduce_locally,
                              call_neighbours, leave_what_has_no_neighbour, call_between_groups,
                              start_at_the_bottom, keep_the_order_of_the_default_stream, reuse_an_address,
                              copy_no_more_than_the_message, start_many_and_free_their_communicator,
                              call_from_a_thread_without_a_context, ask_no_more_than_needed, use_two_devices})
    scenario();
  require(has_only_links(), "the test has left allocations");
  MPI_Finalize();
}
