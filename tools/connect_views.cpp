#include "tools/connect_views.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>

#include "base/format.hpp"
#include "tools/words.hpp"
#include "topo/bandwidth.hpp"

namespace loom::tools {
namespace {

using namespace connect;

constexpr Family kFamilies[] = {Family::kRing, Family::kTree, Family::kNvls, Family::kCollnetChain,
                                Family::kCollnetDirect};
constexpr int kShownOrder = 32;
constexpr std::size_t kShownKinds = 20;

std::string peer(int rank) {
  if (rank == connect::kNobody) return "-";
  if (rank == connect::kNetwork) return "the network";
  return loom::format("{}", rank);
}

std::string port_text(int port) {
  return port == kNoPort ? "" : loom::format(" (port {})", port);
}

std::string tree_text(const TreeLinks& links) {
  if (links.child_count == 0) return loom::format("parent {}, leaf", peer(links.parent));
  return loom::format(
      "parent {}, children {}", peer(links.parent),
      loom::join(std::span(links.children).first(static_cast<std::size_t>(links.child_count)), " "));
}

std::string order_text(const Job& job, int channel, const Ring& ring) {
  std::string text;
  const int shown = std::min(ring.size, kShownOrder);
  for (int i = 0; i < shown; ++i)
    text += loom::format("{}{}", i == 0 ? "" : " ", rank_at(job, channel, (ring.position + i) % ring.size));
  return ring.size > shown ? text + " ..." : text;
}

nlohmann::json to_json(const TreeLinks& links) {
  nlohmann::json tree = {
      {"children", std::vector(links.children.begin(), links.children.begin() + links.child_count)}};
  tree["parent"] = links.parent == connect::kNobody ? nlohmann::json() : nlohmann::json(links.parent);
  return tree;
}

nlohmann::json optional_port(int port) {
  return port == kNoPort ? nlohmann::json() : nlohmann::json(port);
}
nlohmann::json optional_rank(int rank) {
  return rank < 0 ? nlohmann::json() : nlohmann::json(rank);
}
/// What of all this the plugin does.
std::string offline_text(const OfflineJob& offline) {
  if (!offline.has_gpu_channels())
    return "offline: not run by the plugin. Its kernels run rings and trees between GPUs by the rules of "
           "loom (see --model loom); buffers of the host go by the first ring of each host\n";
  const GpuChannelRequest usual;
  if (offline.is_offline)
    return loom::format(
        "offline: not run by the plugin, which asks for at most {} channels of up to {:g} GB/s, by the "
        "rules of loom\n",
        usual.max_channels, usual.most_gbps);
  return loom::format("run by the plugin's kernels: {}; offline: multicast{}\n", offline.gpu_summary(),
                      offline.job.nodes() > 1 ? "" : ", and what goes through ports");
}

const AllGatherGbps* all_gather_of(const OfflineJob& offline) {
  const GpuChannels* const channels = offline.on_gpus ? offline.on_gpus->channels() : nullptr;
  return channels != nullptr && channels->all_gather.rings > 0 ? &channels->all_gather : nullptr;
}

}  // namespace

std::vector<int> nodes_of_kinds(const Job& job) {
  std::vector<int> count(job.kinds().size());
  for (int node = 0; node < job.nodes(); ++node) ++count[static_cast<std::size_t>(job.kind_of(node))];
  return count;
}

std::string job_text(const OfflineJob& offline) {
  const Job& job = offline.job;
  const std::vector<int> count = nodes_of_kinds(job);
  std::string text = loom::format("{} on {}\n", counted(job.ranks(), "rank"), counted(job.nodes(), "node"));
  bool ports = false;
  for (std::size_t kind = 0; kind < count.size(); ++kind) {
    const NodeSummary& summary = job.kinds()[kind];
    ports = ports || !summary.port_gbps.empty();
    if (kind >= kShownKinds) continue;
    text += loom::format("  {} x {} ({})\n", count[kind], offline.kind_names[kind],
                         counted(summary.ranks, "rank"));
    if (summary.port_gbps.empty() && job.nodes() > 1)
      text += loom::format("    has no network port: one of {:g} GB/s is assumed\n",
                           topo::net_gbps(topo::kUnknownNetMbps));
  }
  for (const Family family : kFamilies) {
    const Agreed& agreed = job.agreed(family);
    if (agreed.channels == 0) {
      text += loom::format("{}: not on every node\n", name_of(family));
      continue;
    }
    text += loom::format("{}: {}, {:.5g} GB/s; {}", name_of(family),
                         counted(agreed.channels, has_heads(family) ? "head" : "channel"),
                         agreed.total_gbps(), topo::name_of(agreed.type_intra));
    if (job.nodes() > 1 && ports)
      text += loom::format(", ports {}, cross-NIC {}", topo::name_of(agreed.type_inter), agreed.cross_nic);
    text += offline.is_run(family) ? "\n" : "; offline\n";
  }
  text += offline_text(offline);
  const ExchangeSize& size = offline.exchange;
  text += loom::format(
      "exchanged: {} bytes of words, {} of summaries ({} the largest), {:.1f} for each rank; set-up of one "
      "rank {:.3f} ms\n",
      size.word_bytes, size.slice_bytes, size.summary_bytes,
      static_cast<double>(size.word_bytes + size.slice_bytes) / job.ranks(), size.setup_ms);
  return text;
}

std::string forest_text(const OfflineJob& offline, const search::Forest& forest) {
  std::string text =
      loom::format("forest: all-gathers {:.5g} of at most {:.5g} GB/s", forest.gbps, forest.at_most());
  if (const AllGatherGbps* const by = all_gather_of(offline)) {
    using Best = std::pair<double, std::string_view>;
    const auto [gbps, name] =
        std::max({Best(by->rings, "rings"), Best(by->grids, "grids"), Best(by->trees, "trees")});
    text += loom::format("; {} reach {:.3g} % of that", name, 100 * gbps / forest.at_most());
  }
  return text + "\n";
}

std::string view_text(const Job& job, const View& view) {
  const int node = job.placement().node_of(view.rank);
  std::string text =
      loom::format("rank {} (node {}, local {})\n", view.rank, node, job.placement().local_of(view.rank));
  for (std::size_t c = 0; c < view.rings.size(); ++c) {
    const Ring& ring = view.rings[c];
    text += loom::format("  ring {}: {}{} -> {} -> {}{}, at {} of {}: {}\n", c, ring.previous,
                         port_text(ring.port_in), view.rank, ring.next, port_text(ring.port_out),
                         ring.position, ring.size, order_text(job, static_cast<int>(c), ring));
  }
  for (std::size_t c = 0; c < view.trees.size(); ++c)
    text += loom::format("  tree {}: {} | {}{}\n", c, tree_text(view.trees[c].trees[0]),
                         tree_text(view.trees[c].trees[1]), port_text(view.trees[c].port));
  if (!view.nvls.heads.empty()) {
    text += loom::format("  nvls: heads {}", loom::join(view.nvls.heads, " "));
    if (view.nvls.mine != connect::kNobody && job.nodes() > 1)
      text += loom::format("; head {}: {} | {}", view.nvls.mine, tree_text(view.nvls.trees[0]),
                           tree_text(view.nvls.trees[1]));
    text += "\n";
  }
  for (std::size_t c = 0; c < view.collnet_chains.size(); ++c)
    text += loom::format("  collnet-chain {}: up {}, down {}\n", c, peer(view.collnet_chains[c].up),
                         peer(view.collnet_chains[c].down));
  if (!view.collnet_direct.heads.empty())
    text += loom::format("  collnet-direct: up {}, down {}\n", loom::join(view.collnet_direct.up, " "),
                         loom::join(view.collnet_direct.down, " "));
  return text;
}

std::string prediction_head() {
  return loom::format("{:>12} {:>8} {:>9} {:>14} {:>9} {:>9}  {}\n", "bytes", "by", "protocol", "us", "GB/s",
                      "bus GB/s", "busiest link");
}

std::string prediction_text(double bytes, const Prediction& prediction) {
  return loom::format("{:>12.0f} {:>8} {:>9} {:>14.2f} {:>9.3f} {:>9.3f}  {}\n", bytes, prediction.algorithm,
                      prediction.protocol, prediction.us, prediction.algorithm_gbps, prediction.bus_gbps,
                      prediction.bottleneck.empty() ? "-" : prediction.bottleneck);
}

nlohmann::json to_json(const Prediction& prediction) {
  return {{"algorithm", prediction.algorithm},
          {"protocol", prediction.protocol},
          {"us", prediction.us},
          {"transfer_us", prediction.transfer_us},
          {"bottleneck", prediction.bottleneck},
          {"algorithm_gbps", prediction.algorithm_gbps},
          {"bus_gbps", prediction.bus_gbps}};
}

nlohmann::json to_json(const AllGatherGbps& all_gather) {
  nlohmann::json by = {{"rings", all_gather.rings}};
  if (all_gather.grids > 0) by["grids"] = all_gather.grids;
  if (all_gather.trees > 0) by["trees"] = all_gather.trees;
  return by;
}

nlohmann::json to_json(const OfflineJob& offline) {
  const Job& job = offline.job;
  const std::vector<int> count = nodes_of_kinds(job);
  nlohmann::json kinds = nlohmann::json::array(), agreed = nlohmann::json::object();
  for (std::size_t kind = 0; kind < count.size(); ++kind)
    kinds.push_back({{"name", offline.kind_names[kind]},
                     {"nodes", count[kind]},
                     {"ranks", job.kinds()[kind].ranks},
                     {"ports", job.kinds()[kind].port_gbps.size()}});
  for (const Family family : kFamilies) {
    const Agreed& mine = job.agreed(family);
    agreed[std::string(name_of(family))] = {{"channels", mine.channels},
                                            {"total_bandwidth_gbps", mine.total_gbps()},
                                            {"intra_gbps", mine.intra_gbps},
                                            {"inter_gbps", mine.inter_gbps},
                                            {"type_intra", topo::name_of(mine.type_intra)},
                                            {"type_inter", topo::name_of(mine.type_inter)},
                                            {"cross_nic", mine.cross_nic},
                                            {"offline", !offline.is_run(family)}};
  }
  nlohmann::json all = {{"notes", offline.notes},
                        {"ranks", job.ranks()},
                        {"nodes", job.nodes()},
                        {"kinds", std::move(kinds)},
                        {"agreed", std::move(agreed)},
                        {"word_bytes", offline.exchange.word_bytes},
                        {"summary_bytes", offline.exchange.slice_bytes},
                        {"setup_ms", offline.exchange.setup_ms}};
  if (const AllGatherGbps* const by = all_gather_of(offline)) all["all_gather_gbps"] = to_json(*by);
  return all;
}

nlohmann::json to_json(const Job& job, const View& view, bool with_orders) {
  nlohmann::json rings = nlohmann::json::array(), trees = nlohmann::json::array(),
                 chains = nlohmann::json::array();
  nlohmann::json nvls, direct;  // null where the job has none
  for (std::size_t c = 0; c < view.rings.size(); ++c) {
    const Ring& ring = view.rings[c];
    rings.push_back({{"previous", ring.previous},
                     {"next", ring.next},
                     {"position", ring.position},
                     {"port_in", optional_port(ring.port_in)},
                     {"port_out", optional_port(ring.port_out)}});
    if (with_orders) rings.back()["order"] = ring_order(job, static_cast<int>(c), view.rank);
  }
  for (const DoubleTree& both : view.trees)
    trees.push_back(
        {{"trees", {to_json(both.trees[0]), to_json(both.trees[1])}}, {"port", optional_port(both.port)}});
  for (const CollnetChain& chain : view.collnet_chains)
    chains.push_back({{"up", optional_rank(chain.up)}, {"down", optional_rank(chain.down)}});
  if (!view.nvls.heads.empty()) {
    nvls = {{"heads", view.nvls.heads}, {"mine", optional_rank(view.nvls.mine)}, {"trees", nullptr}};
    if (view.nvls.mine != connect::kNobody)
      nvls["trees"] = {to_json(view.nvls.trees[0]), to_json(view.nvls.trees[1])};
  }
  if (!view.collnet_direct.heads.empty())
    direct = {{"heads", view.collnet_direct.heads},
              {"mine", optional_rank(view.collnet_direct.mine)},
              {"up", view.collnet_direct.up},
              {"down", view.collnet_direct.down}};
  return {{"rank", view.rank},
          {"node", job.placement().node_of(view.rank)},
          {"rings", std::move(rings)},
          {"trees", std::move(trees)},
          {"nvls", std::move(nvls)},
          {"collnet_chains", std::move(chains)},
          {"collnet_direct", std::move(direct)}};
}

}  // namespace loom::tools
