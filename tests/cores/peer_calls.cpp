#include "tests/cores/peer_calls.hpp"

#include <algorithm>
#include <bit>

namespace loom::cores {
namespace {

using device::Collective;

constexpr std::size_t kBankBytes = 8 << 20;
// Of coll/tuned over btl/sm.
constexpr std::size_t kEager = 4096, kSegment = 32 * 1024, kRecursiveDoubling = 8 * 1024;
constexpr std::size_t kInLine = kLineBytes - sizeof(std::uint64_t);
constexpr std::size_t kSmFragment = 8 * 1024;
constexpr int kSmDegree = 4;
constexpr std::size_t kXhcChunk = 16 * 1024;
constexpr std::size_t kXhcCopied = 256, kXhcReducedCopied = 4096;

}  // namespace

PeerRanks::PeerRanks(World& world)
    : world_(world), ranks_(world.ranks()), flags_(static_cast<std::size_t>(ranks_)), up_(flags_.size()) {
  for (auto& flags : flags_) {
    banks_.push_back(world.allocate(kBankBytes));
    for (Flag& flag : flags) flag = make_flag();
  }
  with_caches_ = levels_of(true);
  without_caches_ = levels_of(false);
}

bool PeerRanks::takes(Peer peer, Collective collective) {
  return peer == Peer::kTuned || collective != Collective::kAllGather;
}

Counts PeerRanks::call(Peer peer, Collective collective, std::size_t bytes) {
  return world_.run([&](int) {
    world_.write(bank(world_.self(), 0), bytes);  // the program's operand
    switch (peer) {
      case Peer::kTuned:
        return by_messages(collective, bytes);
      case Peer::kSm:
        return along_tree(collective, bytes);
      case Peer::kXhc:
        return by_leaders(collective, bytes);
    }
  });
}

PeerRanks::Flag PeerRanks::make_flag() {
  return {reinterpret_cast<std::uint64_t*>(world_.allocate(kLineBytes)), 0};
}
void PeerRanks::signal(const Flag& flag) {
  world_.publish(flag.word);
  ++*flag.word;
}
void PeerRanks::await(const Flag& flag, std::uint64_t value) {
  for (world_.look(flag.word); *flag.word < value; world_.look(flag.word)) world_.wait();
}
void PeerRanks::read(const std::byte* from, std::size_t bytes) {
  world_.read(from, bytes);
  move(bytes);
}
void PeerRanks::write(std::byte* to, std::size_t bytes) {
  world_.write(to, bytes);
  move(bytes);
}
/// Two operands of the rank's own.
void PeerRanks::reduce(std::size_t bytes) {
  move(bytes);
}

// ---- Messages

PeerRanks::Box& PeerRanks::box(int from, int to) {
  const auto [entry, is_new] = boxes_.try_emplace({from, to});
  if (is_new) entry->second = {make_flag(), make_flag(), world_.allocate(kEager)};
  return entry->second;
}

void PeerRanks::send(int to, std::size_t bytes) {
  Box& box = this->box(world_.self(), to);
  if (bytes > kInLine && bytes <= kEager) write(box.payload, bytes);
  signal(box.sent);
}
/// The receiver has read what it reads in place.
void PeerRanks::finish_send(int to, std::size_t bytes) {
  Box& box = this->box(world_.self(), to);
  if (bytes > kEager) await(box.done, ++box.done.seen);
}
void PeerRanks::receive(int from, std::size_t bytes) {
  Box& box = this->box(from, world_.self());
  await(box.sent, ++box.sent.seen);
  if (bytes <= kInLine) return;
  if (bytes <= kEager) return read(box.payload, bytes);
  world_.spend(world_.costs().system_call);
  read(bank(from, 0), bytes);
  signal(box.done);
}
void PeerRanks::exchange(int to, int from, std::size_t bytes) {
  send(to, bytes);
  receive(from, bytes);
  finish_send(to, bytes);
}

void PeerRanks::by_messages(Collective collective, std::size_t bytes) {
  const int self = world_.self(), ranks = ranks_;
  const auto ring = [&](int steps, std::size_t each, bool reduces) {
    for (int step = 0; step < steps; ++step) {
      exchange((self + 1) % ranks, (self + ranks - 1) % ranks, each);
      if (reduces && step < ranks - 1) reduce(each);
      write(bank(self, 0), each);
    }
  };
  // A binomial tree for short messages, a binary one in segments for long ones.
  const auto tree = [&](bool down) {
    std::vector<int> children;
    int parent = -1;
    if (bytes > kSegment) {
      for (const int child : {2 * self + 1, 2 * self + 2})
        if (child < ranks) children.push_back(child);
      parent = self == 0 ? -1 : (self - 1) / 2;
    } else {
      int bit = 1;
      for (; bit < ranks && (self & bit) == 0; bit *= 2)
        if (self + bit < ranks) children.push_back(self + bit);
      if (self != 0) parent = self - bit;
      if (down) std::ranges::reverse(children);
    }
    for (std::size_t at = 0; at < bytes; at += kSegment) {
      const std::size_t part = std::min(kSegment, bytes - at);
      if (down && parent >= 0) receive(parent, part);
      for (const int child : children) {
        if (down) {
          send(child, part);
        } else {
          receive(child, part);
          reduce(part);
        }
      }
      if (!children.empty() || down) write(bank(self, 0), part);
      if (!down && parent >= 0) send(parent, part);
      for (const int child : children)
        if (down) finish_send(child, part);
      if (!down && parent >= 0) finish_send(parent, part);
    }
  };
  const int whole = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
  switch (collective) {
    case Collective::kBarrier:
      for (int far = 1; far < ranks; far *= 2)
        exchange((self + far) % ranks, (self + ranks - far) % ranks, 0);
      return;
    case Collective::kBroadcast:
      return tree(true);
    case Collective::kReduce:
      return tree(false);
    case Collective::kAllGather: {
      const std::size_t all = bytes * static_cast<std::size_t>(ranks);
      if (all > 64 * 1024) return ring(ranks - 1, bytes, false);
      for (int far = 1; far < ranks; far *= 2)  // Bruck's
        exchange((self + ranks - far) % ranks, (self + far) % ranks,
                 bytes * static_cast<std::size_t>(std::min(far, ranks - far)));
      return;
    }
    default:
      break;
  }
  if (bytes > kRecursiveDoubling) return ring(2 * (ranks - 1), bytes / static_cast<std::size_t>(ranks), true);
  // Those beyond a power of two hand their operands to the first ones, and get the result.
  if (self >= whole) {
    send(self - whole, bytes);
    return receive(self - whole, bytes);
  }
  if (self + whole < ranks) {
    receive(self + whole, bytes);
    reduce(bytes);
  }
  for (int far = 1; far < whole; far *= 2) {
    exchange(self ^ far, self ^ far, bytes);
    reduce(bytes);
  }
  if (self + whole < ranks) send(self + whole, bytes);
}

// ---- coll/sm

void PeerRanks::along_tree(Collective collective, std::size_t bytes) {
  const int self = world_.self(), parent = (self - 1) / kSmDegree, first = self * kSmDegree + 1,
            end = std::min(first + kSmDegree, ranks_);
  auto& up = up_[static_cast<std::size_t>(self)];
  const auto flag = [&](int rank, std::size_t which) -> Flag& {
    return flags_[static_cast<std::size_t>(rank)][which];
  };
  // Fragments have places of their own: who sends them need not wait for those who read the last one.
  const auto go_down = [&](std::size_t at, std::size_t part) {
    ++up[kSmDown];
    if (self != 0) await(flag(parent, kSmDown), up[kSmDown]);
    if (self != 0) read(bank(parent, at), part);
    if (first < end || self == 0) write(bank(self, at), part);
    signal(flag(self, kSmDown));
  };
  if (collective == Collective::kBarrier) {
    ++up[kSmUp];
    for (int child = first; child < end; ++child) await(flag(child, kSmUp), up[kSmUp]);
    signal(flag(self, kSmUp));
    return go_down(0, 0);
  }
  for (std::size_t at = 0; at < bytes; at += kSmFragment) {
    const std::size_t part = std::min(kSmFragment, bytes - at);
    if (collective != Collective::kBroadcast) {
      ++up[kSmUp];
      write(bank(self, kBankBytes / 2 + at), part);
      signal(flag(self, kSmUp));
      for (int rank = 1; rank < ranks_ && self == 0; ++rank) {
        await(flag(rank, kSmUp), up[kSmUp]);
        read(bank(rank, kBankBytes / 2 + at), part);
      }
    }
    if (collective != Collective::kReduce) go_down(at, part);
  }
}

// ---- coll/xhc

/// Groups of ranks that share a cache, a NUMA node, a socket, the host; of each level, the leaders of the one
/// below.
std::vector<std::vector<PeerRanks::Members>> PeerRanks::levels_of(bool caches) const {
  std::vector<int> at_level(static_cast<std::size_t>(ranks_));
  for (int rank = 0; rank < ranks_; ++rank) at_level[static_cast<std::size_t>(rank)] = rank;
  std::vector<std::vector<Members>> levels;
  for (const int level : {0, 1, 2, 3}) {
    if (level == 0 && !caches) continue;
    std::map<int, Members> groups;
    for (const int rank : at_level) {
      const Core& core = world_.core(rank);
      const std::array domains{core.cache, core.numa_node, core.socket, 0};
      groups[domains[static_cast<std::size_t>(level)]].push_back(rank);
    }
    at_level.clear();
    levels.emplace_back();
    for (auto& [domain, members] : groups) {
      at_level.push_back(members.front());
      levels.back().push_back(std::move(members));
    }
  }
  return levels;
}

void PeerRanks::by_leaders(Collective collective, std::size_t bytes) {
  const int self = world_.self();
  auto& up = up_[static_cast<std::size_t>(self)];
  const auto flag = [&](int rank, std::size_t which) -> Flag& {
    return flags_[static_cast<std::size_t>(rank)][which];
  };
  const bool reduces = device::is_reduction(collective);
  const auto& levels = reduces ? with_caches_ : without_caches_;
  const std::size_t down = reduces ? kXhcDownWithCaches : kXhcDown;  // who leads a group differs
  std::vector<const Members*> mine;  // the groups that this rank is in, from the lowest on
  for (const auto& level : levels)
    for (const Members& group : level)
      if (group.size() > 1 && std::ranges::find(group, self) != group.end()) mine.push_back(&group);
  const auto leads = [&](const Members& group) { return group.front() == self; };
  const bool copies = bytes <= (reduces ? kXhcReducedCopied : kXhcCopied);
  const std::size_t chunk = std::max<std::size_t>(1, copies ? bytes : kXhcChunk);

  for (std::size_t at = 0; at < std::max<std::size_t>(bytes, 1); at += chunk) {
    const std::size_t part = std::min(chunk, bytes - std::min(at, bytes));
    if (collective != Collective::kBroadcast) {
      ++up[kXhcReady];
      if (copies && part > 0) write(bank(self, kBankBytes / 2), part);
      bool is_member = false;
      for (const Members* group : mine) {
        if (!leads(*group)) {
          signal(flag(self, kXhcReady));
          is_member = true;
          break;
        }
        for (const int member : *group) {
          if (member == self) continue;
          await(flag(member, kXhcReady), up[kXhcReady]);
          if (part == 0) continue;
          // Of long messages, each member of the group reduces its share, and the leader waits for it.
          if (copies)
            read(bank(member, kBankBytes / 2), part);
          else
            read(bank(member, at), part / group->size());
        }
        if (part > 0) write(bank(self, kBankBytes / 2 + (copies ? 0 : at)), part);
      }
      if (!is_member) signal(flag(self, kXhcReady));
    }
    if (collective == Collective::kReduce) continue;
    // Down: from the highest group that this rank is in as a member.
    ++up[down];
    const auto above = std::ranges::find_if(mine, [&](const Members* group) { return !leads(*group); });
    if (above != mine.end()) {
      const int leader = (*above)->front();
      await(flag(leader, down), up[down]);
      if (part > 0) read(bank(leader, copies ? 0 : at), part);
    }
    const bool leads_any = !mine.empty() && leads(*mine.front());
    if (part > 0) write(bank(self, copies ? 0 : at), part);
    if (leads_any) signal(flag(self, down));
  }
  if (collective != Collective::kBroadcast) return;
  // Leaders leave once all members have said that they have read.
  ++up[kXhcRead];
  for (const Members* group : mine)
    if (leads(*group))
      for (const int member : *group)
        if (member != self) await(flag(member, kXhcRead), up[kXhcRead]);
  signal(flag(self, kXhcRead));
}

}  // namespace loom::cores
