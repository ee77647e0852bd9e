// priced_machine.hpp -- a machine whose links have prices, and the cheapest channel there: what a proof of
// the search says of it, worked out from links and paths without the search.
#pragma once

#include <algorithm>
#include <bit>

#include "charged_machine.hpp"

namespace loom {

using Row = std::vector<double>;
using Matrix = std::vector<Row>;

/// The cheapest way through all places of `set`, a bit mask, from `first`: [set][first]; ending at a place
/// costs its `end`.
inline Matrix cheapest_ways(const Matrix& costs, const Row& end) {
  const std::size_t count = costs.size(), sets = std::size_t{1} << count;
  Matrix least(sets, Row(count, kNever));
  for (std::size_t set = 1; set < sets; ++set)
    for (std::size_t rest = set; rest != 0; rest &= rest - 1) {
      const auto first = static_cast<std::size_t>(std::countr_zero(rest));
      const std::size_t others = set & ~(std::size_t{1} << first);
      double& best = least[set][first];
      if (others == 0) best = end[first];
      for (std::size_t left = others; left != 0; left &= left - 1) {
        const auto next = static_cast<std::size_t>(std::countr_zero(left));
        best = std::min(best, costs[first][next] + least[others][next]);
      }
    }
  return least;
}

class PricedMachine : public ChargedMachine {
 public:
  /// `ranks` take part. `proof` as `loom search --explain --json` prints it; fails the test where it names
  /// what is not there, or says how much there is of it and is wrong.
  PricedMachine(const topo::System& machine, const std::vector<int>& ranks, const nlohmann::json& proof)
      : ChargedMachine(machine, ranks) {
    const ByName there = what_there_is();
    for (const nlohmann::json& entry : proof.at("prices")) {
      const std::string of = entry.at("of");
      const auto found = there.find(of);
      EXPECT_NE(found, there.end()) << "there is no " << of;
      if (found == there.end()) continue;
      EXPECT_NEAR(entry.at("gbps"), found->second, 1e-6 * found->second) << of;
      EXPECT_GT(entry.at("price"), 0) << of;
      EXPECT_TRUE(prices_.emplace(of, entry.at("price")).second) << "twice: " << of;
      worth_ += found->second * entry.at("price").get<double>();
    }
    for (const topo::Link& link : system_.links()) link_prices_.push_back(price(label_of(link)));
  }

  /// What all that there is costs.
  double worth() const { return worth_; }
  /// What a GB/s of the cheapest channel costs; rings that cross NICs come in pairs with swapped ports.
  double cheapest_channel(const std::string& pattern, bool network) const {
    if (pattern == "nvls" || pattern == "collnet-direct") return cheapest_head(pattern == "nvls", network);
    if (gpus_.size() == 1 && !network) return price(topo::label(system_, gpus_[0]));
    return pattern == "ring" ? cheapest_ring(network) : cheapest_chain(pattern, network);
  }

  /// Nothing leads from one side to the other without what has a price.
  bool is_cut(const std::vector<topo::NodeId>& from, const std::vector<topo::NodeId>& to) const {
    std::vector<topo::NodeId> reached = from;
    const auto is_in = [](const std::vector<topo::NodeId>& nodes, topo::NodeId node) {
      return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
    };
    for (std::size_t i = 0; i < reached.size(); ++i)
      for (const topo::Link& link : system_.links_of(reached[i]))
        if (price_of(system_.id_of(link)) == 0 && !is_in(reached, link.to)) reached.push_back(link.to);
    return std::none_of(to.begin(), to.end(), [&](topo::NodeId node) { return is_in(reached, node); });
  }

 private:
  double price_of(topo::LinkId id) const { return link_prices_[static_cast<std::size_t>(id)]; }
  double price(const std::string& name) const {
    const auto found = prices_.find(name);
    return found == prices_.end() ? 0 : found->second;
  }

  double cost(topo::NodeId from, topo::NodeId to) const {
    const Way taken = way(from, to);
    if (!taken.exists) return kNever;
    double sum = 0;
    for (const auto* links : {&taken.links, &taken.back})
      for (const auto& [id, factor] : *links) sum += factor * price_of(id);
    if (has_memory(from)) sum += price(gives(from));
    if (has_memory(to)) sum += price(takes(to));
    for (const topo::NodeId port : ports_)  // all ports of a cable receive over it
      if (is_port(from) && share_cable(from, port)) sum += price(topo::label(system_, port));
    return sum;
  }

  /// What each way from a GPU to each other one costs; with `both_ways` those alone that lead back too.
  Matrix between_gpus(bool both_ways) const {
    Matrix costs;
    for (const topo::NodeId from : gpus_) {
      costs.emplace_back();
      for (const topo::NodeId to : gpus_)
        costs.back().push_back(from == to || (both_ways && !way(to, from).exists) ? kNever : cost(from, to));
    }
    return costs;
  }
  Row to_port(topo::NodeId port) const {
    Row costs;
    for (const topo::NodeId gpu : gpus_) costs.push_back(cost(gpu, port));
    return costs;
  }

  double cheapest_ring(bool network) const {
    const Matrix costs = between_gpus(false);
    const std::size_t all = (std::size_t{1} << gpus_.size()) - 1;
    if (!network) {
      Row back;
      for (const Row& row : costs) back.push_back(row[0]);
      return cheapest_ways(costs, back)[all][0];
    }
    std::map<Row, Row> ways;  // from each GPU to a port, by what leaving there costs
    const auto ring = [&](topo::NodeId in, topo::NodeId out) {
      const auto [known, is_new] = ways.try_emplace(to_port(out));
      if (is_new) known->second = cheapest_ways(costs, known->first)[all];
      double least = kNever;
      for (std::size_t i = 0; i < gpus_.size(); ++i)
        least = std::min(least, cost(in, gpus_[i]) + known->second[i]);
      return least;
    };
    double least = kNever;
    for (const topo::NodeId in : ports_)
      for (const topo::NodeId out : ports_)
        if (on_one_rail(in, out))
          least = std::min(least, ring(in, out));
        else if (may_cross(in, out) && in < out)
          least = std::min(least, (ring(in, out) + ring(out, in)) / 2);
    return least;
  }

  /// The first GPU receives from a port and sends back to it; of split trees the second one sends, to any
  /// port; of balanced trees both, a half each.
  double cheapest_chain(const std::string& pattern, bool network) const {
    const std::size_t count = gpus_.size(), all = (std::size_t{1} << count) - 1;
    const Matrix costs = between_gpus(true), ways = cheapest_ways(costs, Row(count, 0));
    const bool split = pattern == "split-tree", balanced = pattern == "balanced-tree";
    double least = kNever;
    for (std::size_t first = 0; first < count; ++first) {
      if (!network) least = std::min(least, ways[all][first]);
      for (const topo::NodeId in : network ? ports_ : std::vector<topo::NodeId>{}) {
        const double come_in = cost(in, gpus_[first]);
        if (!split && !balanced) {
          least = std::min(least, ways[all][first] + come_in + cost(gpus_[first], in));
          continue;
        }
        for (const topo::NodeId out : ports_)
          for (std::size_t second = 0; may_cross(in, out) && second < count; ++second) {
            if (second == first) continue;
            const double rest = costs[first][second] + ways[all & ~(std::size_t{1} << first)][second];
            const double leave = cost(gpus_[second], out);
            least = std::min(least, come_in + rest + (split ? leave : (cost(gpus_[first], out) + leave) / 2));
          }
      }
    }
    return least;
  }

  /// A head multicasts to all GPUs by the switch, to itself twice, with ports half of what passes these; or
  /// exchanges with every other GPU directly, with each its share.
  double cheapest_head(bool multicast, bool network) const {
    double least = kNever;
    for (const topo::NodeId head : gpus_) {
      double inside = 0;
      for (const topo::NodeId gpu : gpus_) {
        if (multicast)
          inside += (cost(switch_, gpu) + cost(gpu, switch_)) * (gpu == head ? 2 : 1) * (network ? 0.5 : 1);
        else if (gpu != head)
          inside += (cost(head, gpu) + cost(gpu, head)) / static_cast<double>(gpus_.size() - 1);
      }
      if (!network) least = std::min(least, inside);
      for (const topo::NodeId port : network ? ports_ : std::vector<topo::NodeId>{})
        least = std::min(least, inside + cost(port, head) + cost(head, port));
    }
    return least;
  }

  ByName prices_;
  std::vector<double> link_prices_;
  double worth_ = 0;
};

}  // namespace loom
