// measure.hpp -- runs one case on one communicator, or on two by turns, and says how long it took.
//
// One measurement is a batch of calls, back to back, each on its own buffers; a batch is long enough that
// reading the clock (some 30 ns) and leaving the barrier at different moments (up to the network's latency)
// do not count. The batch's time over its calls is one sample on one rank; the ranks' average (or maximum) is
// the sample of the measurement.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mpi_examples/bench/collectives.hpp"
#include "mpi_examples/bench/floor.hpp"
#include "mpi_examples/bench/options.hpp"
#include "mpi_examples/support/device_memory.hpp"
#include "mpi_examples/support/loom_pvars.hpp"

namespace loom::bench {

/// Of this process, in seconds.
struct CpuTime {
  double user = 0, system = 0;
};

struct Timing {
  double min_us = 0, avg_us = 0, p50_us = 0, max_us = 0;  // over the measurements
  CpuTime cpu_us{};                                       // of a call, average over calls and ranks
  std::uint64_t wrong = 0;                                // elements, summed over calls and ranks
  std::uint64_t calls = 0;                                // measured calls
  std::optional<std::uint64_t> carried{};          // of these by loom, on the rank with the fewest; if known
  std::optional<std::uint64_t> carried_at_most{};  // the same on the rank with the most
};

struct Measured {
  int iterations = 0;
  int calls_per_iteration = 0;
  std::vector<Timing> timings;  // one per communicator, valid on all ranks
  double floor_us = 0;          // median of what the machine itself needs; 0: not measured
};

/// Persistent requests for the calls of a batch, made when they are first asked for.
class Requests {
 public:
  Requests() = default;
  ~Requests() { clear(); }
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  /// call(slot) describes the call.
  template <class Make>
  std::span<MPI_Request> of(const Collective& collective, MPI_Comm comm, std::size_t slots, Make&& call) {
    std::vector<MPI_Request>& made = made_[comm];
    while (made.size() < slots) {
      const Call next = call(made.size());
      collective.init(next, &made.emplace_back(MPI_REQUEST_NULL));
    }
    return std::span(made).first(slots);
  }
  /// Before the buffers, the size or the communicators go.
  void clear();

 private:
  std::map<MPI_Comm, std::vector<MPI_Request>> made_;
};

class Bench {
 public:
  /// control: a communicator of the same ranks for everything that is not measured.
  /// floor: measured in turn with the collective, where there is one for its size; or nullptr.
  Bench(const Options& options, MPI_Comm control, mpi::ToolInterface& tool, Floor* floor)
      : options_(options), control_(control), tool_(tool), floor_(floor) {}

  Measured measure(const Case& one, std::span<const MPI_Comm> comms);

 private:
  struct Plan {
    int batch, iterations;
  };
  Plan plan(const Case& one, std::span<const MPI_Comm> comms);
  double barrier_seconds();
  double slowest(double seconds);
  void make_room(const Case& one, std::size_t slots);
  void fill(const Case& one, std::size_t slots, std::uint64_t shift);
  Call call_of(const Case& one, MPI_Comm comm, std::size_t slot);
  double run(const Case& one, MPI_Comm comm, std::size_t slots, CpuTime* cpu = nullptr);
  std::uint64_t count_wrong(const Case& one, std::size_t slots, std::uint64_t shift);
  std::optional<std::uint64_t> carried_calls();
  std::optional<double> floor_seconds(const Case& one);

  const Options& options_;
  MPI_Comm control_;
  mpi::ToolInterface& tool_;
  Floor* floor_;

  // Slot s of a batch is at s * stride.
  std::optional<mpi::Memory> send_, recv_;
  std::size_t stride_bytes_ = 0;
  Requests requests_;
};

}  // namespace loom::bench
