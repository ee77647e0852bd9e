// brute_force.hpp -- all channels of small machines, and the most that they carry together: without the
// search, by a linear program of all of them.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "search/resources.hpp"
#include "search/validate.hpp"
#include "topo/bandwidth.hpp"

namespace loom::search {

inline bool is_head_pattern(Pattern pattern) {
  return pattern == Pattern::kNvls || pattern == Pattern::kCollnetDirect;
}

inline bool shares_cable(const topo::System& system, topo::NodeId a, topo::NodeId b) {
  const topo::NetInfo &x = system.node(a).net(), &y = system.node(b).net();
  return a == b || (x.guid && x.guid == y.guid && x.port == y.port);
}

/// Whether a channel may come in and go out there.
inline bool may_pair(const topo::System& system, topo::NodeId in, topo::NodeId out, Pattern pattern,
                     int cross_nic) {
  if (in == out) return true;
  if (pattern != Pattern::kRing && pattern != Pattern::kSplitTree && pattern != Pattern::kBalancedTree)
    return false;
  const topo::NetInfo &a = system.node(in).net(), &b = system.node(out).net();
  if (a.plane && b.plane && a.plane != b.plane) return false;
  if (cross_nic != 0) return true;
  if (a.rail && b.rail) return a.rail == b.rail;
  return shares_cable(system, in, out);
}

/// All channels of a pattern, each with 1 GB/s, possible or not.
inline std::vector<Channel> all_channels(const topo::System& system, Pattern pattern, bool network,
                                         int cross_nic) {
  std::vector<int> ranks;
  for (const topo::NodeId gpu : system.gpus()) ranks.push_back(system.node(gpu).gpu().rank);
  std::sort(ranks.begin(), ranks.end());
  std::vector<std::vector<int>> orders;
  if (is_head_pattern(pattern))
    for (const int rank : ranks) orders.push_back({rank});
  else
    do orders.push_back(ranks);
    while (std::next_permutation(ranks.begin(), ranks.end()));
  const bool collnet = pattern == Pattern::kCollnetChain || pattern == Pattern::kCollnetDirect;
  std::vector<topo::NodeId> nets;
  for (const topo::NodeId id : system.of_kind(topo::NodeKind::kNet))
    if (!collnet || system.node(id).net().collectives) nets.push_back(id);
  std::vector<Channel> channels;
  for (const std::vector<int>& order : orders) {
    if (!network) channels.push_back({order, {}, 1, 1});
    for (std::size_t i = 0; network && i < nets.size(); ++i)
      for (const topo::NodeId out : nets)
        if (may_pair(system, nets[i], out, pattern, cross_nic))
          channels.push_back({order, {nets[i], out}, pattern == Pattern::kNvls ? 0.5 : 1, 1});
  }
  return channels;
}

/// What 1 GB/s of a channel takes: from each of Resources, and from the cables of ports, by the first port.
struct Taken {
  bool possible = true;  ///< its hops exist
  std::vector<double> of_resources;
  topo::NodeId cable = topo::kNoNode;  ///< 1 GB/s of this one
};

inline Taken taken_by(const topo::Paths& paths, Pattern pattern, bool network, const Channel& channel) {
  ChannelPlan alone;
  alone.pattern = pattern;
  alone.network = network;
  alone.limits = {2, topo::PathType::kSys, topo::PathType::kSys};
  alone.type_intra = alone.type_inter = topo::PathType::kSys;
  alone.channels = {channel};
  Taken taken;
  for (const std::string& wrong : violations(paths, alone))
    taken.possible = taken.possible && wrong.find("allowed is up to") == std::string::npos;
  taken.of_resources = link_loads(paths, alone);
  if (!channel.nets.empty())
    for (const topo::NodeId net : paths.system().of_kind(topo::NodeKind::kNet))
      if (taken.cable == topo::kNoNode && shares_cable(paths.system(), net, channel.nets[0]))
        taken.cable = net;
  return taken;
}

inline double cable_gbps(const topo::System& system, topo::NodeId port) {
  double least = std::numeric_limits<double>::infinity();
  for (const topo::NodeId net : system.of_kind(topo::NodeKind::kNet))
    if (shares_cable(system, port, net))
      least = std::min(least, static_cast<double>(topo::net_gbps(system.node(net).net().speed_mbps)));
  return least;
}

/// maximise x_0 subject to rows * x <= limits, x >= 0, limits >= 0: the simplex method on the whole tableau.
/// Soon with Bland's rule, which never turns in circles.
inline double maximise_first(std::vector<std::vector<double>> rows, std::vector<double> limits) {
  constexpr double kZero = 1e-9;
  constexpr int kSoon = 200;  // pivots
  const std::size_t columns = rows.empty() ? 0 : rows[0].size();
  std::vector<double> gains(columns, 0);
  std::vector<std::size_t> basis(rows.size());  // slack i is column `columns` + i
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].resize(columns + rows.size(), 0);
    rows[i][columns + i] = 1;
    basis[i] = columns + i;
  }
  gains.resize(columns + rows.size(), 0);
  gains[0] = 1;
  double total = 0;
  for (int pivots = 0;; ++pivots) {
    const auto found =
        pivots < kSoon ? std::max_element(gains.begin(), gains.end())
                       : std::find_if(gains.begin(), gains.end(), [](double gain) { return gain > kZero; });
    if (found == gains.end() || *found <= kZero) return total;
    const auto entering = static_cast<std::size_t>(found - gains.begin());
    std::size_t leaving = rows.size();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i][entering] <= kZero) continue;
      if (leaving == rows.size()) {
        leaving = i;
        continue;
      }
      const double here = limits[i] / rows[i][entering], there = limits[leaving] / rows[leaving][entering];
      if (here < there - kZero || (here <= there + kZero && basis[i] < basis[leaving])) leaving = i;
    }
    if (leaving == rows.size()) return std::numeric_limits<double>::infinity();
    const double pivot = rows[leaving][entering];
    for (double& value : rows[leaving]) value /= pivot;
    limits[leaving] /= pivot;
    const auto subtract = [&](std::vector<double>& row, double& limit, double factor) {
      if (factor == 0) return;
      for (std::size_t j = 0; j < row.size(); ++j) row[j] -= factor * rows[leaving][j];
      limit -= factor * limits[leaving];
    };
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (i != leaving) subtract(rows[i], limits[i], rows[i][entering]);
    double lost = 0;
    subtract(gains, lost, gains[entering]);
    total += lost > 0 ? 0 : -lost;
    basis[leaving] = entering;
  }
}

/// The most that all `parts` carry at the same time, the same in each, whatever the number of channels. With
/// `cross_nic` 2, rings between two ports carry as much there as back. `counts`: of these channels alone.
inline double most_gbps(std::span<const topo::Paths* const> parts, std::span<const Pattern> patterns,
                        bool network, int cross_nic, const std::function<bool(const Channel&)>& counts = {}) {
  struct Column {
    std::size_t part;
    Channel channel;
    Taken taken;
  };
  std::vector<Column> columns;
  for (std::size_t i = 0; i < parts.size(); ++i)
    for (const Channel& channel : all_channels(parts[i]->system(), patterns[i], network, cross_nic))
      if (counts && !counts(channel)) {
        continue;
      } else if (Taken taken = taken_by(*parts[i], patterns[i], network, channel); taken.possible)
        columns.push_back({i, channel, std::move(taken)});
  const topo::System& system = parts[0]->system();
  const Resources resources(system);
  std::vector<std::vector<double>> rows;
  std::vector<double> limits;
  const auto add_row = [&](double limit, double of_total, const auto& of_column) {
    std::vector<double> row = {of_total};
    for (const Column& column : columns) row.push_back(of_column(column));
    if (std::all_of(row.begin(), row.end(), [](double value) { return value <= 0; })) return;
    rows.push_back(std::move(row));
    limits.push_back(limit);
  };
  for (std::size_t i = 0; i < parts.size(); ++i)  // the total is no more than what each part carries
    add_row(0, 1, [&](const Column& column) { return column.part == i ? -1.0 : 0.0; });
  for (int number = 0; number < resources.size(); ++number)
    add_row(resources.gbps(number), 0, [&](const Column& column) {
      return column.taken.of_resources[static_cast<std::size_t>(number)];
    });
  for (const topo::NodeId net : system.of_kind(topo::NodeKind::kNet))
    add_row(cable_gbps(system, net), 0,
            [&](const Column& column) { return column.taken.cable == net ? 1.0 : 0.0; });
  const auto nets = system.of_kind(topo::NodeKind::kNet);
  for (std::size_t i = 0; i < parts.size() && cross_nic == 2 && patterns[i] == Pattern::kRing; ++i)
    for (const topo::NodeId a : nets)
      for (const topo::NodeId b : nets)
        if (!may_pair(system, a, b, Pattern::kRing, 0))
          add_row(0, 0, [&](const Column& column) {
            if (column.part != i) return 0.0;
            return column.channel.nets == std::vector{a, b}   ? 1.0
                   : column.channel.nets == std::vector{b, a} ? -1.0
                                                              : 0.0;
          });
  return maximise_first(std::move(rows), std::move(limits));
}

}  // namespace loom::search
