
#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "base/format.hpp"
#include "search/beside_nccl.hpp"
#include "search/bounds.hpp"
#include "search/columns.hpp"
#include "search/graph_dialect.hpp"
#include "search/graph_xml.hpp"
#include "search/validate.hpp"
#include "topo/xml.hpp"

namespace loom::search {
namespace {

constexpr double kMostGbps = 1e6;
constexpr int kMostRank = 1 << 24;
constexpr std::uint64_t kDeviceMask = (std::uint64_t{1} << kHostShift) - 1;

bool is(pugi::xml_node element, const char* tag) {
  return std::string_view(element.name()) == tag;
}

class GraphReader {
 public:
  GraphReader(std::string text, const std::string& name, const PathTables& tables, int nodes)
      : xml_(std::move(text), name), tables_(tables), nodes_(nodes) {}

  std::vector<NodePlans> read() {
    const pugi::xml_node root = xml_.root();
    if (!is(root, "graphs")) xml_.fail(root, "the outermost element of a graph file is <graphs>.");
    if (const auto version = xml_.integer(root, "version", 0, 1000); version != kGraphVersion)
      xml_.fail(root, loom::format("version {} is not known, only version {}.", version, kGraphVersion));
    for (const pugi::xml_node graph : elements_of(root)) {
      if (!is(graph, "graph")) xml_.fail(graph, "<graphs> has <graph> alone.");
      add(read_graph(graph), graph);
    }
    if (elements_of(root).empty()) xml_.fail(root, "it has no <graph>: no ring, no tree.");
    if (found_.empty()) xml_.fail(root, "none of its graphs has channels.");
    for (const Found& node : found_)
      refuse_if(node.element, "it and the other parts do not fit this machine at the same time.",
                overloads(tables_, node.plans));
    return without_repeats();
  }

 private:
  struct Graph {
    int id = 0;
    ChannelPlan plan;
    const PartOfMachine* part = nullptr;
  };
  struct Found {
    int id;
    pugi::xml_node element;  // of the first part
    NodePlans plans;
  };

  static std::vector<pugi::xml_node> elements_of(pugi::xml_node parent) {
    std::vector<pugi::xml_node> elements;
    for (const pugi::xml_node child : parent.children())
      if (child.type() == pugi::node_element) elements.push_back(child);
    return elements;
  }

  static constexpr const char* kTwice = "there is a graph of this pattern for these GPUs already.";

  /// Further parts of a node have the id of the one before, and other GPUs. A GPU alone has the same chain
  /// for several patterns.
  void add(Graph graph, pugi::xml_node element) {
    if (graph.plan.channels.empty()) return;
    const std::vector<int>& ranks = graph.part->ranks;
    for (const Found& node : found_)
      for (std::size_t i = 0; i < node.plans.parts.size() && ranks.size() > 1; ++i)
        if (node.plans.parts[i].pattern == graph.plan.pattern && node.plans.ranks[i] == ranks)
          xml_.fail(element, kTwice);
    const auto has_other_gpus = [&](const NodePlans& node) {
      return std::none_of(node.ranks.begin(), node.ranks.end(), [&](const std::vector<int>& others) {
        return std::find_first_of(others.begin(), others.end(), ranks.begin(), ranks.end()) != others.end();
      });
    };
    const bool joins = !found_.empty() && graph.id == found_.back().id && has_other_gpus(found_.back().plans);
    if (!joins) found_.push_back({graph.id, element, {}});
    NodePlans& node = found_.back().plans;
    const double total = graph.plan.total_gbps, alone = by_one_channel_a_head(graph.plan);
    const bool is_first = node.parts.empty();
    node.total_gbps = is_first ? total : std::min(node.total_gbps, total);
    node.alone_gbps = is_first ? alone : std::min(node.alone_gbps, alone);
    node.alone_bound_gbps =
        is_first ? graph.plan.bound_gbps : std::min(node.alone_bound_gbps, graph.plan.bound_gbps);
    node.parts.push_back(std::move(graph.plan));
    node.ranks.push_back(ranks);
  }

  /// GPUs alone: NCCL writes their tree once more as the graph of heads; twice as one graph is a mistake.
  std::vector<NodePlans> without_repeats() {
    std::vector<NodePlans> plans;
    for (auto node = found_.begin(); node != found_.end(); ++node) {
      const auto first = std::find_if(
          found_.begin(), node, [&](const Found& other) { return is_same_graph(other.plans, node->plans); });
      if (first != node && first->id == node->id) xml_.fail(node->element, kTwice);
      if (first == node) plans.push_back(node->plans);
    }
    return plans;
  }

  Graph read_graph(pugi::xml_node element) {
    Graph graph;
    ChannelPlan& plan = graph.plan;
    graph.id = static_cast<int>(xml_.integer(element, "id", 0, 4));
    const auto number = xml_.integer(element, "pattern", 1, 6);
    const auto is_kind = [&](const GraphKind& entry) {
      return entry.id == graph.id && entry.number == number;
    };
    const auto kind = std::find_if(kGraphKinds.begin(), kGraphKinds.end(), is_kind);
    const auto alone = std::find_if(kGraphKindsAlone.begin(), kGraphKindsAlone.end(), is_kind);
    if (kind == kGraphKinds.end() && alone == kGraphKindsAlone.end())
      xml_.fail(element, loom::format("graph {} is never of pattern {}.", graph.id, number));
    plan.pattern = kind == kGraphKinds.end() ? alone->pattern : kind->pattern;
    plan.limits = {static_cast<int>(xml_.integer(element, "crossnic", 0, 2)), type(element, "typeinter"),
                   type(element, "typeintra")};
    xml_.integer_or(element, "samechannels", 0, 1, 0);
    xml_.number_or(element, "latencyinter", 0, 1e9, 0);
    const double intra = speed(element, "speedintra"), inter = speed(element, "speedinter");

    const std::vector<pugi::xml_node> channels = elements_of(element);
    const auto said = static_cast<std::size_t>(xml_.integer(element, "nchannels", 0, kMostGraphChannels));
    if (channels.size() != said)
      xml_.fail(element, loom::format("it says {} channels and has {}.", said, channels.size()));
    if (channels.empty()) return graph;
    const std::vector<pugi::xml_node> first = elements_of(channels[0]);
    plan.network = !first.empty() && is(first.front(), "net");
    if (!plan.network &&
        std::any_of(first.begin(), first.end(), [](pugi::xml_node child) { return is(child, "net"); }))
      xml_.fail(channels[0], "it has a port, but none at its beginning, where it comes in.");
    if (!plan.network && nodes_ > 1)
      xml_.fail(channels[0],
                loom::format("it has no ports, and so does not leave the node; there are {} nodes.", nodes_));
    if (!plan.network) plan.limits.type_inter = topo::PathType::kLoc;
    graph.part = part_for(channels[0], element, plan.pattern);
    if (kind == kGraphKinds.end() && graph.part->ranks.size() > 1)
      xml_.fail(element, loom::format("graph {} is of pattern {} for a GPU alone, not for {}.", graph.id,
                                      number, graph.part->ranks.size()));
    plan.pattern = effective(plan.pattern, static_cast<int>(graph.part->ranks.size()));
    for (const pugi::xml_node channel : channels) read_channel(channel, graph, intra, inter);
    finish(graph, element);
    return graph;
  }

  topo::PathType type(pugi::xml_node element, const char* attribute) const {
    const std::string name = xml_.text(element, attribute);
    for (int type = 0; type < static_cast<int>(topo::PathType::kNet); ++type)
      if (name == topo::name_of(static_cast<topo::PathType>(type))) return static_cast<topo::PathType>(type);
    xml_.fail(element,
              loom::format("attribute '{}' is \"{:.20}\", which is no type of paths.", attribute, name));
  }
  double speed(pugi::xml_node element, const char* attribute) const {
    xml_.text(element, attribute);
    return xml_.number_or(element, attribute, 0, kMostGbps, 0);
  }

  /// Heads of `pattern` can be the whole's: all of its GPUs hang from the switch that multicasts.
  static bool has_whole_heads(const PartOfMachine& whole, Pattern pattern) {
    if (pattern != Pattern::kNvls) return has_heads(pattern);
    const auto switches = whole.system.of_kind(topo::NodeKind::kNvSwitch);
    return std::all_of(whole.system.gpus().begin(), whole.system.gpus().end(), [&](topo::NodeId gpu) {
      return !switches.empty() && whole.paths.between(gpu, switches.front()).type < topo::PathType::kNet;
    });
  }

  /// The part of the machine with the GPUs of `channel`: the whole, if it lists as many, or `graph` says so
  /// of a head.
  const PartOfMachine* part_for(pugi::xml_node channel, pugi::xml_node graph, Pattern pattern) {
    std::vector<pugi::xml_node> gpus = elements_of(channel);
    std::erase_if(gpus, [](pugi::xml_node element) { return !is(element, "gpu"); });
    const PartOfMachine* whole = tables_.whole();
    if (whole != nullptr && tables_.parts().empty()) return whole;
    const bool says = has_heads(pattern) && xml_.has(graph, "gpus");
    const auto said = static_cast<std::size_t>(says ? xml_.integer(graph, "gpus", 1, kMostRank) : 0);
    const auto fits = [&](const PartOfMachine& part) { return !says || part.ranks.size() == said; };
    if (whole != nullptr && fits(*whole) &&
        (says || has_whole_heads(*whole, pattern) || gpus.size() >= whole->ranks.size()))
      return whole;
    for (const auto& part : tables_.parts())
      if (!gpus.empty() && fits(*part) && find_gpu(gpus[0], part->system) != topo::kNoNode) return part.get();
    if (says) xml_.fail(graph, loom::format("this machine has no part of {} GPUs with this head.", said));
    if (whole != nullptr) return whole;
    if (tables_.parts().empty()) xml_.fail(channel, "this machine has no GPUs.");
    return tables_.parts()[0].get();
  }

  /// kNoNode: there is none.
  topo::NodeId find_gpu(pugi::xml_node element, const topo::System& system) const {
    if (xml_.has(element, "rank"))
      return system.gpu_of_rank(static_cast<int>(xml_.integer(element, "rank", 0, kMostRank)));
    const std::uint64_t number = xml_.unsigned64(element, "dev");
    topo::NodeId found = topo::kNoNode;
    for (const topo::NodeId id : system.gpus())
      if (const topo::Node& node = system.node(id); number == device_number(node.host, node.gpu().device)) {
        if (found != topo::kNoNode)
          xml_.fail(element, "several ranks share this device: it needs an attribute 'rank'.");
        found = id;
      }
    return found;
  }

  topo::NodeId net(pugi::xml_node element, const Graph& graph) const {
    const std::uint64_t number = xml_.unsigned64(element, "dev");
    const bool reduces =
        graph.plan.pattern == Pattern::kCollnetChain || graph.plan.pattern == Pattern::kCollnetDirect;
    const topo::System& system = graph.part->system;
    auto copies_before = xml_.integer_or(element, "copy", 0, kMostRank, 0);
    for (const topo::NodeId id : system.of_kind(topo::NodeKind::kNet)) {
      const topo::NetInfo& info = system.node(id).net();
      if (number != device_number(system.node(id).host, info.device) || !info.is_net) continue;
      if (copies_before-- > 0) continue;
      if (reduces && !info.collectives)
        xml_.fail(element, loom::format("the network of {} does not reduce.", label(system, id)));
      return id;
    }
    xml_.fail(element, loom::format("this machine has no port {} on host {}.", number & kDeviceMask,
                                    number >> kHostShift));
  }

  void read_channel(pugi::xml_node element, Graph& graph, double intra, double inter) {
    if (!is(element, "channel")) xml_.fail(element, "<graph> has <channel> alone.");
    Channel channel;
    channel.intra_gbps = xml_.has(element, "speedintra") ? speed(element, "speedintra") : intra;
    channel.inter_gbps = xml_.has(element, "speedinter") ? speed(element, "speedinter") : inter;
    if (!graph.plan.network) channel.inter_gbps = channel.intra_gbps;  // NCCL writes anything there
    const topo::System& system = graph.part->system;
    std::set<int> left(graph.part->ranks.begin(), graph.part->ranks.end());
    bool closed = false;
    for (const pugi::xml_node child : elements_of(element)) {
      if (closed) xml_.fail(child, "the port where a channel leaves is its last element.");
      if (is(child, "net")) {
        if (!graph.plan.network) xml_.fail(child, "the channels before have no ports.");
        closed = !channel.nets.empty();
        if (closed == channel.ranks.empty())
          xml_.fail(child, "GPUs stand between the two ports of a channel.");
        channel.nets.push_back(net(child, graph));
      } else if (is(child, "gpu")) {
        if (graph.plan.network && channel.nets.empty())
          xml_.fail(child, "the channels before begin at a port.");
        const topo::NodeId gpu = find_gpu(child, system);
        if (gpu == topo::kNoNode)
          xml_.fail(child, "this machine has no such GPU, or it takes part elsewhere.");
        channel.ranks.push_back(system.node(gpu).gpu().rank);
        if (left.erase(channel.ranks.back()) == 0)
          xml_.fail(child, loom::format("rank {} is in this channel already.", channel.ranks.back()));
      } else {
        xml_.fail(child, "a channel has <net> and <gpu> alone.");
      }
    }
    if (graph.plan.network && !closed) xml_.fail(element, "it has no port at its end, where it leaves.");
    if (has_heads(graph.plan.pattern) && channel.ranks.size() != 1)
      xml_.fail(element, loom::format("channels of this pattern have one GPU, the head; this one has {}.",
                                      channel.ranks.size()));
    if (!has_heads(graph.plan.pattern) && !left.empty())
      xml_.fail(element, loom::format("it leaves out rank {}.", *left.begin()));
    graph.plan.channels.push_back(std::move(channel));
  }

  /// The worst hops. The file's types, which are what NCCL allowed, may be worse; they leave out hops that
  /// carry a part of a channel's bandwidth, which a plan's limits have.
  static void add_types(ChannelPlan& plan, const HopTable& table) {
    for (const Channel& channel : plan.channels)
      for (const Charge& charge : charges_of(table, plan.pattern, order_of(table, channel))) {
        topo::PathType type = table.hop(charge.from, charge.to).type;
        if (is_tree(plan.pattern)) type = std::max(type, table.hop(charge.to, charge.from).type);
        topo::PathType& worst = charge.network ? plan.type_inter : plan.type_intra;
        topo::PathType& limit = charge.network ? plan.limits.type_inter : plan.limits.type_intra;
        worst = std::max(worst, type);
        if (charge.factor < 1) limit = std::max(limit, type);
      }
  }

  /// What follows from the channels, and whether the machine's links carry them.
  void finish(Graph& graph, pugi::xml_node element) {
    ChannelPlan& plan = graph.plan;
    const bool reduces = plan.pattern == Pattern::kCollnetChain || plan.pattern == Pattern::kCollnetDirect;
    const HopTable table(graph.part->paths, plan.network, reduces, plan.pattern == Pattern::kNvls);
    if (plan.pattern == Pattern::kNvls && table.nv_switch() < 0)
      xml_.fail(element, "this machine has no NVSwitch.");
    for (Channel& channel : plan.channels) {
      if (plan.pattern == Pattern::kNvls &&
          plan.network)  // NCCL may raise ports further, which nothing reaches
        channel.inter_gbps = std::min(channel.inter_gbps, channel.intra_gbps / kNvlsShare);
      plan.total_gbps += channel.inter_gbps;
    }
    plan.hops = hops_of(table, plan);
    add_types(plan, table);
    plan.same_channels = std::all_of(plan.channels.begin(), plan.channels.end(), [&](const Channel& channel) {
      return channel.ranks == plan.channels[0].ranks;
    });
    plan.proof = end_bound(table, plan.pattern, plan.network, static_cast<int>(plan.channels.size()));
    plan.bound_gbps = plan.proof.gbps;
    refuse_if(element, "it does not fit this machine.", violations(graph.part->paths, plan));
  }

  void refuse_if(pugi::xml_node element, const char* what, const std::vector<std::string>& wrong) const {
    if (wrong.empty()) return;
    xml_.fail(element,
              loom::format("{} {}{}", what, wrong[0],
                           wrong.size() > 1 ? loom::format(" (and {} more)", wrong.size() - 1) : ""));
  }

  topo::XmlDocument xml_;
  const PathTables& tables_;
  int nodes_;
  std::vector<Found> found_;
};

}  // namespace

std::vector<NodePlans> parse_graph_xml(std::string text, const std::string& name, const PathTables& tables,
                                       int nodes) {
  return GraphReader(std::move(text), name, tables, nodes).read();
}

std::vector<NodePlans> read_graph_xml(const std::string& path, const PathTables& tables, int nodes) {
  return parse_graph_xml(topo::read_text_file(path), path, tables, nodes);
}

}  // namespace loom::search
