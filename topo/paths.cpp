// paths.cpp -- what the links allow: the search outwards from each base. What is permitted is in
// path_rules.cpp.
#include "topo/paths.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/format.hpp"
#include "topo/bandwidth.hpp"

namespace loom::topo {
namespace {

constexpr std::size_t kMostPairs = 10'000'000;
/// Of GPUs with ports: 576 of each need 400 million, a second or two.
constexpr std::size_t kMostComparisons = 1'000'000'000;
/// How often a node's path may improve on average before the search gives up. Real machines need about one.
constexpr std::size_t kMostImprovements = 64;

PathType level_of(const System& system, const Link& link) {
  const NodeKind from = system.node(link.from).kind(), to = system.node(link.to).kind();
  const bool both_switches = from == NodeKind::kPciSwitch && to == NodeKind::kPciSwitch;
  switch (link.type) {
    case LinkType::kLoc:
      return both_switches ? PathType::kPxb : PathType::kLoc;
    case LinkType::kNet:
      return PathType::kLoc;
    case LinkType::kNvl:
      return PathType::kNvl;
    case LinkType::kC2c:
      return PathType::kC2c;
    case LinkType::kSys:
      return PathType::kSys;
    case LinkType::kPci:
      break;
  }
  if (both_switches) return PathType::kPxb;
  return from == NodeKind::kCpu || to == NodeKind::kCpu ? PathType::kPhb : PathType::kPix;
}

template <class A, class B>
bool is_better(const A& a, const B& b) {
  if (a.type != b.type) return a.type < b.type;
  if (a.gbps != b.gbps) return a.gbps > b.gbps;
  return a.hops < b.hops;
}

}  // namespace

std::string_view name_of(PathType type) {
  constexpr std::array<std::string_view, 12> kNames = {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB",
                                                       "P2C", "PXN", "PHB", "SYS", "NET", "DIS"};
  return kNames[static_cast<std::size_t>(type)];
}

Paths::Paths(const System& system, const PathRules& rules) : system_(&system), rules_(rules) {
  const auto size = static_cast<std::size_t>(system.size());
  std::vector<NodeId> bases;
  for (const NodeKind kind : {NodeKind::kCpu, NodeKind::kGpu, NodeKind::kNet, NodeKind::kNvSwitch})
    bases.insert(bases.end(), system.of_kind(kind).begin(), system.of_kind(kind).end());
  if (size * bases.size() > kMostPairs)
    throw Error(ErrorCode::kBadInput,
                loom::format("This System has {} nodes, {} of them GPUs, CPUs, ports or NVSwitches: too "
                             "many for a table of paths (limit: {} pairs).",
                             size, bases.size(), kMostPairs));
  // Which GPU serves a port depends on what other GPUs and ports are near each.
  const std::size_t gpus = system.gpus().size(), ports = system.of_kind(NodeKind::kNet).size();
  if (gpus * ports * (gpus + ports) > kMostComparisons)
    throw Error(ErrorCode::kBadInput,
                loom::format("This System has {} GPUs and {} ports: too many to match with each other.", gpus,
                             ports));
  row_index_.assign(size, -1);
  rows_.reserve(bases.size());
  for (const NodeId base : bases) {
    row_index_[static_cast<std::size_t>(base)] = static_cast<std::int32_t>(rows_.size());
    rows_.push_back(paths_to(base));
  }
  local_cpus_.assign(size, kNoNode);
  for (const NodeId gpu : system.of_kind(NodeKind::kGpu)) {
    NodeId best = kNoNode;
    for (const NodeId cpu : nearest(gpu, NodeKind::kCpu))
      if (best == kNoNode || physical(gpu, cpu).hops < physical(gpu, best).hops) best = cpu;
    local_cpus_[static_cast<std::size_t>(gpu)] = best;
  }
  p2p_limit_ = p2p_limit();
  apply_p2p_rules();
  avoid_slow_pairs();
  apply_c2c_rules();
  apply_network_rules();
}

/// The GPU whose links a GPU node uses: itself, or the one that it shares.
NodeId Paths::owner(NodeId gpu) const {
  const NodeId parent = system_->node(gpu).parent;
  return parent != kNoNode && system_->node(parent).kind() == NodeKind::kGpu ? parent : gpu;
}

/// Outwards from the base, frontier by frontier; a node whose path improves is visited again. Of equal paths
/// the first one found stays, so that the order of links decides.
Paths::Row Paths::paths_to(NodeId base) const {
  const System& system = *system_;
  Row row;
  row.entries.resize(static_cast<std::size_t>(system.size()));
  const auto entry = [&](NodeId id) -> Entry& { return row.entries[static_cast<std::size_t>(id)]; };
  entry(base) = {kLocalGbps, -1, 0, PathType::kLoc, false};
  const bool base_is_gpu = system.node(base).kind() == NodeKind::kGpu;
  const NodeId base_owner = base_is_gpu ? owner(base) : base;
  // One GPU in between, not more; a rank that shares a GPU is one hop farther out.
  const int relay_hops = base_owner == base ? 1 : 2;

  const auto may_pass = [&](NodeId id, const Link& link) {
    if (system.node(id).kind() != NodeKind::kGpu || id == base || id == base_owner) return true;
    if (system.node(link.to).kind() != NodeKind::kGpu) return false;
    if (link.type == LinkType::kLoc) return system.node(link.to).parent == id;
    return link.type == LinkType::kNvl && rules_.nvb && entry(id).hops <= relay_hops;
  };

  std::vector<NodeId> frontier = {base}, next;
  std::vector<bool> is_next(row.entries.size());
  while (!frontier.empty()) {
    next.clear();
    for (const NodeId id : frontier) {
      for (const Link& link : system.links_of(id)) {
        if (link.reverse == kNoLink || !may_pass(id, link)) continue;
        const Entry& here = entry(id);
        // NCCL reads the bandwidth of the wrong direction; they differ only where a file gives them
        // differently.
        const float gbps = system.model() == Model::kNccl ? link.gbps : system.link(link.reverse).gbps;
        Entry found{std::min(here.gbps, gbps), -1, static_cast<std::uint16_t>(here.hops + 1),
                    std::max(here.type, level_of(system, link)), false};
        if (link.type == LinkType::kNvl && system.node(id).kind() == NodeKind::kGpu && id != base &&
            here.type == PathType::kNvl && here.hops == relay_hops)
          found.type = PathType::kNvb;
        Entry& there = entry(link.to);
        if (!is_better(found, there)) continue;
        if (row.labels.size() > kMostImprovements * row.entries.size())
          throw Error(
              ErrorCode::kBadInput,
              loom::format("Paths to {} do not settle; this System is no machine.", label(system, base)));
        found.label = static_cast<std::int32_t>(row.labels.size());
        row.labels.push_back({link.reverse, here.label});
        there = found;
        if (is_next[static_cast<std::size_t>(link.to)]) continue;
        is_next[static_cast<std::size_t>(link.to)] = true;
        next.push_back(link.to);
      }
    }
    for (const NodeId id : next) is_next[static_cast<std::size_t>(id)] = false;
    frontier.swap(next);
  }
  row.labels.shrink_to_fit();
  return row;
}

const Paths::Row* Paths::row_of(NodeId base) const {
  const std::int32_t index = row_index_[static_cast<std::size_t>(base)];
  return index < 0 ? nullptr : &rows_[static_cast<std::size_t>(index)];
}

Path Paths::physical(NodeId from, NodeId to) const {
  const auto path_in = [&](const Row& row) {
    const Entry& entry = row.entries[static_cast<std::size_t>(from)];
    return Path{entry.type, entry.gbps, entry.hops};
  };
  const Row* row = row_of(to);
  return row != nullptr ? path_in(*row)
                        : path_in(paths_to(to));  // to a switch or a NIC: seldom asked, not kept
}

const Paths::Detour* Paths::detour(NodeId from, NodeId to) const {
  const Row* row = row_of(to);
  const auto at = static_cast<std::size_t>(from);
  return row == nullptr || !row->entries[at].detour ? nullptr : &row->detours[at];
}

Path Paths::between(NodeId from, NodeId to) const {
  const Detour* other = detour(from, to);
  return other == nullptr ? physical(from, to) : Path{other->type, other->gbps, other->hops};
}

std::vector<LinkId> Paths::route(NodeId from, NodeId to) const {
  std::vector<LinkId> links;
  links.reserve(16);  // most are shorter
  append_route(from, to, links);
  return links;
}

void Paths::append_route(NodeId from, NodeId to, std::vector<LinkId>& links) const {
  const Detour* other = detour(from, to);
  const NodeId relay = other == nullptr ? kNoNode : other->relay;
  if (relay != kNoNode) append_physical_route(from, relay, links);
  append_physical_route(relay != kNoNode ? relay : from, to, links);
}

void Paths::append_physical_route(NodeId from, NodeId to, std::vector<LinkId>& route) const {
  const Row* kept = row_of(to);
  const Row made = kept != nullptr ? Row{} : paths_to(to);
  const Row& row = kept != nullptr ? *kept : made;
  for (std::int32_t label = row.entries[static_cast<std::size_t>(from)].label; label >= 0;) {
    const Label& step = row.labels[static_cast<std::size_t>(label)];
    route.push_back(step.via);
    label = step.rest;
  }
}

std::vector<NodeId> Paths::nearest(NodeId from, NodeKind kind) const {
  std::vector<NodeId> best;
  Path best_path;
  for (const NodeId to : kind == NodeKind::kGpu ? system_->gpus() : system_->of_kind(kind)) {
    const Path path = between(from, to);
    if (path.type == PathType::kDis) continue;
    const bool better =
        path.gbps > best_path.gbps || (path.gbps == best_path.gbps && path.type < best_path.type);
    if (better) best.clear(), best_path = path;
    if (path.gbps == best_path.gbps && path.type == best_path.type) best.push_back(to);
  }
  return best;
}

}  // namespace loom::topo
