#include "connect/agree.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

namespace loom::connect {
namespace {

constexpr double kLittle = 0.02;       // of the total: for less no channel is added
constexpr std::size_t kFewKinds = 16;  // for more kinds only counts that occur are tried
constexpr float kNoLimit = std::numeric_limits<float>::max();

/// One channel, or two that swap their ports and so stay together.
struct Group {
  int first = 0, size = 1;
  int copies = 0;  // 0: not taken
  double gbps = 0;
  double part_gbps() const { return gbps / copies; }
};

double speed_of(const ChannelSummary& channel) {
  return static_cast<double>(std::max(channel.inter_gbps, 0.0F));
}

bool are_partners(const ChannelSummary& a, const ChannelSummary& b) {
  return a.port_in != a.port_out && a.port_in == b.port_out && a.port_out == b.port_in &&
         a.inter_gbps == b.inter_gbps && a.intra_gbps == b.intra_gbps;
}

/// Descending. Usually they are in order already.
template <class Key>
void sort_by(std::vector<Group>& groups, Key key) {
  const auto faster = [&](const Group& a, const Group& b) { return key(a) > key(b); };
  if (!std::is_sorted(groups.begin(), groups.end(), faster))
    std::stable_sort(groups.begin(), groups.end(), faster);
}

std::vector<Group> groups_of(const FamilySummary& family) {
  std::vector<Group> groups;
  const auto& channels = family.channels;
  groups.reserve(channels.size());
  const bool swaps = family.pattern == search::Pattern::kRing && family.cross_nic == 2;
  for (std::size_t i = 0; i < channels.size(); i += static_cast<std::size_t>(groups.back().size)) {
    const bool pair = swaps && i + 1 < channels.size() && are_partners(channels[i], channels[i + 1]);
    groups.push_back({static_cast<int>(i), pair ? 2 : 1, 0, speed_of(channels[i])});
  }
  sort_by(groups, [](const Group& group) { return group.gbps; });
  return groups;
}

/// Takes the fastest channels, `count` at most. Where there is room for one more and a pair is next, a single
/// one of the same speed comes first; half of the pair, where there is none.
int take(std::vector<Group>& groups, int count) {
  int taken = 0;
  for (std::size_t g = 0; g < groups.size() && taken < count; ++g) {
    Group* next = &groups[g];
    if (next->copies > 0) continue;
    if (next->size > count - taken) {
      const auto single = std::find_if(groups.begin() + static_cast<std::ptrdiff_t>(g), groups.end(),
                                       [&](const Group& group) { return group.size == 1; });
      if (single != groups.end() && single->gbps == next->gbps) next = &*single;
      next->size = 1;
    }
    next->copies = 1;
    taken += next->size;
  }
  return taken;
}

/// Cuts the fastest once more, of equally fast ones the first that fits into `room`. A pair is cut as one;
/// where there is room for half of it alone it comes apart.
void cut_fastest(std::vector<Group>& groups, int room) {
  Group* fastest = nullptr;
  for (Group& group : groups) {
    if (group.copies == 0) continue;
    const bool faster = fastest == nullptr || group.part_gbps() > fastest->part_gbps();
    const bool fits = fastest != nullptr && group.part_gbps() == fastest->part_gbps() &&
                      fastest->size > room && group.size <= room;
    if (faster || fits) fastest = &group;
  }
  if (fastest->size > room) {
    fastest->size = 1;
    Group other = *fastest;
    ++other.first;
    groups.insert(groups.begin() + (fastest - groups.data()) + 1, other);
    fastest = &*std::find_if(groups.begin(), groups.end(),
                             [&](const Group& group) { return group.first == other.first - 1; });
  }
  ++fastest->copies;
}

float share(float gbps, int copies) {
  return gbps / static_cast<float>(copies);
}

/// What `parts` of one kind leave of the speeds agreed so far. A rank alone on its node has nobody to send to
/// there.
void lower_to(const NodeSummary& kind, const FamilySummary& family, std::span<const Part> parts,
              std::vector<float>& intra, std::vector<float>& inter) {
  for (std::size_t c = 0; c < parts.size(); ++c) {
    const ChannelSummary& own = family.channels[static_cast<std::size_t>(parts[c].own)];
    if (kind.ranks > 1) intra[c] = std::min(intra[c], share(own.intra_gbps, parts[c].copies));
    inter[c] = std::min(inter[c], share(own.inter_gbps, parts[c].copies));
  }
}

double total_with(Family name, std::span<const NodeSummary> kinds, int count) {
  std::vector<float> intra(static_cast<std::size_t>(count), kNoLimit), inter(intra);
  for (const NodeSummary& kind : kinds)
    lower_to(kind, kind.family(name), spread(kind.family(name), count), intra, inter);
  return std::accumulate(inter.begin(), inter.end(), 0.0);
}

int best_count(Family name, std::span<const NodeSummary> kinds, const ChannelLimits& limits) {
  std::set<int> own, counts;
  for (const NodeSummary& kind : kinds) own.insert(static_cast<int>(kind.family(name).channels.size()));
  const int most = std::max(limits.max_channels, limits.min_channels);
  const auto add = [&](int count) {
    counts.insert(std::clamp(count, std::min(limits.min_channels, most), most));
  };
  if (own.size() == 1 && kinds.size() == 1)
    add(*own.begin());
  else if (kinds.size() <= kFewKinds)
    for (int count = 1; count <= most; ++count) add(count);
  else
    for (const int count : own) add(count);
  if (counts.size() == 1) return *counts.begin();
  std::vector<double> totals;
  for (const int count : counts) totals.push_back(total_with(name, kinds, count));
  const double enough = *std::max_element(totals.begin(), totals.end()) * (1 - kLittle);
  auto count = counts.begin();
  for (std::size_t i = 0; totals[i] < enough; ++i) ++count;
  return *count;
}

/// A head with what all of its channels carry.
struct Head {
  int rank = 0, first = 0;  // local index; its first channel
  float intra_gbps = 0, inter_gbps = 0;
};

/// Those that carry most at their ports first, so that heads of different nodes that talk to each other are
/// the ones of like speed, and the slowest are left out.
std::vector<Head> heads_of(const FamilySummary& family) {
  std::vector<Head> heads;
  for (std::size_t c = 0; c < family.channels.size(); ++c) {
    const ChannelSummary& channel = family.channels[c];
    const int rank = channel.order.front();
    auto head = std::find_if(heads.begin(), heads.end(), [&](const Head& each) { return each.rank == rank; });
    if (head == heads.end()) head = heads.insert(head, {rank, static_cast<int>(c)});
    head->intra_gbps += channel.intra_gbps;
    head->inter_gbps += channel.inter_gbps;
  }
  std::stable_sort(heads.begin(), heads.end(),
                   [](const Head& a, const Head& b) { return a.inter_gbps > b.inter_gbps; });
  return heads;
}

void agree_on_heads(Agreed& agreed, Family name, std::span<const NodeSummary> kinds) {
  std::vector<std::vector<Head>> by_kind;
  std::size_t count = std::numeric_limits<std::size_t>::max();
  for (const NodeSummary& kind : kinds) {
    by_kind.push_back(heads_of(kind.family(name)));
    count = std::min(count, by_kind.back().size());
  }
  agreed.channels = static_cast<int>(count);
  agreed.intra_gbps.assign(count, kNoLimit);
  agreed.inter_gbps.assign(count, kNoLimit);
  for (std::vector<Head>& heads : by_kind) {
    heads.resize(count);
    std::vector<Part>& parts = agreed.by_kind.emplace_back();
    std::vector<int>& ranks = agreed.heads.emplace_back();
    for (std::size_t h = 0; h < count; ++h) {
      parts.push_back({heads[h].first, 1, static_cast<int>(h)});
      ranks.push_back(heads[h].rank);
      agreed.intra_gbps[h] = std::min(agreed.intra_gbps[h], heads[h].intra_gbps);
      agreed.inter_gbps[h] = std::min(agreed.inter_gbps[h], heads[h].inter_gbps);
    }
  }
}

}  // namespace

double Agreed::total_gbps() const {
  return std::accumulate(inter_gbps.begin(), inter_gbps.end(), 0.0);
}

std::vector<Part> spread(const FamilySummary& family, int count) {
  std::vector<Group> groups = groups_of(family);
  for (int taken = take(groups, count); taken < count;) {
    cut_fastest(groups, count - taken);
    taken = 0;
    for (const Group& group : groups) taken += group.copies * group.size;
  }
  std::erase_if(groups, [](const Group& group) { return group.copies == 0; });
  sort_by(groups, [](const Group& group) { return group.part_gbps(); });
  std::vector<Part> parts;
  parts.reserve(static_cast<std::size_t>(count));
  for (const Group& group : groups)
    for (int copy = 0; copy < group.copies; ++copy)
      for (int i = 0; i < group.size; ++i) {
        const int mine = static_cast<int>(parts.size());
        parts.push_back({group.first + i, group.copies, group.size == 2 ? mine + 1 - 2 * i : mine});
      }
  return parts;
}

Agreed agree(Family family, std::span<const NodeSummary> kinds, const ChannelLimits& limits) {
  Agreed agreed;
  for (const NodeSummary& kind : kinds) {
    const FamilySummary& own = kind.family(family);
    if (own.channels.empty()) return {};
    agreed.type_intra = std::max(agreed.type_intra, own.type_intra);
    agreed.type_inter = std::max(agreed.type_inter, own.type_inter);
    agreed.cross_nic = std::max(agreed.cross_nic, own.cross_nic);
  }
  if (has_heads(family)) {
    agree_on_heads(agreed, family, kinds);
    return agreed;
  }
  agreed.channels = best_count(family, kinds, limits);
  agreed.intra_gbps.assign(static_cast<std::size_t>(agreed.channels), kNoLimit);
  agreed.inter_gbps = agreed.intra_gbps;
  for (const NodeSummary& kind : kinds) {
    agreed.by_kind.push_back(spread(kind.family(family), agreed.channels));
    lower_to(kind, kind.family(family), agreed.by_kind.back(), agreed.intra_gbps, agreed.inter_gbps);
  }
  for (std::size_t c = 0; c < agreed.intra_gbps.size(); ++c)
    if (agreed.intra_gbps[c] == kNoLimit) agreed.intra_gbps[c] = agreed.inter_gbps[c];
  return agreed;
}

}  // namespace loom::connect
