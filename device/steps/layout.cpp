#include "device/steps/layout.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "device/schedule/divide_up.hpp"
#include "device/schedule/exchange_schedule.hpp"
#include "device/schedule/tree_schedule.hpp"

namespace loom::device::steps {
namespace {

std::size_t index(int i) {
  return static_cast<std::size_t>(i);
}

Word* word(std::byte* at) {
  return reinterpret_cast<Word*>(at);
}

/// Of a place in a grid, those before and behind it in its row, or in its column.
struct Neighbours {
  std::size_t previous = 0, next = 0;
};
Neighbours in_row(std::size_t place, std::size_t columns) {
  const std::size_t row = place / columns * columns, column = place % columns;
  return {row + (column + columns - 1) % columns, row + (column + 1) % columns};
}
Neighbours in_column(std::size_t place, std::size_t columns, std::size_t ranks) {
  return {(place + ranks - columns) % ranks, (place + columns) % ranks};
}

/// What one of so many channels has of the exchange of so many ranks; without its links.
Distances exchange_of(int channel, int channels, int ranks) {
  const int distances = ranks - 1, each = std::max(1, channels / distances);
  Distances exchange;
  exchange.first = channel < distances * each ? 1 + channel % distances : ranks;
  exchange.stride = std::min(channels, distances);
  exchange.of_blocks = {.before = static_cast<unsigned>(channel / distances),
                        .weight = 1,
                        .total = static_cast<unsigned>(each)};
  exchange.of_own = {
      .before = static_cast<unsigned>(channel), .weight = 1, .total = static_cast<unsigned>(channels)};
  return exchange;
}
template <class Body>
void for_each_distance(const Distances& exchange, int ranks, Body&& body) {
  for (int distance = exchange.first; distance < ranks; distance += exchange.stride) body(distance);
}

/// By root, the place in Tree::ends of the neighbour that leads there from `rank`, whose neighbours these
/// are.
std::vector<int> heads_of(const std::vector<int>& parents, int rank, const std::vector<int>& neighbours) {
  std::vector<int> heads(parents.size(), kNoHead);
  for (int root = 0; root < static_cast<int>(parents.size()); ++root) {
    int above = root;
    while (above != kNobody && above != rank && parents[index(above)] != rank) above = parents[index(above)];
    if (above == rank) continue;
    const int leads = above == kNobody ? parents[index(rank)] : above;
    heads[index(root)] = static_cast<int>(std::ranges::find(neighbours, leads) - neighbours.begin());
  }
  return heads;
}

/// The parent first.
std::vector<int> neighbours_of(const std::vector<int>& parents, int rank) {
  std::vector<int> neighbours;
  if (parents[index(rank)] != kNobody) neighbours.push_back(parents[index(rank)]);
  for (int child = 0; child < static_cast<int>(parents.size()); ++child)
    if (parents[index(child)] == rank) neighbours.push_back(child);
  return neighbours;
}

/// What lies behind the channels in a table: turns, links of the exchange, orders. Of each channel: as many
/// links as each may have; and ranks by position of the ring, ranks of the grid, and heads by root of each
/// tree.
constexpr int kOrders = 2 + kTrees;
std::size_t turns_begin(int channels) {
  return index(channels) * sizeof(Channel);
}
std::size_t exchange_begin(int channels) {
  return turns_begin(channels) + index(channels) * kMostThreads * sizeof(std::uint32_t);
}
std::size_t exchange_bytes(int channels, int ranks) {
  return divide_up(index(ranks - 1), index(channels)) * sizeof(DistanceLinks);
}
std::size_t orders_begin(int channels, int ranks) {
  return exchange_begin(channels) + index(channels) * exchange_bytes(channels, ranks);
}

}  // namespace

/// Gives each link its place, in an order that is the same on all ranks.
class Layout::Place {
 public:
  Place(int ranks, const std::vector<int>& hosts, std::vector<FarLink>& far_links)
      : ends_(index(ranks), 0), hosts_(hosts), far_links_(far_links) {}

  Link add(int sender, int receiver, LinkKind kind, const FifoForm& form, int protocol, int channel) {
    if (hosts_.empty() || hosts_[index(sender)] == hosts_[index(receiver)])
      return {take(ends_, receiver, kFlagBytes + form.bytes()), take(ends_, sender, kFlagBytes)};
    if (protocol != static_cast<int>(Protocol::kSimple))
      throw Error(ErrorCode::kInternal, "A form has links between hosts by LL or LL128.");
    far_links_.push_back({sender, receiver, channel, kind, form});
    return {.far = static_cast<int>(far_links_.size()) - 1};
  }
  /// In each rank's memory.
  std::vector<std::size_t> add_everywhere(std::size_t bytes) {
    std::vector<std::size_t> places;
    for (int rank = 0; rank < static_cast<int>(ends_.size()); ++rank)
      places.push_back(take(ends_, rank, bytes));
    return places;
  }
  std::size_t most() const { return *std::ranges::max_element(ends_); }

 private:
  static std::size_t take(std::vector<std::size_t>& ends, int rank, std::size_t bytes) {
    ends[index(rank)] += bytes;
    return ends[index(rank)] - bytes;
  }
  std::vector<std::size_t> ends_;  ///< by rank
  const std::vector<int>& hosts_;
  std::vector<FarLink>& far_links_;
};

Layout::Layout(const ChannelForm& form, int ranks, std::vector<ChannelShape> shapes, std::vector<int> hosts)
    : ranks_(ranks), shapes_(std::move(shapes)), bytes_(1, 0) {
  Place place(ranks, hosts, far_links_);
  for (const ChannelShape& shape : shapes_) {
    const int channel = static_cast<int>(links_.size());
    Links& links = links_.emplace_back();
    shape.check(ranks, channel);
    for (int p = 0; p < kProtocols && ranks > 1; ++p) {
      const auto add = [&](int sender, int receiver, LinkKind kind, const FifoForm& of) {
        return place.add(sender, receiver, kind, of, p, channel);
      };
      if (form.ring[p].slot_count > 0)
        for (std::size_t i = 0; i < shape.ring.size(); ++i)
          links.ring[p].push_back(
              add(shape.ring[i], shape.ring[(i + 1) % shape.ring.size()], LinkKind::kRing, form.ring[p]));
      for (int t = 0; t < kTrees && form.tree[p].slot_count > 0; ++t)
        for (int child = 0; child < static_cast<int>(shape.trees[t].size()); ++child) {
          const int parent = shape.trees[t][index(child)];
          links.up[t][p].push_back(parent == kNobody ? Link{}
                                                     : add(child, parent, LinkKind::kTree, form.tree[p]));
          links.down[t][p].push_back(parent == kNobody ? Link{}
                                                       : add(parent, child, LinkKind::kTree, form.tree[p]));
        }
      if (form.pairwise[p].slot_count > 0 && ranks <= kMostPairwise)
        for (int from = 0; from < ranks; ++from)
          for (int to = 0; to < ranks; ++to)
            links.pairwise[p].push_back(from == to ? Link{}
                                                   : add(from, to, LinkKind::kPairwise, form.pairwise[p]));
    }
    if (const FifoForm& of = form.ring[static_cast<int>(Protocol::kSimple)];
        of.slot_count > 0 && !shape.grid.empty()) {
      const auto add = [&](std::size_t from, std::size_t to) {
        return place.add(shape.grid[from], shape.grid[to], LinkKind::kGrid, of,
                         static_cast<int>(Protocol::kSimple), channel);
      };
      for (std::size_t at = 0; at < shape.grid.size(); ++at) {
        links.local.push_back(add(at, in_row(at, index(shape.columns)).next));
        links.rail.push_back(add(at, in_column(at, index(shape.columns), shape.grid.size()).next));
      }
      links.scratch = place.add_everywhere(of.slot_count / 2 * of.slot_bytes);  // a round: see by_grid()
    }
    if (const FifoForm& of = form.exchange[static_cast<int>(Protocol::kSimple)];
        of.slot_count > 0 && ranks > 1)
      for_each_distance(exchange_of(channel, this->channels(), ranks), ranks, [&](int distance) {
        for (int sender = 0; sender < ranks; ++sender)
          links.exchange.push_back(place.add(sender, (sender + distance) % ranks, LinkKind::kExchange, of,
                                             static_cast<int>(Protocol::kSimple), channel));
      });
    bytes_.push_back(place.most());
  }
}

std::size_t Layout::bytes(int channels) const {
  return bytes_.at(index(channels));
}

unsigned Layout::total_weight(LinkKind kind, int channels) const {
  unsigned sum = 0;
  for (int c = 0; c < channels; ++c) sum += shapes_.at(index(c)).weight_of(kind);
  return sum;
}

std::size_t Layout::most_far_bytes(int channels) const {
  std::vector<std::size_t> bytes(index(ranks_), 0);
  for (const FarLink& link : far_links_)
    if (link.channel < channels)
      for (const int rank : {link.sender, link.receiver}) bytes[index(rank)] += bytes_of_far_end(link.form);
  return *std::ranges::max_element(bytes);
}

std::vector<FarEnd> Layout::far_ends(int rank, int channels) const {
  std::vector<FarEnd> ends;
  for (std::size_t i = 0; i < far_links_.size(); ++i) {
    const FarLink& link = far_links_[i];
    const bool sends = link.sender == rank;
    if (link.channel < channels && (sends || link.receiver == rank))
      ends.push_back({.link = static_cast<int>(i),
                      .channel = link.channel,
                      .peer = sends ? link.receiver : link.sender,
                      .kind = link.kind,
                      .sends = sends,
                      .form = link.form});
  }
  return ends;
}

/// The two ends of a link, as a rank reaches them.
struct Layout::Reach {
  std::span<std::byte* const> memory;
  std::span<const FarEnd> far;
  std::vector<bool>* looked_at = nullptr;  ///< the ranks whose memory is

  std::byte* of(int rank) const {
    if (looked_at != nullptr) (*looked_at)[index(rank)] = true;
    return memory[index(rank)];
  }
  const FarEnd& end_of(const Link& link) const {
    const auto end = std::ranges::lower_bound(far, link.far, {}, &FarEnd::link);
    if (end == far.end() || end->link != link.far)
      throw Error(ErrorCode::kInternal, "An end of a link between hosts has no place.");
    return *end;
  }
  RecvEnd receive(const Link& link, int sender, int receiver) const {
    if (link.far != kNear) {
      const FarEnd& end = end_of(link);
      return {end.slots, end.filled, end.consumed};
    }
    std::byte* const mine = of(receiver) + link.in_receiver;
    return {mine + kFlagBytes, word(mine), word(of(sender) + link.in_sender)};
  }
  SendEnd send(const Link& link, int sender, int receiver) const {
    if (link.far != kNear) {
      const FarEnd& end = end_of(link);
      return {end.slots, end.filled, end.consumed, end.sent};
    }
    std::byte* const theirs = of(receiver) + link.in_receiver;
    return {theirs + kFlagBytes, word(theirs), word(of(sender) + link.in_sender)};
  }
};

namespace {

template <int kMost>
void add(Ends<kMost>& ends, const RecvEnd& from) {
  ends.from[ends.froms++] = from;
}
template <int kMost>
void add(Ends<kMost>& ends, const SendEnd& to) {
  ends.to[ends.tos++] = to;
}

}  // namespace

Tree Layout::tree(const Reach& reach, int rank, int channel, int t) const {
  const std::vector<int>& parents = shapes_[index(channel)].trees[t];
  const Links& links = links_[index(channel)];
  const std::vector<int> neighbours = neighbours_of(parents, rank);
  const int parent = parents[index(rank)], count = static_cast<int>(neighbours.size());
  Tree tree;
  tree.neighbours = count;
  tree.parent = parent == kNobody ? kNoHead : 0;
  for (int p = 0; p < kProtocols; ++p) {
    const auto &up = links.up[t][p], &down = links.down[t][p];
    for (int i = 0; i < 2 * count - 1 && !up.empty(); ++i) {
      const int peer = neighbours[index(i % count)];
      const bool is_parent = peer == parent;
      tree.ends[p].from[i] = reach.receive(is_parent ? down[index(rank)] : up[index(peer)], peer, rank);
      tree.ends[p].to[i] = reach.send(is_parent ? up[index(rank)] : down[index(peer)], rank, peer);
    }
  }
  return tree;
}

Grid Layout::grid(const Reach& reach, int rank, int channel) const {
  const ChannelShape& shape = shapes_[index(channel)];
  const Links& links = links_[index(channel)];
  const std::size_t place = index(static_cast<int>(std::ranges::find(shape.grid, rank) - shape.grid.begin())),
                    columns = index(shape.columns);
  Grid grid;
  grid.row = static_cast<int>(place / columns);
  grid.rows = static_cast<int>(shape.grid.size() / columns);
  grid.column = static_cast<int>(place % columns);
  grid.columns = shape.columns;
  grid.scratch = reach.of(rank) + links.scratch[index(rank)];
  const auto join = [&](Ends<1>& ends, const std::vector<Link>& of, const Neighbours& to) {
    add(ends, reach.receive(of[to.previous], shape.grid[to.previous], rank));
    add(ends, reach.send(of[place], rank, shape.grid[to.next]));
  };
  join(grid.local, links.local, in_row(place, columns));
  join(grid.rail, links.rail, in_column(place, columns, shape.grid.size()));
  return grid;
}

/// By distance.
std::vector<DistanceLinks> Layout::exchange(const Reach& reach, int rank, int channel) const {
  std::vector<DistanceLinks> result;
  const std::vector<Link>& links = links_[index(channel)].exchange;
  if (links.empty()) return result;  // the form has none, or there are fewer distances than channels
  for_each_distance(exchange_of(channel, channels(), ranks_), ranks_, [&](int distance) {
    const std::size_t first = result.size() * index(ranks_);
    const int ahead = (rank + distance) % ranks_, behind = (rank + ranks_ - distance) % ranks_;
    result.push_back({.from = reach.receive(links[first + index(behind)], behind, rank),
                      .to = reach.send(links[first + index(rank)], rank, ahead),
                      .passed = {}});
  });
  return result;
}

Channel Layout::channel(const Reach& reach, int rank, int channel) const {
  const ChannelShape& shape = shapes_[index(channel)];
  const Links& links = links_[index(channel)];
  Channel result;
  const auto weight = [&](LinkKind kind) {
    return Weight{total_weight(kind, channel), shape.weight_of(kind), static_cast<unsigned>(channel)};
  };
  result.of_ring = weight(LinkKind::kRing);
  result.of_trees = weight(LinkKind::kTree);
  result.of_pairs = weight(LinkKind::kPairwise);
  result.of_grid = weight(LinkKind::kGrid);
  if (!links.local.empty()) result.grid = grid(reach, rank, channel);
  const std::size_t size = shape.ring.size(),
                    position =
                        index(static_cast<int>(std::ranges::find(shape.ring, rank) - shape.ring.begin()));
  result.ring.position = static_cast<int>(position);
  result.ring.size = static_cast<int>(size);
  for (int p = 0; p < kProtocols; ++p) {
    if (!links.ring[p].empty()) {
      const std::size_t previous = (position + size - 1) % size, next = (position + 1) % size;
      add(result.ring.ends[p], reach.receive(links.ring[p][previous], shape.ring[previous], rank));
      add(result.ring.ends[p], reach.send(links.ring[p][position], rank, shape.ring[next]));
    }
    for (int k = 0; k < ranks_ - 1 && !links.pairwise[p].empty(); ++k) {
      const int peer = other_position(rank, k);
      const auto link = [&](int from, int to) { return links.pairwise[p][index(from * ranks_ + to)]; };
      add(result.pairwise[p], reach.receive(link(peer, rank), peer, rank));
      add(result.pairwise[p], reach.send(link(rank, peer), rank, peer));
    }
  }
  for (int t = 0; t < kTrees && !shape.trees[t].empty(); ++t, ++result.trees)
    result.tree[t] = tree(reach, rank, channel, t);
  return result;
}

std::vector<bool> Layout::near_peers(int rank, int channels) const {
  const std::vector<std::byte*> somewhere(index(ranks_), reinterpret_cast<std::byte*>(kFlagBytes));
  const std::vector<FarEnd> far = far_ends(rank, channels);
  std::vector<bool> peers(index(ranks_), false);
  const Reach reach{somewhere, far, &peers};
  for (int c = 0; c < channels; ++c) {
    channel(reach, rank, c);
    if (ranks_ > 1) exchange(reach, rank, c);
  }
  peers[index(rank)] = false;
  return peers;
}

std::size_t Layout::table_bytes(int channels) const {
  return orders_begin(channels, ranks_) + index(channels) * kOrders * index(ranks_) * sizeof(int);
}

std::vector<std::byte> Layout::table(std::span<std::byte* const> memory, int rank, int channels,
                                     std::byte* at, std::span<const FarEnd> far) const {
  std::vector<std::byte> bytes(table_bytes(channels));
  for (int c = 0; c < channels; ++c) {
    const ChannelShape& shape = shapes_[index(c)];
    Channel result = channel({memory, far}, rank, c);
    result.turns = reinterpret_cast<std::uint32_t*>(at + turns_begin(channels) +
                                                    index(c) * kMostThreads * sizeof(std::uint32_t));
    const auto put = [&](int order, const std::vector<int>& values) {
      const std::size_t to =
          orders_begin(channels, ranks_) + index(c * kOrders + order) * index(ranks_) * sizeof(int);
      if (!values.empty()) std::memcpy(bytes.data() + to, values.data(), values.size() * sizeof(int));
      return reinterpret_cast<const int*>(at + to);
    };
    result.ring.ranks = put(0, shape.ring);
    result.grid.ranks = put(1, shape.grid);
    for (int t = 0; t < result.trees; ++t)
      result.tree[t].heads = put(2 + t, heads_of(shape.trees[t], rank, neighbours_of(shape.trees[t], rank)));
    if (ranks_ > 1) {
      const std::vector<DistanceLinks> links = exchange({memory, far}, rank, c);
      const std::size_t to = exchange_begin(channels) + index(c) * exchange_bytes(channels, ranks_);
      if (!links.empty()) std::memcpy(bytes.data() + to, links.data(), links.size() * sizeof(DistanceLinks));
      result.exchange = exchange_of(c, this->channels(), ranks_);
      result.exchange.links = reinterpret_cast<DistanceLinks*>(at + to);
    }
    std::memcpy(bytes.data() + index(c) * sizeof(Channel), &result, sizeof(result));
  }
  return bytes;
}

}  // namespace loom::device::steps
