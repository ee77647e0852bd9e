// traffic.hpp -- counts the bytes that go from place to place, and says which link that keeps busy how long.
//
// VIRTUAL_GPU_TRAFFIC=FILE: the last process of the run to end writes the table there ("-": to stderr).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/virtual_gpu/machine/machine.hpp"
#include "tests/virtual_gpu/machine/shared_state.hpp"

namespace virtual_gpu::machine {

struct TrafficReport {
  struct Flow {
    Place from, to;
    std::uint64_t bytes;
  };
  struct Row {
    std::size_t link;
    std::uint64_t bytes;
    double us;  ///< that the link needs for them at least; of memory: for both directions together
  };
  std::vector<Flow> flows;      ///< those that are not empty
  std::vector<Row> rows;        ///< of links that carried something
  std::uint64_t elsewhere = 0;  ///< bytes from or to places that the machine does not have
  Row slowest{};                ///< the first of those that need longest; rows empty: none
};

/// Any thread may call it.
class Traffic {
 public:
  Traffic(const Machine& machine, const SharedState& state) : machine_(machine), state_(state) {}

  /// One addition: links are worked out by report(). Totals of threads and processes are exact once these
  /// have ended or synchronised otherwise: nothing is ordered by it.
  void add(Place from, Place to, std::uint64_t bytes) {
    add(machine_.index_of(from), machine_.index_of(to), bytes);
  }
  void add(std::size_t from, std::size_t to, std::uint64_t bytes) noexcept {
    state_.moved()[from * machine_.place_count() + to].fetch_add(bytes, std::memory_order_relaxed);
  }
  /// What add() adds to; as long as the state.
  std::atomic<std::uint64_t>& counter(Place from, Place to) {
    return state_.moved()[machine_.index_of(from) * machine_.place_count() + machine_.index_of(to)];
  }
  /// Bytes from or to places that the machine does not have.
  std::atomic<std::uint64_t>& elsewhere() { return state_.header().elsewhere; }
  std::uint64_t bytes(Place from, Place to) const;
  TrafficReport report() const;

 private:
  const Machine& machine_;
  const SharedState& state_;
};

/// A table of links, and the slowest of them.
std::string to_string(const TrafficReport& report, const Machine& machine);

/// At the end of a process; the last one writes what VIRTUAL_GPU_TRAFFIC asks for. Throws Error for a file
/// that cannot be written.
void leave(const Machine& machine, SharedState& state);

}  // namespace virtual_gpu::machine
