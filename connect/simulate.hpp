// simulate.hpp -- how long would a collective take on this job? An alpha-beta model: every hop has a latency
// (alpha) and every link a bandwidth (beta) that all flows over it share. Networks between nodes are taken to
// be as fast as the ports (full bisection).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "connect/job.hpp"
#include "connect/node_loads.hpp"

namespace loom::connect {

/// Of a packet of 1500 bytes, which takes 1538 on an Ethernet.
inline constexpr double kTcpEfficiency = 1448.0 / 1538;

/// What the CPU of a rank moves through shared memory, sent and received bytes together.
inline constexpr double kHostCpuGbps = 3.8;

enum class Collective : std::uint8_t { kAllreduce, kReduceScatter, kAllGather, kBroadcast, kReduce };
std::string_view name_of(Collective collective);

struct SimulationRequest {
  Collective collective = Collective::kAllreduce;
  double bytes = 0;    ///< of the whole: each rank's operand or result, whichever is longer
  double net_us = -1;  ///< of a hop between nodes, instead of the protocol's; negative: the protocol's
  std::string_view protocol = {};  ///< by this one alone; empty: by the best one
};

struct Prediction {
  std::string algorithm;  ///< "ring", "tree", "rails"
  std::string protocol;   ///< "LL", "LL128", "Simple"; "host" where ranks are CPUs
  double us = 0;
  double transfer_us = 0;       ///< the part that the busiest link takes
  std::string bottleneck = {};  ///< that link
  double algorithm_gbps = 0;    ///< bytes / time
  double bus_gbps =
      0;  ///< times 2(n-1)/n for an all-reduce, (n-1)/n for its halves: comparable with a link's speed
};

/// Bytes on the bus for each byte of the message: what a port beside every rank would have to carry.
double bus_factor(Collective collective, int ranks);

/// One prediction for each algorithm that can do it, each with its best protocol; the fastest first.
/// machines[k] is that of job.kinds()[k]. Rings are followed hop by hop; time grows with ranks times
/// channels.
std::vector<Prediction> simulate(const Job& job, std::span<const Machine> machines,
                                 const SimulationRequest& request);

/// One hop of a ring: how long it takes a chunk, and how long until it is known to be there.
struct RingHop {
  double chunk_us = 0, latency_us = 0;
};
/// Microseconds of `steps` steps around a ring of at least two hops, in each of which every rank sends a
/// chunk to the next one once it has sent the chunk before and received this one. The slowest hop is busy all
/// the time, and the run of up to `steps` hops that delays data most comes on top. Never less than the
/// schedule takes, and the same where that run passes a slowest hop.
double ring_us(std::span<const RingHop> hops, int steps);

}  // namespace loom::connect
