// beside_work.hpp -- what tests of calls on GPUs have in common that run one case each: numbers, work of the
// program beside calls, and an end of cases that have none.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "device_ints.hpp"
#include "mpi_examples/support/loom_pvars.hpp"
#include "waiting.hpp"

namespace loom::mpi_test {

constexpr int kCount = 3000;
inline std::optional<mpi::ToolInterface> tools;

inline int of_rank(int r, int i) {
  return i % 1000 + r * 10'000;
}
inline int mine(int i) {
  return of_rank(rank, i);
}
inline int sum_of(int operands, int i) {
  return operands * (i % 1000) + operands * (operands - 1) / 2 * 10'000;
}
inline int sum(int i) {
  return sum_of(ranks, i);
}
inline int nothing(int) {
  return -1;
}

/// A call of the collective that is not carried by the host: else its case would show nothing.
inline void stays_on_gpus(const char* collective, const std::function<void()>& call) {
  const auto calls = [&] {
    return tools->counter("coll_loom_calls", collective, "zero_copy").value_or(0) +
           tools->counter("coll_loom_calls", collective, "kernel").value_or(0);
  };
  const std::uint64_t before = calls();
  call();
  require(calls() == before + 1, (std::string(collective) + " does not stay on GPUs").c_str());
}

/// It does not synchronise with the default stream; calls do not come after what is in it.
inline void* stream_apart() {
  constexpr unsigned kNonBlocking = 1;
  void* stream = nullptr;
  const auto create = Driver::get().function<int(void**, unsigned)>("cuStreamCreate");
  require(create(&stream, kNonBlocking) == 0, "there is no stream");
  return stream;
}

/// On one rank.
class Work {
 public:
  explicit Work(void* stream = nullptr, bool is_here = rank == 0) {
    if (is_here) waiting_.emplace(stream);
  }
  void end() {
    if (waiting_) waiting_->end();
  }

 private:
  std::optional<Waiting> waiting_;
};

/// So many integers, each second one.
inline MPI_Datatype every_second(int n) {
  MPI_Datatype type;
  MPI_Type_vector(n, 1, 2, MPI_INT, &type);
  MPI_Type_commit(&type);
  return type;
}

/// One of a program's, with a communicator of its own. Calls may come from several threads at once.
struct Case {
  const char* name;
  void (*run)(MPI_Comm);
};

/// The one that the first argument names. One that hangs ends the program.
inline void run_case(int argc, char** argv, std::span<const Case> cases) {
  constexpr std::chrono::seconds kMost{40};
  int provided;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  require(provided == MPI_THREAD_MULTIPLE, "this Open MPI is not for several threads");
  const std::string name = argc > 1 ? argv[1] : "";
  const auto found = std::ranges::find(cases, name, &Case::name);
  require(found != cases.end(), "the first argument is no case of this program");
  Driver::get();
  tools.emplace();
  std::promise<void> ended;
  std::thread watch([&, end = ended.get_future()] {
    if (end.wait_for(kMost) == std::future_status::ready) return;
    std::fprintf(stderr, "rank %d of %d: %s has no end\n", rank, ranks, name.c_str());
    std::_Exit(1);
  });
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  found->run(comm);
  MPI_Comm_free(&comm);
  ended.set_value();
  watch.join();
  tools.reset();
  MPI_Finalize();
}

}  // namespace loom::mpi_test
