#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "search/columns.hpp"
#include "search/graph_dialect.hpp"
#include "search/graph_xml.hpp"
#include "search/packed.hpp"
#include "topo/xml.hpp"

namespace loom::search {
namespace {

template <class Value>
void set(pugi::xml_node element, const char* name, const Value& value) {
  element.append_attribute(name).set_value(fmt::format("{}", value).c_str());
}
void set_device(pugi::xml_node element, const topo::Node& node, int device) {
  set(element, "dev", fmt::format("0x{:x}", device_number(node.host, device)));
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

bool is_half(const Channel& a, const Channel& b) {
  return a.ranks == b.ranks && a.nets == b.nets && a.inter_gbps == b.inter_gbps;
}

/// Where rings cross NICs, NCCL swaps channels 2k and 2k + 1 on every other node, partners or not. A channel
/// without a partner is written as two halves, which swapped are the same.
std::vector<Channel> channels_to_write(const ChannelPlan& plan) {
  if (plan.pattern != Pattern::kRing || !plan.network || plan.limits.cross_nic != 2) return plan.channels;
  std::vector<Channel> channels;
  for (std::size_t i = 0; i < plan.channels.size(); ++i) {
    const Channel& channel = plan.channels[i];
    const Channel* const next = i + 1 < plan.channels.size() ? &plan.channels[i + 1] : nullptr;
    const bool has_partner = next != nullptr && (is_partner(channel, *next) || is_half(channel, *next));
    channels.push_back(channel);
    if (has_partner) {
      channels.push_back(plan.channels[++i]);
      continue;
    }
    channels.back().intra_gbps /= 2;
    channels.back().inter_gbps /= 2;
    channels.push_back(channels.back());
  }
  if (channels.size() > kMostGraphChannels)
    throw Error(
        ErrorCode::kBadInput,
        fmt::format("A graph file has {} channels at most. These {} rings would be {} there: one without "
                    "a partner that swaps its ports becomes two halves.",
                    kMostGraphChannels, plan.channels.size(), channels.size()));
  return channels;
}

bool is_written(const NodePlans& node) {
  return !node.parts.empty() &&
         std::none_of(node.parts.begin(), node.parts.end(),
                      [](const ChannelPlan& plan) { return plan.channels.empty() || plan.in_order; });
}

void write_plan(pugi::xml_node root, const PathTables& tables, const NodePlans& node, std::size_t number) {
  const ChannelPlan& plan = node.parts[number];
  const PartOfMachine& part = part_of(tables, node, number);
  const topo::System& system = part.system;
  double latency = 0;
  const std::vector<Channel> channels = channels_to_write(plan);
  for (const Channel& channel : channels)
    for (const topo::NodeId net : channel.nets)
      latency = std::max(latency, system.node(net).net().latency_us);
  const double intra = common_speed(channels, &Channel::intra_gbps);
  const double inter = common_speed(channels, &Channel::inter_gbps);
  pugi::xml_node graph = root.append_child("graph");
  set(graph, "id", id_of(node));
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
  pugi::xml_document document;
  pugi::xml_node root = document.append_child("graphs");
  set(root, "version", kGraphVersion);
  for (auto node = plans.begin(); node != plans.end(); ++node) {
    const auto repeats = [&](const NodePlans& other) { return is_same_graph(other, *node); };
    if (!is_written(*node) || std::any_of(plans.begin(), node, repeats)) continue;
    for (std::size_t i = 0; i < node->parts.size(); ++i) write_plan(root, tables, *node, i);
  }
  if (root.first_child().empty()) throw Error(ErrorCode::kBadInput, "There are no channels to write.");
  return topo::to_text(document);
}

}  // namespace loom::search
