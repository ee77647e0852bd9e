// on_device.hpp -- what the parts of mpi_on_device_test have in common, and which there are.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "mpi_examples/support/loom_pvars.hpp"
#include "tests/mpi/device_ints.hpp"

namespace loom::mpi_test {

inline constexpr int kCount = 300'000;  // more than the rules of coll_loom_tune begin with
inline std::string executor;
inline std::optional<mpi::ToolInterface> tools;
inline bool expected = true;  ///< that calls stay on the device

inline int mine(int i) {
  return i % 1000 + rank * 10'000;
}
inline int sum(int i) {
  return ranks * (i % 1000) + ranks * (ranks - 1) / 2 * 10'000;
}

/// Checks that the call stays on the device, or does not. The body checks its result.
void check(const std::string& collective, bool stays, const std::function<void()>& body);
void allreduce(bool stays, MemoryKind kind, MPI_Comm comm = MPI_COMM_WORLD, int count = kCount);

// collectives.cpp
void every_collective();
/// Those that no kernel carries over links inside a host.
void collectives_without_links();
/// Neither operand is staged.
void reduce_locally();
/// Whether a buffer is on the device is one rank's own fact, and yet all have to do the same.
void step_together();

// failures.cpp
/// Whatever fails on one rank while memory is shared: all use another way, or no call stays on the device.
void share_otherwise_or_not_at_all();
/// A kernel that cannot be loaded on one rank at its first call is used on none; others are.
void do_without_a_kernel();
/// A kernel that cannot be launched on one rank ends the call on all, on this communicator alone.
void fail_in_a_call();
/// A rank alone whose driver refuses what its copies take does not try again.
void ask_once();

// holdings.cpp
/// Checks that the body leaves nothing behind when it is repeated, once all ranks have left the freed
/// communicators.
void leaves_nothing(const char* what, const std::function<void()>& body);
/// Memory for links of freed communicators is freed once all ranks have left them.
void free_what_communicators_had();

}  // namespace loom::mpi_test
