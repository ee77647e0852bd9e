#include "connect/checks.hpp"

#include <algorithm>
#include <bit>

#include "base/format.hpp"
#include "connect/port_shares.hpp"

namespace loom::connect {
namespace {

constexpr std::size_t kMostFound = 20;
constexpr double kSlack = 1e-5;  // of a GB/s: sums of rounded shares

class Checker {
 public:
  Checker(const Job& job, const Wires& wires) : job_(job), wires_(wires) {}

  std::vector<std::string> run() {
    for (int c = 0; c < job_.agreed(Family::kRing).channels; ++c) check_ring(c);
    for (int c = 0; c < job_.agreed(Family::kTree).channels; ++c) check_trees(c);
    for (const Family family : {Family::kRing, Family::kTree})
      check_ports_of(job_, wires_, family, [&](const std::string& text) { fail("{}", text); });
    for (const Family family : {Family::kRing, Family::kTree, Family::kCollnetChain}) check_total(family);
    check_nvls();
    for (int c = 0; c < job_.agreed(Family::kCollnetChain).channels; ++c) check_chain(c);
    check_direct();
    return std::move(found_);
  }

 private:
  template <class... Args>
  void fail(FormatString<Args...> text, Args&&... args) {
    if (found_.size() < kMostFound) found_.push_back(loom::format(text, std::forward<Args>(args)...));
  }
  int node_of(int rank) const { return job_.placement().node_of(rank); }
  bool is_rank(int rank) const { return rank >= 0 && rank < job_.ranks(); }

  void check_ring(int channel) {
    const int size = job_.ranks();
    std::vector<Ring> views;
    for (int rank = 0; rank < size; ++rank) {
      views.push_back(wires_.ring(channel, rank));
      const Ring& ring = views.back();
      if (is_rank(ring.previous) && is_rank(ring.next) && ring.size == size) continue;
      fail("Ring {}: rank {} of {} sees {} before and {} behind it.", channel, rank, size, ring.previous,
           ring.next);
      return;
    }
    std::vector<bool> passed(views.size());
    int rank = 0;
    for (int step = 0; step < size; ++step) {
      const Ring &here = views[static_cast<std::size_t>(rank)],
                 &next = views[static_cast<std::size_t>(here.next)];
      if (passed[static_cast<std::size_t>(rank)]) return fail("Ring {} passes rank {} twice.", channel, rank);
      passed[static_cast<std::size_t>(rank)] = true;
      if (next.previous != rank)
        fail("Ring {}: rank {} sends to rank {}, which expects rank {}.", channel, rank, here.next,
             next.previous);
      if (next.position != (here.position + 1) % size)
        fail("Ring {}: rank {} is at {}, the next one, {}, at {}.", channel, rank, here.position, here.next,
             next.position);
      if (!is_rank(here.position) || wires_.rank_at(channel, here.position) != rank)
        fail("Ring {}: rank {} takes itself to be at {}, where another one is.", channel, rank,
             here.position);
      check_ports(channel, rank, here, next);
      rank = here.next;
    }
    if (rank != 0) fail("Ring {} does not come back to where it began.", channel);
  }

  void check_ports(int channel, int rank, const Ring& here, const Ring& next) {
    const int from = node_of(rank), to = node_of(here.next);
    if (from == to) {
      if (job_.nodes() > 1 && (here.port_out != kNoPort || next.port_in != kNoPort))
        fail("Ring {}: from rank {} to {} on one node data takes a port.", channel, rank, here.next);
      return;
    }
    const bool swaps = job_.part(Family::kRing, from, channel).partner != channel;
    const bool even = from % 2 == 0 && to == from + 1;
    if (swaps && even && job_.kind_of(from) == job_.kind_of(to) && here.port_out != next.port_in)
      fail("Ring {} leaves node {} at port {} and enters node {} at port {}.", channel, from, here.port_out,
           to, next.port_in);
  }

  /// `links[r]` of each of `members`, a tree over them.
  void check_tree(const std::string& name, const std::vector<int>& members,
                  const std::vector<TreeLinks>& links, int most_depth) {
    int root = kNobody;
    for (const int rank : members) {
      const TreeLinks& mine = links[static_cast<std::size_t>(rank)];
      if (mine.parent == kNobody) {
        if (root != kNobody) return fail("{} has two roots, ranks {} and {}.", name, root, rank);
        root = rank;
      } else if (!is_rank(mine.parent) || !has_child(links[static_cast<std::size_t>(mine.parent)], rank)) {
        return fail("{}: rank {} has parent {}, which does not know of it.", name, rank, mine.parent);
      }
      if (mine.child_count < 0 || mine.child_count > static_cast<int>(mine.children.size()))
        return fail("{}: rank {} has {} children.", name, rank, mine.child_count);
      for (int i = 0; i < mine.child_count; ++i)
        if (const int child = mine.children[static_cast<std::size_t>(i)];
            !is_rank(child) || links[static_cast<std::size_t>(child)].parent != rank)
          return fail("{}: rank {} has child {}, which does not know of it.", name, rank, child);
    }
    if (root == kNobody) return fail("{} has no root.", name);
    std::vector<int> level = {root}, below;
    std::size_t reached = 0;
    for (int depth = 0; !level.empty(); ++depth, level.swap(below)) {
      if (depth > most_depth) return fail("{} is deeper than {}.", name, most_depth);
      below.clear();
      reached += level.size();
      for (const int rank : level) {
        const TreeLinks& mine = links[static_cast<std::size_t>(rank)];
        below.insert(below.end(), mine.children.begin(), mine.children.begin() + mine.child_count);
      }
    }
    if (reached != members.size()) fail("{} reaches {} of {} ranks.", name, reached, members.size());
  }

  static bool has_child(const TreeLinks& links, int rank) {
    const int count = std::clamp(links.child_count, 0, static_cast<int>(links.children.size()));
    const auto end = links.children.begin() + count;
    return std::find(links.children.begin(), end, rank) != end;
  }

  int levels() const { return std::bit_width(static_cast<unsigned>(job_.nodes() - 1)); }

  int most_depth() const {
    int longest = 0, steps = 1;
    for (const NodeSummary& kind : job_.kinds()) {
      longest = std::max(longest, kind.ranks - 1);
      if (kind.ranks > 1 && kind.family(Family::kTree).pattern != search::Pattern::kTree) steps = 2;
    }
    return levels() * steps + longest;
  }

  /// `inner[n]`: trees, as bits, in which node n has children on other nodes.
  void check_insides(const std::string& name, const std::vector<int>& inner) {
    for (std::size_t node = 0; node < inner.size(); ++node)
      if (inner[node] == 3 && !(node == 0 && job_.nodes() % 2 == 1))
        fail("{}: node {} has children in both trees.", name, node);
  }

  void note_inside(const TreeLinks& links, int tree, int rank, std::vector<int>& inner) const {
    for (const int child : links.children)
      if (has_child(links, child) && is_rank(child) && node_of(child) != node_of(rank))
        inner[static_cast<std::size_t>(node_of(rank))] |= 1 << tree;
  }

  void check_trees(int channel) {
    std::vector<int> all, inner(static_cast<std::size_t>(job_.nodes()));
    std::array<std::vector<TreeLinks>, 2> links;
    for (int rank = 0; rank < job_.ranks(); ++rank) {
      all.push_back(rank);
      const DoubleTree both = wires_.tree(channel, rank);
      for (const int tree : {0, 1}) {
        const TreeLinks& mine = both.trees[static_cast<std::size_t>(tree)];
        links[static_cast<std::size_t>(tree)].push_back(mine);
        note_inside(mine, tree, rank, inner);
      }
    }
    for (const int tree : {0, 1})
      check_tree(loom::format("Tree {} of channel {}", tree, channel), all,
                 links[static_cast<std::size_t>(tree)], most_depth());
    check_insides(loom::format("Channel {}", channel), inner);
  }

  /// No node is to carry more than it planned, whatever its ports.
  void check_total(Family family) {
    const double agreed = job_.agreed(family).total_gbps();
    for (std::size_t kind = 0; job_.agreed(family).channels > 0 && kind < job_.kinds().size(); ++kind) {
      double planned = 0;
      for (const ChannelSummary& channel : job_.kinds()[kind].family(family).channels)
        planned += std::max(channel.inter_gbps, 0.0F);
      if (agreed > planned * (1 + kSlack) + kSlack)
        fail("{}: nodes of kind {} planned {} GB/s, agreed are {}.", name_of(family), kind, planned, agreed);
    }
  }

  /// Are these ranks different ones of `node`?
  bool are_heads_of(int node, std::vector<int> heads) const {
    std::sort(heads.begin(), heads.end());
    return std::adjacent_find(heads.begin(), heads.end()) == heads.end() &&
           std::all_of(heads.begin(), heads.end(),
                       [&](int rank) { return is_rank(rank) && node_of(rank) == node; });
  }
  static int number_of(const std::vector<int>& heads, int rank) {
    const auto place = std::find(heads.begin(), heads.end(), rank);
    return place == heads.end() ? kNobody : static_cast<int>(place - heads.begin());
  }

  void check_nvls() {
    const int heads = job_.agreed(Family::kNvls).channels;
    if (heads == 0) return;
    std::vector<NvlsHeads> views;
    for (int rank = 0; rank < job_.ranks(); ++rank) {
      views.push_back(wires_.nvls(rank));
      const NvlsHeads& mine = views.back();
      const NvlsHeads& first =
          views[static_cast<std::size_t>(job_.placement().ranks_of(node_of(rank)).front())];
      if (static_cast<int>(mine.heads.size()) != heads || mine.heads != first.heads)
        return fail("Rank {} sees other multicast heads than its node.", rank);
      if (!are_heads_of(node_of(rank), mine.heads))
        return fail("Rank {} sees multicast heads that are not different ranks of its node.", rank);
      if (number_of(mine.heads, rank) != mine.mine)
        return fail("Rank {} takes itself for multicast head {}.", rank, mine.mine);
    }
    for (int head = 0; head < heads; ++head) {
      std::vector<int> members, inner(static_cast<std::size_t>(job_.nodes()));
      for (int node = 0; node < job_.nodes(); ++node)
        members.push_back(
            views[static_cast<std::size_t>(job_.rank_of(node, 0))].heads[static_cast<std::size_t>(head)]);
      for (const int tree : {0, 1}) {
        std::vector<TreeLinks> links(views.size());
        for (const int rank : members) {
          links[static_cast<std::size_t>(rank)] =
              views[static_cast<std::size_t>(rank)].trees[static_cast<std::size_t>(tree)];
          note_inside(links[static_cast<std::size_t>(rank)], tree, rank, inner);
        }
        check_tree(loom::format("Tree {} of multicast head {}", tree, head), members, links, levels());
      }
      check_insides(loom::format("Multicast head {}", head), inner);
    }
  }

  void check_chain(int channel) {
    for (int node = 0; node < job_.nodes(); ++node) {
      int reached = 0, heads = 0;
      for (const int rank : job_.placement().ranks_of(node)) {
        const CollnetChain head = wires_.collnet_chain(channel, rank);
        if (head.up != kNetwork) continue;
        if (++heads > 1) return fail("Collnet chain {}: node {} has two heads.", channel, node);
        for (int above = kNetwork, here = rank; here != kNobody && reached <= job_.ranks(); ++reached) {
          const CollnetChain links = is_rank(here) ? wires_.collnet_chain(channel, here) : CollnetChain{};
          if (!is_rank(here) || links.up != above || node_of(here) != node)
            return fail("Collnet chain {}: rank {} is not below {}.", channel, here, above);
          above = here;
          here = links.down;
        }
      }
      if (reached != job_.placement().ranks_on(node))
        fail("Collnet chain {} reaches {} of the {} ranks of node {}.", channel, reached,
             job_.placement().ranks_on(node), node);
    }
  }

  void check_direct() {
    const std::size_t heads = static_cast<std::size_t>(job_.agreed(Family::kCollnetDirect).channels);
    std::vector<int> of_node;  // as its lowest rank sees them
    for (int node = 0; heads > 0 && node < job_.nodes(); ++node)
      for (const int rank : job_.placement().ranks_of(node)) {
        const CollnetDirect view = wires_.collnet_direct(rank);
        if (rank == job_.placement().ranks_of(node).front()) of_node = view.heads;
        if (view.heads.size() != heads || view.heads != of_node || !are_heads_of(node, view.heads))
          return fail("Collnet direct: rank {} sees other heads than its node.", rank);
        if (number_of(view.heads, rank) != view.mine)
          return fail("Collnet direct: rank {} takes itself for head {}.", rank, view.mine);
        check_exchange(rank, view);
      }
  }

  void check_exchange(int rank, const CollnetDirect& view) {
    std::vector<int> up = view.up, down = view.down, wanted_up, wanted_down;
    for (const int head : view.heads)
      if (head != rank) wanted_up.push_back(head);
    for (const int mate : job_.placement().ranks_of(node_of(rank)))
      if (view.mine != kNobody && mate != rank) wanted_down.push_back(mate);
    std::sort(up.begin(), up.end());
    std::sort(down.begin(), down.end());
    std::sort(wanted_up.begin(), wanted_up.end());
    if (up != wanted_up || down != wanted_down)
      fail("Collnet direct: rank {} does not exchange with every head and, as one, with every rank.", rank);
  }

  const Job& job_;
  const Wires& wires_;
  std::vector<std::string> found_;
};

}  // namespace

Wires wires_of(const Job& job) {
  return {[&job](int channel, int rank) { return ring_of(job, channel, rank); },
          [&job](int channel, int position) { return rank_at(job, channel, position); },
          [&job](int channel, int rank) { return tree_of(job, channel, rank); },
          [&job](int rank) { return nvls_of(job, rank); },
          [&job](int channel, int rank) { return collnet_chain_of(job, channel, rank); },
          [&job](int rank) { return collnet_direct_of(job, rank); }};
}

std::vector<std::string> violations(const Job& job, const Wires& wires) {
  return Checker(job, wires).run();
}

}  // namespace loom::connect
