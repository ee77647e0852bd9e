
#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "search/columns.hpp"
#include "search/graph_dialect.hpp"
#include "search/graph_xml.hpp"
#include "search/packed.hpp"
#include "topo/xml.hpp"

namespace loom::search {
namespace {

template <class Value>
void set(pugi::xml_node element, const char* name, const Value& value) {
  element.append_attribute(name).set_value(loom::format("{}", value).c_str());
}
void set_device(pugi::xml_node element, const topo::Node& node, int device) {
  set(element, "dev", loom::format("0x{:x}", device_number(node.host, device)));
}

/// How many ports before `port` have its number.
int copy_of(const topo::System& system, topo::NodeId port) {
  const topo::Node& node = system.node(port);
  int copy = 0;
  for (const topo::NodeId other : system.of_kind(topo::NodeKind::kNet)) {
    if (other == port) break;
    const topo::Node& same = system.node(other);
    copy += same.net().is_net && same.host == node.host && same.net().device == node.net().device ? 1 : 0;
  }
  return copy;
}

/// What all have; where they differ, the mean.
double common_speed(const std::vector<Channel>& channels, double Channel::*speed) {
  double sum = 0;
  for (const Channel& channel : channels) sum += channel.*speed;
  const bool equal = std::all_of(channels.begin(), channels.end(), [&](const Channel& channel) {
    return channel.*speed == channels[0].*speed;
  });
  return equal ? channels[0].*speed : sum / static_cast<double>(channels.size());
}

void write_channel(pugi::xml_node graph, const topo::System& system, const Channel& channel, double intra,
                   double inter) {
  pugi::xml_node out = graph.append_child("channel");
  if (channel.intra_gbps != intra || channel.inter_gbps != inter) {
    set(out, "speedintra", channel.intra_gbps);
    set(out, "speedinter", channel.inter_gbps);
  }
  const auto write_net = [&](topo::NodeId id) {
    pugi::xml_node net = out.append_child("net");
    set_device(net, system.node(id), system.node(id).net().device);
    if (const int copy = copy_of(system, id); copy > 0) set(net, "copy", copy);
  };
  if (!channel.nets.empty()) write_net(channel.nets[0]);
  for (const int rank : channel.ranks) {
    const topo::Node& node = system.node(system.gpu_of_rank(rank));
    pugi::xml_node gpu = out.append_child("gpu");
    set_device(gpu, node, node.gpu().device);
    set(gpu, "rank", rank);
  }
  if (!channel.nets.empty()) write_net(channel.nets[1]);
}

const GraphKind& kind_of(Pattern pattern) {
  return *std::find_if(kGraphKinds.begin(), kGraphKinds.end(),
                       [&](const GraphKind& entry) { return entry.pattern == pattern; });
}

/// Parts of a node have one id, that of parts with several GPUs: alone, a GPU has a chain for most patterns.
int id_of(const NodePlans& node) {
  std::size_t most = 0;
  for (std::size_t i = 0; i < node.parts.size(); ++i)
    if (node.ranks[i].size() > node.ranks[most].size()) most = i;
  return kind_of(node.parts[most].pattern).id;
}

/// NCCL reads speeds as floats. More digits than those have would only tell equal channels apart.
double rounded(double gbps) {
  const std::string text = loom::format("{:.7g}", gbps);
  double value = gbps;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

bool is_half(const Channel& a, const Channel& b) {
  return a.ranks == b.ranks && a.nets == b.nets && a.inter_gbps == b.inter_gbps;
}

std::vector<Channel> halves_of(Channel channel) {
  channel.intra_gbps /= 2;
  channel.inter_gbps /= 2;
  return {channel, channel};
}

/// A channel without a partner is two halves, which swapped are the same.
std::vector<Channel> in_pairs(const std::vector<Channel>& channels) {
  std::vector<Channel> pairs;
  for (std::size_t i = 0; i < channels.size(); ++i) {
    const Channel* const next = i + 1 < channels.size() ? &channels[i + 1] : nullptr;
    const bool has_partner =
        next != nullptr && (is_partner(channels[i], *next) || is_half(channels[i], *next));
    const std::vector<Channel> pair =
        has_partner ? std::vector{channels[i++], *next} : halves_of(channels[i]);
    pairs.insert(pairs.end(), pair.begin(), pair.end());
  }
  if (pairs.size() > kMostGraphChannels)
    throw Error(
        ErrorCode::kBadInput,
        loom::format("A graph file has {} channels at most. These {} rings would be {} there: one without "
                     "a partner that swaps its ports becomes two halves.",
                     kMostGraphChannels, channels.size(), pairs.size()));
  return pairs;
}

/// As many as `count`: the fastest are cut into equal parts. `size` neighbours stay together.
std::vector<Channel> cut_into(const std::vector<Channel>& channels, std::size_t count, std::size_t size) {
  std::vector<int> copies(channels.size() / size, 1);
  const auto gbps_of = [&](std::size_t group) { return channels[group * size].inter_gbps / copies[group]; };
  for (std::size_t have = channels.size(); have + size <= count; have += size) {
    std::size_t fastest = 0;
    for (std::size_t group = 1; group < copies.size(); ++group)
      if (gbps_of(group) > gbps_of(fastest)) fastest = group;
    ++copies[fastest];
  }
  std::vector<Channel> parts;
  for (std::size_t group = 0; group < copies.size(); ++group)
    for (int copy = 0; copy < copies[group]; ++copy)
      for (std::size_t i = group * size; i < (group + 1) * size; ++i) {
        parts.push_back(channels[i]);
        parts.back().intra_gbps /= copies[group];
        parts.back().inter_gbps /= copies[group];
      }
  return parts;
}

/// One graph of a file.
struct Written {
  const NodePlans* node;
  std::size_t part;
  std::vector<Channel> channels;
  const ChannelPlan& plan() const { return node->parts[part]; }
  bool is_ring() const { return plan().pattern == Pattern::kRing; }
};

/// Where rings cross NICs, NCCL swaps channels 2k and 2k + 1 on every other node, partners or not, if it has
/// an even number of channels. It has as many as rings and trees (the graphs 0 and 1) both have.
void fit_swapping(std::vector<Written>& graphs) {
  const auto crosses = [](const Written& graph) {
    return graph.is_ring() && graph.plan().network && graph.plan().limits.cross_nic == 2;
  };
  if (std::none_of(graphs.begin(), graphs.end(), crosses)) return;
  std::size_t most = 0;
  const auto counts = [](const Written& graph) { return id_of(*graph.node) <= 1; };
  for (Written& graph : graphs) {
    if (graph.is_ring()) graph.channels = in_pairs(graph.channels);
    if (counts(graph)) most = std::max(most, graph.channels.size());
  }
  const std::size_t even = (most + 1) / 2 * 2;
  for (Written& graph : graphs)
    if (counts(graph)) graph.channels = cut_into(graph.channels, even, graph.is_ring() ? 2 : 1);
}

bool is_written(const NodePlans& node) {
  return !node.parts.empty() &&
         std::none_of(node.parts.begin(), node.parts.end(),
                      [](const ChannelPlan& plan) { return plan.channels.empty() || plan.in_order; });
}

void write_graph(pugi::xml_node root, const PathTables& tables, Written& written) {
  const ChannelPlan& plan = written.plan();
  const PartOfMachine& part = part_of(tables, *written.node, written.part);
  const topo::System& system = part.system;
  double latency = 0;
  std::vector<Channel>& channels = written.channels;
  for (Channel& channel : channels) {
    channel.intra_gbps = rounded(channel.intra_gbps);
    channel.inter_gbps = rounded(channel.inter_gbps);
    for (const topo::NodeId net : channel.nets)
      latency = std::max(latency, system.node(net).net().latency_us);
  }
  const double intra = rounded(common_speed(channels, &Channel::intra_gbps));
  const double inter = rounded(common_speed(channels, &Channel::inter_gbps));
  pugi::xml_node graph = root.append_child("graph");
  set(graph, "id", id_of(*written.node));
  set(graph, "pattern", kind_of(plan.pattern).number);
  set(graph, "crossnic", plan.limits.cross_nic);
  set(graph, "nchannels", channels.size());
  set(graph, "speedintra", intra);
  set(graph, "speedinter", inter);
  set(graph, "latencyinter", latency);
  set(graph, "typeintra", topo::name_of(plan.type_intra));
  set(graph, "typeinter", topo::name_of(plan.type_inter));
  set(graph, "samechannels", plan.same_channels ? 1 : 0);
  if (has_heads(plan.pattern) && &part != tables.whole()) set(graph, "gpus", part.ranks.size());
  for (const Channel& channel : channels) write_channel(graph, system, channel, intra, inter);
}

}  // namespace

bool is_same_graph(const NodePlans& a, const NodePlans& b) {
  return a.ranks == b.ranks &&
         std::equal(a.parts.begin(), a.parts.end(), b.parts.begin(),
                    [](const auto& x, const auto& y) { return x.pattern == y.pattern; });
}

const PartOfMachine& part_of(const PathTables& tables, const NodePlans& plans, std::size_t part) {
  const PartOfMachine* whole = tables.whole();
  if (whole != nullptr && plans.ranks[part] == whole->ranks) return *whole;
  // A file lists parts in any order, and need not list all.
  const auto found = std::find_if(tables.parts().begin(), tables.parts().end(),
                                  [&](const auto& other) { return other->ranks == plans.ranks[part]; });
  if (found == tables.parts().end())
    throw Error(ErrorCode::kBadInput, "These ranks are neither the whole machine nor one of its parts.");
  return **found;
}

std::string to_graph_xml(const PathTables& tables, std::span<const NodePlans> plans) {
  std::vector<Written> graphs;
  for (auto node = plans.begin(); node != plans.end(); ++node) {
    const auto repeats = [&](const NodePlans& other) { return is_same_graph(other, *node); };
    if (!is_written(*node) || std::any_of(plans.begin(), node, repeats)) continue;
    for (std::size_t i = 0; i < node->parts.size(); ++i)
      graphs.push_back({&*node, i, node->parts[i].channels});
  }
  if (graphs.empty()) throw Error(ErrorCode::kBadInput, "There are no channels to write.");
  fit_swapping(graphs);
  pugi::xml_document document;
  pugi::xml_node root = document.append_child("graphs");
  set(root, "version", kGraphVersion);
  for (Written& graph : graphs) write_graph(root, tables, graph);
  return topo::to_text(document);
}

}  // namespace loom::search
