#include "device/steps/layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.hpp"
#include "device/schedule/exchange_schedule.hpp"
#include "device/schedule/tree_schedule.hpp"

namespace loom::device::steps {
namespace {

// Each flag has a line of its own: two sides write.
constexpr std::size_t kFlagBytes = 128;

std::size_t index(int i) {
  return static_cast<std::size_t>(i);
}

void check_ring(const std::vector<int>& ring, int ranks, int channel) {
  std::vector<int> sorted = ring, all(index(ranks));
  std::ranges::sort(sorted);
  std::iota(all.begin(), all.end(), 0);
  if (!ring.empty() && sorted != all)
    throw Error(ErrorCode::kInternal,
                fmt::format("The ring of channel {} does not pass each of {} ranks once.", channel, ranks));
}

int root_above(const std::vector<int>& parents, int rank) {
  const int ranks = static_cast<int>(parents.size());
  for (int step = 0; step < ranks && rank >= 0 && rank < ranks; ++step) {
    if (parents[index(rank)] == kNobody) return rank;
    rank = parents[index(rank)];
  }
  return kNobody;
}

void check_tree(const std::vector<int>& parents, int ranks, int channel) {
  if (parents.empty()) return;
  bool right = static_cast<int>(parents.size()) == ranks;
  for (int rank = 0; right && rank < ranks; ++rank)
    right = root_above(parents, rank) != kNobody && root_above(parents, rank) == root_above(parents, 0) &&
            std::ranges::count(parents, rank) <= kMostChildren;
  if (!right)
    throw Error(ErrorCode::kInternal,
                fmt::format("Channel {} has no tree of {} ranks with up to {} children each.", channel, ranks,
                            kMostChildren));
}

/// What lies behind the channels in a table.
std::size_t turns_begin(int channels) {
  return index(channels) * sizeof(Channel);
}
std::size_t orders_begin(int channels) {
  return turns_begin(channels) + index(channels) * kMostThreads * sizeof(std::uint32_t);
}

}  // namespace

std::vector<ChannelShape> plain_channels(int ranks, int channels) {
  ChannelShape shape;
  for (int rank = 0; rank < ranks; ++rank) shape.ring.push_back(rank);
  return std::vector<ChannelShape>(index(channels), shape);
}

/// Gives each link its place, in an order that is the same on all ranks.
class Layout::Place {
 public:
  explicit Place(int ranks) : ends_(index(ranks), 0) {}

  Link add(int sender, int receiver, const FifoForm& form) {
    return {take(receiver, kFlagBytes + form.bytes()), take(sender, kFlagBytes)};
  }
  std::size_t most() const { return *std::ranges::max_element(ends_); }

 private:
  std::size_t take(int rank, std::size_t bytes) {
    ends_[index(rank)] += bytes;
    return ends_[index(rank)] - bytes;
  }
  std::vector<std::size_t> ends_;  ///< by rank
};

Layout::Layout(const ChannelForm& form, int ranks, std::vector<ChannelShape> shapes)
    : form_(form), ranks_(ranks), shapes_(std::move(shapes)), bytes_(1, 0) {
  Place place(ranks);
  for (const ChannelShape& shape : shapes_) {
    const int channel = static_cast<int>(links_.size());
    Links& links = links_.emplace_back();
    check_ring(shape.ring, ranks, channel);
    for (const auto& tree : shape.trees) check_tree(tree, ranks, channel);
    for (int p = 0; p < kProtocols && ranks > 1; ++p) {
      if (form.ring[p].slot_count > 0)
        for (std::size_t i = 0; i < shape.ring.size(); ++i)
          links.ring[p].push_back(
              place.add(shape.ring[i], shape.ring[(i + 1) % shape.ring.size()], form.ring[p]));
      for (int t = 0; t < kTrees && form.tree[p].slot_count > 0; ++t)
        for (int child = 0; child < static_cast<int>(shape.trees[t].size()); ++child) {
          const int parent = shape.trees[t][index(child)];
          links.up[t][p].push_back(parent == kNobody ? Link{} : place.add(child, parent, form.tree[p]));
          links.down[t][p].push_back(parent == kNobody ? Link{} : place.add(parent, child, form.tree[p]));
        }
      if (form.pairwise[p].slot_count > 0 && ranks <= kMostPairwise)
        for (int from = 0; from < ranks; ++from)
          for (int to = 0; to < ranks; ++to)
            links.pairwise[p].push_back(from == to ? Link{} : place.add(from, to, form.pairwise[p]));
    }
    bytes_.push_back(place.most());
  }
}

std::size_t Layout::bytes(int channels) const {
  return bytes_.at(index(channels));
}

unsigned Layout::total_weight(int channels) const {
  unsigned sum = 0;
  for (int c = 0; c < channels; ++c) sum += shapes_.at(index(c)).weight;
  return sum;
}

namespace {

/// The two ends of a link, as `rank` reaches them.
struct Reach {
  std::span<std::byte* const> memory;

  template <class Link>
  RecvEnd receive(const Link& link, int sender, int receiver) const {
    std::byte* const mine = memory[index(receiver)] + link.in_receiver;
    return {mine + kFlagBytes, word(mine), word(memory[index(sender)] + link.in_sender)};
  }
  template <class Link>
  SendEnd send(const Link& link, int sender, int receiver) const {
    std::byte* const theirs = memory[index(receiver)] + link.in_receiver;
    return {theirs + kFlagBytes, word(theirs), word(memory[index(sender)] + link.in_sender)};
  }
  static Word* word(std::byte* at) { return reinterpret_cast<Word*>(at); }
};

template <int kMost>
void add(Ends<kMost>& ends, const RecvEnd& from) {
  ends.from[ends.froms++] = from;
}
template <int kMost>
void add(Ends<kMost>& ends, const SendEnd& to) {
  ends.to[ends.tos++] = to;
}

}  // namespace

void Layout::fill_tree(std::span<std::byte* const> memory, int rank, const ChannelShape& shape,
                       const Links& links, int t, Tree& tree) const {
  const Reach reach{memory};
  const std::vector<int>& parents = shape.trees[t];
  const int parent = parents[index(rank)];
  tree.is_root = parent == kNobody;
  for (int p = 0; p < kProtocols; ++p) {
    const auto &up = links.up[t][p], &down = links.down[t][p];
    if (up.empty()) continue;
    auto &upper = tree.ends[0][p], &lower = tree.ends[1][p];
    for (int child = 0; child < ranks_; ++child) {
      if (parents[index(child)] != rank) continue;
      add(upper, reach.receive(up[index(child)], child, rank));
      add(tree.is_root ? upper : lower, reach.send(down[index(child)], rank, child));
    }
    if (tree.is_root) continue;
    add(upper, reach.send(up[index(rank)], rank, parent));
    add(lower, reach.receive(down[index(rank)], parent, rank));
  }
}

Channel Layout::channel(std::span<std::byte* const> memory, int rank, int channel) const {
  const Reach reach{memory};
  const ChannelShape& shape = shapes_[index(channel)];
  const Links& links = links_[index(channel)];
  Channel result;
  result.before = total_weight(channel);
  result.weight = shape.weight;
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
    fill_tree(memory, rank, shape, links, t, result.tree[t]);
  return result;
}

std::size_t Layout::table_bytes(int channels) const {
  return orders_begin(channels) + index(channels) * index(ranks_) * sizeof(int);
}

std::vector<std::byte> Layout::table(std::span<std::byte* const> memory, int rank, int channels,
                                     std::byte* at) const {
  std::vector<std::byte> bytes(table_bytes(channels));
  for (int c = 0; c < channels; ++c) {
    const std::size_t turns = turns_begin(channels) + index(c) * kMostThreads * sizeof(std::uint32_t),
                      order = orders_begin(channels) + index(c) * index(ranks_) * sizeof(int);
    Channel result = channel(memory, rank, c);
    result.turns = reinterpret_cast<std::uint32_t*>(at + turns);
    result.ring.ranks = reinterpret_cast<const int*>(at + order);
    std::memcpy(bytes.data() + index(c) * sizeof(Channel), &result, sizeof(result));
    const std::vector<int>& ring = shapes_[index(c)].ring;
    if (!ring.empty()) std::memcpy(bytes.data() + order, ring.data(), ring.size() * sizeof(int));
  }
  return bytes;
}

}  // namespace loom::device::steps
