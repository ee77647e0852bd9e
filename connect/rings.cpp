
#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"
#include "connect/view.hpp"

namespace loom::connect {
namespace {

struct Seat {  // of a rank in a ring
  int node = 0, place = 0;
};

const std::vector<std::uint16_t>& order_on(const Job& job, int channel, int node) {
  return job.channel(Family::kRing, node, channel).order;
}

Seat seat_of(const Job& job, int channel, int rank) {
  const int node = job.placement().node_of(rank);
  const auto& order = order_on(job, channel, node);
  const auto place = std::find(order.begin(), order.end(), job.placement().local_of(rank));
  return {node, static_cast<int>(place - order.begin())};
}

int rank_in(const Job& job, int channel, int node, int place) {
  return job.rank_of(node, order_on(job, channel, node)[static_cast<std::size_t>(place)]);
}

}  // namespace

Ring ring_of(const Job& job, int channel, int rank) {
  const Seat seat = seat_of(job, channel, rank);
  const int size = job.placement().ranks_on(seat.node);
  Ring ring;
  ring.size = job.ranks();
  ring.position = job.placement().first_position(seat.node) + seat.place;
  const bool first = seat.place == 0, last = seat.place == size - 1;
  const int before = first ? (seat.node + job.nodes() - 1) % job.nodes() : seat.node;
  const int behind = last ? (seat.node + 1) % job.nodes() : seat.node;
  ring.previous =
      rank_in(job, channel, before, first ? job.placement().ranks_on(before) - 1 : seat.place - 1);
  ring.next = rank_in(job, channel, behind, last ? 0 : seat.place + 1);
  const ChannelSummary& own = job.channel(Family::kRing, seat.node, channel);
  if (before != seat.node) ring.port_in = own.port_in;
  if (behind != seat.node) ring.port_out = own.port_out;
  return ring;
}

int rank_at(const Job& job, int channel, int position) {
  const int node = job.placement().node_at(position);
  return rank_in(job, channel, node, position - job.placement().first_position(node));
}

std::vector<int> ring_order(const Job& job, int channel, int first) {
  const int start = ring_of(job, channel, first).position;
  std::vector<int> order;
  order.reserve(static_cast<std::size_t>(job.ranks()));
  for (int i = 0; i < job.ranks(); ++i) order.push_back(rank_at(job, channel, (start + i) % job.ranks()));
  return order;
}

Wiring wire(const Job& job, int rank) {
  if (rank < 0 || rank >= job.ranks() || job.agreed(Family::kRing).channels == 0)
    throw Error(ErrorCode::kInternal, loom::format("Rank {} of {} is in no ring.", rank, job.ranks()));
  Wiring wiring;
  wiring.shape = job.shape();
  const Seat seat = seat_of(job, 0, rank);
  const int size = job.placement().ranks_on(seat.node), nodes = job.nodes();
  wiring.local = {seat.place, size, rank_in(job, 0, seat.node, (seat.place + size - 1) % size),
                  rank_in(job, 0, seat.node, (seat.place + 1) % size)};
  if (nodes == 1) return wiring;
  if (wiring.shape.ranks_per_host == 0)
    wiring.flat = ring_of(job, 0, rank);
  else
    wiring.rail = Ring{seat.node, nodes, rank_in(job, 0, (seat.node + nodes - 1) % nodes, seat.place),
                       rank_in(job, 0, (seat.node + 1) % nodes, seat.place)};
  return wiring;
}

}  // namespace loom::connect
