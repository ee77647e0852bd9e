#include "tests/mpi/on_device/on_device.hpp"

namespace loom::mpi_test {
namespace {

/// Calls of a collective that have stayed on the device, and bytes that have been staged.
struct Counts {
  std::uint64_t stayed, staged;
};
Counts counts_of(const std::string& collective) {
  const bool of_kernels = collective.starts_with("all")
                              ? collective != "alltoall" && collective != "alltoallv"
                              : collective.starts_with("reduce") || collective == "bcast";
  const std::string of_both = of_kernels ? "kernel" : "zero_copy";
  const std::string& carries = executor == "both" ? of_both : executor;
  return {tools->counter("coll_loom_calls", collective, carries).value_or(0),
          tools->counter("coll_loom_staged_bytes").value_or(0)};
}

}  // namespace

void check(const std::string& collective, bool stays, const std::function<void()>& body) {
  counts_of(collective);
  const Counts before = counts_of(collective);
  body();
  const Counts after = counts_of(collective);
  if (stays) {
    require(after.stayed == before.stayed + 1, (collective + " does not stay on the device").c_str());
    require(after.staged == before.staged, (collective + " is staged all the same").c_str());
  } else {
    require(after.stayed == before.stayed, (collective + " stays on the device").c_str());
  }
}

void allreduce(bool stays, MemoryKind kind, MPI_Comm comm, int count) {
  check("allreduce", stays, [&] {
    Ints in(count, mine, kind), out(
                                    count, [](int) { return -1; }, kind);
    MPI_Allreduce(in.at(), out.at(), count, MPI_INT, MPI_SUM, comm);
    out.is(sum, "an allreduce is wrong");
    in.is(mine, "an allreduce changes its operand");
  });
}

}  // namespace loom::mpi_test
