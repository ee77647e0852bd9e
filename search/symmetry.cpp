#include "search/symmetry.hpp"

#include <map>
#include <numeric>
#include <optional>
#include <utility>

namespace loom::search {
namespace {

std::vector<int> unmoved(int count) {
  std::vector<int> places(static_cast<std::size_t>(count));
  std::iota(places.begin(), places.end(), 0);
  return places;
}

/// First `a`, then `b`.
std::vector<int> joined(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> both;
  for (const int place : a) both.push_back(b[static_cast<std::size_t>(place)]);
  return both;
}

class SymmetryFinder {
 public:
  SymmetryFinder(const HopTable& table, int cross_nic) : table_(table), cross_nic_(cross_nic) {
    std::map<std::vector<std::pair<double, double>>, int> kinds;
    const auto kind_of = [&](const Hop& hop) {
      std::vector<std::pair<double, double>> taken;
      for (const Load& load : table.loads(hop)) taken.emplace_back(load.factor, gbps(load.resource));
      return kinds.try_emplace(std::move(taken), static_cast<int>(kinds.size())).first->second;
    };
    for (int net = 0; net < table.nets(); ++net) {
      Surroundings mine;
      for (int gpu = 0; gpu < table.gpus(); ++gpu)
        mine.emplace_back(kind_of(table.hop(gpu, table.net(net))), kind_of(table.hop(table.net(net), gpu)));
      nets_like_[mine].push_back(net);
      around_.push_back(std::move(mine));
    }
  }

  /// The group of turns of blocks, the smallest of which has so many GPUs.
  std::vector<Symmetry> group(int smallest) const {
    const int gpus = table_.gpus();
    std::vector<Symmetry> group{
        {unmoved(gpus), unmoved(table_.nets()), unmoved(static_cast<int>(table_.resources().size()))}};
    for (int block = smallest, larger = block + block; larger <= gpus; larger += block) {
      if (gpus % larger != 0) continue;
      const std::optional<Symmetry> turn = completed(turned(block, larger));
      if (!turn) continue;
      const std::size_t before = group.size(), turns = static_cast<std::size_t>(larger / block);
      for (std::size_t i = 0; i < before * (turns - 1); ++i) {
        const Symmetry& last = group[i];
        group.push_back({joined(last.gpu, turn->gpu), joined(last.net, turn->net),
                         joined(last.resource, turn->resource)});
      }
      block = larger;
    }
    return group;
  }

 private:
  using Surroundings = std::vector<std::pair<int, int>>;  // by GPU: what hops from it and to it are like

  double gbps(int resource) const { return table_.resources()[static_cast<std::size_t>(resource)].gbps; }

  /// By GPU: in blocks of `larger` GPUs, those of `block` each move on by one.
  std::vector<int> turned(int block, int larger) const {
    std::vector<int> gpu;
    for (int i = 0; i < table_.gpus(); ++i)
      gpu.push_back(i / larger * larger + (i % larger + block) % larger);
    return gpu;
  }

  /// With the ports and resources that follow from the GPUs; nothing where none do.
  std::optional<Symmetry> completed(std::vector<int> gpu) const {
    Symmetry symmetry{std::move(gpu), {}, {}};
    if (!find_nets(symmetry) || !find_resources(symmetry)) return {};
    return symmetry;
  }

  /// A port takes the place of one that the GPUs in their new places see as their old ones saw it; of several
  /// in order, so that turns follow one another in any order with the same result.
  bool find_nets(Symmetry& symmetry) const {
    std::map<Surroundings, std::size_t> used;
    for (int net = 0; net < table_.nets(); ++net) {
      const Surroundings& mine = around_[static_cast<std::size_t>(net)];
      Surroundings there(mine.size());
      for (std::size_t gpu = 0; gpu < mine.size(); ++gpu)
        there[static_cast<std::size_t>(symmetry.gpu[gpu])] = mine[gpu];
      const auto like = nets_like_.find(there);
      if (like == nets_like_.end()) return false;
      const std::size_t next = used[there]++;
      if (next == like->second.size()) return false;
      symmetry.net.push_back(like->second[next]);
    }
    for (int in = 0; in < table_.nets(); ++in)
      for (int out = 0; out < table_.nets(); ++out)
        if (table_.may_pair(in, out, cross_nic_) !=
            table_.may_pair(symmetry.net[static_cast<std::size_t>(in)],
                            symmetry.net[static_cast<std::size_t>(out)], cross_nic_))
          return false;
    return true;
  }

  bool find_resources(Symmetry& symmetry) const {
    const std::size_t count = table_.resources().size();
    std::vector<int>& there = symmetry.resource;
    std::vector<bool> taken(count, false);
    there.assign(count, -1);
    const auto moves = [&](int from, int to) {
      int& place = there[static_cast<std::size_t>(from)];
      if (place >= 0) return place == to;
      if (taken[static_cast<std::size_t>(to)] || gbps(from) != gbps(to)) return false;
      place = to;
      taken[static_cast<std::size_t>(to)] = true;
      return true;
    };
    const auto moved = [&](int end) {
      return end < table_.gpus() ? symmetry.gpu[static_cast<std::size_t>(end)]
                                 : table_.net(symmetry.net[static_cast<std::size_t>(end - table_.gpus())]);
    };
    const int ends = table_.gpus() + table_.nets();
    for (int from = 0; from < ends; ++from)
      for (int to = 0; to < ends; ++to) {
        const auto mine = table_.loads(table_.hop(from, to)),
                   theirs = table_.loads(table_.hop(moved(from), moved(to)));
        if (mine.size() != theirs.size()) return false;
        for (std::size_t i = 0; i < mine.size(); ++i)
          if (mine[i].factor != theirs[i].factor || !moves(mine[i].resource, theirs[i].resource))
            return false;
      }
    for (std::size_t i = 0; i < count; ++i)  // what no hop takes
      if (there[i] < 0 && !moves(static_cast<int>(i), static_cast<int>(i))) return false;
    return true;
  }

  const HopTable& table_;
  int cross_nic_;
  std::vector<Surroundings> around_;                    // by port
  std::map<Surroundings, std::vector<int>> nets_like_;  // ascending
};

}  // namespace

std::vector<Symmetry> symmetries(const HopTable& table, int cross_nic) {
  const SymmetryFinder finder(table, cross_nic);
  std::vector<Symmetry> largest;
  for (int smallest = 1; smallest <= table.gpus(); ++smallest) {
    if (table.gpus() % smallest != 0) continue;
    if (table.gpus() / smallest <= static_cast<int>(largest.size())) break;
    if (std::vector<Symmetry> group = finder.group(smallest); group.size() > largest.size())
      largest = std::move(group);
  }
  return largest;
}

}  // namespace loom::search
