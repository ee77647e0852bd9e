#include "connect/summary.hpp"

#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "base/format.hpp"
#include "connect/path_type.hpp"
#include "topo/bandwidth.hpp"

namespace loom::connect {
namespace {

constexpr const char* kWhat = "A node's summary";
constexpr std::uint8_t kFormat = 1;
constexpr int kMostRanksInAByte = 256;
constexpr std::size_t kMostChannels = 255;

std::vector<std::uint16_t> local_order(std::span<const int> sorted, std::span<const int> ranks) {
  std::vector<std::uint16_t> order;
  for (const int rank : ranks) {
    const auto place = std::lower_bound(sorted.begin(), sorted.end(), rank);
    if (place == sorted.end() || *place != rank)
      throw Error(ErrorCode::kInternal, loom::format("A channel has rank {}, its node has not.", rank));
    order.push_back(static_cast<std::uint16_t>(place - sorted.begin()));
  }
  return order;
}

std::int16_t port_index(const topo::System& system, topo::NodeId net) {
  const auto ports = system.of_kind(topo::NodeKind::kNet);
  const auto port = std::find(ports.begin(), ports.end(), net);
  if (port == ports.end())
    throw Error(ErrorCode::kInternal, loom::format("A channel uses node {}, which is no port.", net));
  return static_cast<std::int16_t>(port - ports.begin());
}

[[noreturn]] void unreadable(const char* why) {
  cannot_be_read(kWhat, why);
}

using Orders = std::vector<std::vector<std::uint16_t>>;

void put_orders(ByteWriter& writer, const Orders& orders, int ranks) {
  writer.put(static_cast<std::uint16_t>(orders.size()));
  for (const auto& order : orders) {
    writer.put(static_cast<std::uint16_t>(order.size()));
    for (const std::uint16_t local : order) {
      if (ranks <= kMostRanksInAByte)
        writer.put(static_cast<std::uint8_t>(local));
      else
        writer.put(local);
    }
  }
}

Orders get_orders(ByteReader& reader, int ranks) {
  Orders orders(reader.get<std::uint16_t>());
  std::vector<std::size_t> seen_in(static_cast<std::size_t>(ranks), orders.size());
  for (std::size_t number = 0; number < orders.size(); ++number) {
    const int length = reader.get<std::uint16_t>();
    if (length != 1 && length != ranks) unreadable("an order leaves out ranks");
    orders[number].reserve(static_cast<std::size_t>(length));
    for (int i = 0; i < length; ++i) {
      const std::uint16_t local =
          ranks <= kMostRanksInAByte ? reader.get<std::uint8_t>() : reader.get<std::uint16_t>();
      if (local >= ranks || seen_in[local] == number)
        unreadable("an order has a rank that is not there, or one twice");
      seen_in[local] = number;
      orders[number].push_back(local);
    }
  }
  return orders;
}

}  // namespace

Family family_of(search::Pattern pattern) {
  switch (pattern) {
    case search::Pattern::kRing:
      return Family::kRing;
    case search::Pattern::kTree:
    case search::Pattern::kSplitTree:
    case search::Pattern::kBalancedTree:
      return Family::kTree;
    case search::Pattern::kNvls:
      return Family::kNvls;
    case search::Pattern::kCollnetChain:
      return Family::kCollnetChain;
    case search::Pattern::kCollnetDirect:
      return Family::kCollnetDirect;
  }
  return Family::kRing;
}

bool has_heads(Family family) {
  return family == Family::kNvls || family == Family::kCollnetDirect;
}

std::string_view name_of(Family family) {
  constexpr std::array<std::string_view, kFamilyCount> kNames = {"ring", "tree", "nvls", "collnet-chain",
                                                                 "collnet-direct"};
  return kNames[static_cast<std::size_t>(family)];
}

NodeSummary summarize(const topo::System& system, std::span<const int> ranks,
                      std::span<const search::ChannelPlan> plans) {
  std::vector<int> sorted(ranks.begin(), ranks.end());
  std::sort(sorted.begin(), sorted.end());
  NodeSummary summary;
  summary.ranks = static_cast<int>(sorted.size());
  for (const topo::NodeId net : system.of_kind(topo::NodeKind::kNet))
    summary.port_gbps.push_back(topo::net_gbps(system.node(net).net().speed_mbps));
  for (const search::ChannelPlan& plan : plans) {
    FamilySummary& family = summary.families[static_cast<std::size_t>(family_of(plan.pattern))];
    if (!family.channels.empty()) continue;
    family = {plan.pattern, plan.type_intra, plan.type_inter, plan.limits.cross_nic, {}};
    for (const search::Channel& channel : plan.channels) {
      ChannelSummary mine;
      mine.order = local_order(sorted, channel.ranks);
      if (channel.nets.size() == 2) {
        mine.port_in = port_index(system, channel.nets[0]);
        mine.port_out = port_index(system, channel.nets[1]);
      }
      mine.intra_gbps = static_cast<float>(channel.intra_gbps);
      mine.inter_gbps = static_cast<float>(channel.inter_gbps);
      family.channels.push_back(std::move(mine));
    }
  }
  return summary;
}

std::vector<std::byte> encode(const NodeSummary& summary) {
  for (const FamilySummary& family : summary.families)
    if (family.channels.size() > kMostChannels)
      throw Error(ErrorCode::kInternal, loom::format("A node has {} channels for one pattern, more than {}.",
                                                     family.channels.size(), kMostChannels));
  if (summary.ranks > std::numeric_limits<std::uint16_t>::max() ||
      summary.port_gbps.size() > std::numeric_limits<std::int16_t>::max())
    throw Error(ErrorCode::kInternal, loom::format("A node has {} ranks and {} ports, which are too many.",
                                                   summary.ranks, summary.port_gbps.size()));
  Orders orders;
  const auto index_of = [&](const std::vector<std::uint16_t>& order) {
    const auto same = std::find(orders.begin(), orders.end(), order);
    if (same != orders.end()) return static_cast<std::uint16_t>(same - orders.begin());
    orders.push_back(order);
    return static_cast<std::uint16_t>(orders.size() - 1);
  };
  for (const FamilySummary& family : summary.families)
    for (const ChannelSummary& channel : family.channels) index_of(channel.order);
  ByteWriter writer;
  writer.put(kFormat);
  writer.put(static_cast<std::uint16_t>(summary.ranks));
  writer.put(static_cast<std::uint16_t>(summary.port_gbps.size()));
  for (const float gbps : summary.port_gbps) writer.put(gbps);
  put_orders(writer, orders, summary.ranks);
  for (const FamilySummary& family : summary.families) {
    writer.put(static_cast<std::uint8_t>(family.channels.size()));
    if (family.channels.empty()) continue;
    writer.put(family.pattern);
    writer.put(family.type_intra);
    writer.put(family.type_inter);
    writer.put(static_cast<std::uint8_t>(family.cross_nic));
    for (const ChannelSummary& channel : family.channels) {
      writer.put(index_of(channel.order));
      writer.put(channel.port_in);
      writer.put(channel.port_out);
      writer.put(channel.intra_gbps);
      writer.put(channel.inter_gbps);
    }
  }
  return writer.take();
}

NodeSummary decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes, kWhat);
  if (reader.get<std::uint8_t>() != kFormat) unreadable("another build of loom wrote it");
  NodeSummary summary;
  summary.ranks = reader.get<std::uint16_t>();
  if (summary.ranks == 0) unreadable("it has no rank");
  summary.port_gbps.resize(reader.get<std::uint16_t>());
  const auto get_gbps = [&] { return reader.get_gbps<float>(); };
  for (float& gbps : summary.port_gbps) gbps = get_gbps();
  Orders orders = get_orders(reader, summary.ranks);
  std::vector<ChannelSummary*> last_user(orders.size(), nullptr);  // gets the order itself, the others copies
  const auto get_port = [&] {
    const int port = reader.get<std::int16_t>();
    if (port < kNoPort || port >= static_cast<int>(summary.port_gbps.size()))
      unreadable("a port is not there");
    return static_cast<std::int16_t>(port);
  };
  for (int number = 0; number < kFamilyCount; ++number) {
    FamilySummary& family = summary.families[static_cast<std::size_t>(number)];
    family.channels.resize(reader.get<std::uint8_t>());
    if (family.channels.empty()) continue;
    family.pattern = static_cast<search::Pattern>(
        reader.get_below<std::uint8_t>(search::kPatternCount, "a pattern is unknown"));
    const Family name = static_cast<Family>(number);
    if (family_of(family.pattern) != name) unreadable("a pattern is another family's");
    const int length = has_heads(name) ? 1 : summary.ranks;
    family.type_intra = get_path_type(reader);
    family.type_inter = get_path_type(reader);
    family.cross_nic = reader.get_below<std::uint8_t>(3, "cross-NIC is neither 0, 1 nor 2");
    for (ChannelSummary& channel : family.channels) {
      const auto which =
          reader.get_below<std::uint16_t>(static_cast<int>(orders.size()), "an order is not there");
      if (static_cast<int>(orders[which].size()) != length) unreadable("an order leaves out ranks");
      if (last_user[which] != nullptr) last_user[which]->order = orders[which];
      last_user[which] = &channel;
      channel.port_in = get_port();
      channel.port_out = get_port();
      channel.intra_gbps = get_gbps();
      channel.inter_gbps = get_gbps();
    }
  }
  if (!reader.done()) unreadable("there is more of it");
  for (std::size_t which = 0; which < orders.size(); ++which)
    if (last_user[which] != nullptr) last_user[which]->order = std::move(orders[which]);
  return summary;
}

}  // namespace loom::connect
