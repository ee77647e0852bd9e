// wiring.hpp -- how do the hosts' plans join? From all hosts' channel plans the rings as one rank sees them.
// Pure functions of values; who maps memory or opens connections for them is not known here.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "search/channel_plan.hpp"

namespace loom::connect {

/// A ring as one of its ranks sees it. Data flows from previous to this rank to next.
struct Ring {
  int position = 0;  ///< mine, in [0, size)
  int size = 1;
  int previous = 0;  ///< rank in the communicator; my own where size is 1
  int next = 0;
};

/// What all ranks of a communicator know of its form, and so what decisions may rest on.
struct Shape {
  int ranks = 1;
  int hosts = 1;
  int ranks_per_host = 1;  ///< 0 where hosts differ
  friend bool operator==(const Shape&, const Shape&) = default;
};

/// The rings of one rank.
///   local: the ranks of my host.
///   rail:  one rank of every host, the one at my position of its local ring. Only where all hosts have equally many
///          ranks and there are at least two hosts; `local` and `rail` then span the communicator as a grid.
///   flat:  all ranks, host after host. Only where there are at least two hosts and no rails.
struct Wiring {
  Shape shape;
  Ring local;
  std::optional<Ring> rail;
  std::optional<Ring> flat;
};

/// plans[h] is host h's, hosts in an order that all ranks agree on; `rank` is in exactly one of them. Uses the first
/// channel of each plan. Throws Error (kInternal) if `rank` is in none.
Wiring wire(std::span<const search::ChannelPlan> plans, int rank);

}  // namespace loom::connect
