// mpi_exchanges_between_gpus_test -- alltoallvs and alltoallws between hosts that do not wait: kernels carry
// them where all ranks have their buffers on GPUs; else loom does on host memory, where nobody else makes
// such calls. On tests/virtual_gpu, with a rule for kernels. Exit code 1: wrong.
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "mpi_examples/support/loom_pvars.hpp"
#include "tests/mpi/device_ints.hpp"
#include "tests/mpi/waiting.hpp"

namespace {

using namespace loom::mpi_test;

constexpr int kCount = 3000;
std::optional<loom::mpi::ToolInterface> tools;

/// Rank `from` sends so many elements to rank `to`.
int length_of(int from, int to) {
  return from == 1 && to == 0 ? 0 : kCount + 100 * from + 7 * to;
}
int value_of(int from, int to, int i) {
  return from * 100'000 + to * 10'000 + i % 10'000;
}

/// One alltoallv, or alltoallw of elements with gaps: its buffers, and what to expect.
class Exchange {
 public:
  explicit Exchange(MemoryKind kind = MemoryKind::kDevice, bool with_gaps = false)
      : step_(with_gaps ? 3 : 1), types_(static_cast<std::size_t>(ranks), MPI_INT) {
    for (int peer = 0; peer < ranks; ++peer) {
      sent_.push_back(length_of(rank, peer));
      received_.push_back(length_of(peer, rank));
      in_at_.push_back(peer == 0 ? 0 : in_at_.back() + step_ * sent_[static_cast<std::size_t>(peer) - 1]);
      out_at_.push_back(peer == 0 ? 0
                                  : out_at_.back() + step_ * received_[static_cast<std::size_t>(peer) - 1]);
    }
    const int last = ranks - 1;
    in_ = std::make_unique<Ints>(
        in_at_.back() + step_ * sent_.back(), [&](int i) { return sent(i); }, kind);
    out_ = std::make_unique<Ints>(out_at_.back() + step_ * length_of(last, rank), -1, kind);
    if (!with_gaps) return;
    MPI_Type_create_resized(MPI_INT, 0, static_cast<MPI_Aint>(sizeof(int)) * step_, &wide_);
    MPI_Type_commit(&wide_);
    types_.assign(types_.size(), wide_);
    for (std::size_t peer = 0; peer < types_.size(); ++peer) {
      in_bytes_.push_back(in_at_[peer] * static_cast<int>(sizeof(int)));
      out_bytes_.push_back(out_at_[peer] * static_cast<int>(sizeof(int)));
    }
  }
  ~Exchange() {
    if (wide_ != MPI_DATATYPE_NULL) MPI_Type_free(&wide_);
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  void start(MPI_Comm comm, MPI_Request& request) {
    if (wide_ != MPI_DATATYPE_NULL)
      MPI_Ialltoallw(in_->at(), sent_.data(), in_bytes_.data(), types_.data(), out_->at(), received_.data(),
                     out_bytes_.data(), types_.data(), comm, &request);
    else
      MPI_Ialltoallv(in_->at(), sent_.data(), in_at_.data(), MPI_INT, out_->at(), received_.data(),
                     out_at_.data(), MPI_INT, comm, &request);
  }
  void perform(MPI_Comm comm) {
    MPI_Alltoallv(in_->at(), sent_.data(), in_at_.data(), MPI_INT, out_->at(), received_.data(),
                  out_at_.data(), MPI_INT, comm);
  }
  void check() {
    out_->is(
        [&](int i) {
          int peer = ranks - 1;
          while (out_at_[static_cast<std::size_t>(peer)] > i) --peer;
          const int at = i - out_at_[static_cast<std::size_t>(peer)];
          return at % step_ == 0 ? value_of(peer, rank, at / step_) : -1;
        },
        "an ialltoallv is wrong");
    in_->is([&](int i) { return sent(i); }, "an ialltoallv changes its operand");
  }
  /// The program may forget its lists once the call has been started.
  void forget_lists_until_checked() { lists_ = {sent_, received_, in_at_, out_at_}, clear(); }
  void remember_lists() { sent_ = lists_[0], received_ = lists_[1], in_at_ = lists_[2], out_at_ = lists_[3]; }

 private:
  int sent(int i) const {
    int peer = ranks - 1;
    while (in_at_[static_cast<std::size_t>(peer)] > i) --peer;
    return value_of(rank, peer, (i - in_at_[static_cast<std::size_t>(peer)]) / step_);
  }
  void clear() {
    for (std::vector<int>* list : {&sent_, &received_, &in_at_, &out_at_}) list->assign(list->size(), -7);
  }

  int step_;
  std::vector<int> sent_, received_, in_at_, out_at_, in_bytes_, out_bytes_;
  std::vector<std::vector<int>> lists_;
  std::vector<MPI_Datatype> types_;
  MPI_Datatype wide_ = MPI_DATATYPE_NULL;
  std::unique_ptr<Ints> in_, out_;
};

/// Whether kernels have carried so many calls.
void check(const char* collective, int stay, const std::function<void()>& body) {
  const auto calls = [&] { return tools->counter("coll_loom_calls", collective, "kernel").value_or(0); };
  const std::uint64_t before = calls();
  body();
  const auto carried = static_cast<int>(calls() - before);
  if (carried != stay)
    std::fprintf(stderr, "rank %d: kernels have carried %d calls of %s, not %d\n", rank, carried, collective,
                 stay);
  require(carried == stay, "not where they should be");
}

void one(MPI_Comm comm, int stay, MemoryKind kind = MemoryKind::kDevice) {
  check("alltoallv", stay, [&] {
    Exchange call(kind);
    MPI_Request request;
    call.start(comm, request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    call.check();
  });
}

void with_gaps(MPI_Comm comm, int stay) {
  check("alltoallw", stay, [&] {
    Exchange call(MemoryKind::kDevice, true);
    MPI_Request request;
    call.start(comm, request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    call.check();
  });
}

/// Where each host has one rank, these are such calls, too.
void equal_blocks(MPI_Comm comm, int stay) {
  check("alltoall", stay, [&] {
    Ints in(kCount * ranks, [](int i) { return value_of(rank, i / kCount, i); }),
        out(kCount * ranks, -1, MemoryKind::kDevice);
    MPI_Request request;
    MPI_Ialltoall(in.at(), kCount, MPI_INT, out.at(), kCount, MPI_INT, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    out.is([](int i) { return value_of(i / kCount, rank, rank * kCount + i % kCount); },
           "an ialltoall is wrong");
  });
}

/// Calls that stay on GPUs, calls that do not, and calls that the fallback component gets at once: all are on
/// their way together, and the program keeps no lists of blocks. A blocking one follows.
void many(MPI_Comm comm) {
  constexpr int kCalls = 6;
  std::vector<std::unique_ptr<Exchange>> calls;
  std::vector<MPI_Request> requests(2 * kCalls);
  std::vector<int> small(kCalls, rank == 0 ? 5 : 0);
  check("alltoallv", kCalls - 2, [&] {
    for (int i = 0; i < kCalls; ++i) {
      const bool is_apart = (i == 1 && rank == 0) || (i == 4 && rank == ranks - 1);
      calls.push_back(std::make_unique<Exchange>(is_apart ? MemoryKind::kHost : MemoryKind::kDevice));
      calls.back()->start(comm, requests[static_cast<std::size_t>(2 * i)]);
      calls.back()->forget_lists_until_checked();
      MPI_Ibcast(&small[static_cast<std::size_t>(i)], 1, MPI_INT, 0, comm,
                 &requests[static_cast<std::size_t>(2 * i) + 1]);
    }
    int one = rank;
    MPI_Allreduce(MPI_IN_PLACE, &one, 1, MPI_INT, MPI_SUM, comm);
    require(one == ranks * (ranks - 1) / 2, "a blocking call behind ialltoallvs is wrong");
    MPI_Waitall(2 * kCalls, requests.data(), MPI_STATUSES_IGNORE);
  });
  for (int i = 0; i < kCalls; ++i) {
    calls[static_cast<std::size_t>(i)]->remember_lists();
    calls[static_cast<std::size_t>(i)]->check();
    require(small[static_cast<std::size_t>(i)] == 5, "an ibcast between ialltoallvs is wrong");
  }
}

/// A call starts and is tested although its operand waits for the host, and ends although what the program
/// has enqueued later does: whether it stays on GPUs, or rank 0 has its buffers on the host.
void beside_the_program(MPI_Comm comm, bool stays) {
  constexpr int kTests = 30;
  check("alltoallv", stays ? 1 : 0, [&] {
    Exchange call(stays || rank != 0 ? MemoryKind::kDevice : MemoryKind::kHost);
    MPI_Request request;
    {
      Waiting earlier;
      call.start(comm, request);
      for (int i = 0; i < kTests; ++i) {
        int done;
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        require(done == 0, "an ialltoallv is complete before work that was enqueued ahead of it");
      }
      MPI_Barrier(MPI_COMM_WORLD);  // of another communicator: nobody has been let go before
      const Waiting later;          // enqueued before it is known where the call goes
      earlier.end();
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    call.check();
  });
}

/// Somebody makes the call only after a message that another one sends behind its start.
void late_rank(MPI_Comm comm) {
  check("alltoallv", 1, [&] {
    Exchange call;
    MPI_Request request;
    int token = 0;
    if (rank == ranks - 1) MPI_Recv(&token, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    call.start(comm, request);
    if (rank == 0) MPI_Send(&token, 1, MPI_INT, ranks - 1, 0, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    call.check();
  });
}

/// Rank 0 sends the last rank more than that has room for: an error of that rank alone, and later calls are
/// right.
void too_long(MPI_Comm comm, MemoryKind kind) {
  constexpr int kMore = 500;
  const int last = ranks - 1, most = kCount + kMore;
  const auto of_all = static_cast<std::size_t>(ranks);
  std::vector<int> sent(of_all, kCount), received(of_all, kCount), places;
  if (rank == 0) sent[of_all - 1] = most;
  for (int peer = 0; peer < ranks; ++peer) places.push_back(peer * most);
  Ints in(
      most * ranks, [&](int i) { return value_of(rank, i / most, i % most); }, kind),
      out(most * ranks, -1, kind);
  for (const MPI_Comm each : {comm, MPI_COMM_WORLD})  // where Open MPI finds errors of requests
    MPI_Comm_set_errhandler(each, MPI_ERRORS_RETURN);
  MPI_Request request;
  MPI_Ialltoallv(in.at(), sent.data(), places.data(), MPI_INT, out.at(), received.data(), places.data(),
                 MPI_INT, comm, &request);
  int found = MPI_SUCCESS;
  MPI_Error_class(MPI_Wait(&request, MPI_STATUS_IGNORE), &found);
  require(found == (rank == last ? MPI_ERR_TRUNCATE : MPI_SUCCESS),
          "a block that does not fit is no error of its receiver alone");
  if (rank == last && kind != MemoryKind::kHost)
    return;  // results that are not whole stay in staging buffers
  out.is([&](int i) { return i % most < kCount ? value_of(i / most, rank, i % most) : -1; },
         "an ialltoallv beside a block that does not fit is wrong");
}

/// The communicator is freed before its calls have ended.
void freed_early(bool stays) {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  check("alltoallv", stays ? 2 : 1, [&] {
    Exchange first, call(stays || rank != 0 ? MemoryKind::kDevice : MemoryKind::kHost);
    first.perform(comm);
    first.check();
    MPI_Request request;
    first.start(comm, request);  // lacks links, which the barrier makes
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Barrier(comm);
    call.start(comm, request);
    MPI_Comm_free(&comm);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    call.check();
  });
}

}  // namespace

int main(int argc, char** argv) {
  begin(argc, argv);
  tools.emplace();
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  one(comm, 0);  // there are no links between GPUs
  check("alltoallv", 1, [&] {
    Exchange call;
    call.perform(comm);
    call.check();
  });
  one(comm, 0);  // there are none between every two ranks, for those with their buffers on the host
  MPI_Barrier(comm);
  one(comm, 1);
  one(comm, 0, rank == 0 ? MemoryKind::kHost : MemoryKind::kDevice);
  one(comm, 0, MemoryKind::kHost);
  one(comm, 1);
  with_gaps(comm, 0);  // memory and kernels to pack with are made by calls that may wait
  MPI_Barrier(comm);
  with_gaps(comm, 1);
  int on_my_host = std::atoi(std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE")), most = 0;
  MPI_Allreduce(&on_my_host, &most, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  equal_blocks(comm, most == 1 ? 1 : 0);
  many(comm);
  for (const bool stays : {true, false}) {
    beside_the_program(comm, stays);
    freed_early(stays);
  }
  late_rank(comm);
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kHost}) {
    too_long(comm, kind);
    one(comm, 1);
  }
  MPI_Comm_free(&comm);
  tools.reset();
  MPI_Finalize();
  return 0;
}
