// rails_executor.hpp -- allreduce over a grid of ranks: local rings inside the hosts, rails across them. For
// each block of the message a reduce-scatter inside, an allreduce along the rail, an all-gather inside; the
// blocks overlap, so that the network is at work while the hosts prepare the next block and spread the last
// one. Resumable: it never waits.
#pragma once

#include <cstddef>
#include <vector>

#include "device/host/ring_executor.hpp"

namespace loom::device {

class RailsExecutor {
 public:
  /// local.size >= 2. The rail joins the ranks at local.position of every host. job.collective is not looked
  /// at. Every rank gives the same count, elem_bytes and FIFO shapes.
  RailsExecutor(const RingLinks& local, const FifoShape& local_fifo, const RingLinks& rail,
                const FifoShape& rail_fifo, const RingJob& job);

  /// As RingExecutor's.
  RingExecutor::State advance();
  enum class Waits { kOnLocalPrevious, kOnLocalNext, kOnRailPrevious, kOnRailNext };
  Waits waits() const noexcept;

 private:
  struct Stage {
    RingExecutor executor;
    std::size_t after;  ///< stages of the other sequence that must be done before this one starts
  };
  /// Stages that use the same links, in an order that is the same on all ranks.
  struct Sequence {
    std::vector<Stage> stages;
    std::size_t done = 0;
  };
  static bool advance_head(Sequence& sequence, const Sequence& other);

  Sequence inside_, across_;
};

}  // namespace loom::device
