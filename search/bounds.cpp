#include "search/bounds.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "base/format.hpp"
#include "search/flow.hpp"

namespace loom::search {
namespace {

constexpr double kUnlimited = 1e9, kRounding = 1e-7;

Proof::Price price_of(std::span<const Resource> resources, int resource, double price) {
  const Resource& entry = resources[static_cast<std::size_t>(resource)];
  return {entry.number, entry.node, entry.gbps, price};
}

double worth(std::span<const Proof::Price> prices) {
  double sum = 0;
  for (const Proof::Price& entry : prices) sum += entry.price * entry.gbps;
  return sum;
}

void lower(Proof& proof, Proof other) {
  if (other.gbps < proof.gbps) proof = std::move(other);
}

/// What enters or leaves an end: its prices are those at which a GB/s that does costs at least 1.
Proof by_prices(std::vector<Proof::Price> prices) {
  Proof proof;
  proof.gbps = worth(prices);
  proof.prices = std::move(prices);
  return proof;
}

/// The links that hops `from`[i] -> `to`[i] take at `end`, the last ones of those that come in or the first
/// ones of those that go out; or the memory of a GPU, where that takes or gives less. Infinite where some hop
/// takes none.
Proof ends_at(const HopTable& table, int end, bool in, int first_other, int last_other) {
  const Resources all(table.system());
  std::vector<Load> least_factor;  // each resource once
  for (int other = first_other; other < last_other; ++other) {
    if (other == end) continue;
    const Hop& hop = in ? table.hop(other, end) : table.hop(end, other);
    if (hop.count == 0) continue;
    const std::span<const Load> loads = table.loads(hop);
    const auto is_there = [&](const Load& load) {
      const int number = table.resources()[static_cast<std::size_t>(load.resource)].number;
      if (number == Resource::kNone || !all.is_link(number)) return false;
      const topo::Link& crossed = table.system().link(number);
      return (in ? crossed.to : crossed.from) == table.node(end);
    };
    const auto last = std::find_if(loads.rbegin(), loads.rend(), is_there);
    if (last == loads.rend()) return {};
    const auto known = std::find_if(least_factor.begin(), least_factor.end(),
                                    [&](const Load& load) { return load.resource == last->resource; });
    if (known == least_factor.end())
      least_factor.push_back(*last);
    else
      known->factor = std::min(known->factor, last->factor);
  }
  std::vector<Proof::Price> prices;
  for (const Load& load : least_factor)
    prices.push_back(price_of(table.resources(), load.resource, 1 / load.factor));
  Proof proof = by_prices(std::move(prices));
  const int memory = in ? all.into_memory(table.node(end)) : all.out_of_memory(table.node(end));
  if (all.counts_memory_of(table.node(end)))
    lower(proof, by_prices({{memory, topo::kNoNode, all.gbps(memory), 1}}));
  return proof;
}

/// What all ports carry together, in one direction. `widest`: the most of one port so far.
Proof ports_sum(const HopTable& table, bool in, double& widest) {
  std::vector<Proof::Price> prices;
  for (int net = 0; net < table.nets(); ++net) {
    const Proof port = ends_at(table, table.net(net), !in, 0, table.gpus());
    widest = std::max(widest, port.gbps);
    prices.insert(prices.end(), port.prices.begin(), port.prices.end());
  }
  return by_prices(std::move(prices));
}

bool is_finite(const Proof& proof) {
  return proof.gbps < std::numeric_limits<double>::infinity();
}

/// Every channel passes all these ends but the one where it begins (or ends): b GB/s that begin at end e
/// spare its `gbps`. So m of them carry T GB/s only if m T <= sum + T. At one at which no channel begins all
/// of T passes: with so few channels there is one among the narrowest. `ranks`: of the ends.
Proof chain_bound(const std::vector<Proof>& of_ranks, const std::vector<int>& ranks, int max_channels,
                  const char* begins) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < of_ranks.size(); ++i)
    if (is_finite(of_ranks[i])) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return of_ranks[a].gbps < of_ranks[b].gbps; });
  Proof bound;
  std::vector<Proof::Price> prices;
  for (std::size_t m = 1; m <= order.size(); ++m) {
    const Proof& end = of_ranks[order[m - 1]];
    if (m > static_cast<std::size_t>(max_channels)) {
      Proof narrow;
      narrow.gbps = end.gbps;
      for (std::size_t i = 0; i < m; ++i) narrow.side.push_back(ranks[order[i]]);
      narrow.because = loom::format(
          "{} channels {} at {} GPUs at most, so that all pass one of the {} narrowest, with {:.6g} GB/s",
          max_channels, begins, max_channels, m, narrow.gbps);
      lower(bound, std::move(narrow));
      return bound;
    }
    prices.insert(prices.end(), end.prices.begin(), end.prices.end());
    if (m < 2) continue;
    std::vector<Proof::Price> shared = prices;
    for (Proof::Price& entry : shared) entry.price /= static_cast<double>(m - 1);
    lower(bound, by_prices(std::move(shared)));
  }
  return bound;
}

}  // namespace

Proof end_bound(const HopTable& table, Pattern pattern, bool network, int max_channels) {
  Proof bound;
  if (network) {
    double widest = 0;
    lower(bound, ports_sum(table, true, widest));
    lower(bound, ports_sum(table, false, widest));
    Proof few;
    few.gbps = widest * max_channels;
    few.because =
        loom::format("{} channels, none faster than the widest port, {:.6g} GB/s", max_channels, widest);
    lower(bound, std::move(few));
  }
  if (pattern == Pattern::kNvls || pattern == Pattern::kCollnetDirect || table.gpus() < 2) return bound;
  std::vector<Proof> in, out;
  std::vector<int> ranks;
  for (int gpu = 0; gpu < table.gpus(); ++gpu) {
    in.push_back(ends_at(table, gpu, true, 0, table.gpus()));
    out.push_back(ends_at(table, gpu, false, 0, table.gpus()));
    ranks.push_back(table.rank(gpu));
  }
  const int ends = table.gpus() + table.nets();
  for (int gpu = 0; network && gpu < table.gpus(); ++gpu) {  // from a port every channel enters every GPU
    const auto i = static_cast<std::size_t>(gpu);            // ports only add to what other GPUs can send
    if (in[i].gbps < bound.gbps) lower(bound, ends_at(table, gpu, true, 0, ends));
    if (pattern == Pattern::kRing && out[i].gbps < bound.gbps)
      lower(bound, ends_at(table, gpu, false, 0, ends));
  }
  if (pattern == Pattern::kRing && !network) {
    for (std::vector<Proof>* all : {&in, &out})
      for (Proof& end : *all) lower(bound, std::move(end));
    return bound;
  }
  lower(bound, chain_bound(in, ranks, max_channels, "begin"));
  lower(bound, chain_bound(out, ranks, max_channels, "end"));
  return bound;
}

Proof ring_cut_bound(const topo::System& system, const HopTable& table, bool network, Steps& steps) {
  Proof bound;
  const auto cut = [&](Flow& flow, int from, int to) {
    Proof proof;
    proof.gbps = flow.between(from, to);
    if (proof.gbps >= bound.gbps) return;
    for (topo::LinkId id = 0; id < static_cast<topo::LinkId>(system.links().size()); ++id)
      if (const topo::Link& link = system.link(id); flow.is_before(link.from) && !flow.is_before(link.to))
        proof.prices.push_back({id, topo::kNoNode, static_cast<double>(link.gbps), 1});
    for (int gpu = 0; gpu < table.gpus(); ++gpu)
      if (flow.is_before(table.node(gpu))) proof.side.push_back(table.rank(gpu));
    bound = std::move(proof);
  };
  if (network) {  // every channel comes from outside to every GPU, and goes back
    Flow in(system, steps), out(system, steps);
    const int outside = in.add_node();
    out.add_node();
    for (int net = 0; net < table.nets(); ++net) {
      in.add(outside, table.node(table.net(net)), kUnlimited);
      out.add(table.node(table.net(net)), outside, kUnlimited);
    }
    for (int gpu = 0; gpu < table.gpus() && !steps.are_spent(); ++gpu)
      cut(in, outside, table.node(gpu)), cut(out, table.node(gpu), outside);
    return bound;
  }
  Flow flow(system, steps);
  for (int gpu = 1; gpu < table.gpus() && !steps.are_spent(); ++gpu)
    cut(flow, table.node(0), table.node(gpu)), cut(flow, table.node(gpu), table.node(0));
  return bound;
}

std::vector<double> without_rounding(std::span<const double> prices) {
  double largest = 0;
  for (const double price : prices) largest = std::max(largest, price);
  std::vector<double> kept;
  for (const double price : prices) kept.push_back(price > kRounding * largest ? price : 0);
  return kept;
}

Proof price_bound(std::span<const Resource> resources, std::span<const double> prices, double least) {
  Proof proof;
  if (least <= 0) return proof;
  for (std::size_t i = 0; i < prices.size(); ++i)
    if (prices[i] > 0) proof.prices.push_back(price_of(resources, static_cast<int>(i), prices[i] / least));
  proof.gbps = worth(proof.prices);
  return proof;
}

}  // namespace loom::search
