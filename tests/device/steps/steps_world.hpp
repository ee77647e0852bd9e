// steps_world.hpp -- the ranks of step code as groups of threads of this process, with ordinary memory in
// place of the GPUs'; and what they should find. Shared with the tests that run the same calls on a GPU.
#pragma once

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "device/reduce/reduce.hpp"
#include "device/steps/collective.hpp"
#include "device/steps/layout.hpp"
#include "tests/device/element.hpp"
#include "tests/device/host/host_group.hpp"

namespace loom::device::steps {

/// The first multiple of 128 in bytes from `new`.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::size_t bytes) : lines_(bytes / sizeof(Line) + 1) {}
  std::byte* data() { return lines_.data()->bytes; }

 private:
  struct alignas(128) Line {
    std::byte bytes[128]{};
  };
  std::vector<Line> lines_;
};

/// One collective call over all ranks: operands, and the results that the schedules promise.
struct Call {
  Algorithm algorithm;
  Protocol protocol;
  int size, root;
  std::size_t count, elem_bytes;
  ReduceFn reduce;        ///< nullptr where nothing is reduced
  bool in_place = false;  ///< unless it exchanges()
  /// Of the blocks, by rank, or by sender and receiver if it exchanges(); empty: `count` each.
  std::vector<std::size_t> counts = {};
  std::size_t slice_bytes = 0;  ///< see Task

  bool gathers() const {
    return algorithm == Algorithm::kAllGatherRing || algorithm == Algorithm::kAllGatherHier ||
           algorithm == Algorithm::kAllGatherTree;
  }
  bool scatters() const {
    return algorithm == Algorithm::kReduceScatterRing || algorithm == Algorithm::kReduceScatterHier ||
           algorithm == Algorithm::kReduceScatterTree;
  }
  bool exchanges() const { return algorithm == Algorithm::kAllToAll; }
  bool is_in_place() const { return in_place && !exchanges(); }
  bool moves() const {
    return gathers() || exchanges() || algorithm == Algorithm::kBroadcastChain ||
           algorithm == Algorithm::kBroadcastTree;
  }
  bool has_blocks() const { return gathers() || scatters(); }
  /// Of a rank, of has_blocks().
  Part block(int rank) const {
    const auto r = static_cast<std::size_t>(rank);
    if (counts.empty()) return {r * count, count};
    return {std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0}), counts[r]};
  }
  /// Of exchanges(): of what `of` sends, or else receives, the part that goes to `peer`, or comes from there.
  Part exchanged(int of, bool sends, int peer) const {
    const auto length = [&](int other) {
      const int from = sends ? of : other, to = sends ? other : of;
      return counts.empty() ? count : counts[static_cast<std::size_t>(from * size + to)];
    };
    Part part{0, length(peer)};
    for (int other = 0; other < peer; ++other) part.first += length(other);
    return part;
  }
  /// Task::blocks of a rank.
  std::vector<Part> blocks(int rank) const {
    std::vector<Part> result;
    for (int r = 0; r < size; ++r) result.push_back(exchanges() ? exchanged(rank, true, r) : block(r));
    for (int r = 0; r < size && exchanges(); ++r) result.push_back(exchanged(rank, false, r));
    return result;
  }
  bool lists_blocks() const { return exchanges() || !counts.empty(); }
  /// The longest block, or a rank's chunk of an all-reduce in whole lines.
  std::size_t chunk() const {
    if (has_blocks()) return counts.empty() ? count : *std::max_element(counts.begin(), counts.end());
    if (algorithm != Algorithm::kAllreduceRing && algorithm != Algorithm::kAllreduceHier &&
        algorithm != Algorithm::kTwoShot)
      return count;
    const std::size_t line = std::max<std::size_t>(1, 64 / elem_bytes),
                      ranks = static_cast<std::size_t>(size);
    return ((count + ranks - 1) / ranks + line - 1) / line * line;
  }
  std::size_t in_count(int rank) const {
    if (exchanges()) return exchanged(rank, true, size - 1).first + exchanged(rank, true, size - 1).length;
    return scatters() ? total() : gathers() ? block(rank).length : count;
  }
  std::size_t out_count(int rank) const {
    if (exchanges()) return exchanged(rank, false, size - 1).first + exchanged(rank, false, size - 1).length;
    return gathers() ? total() : scatters() ? block(rank).length : count;
  }
  std::size_t total() const { return has_blocks() ? block(size - 1).first + block(size - 1).length : count; }

  /// blocks: what blocks(rank) returns, as the rank reaches it.
  Task task(int rank, const void* in, void* out, unsigned total_weight, const Part* blocks) const {
    return {.algorithm = algorithm,
            .protocol = protocol,
            .rank = rank,
            .size = size,
            .root = root,
            .total_weight = total_weight,
            .in = in,
            .out = out,
            .count = total(),
            .chunk = chunk(),
            .slice_bytes = slice_bytes,
            .blocks = lists_blocks() ? blocks : nullptr};
  }
};

using Bytes = std::vector<std::byte>;

/// op over the ranks' elements [first, first + n) of in[], in the order of ranks that is given.
inline Bytes reduced(const Call& call, const std::vector<Bytes>& in, std::size_t first, std::size_t n,
                     const std::vector<int>& order) {
  const std::size_t at = first * call.elem_bytes;
  const auto of = [&](int rank) { return in[static_cast<std::size_t>(rank)].data() + at; };
  Bytes result(of(order[0]), of(order[0]) + n * call.elem_bytes);
  for (std::size_t i = 1; i < order.size(); ++i) call.reduce(result.data(), result.data(), of(order[i]), n);
  return result;
}

/// What a rank's output is to be; of a rank that has none, what it was before. Operands in the order that the
/// schedules promise over rings in order of rank; trees and grids promise none.
inline Bytes expected(const Call& call, const std::vector<Bytes>& in, int rank, Bytes before) {
  const auto order_from = [&](int first) {
    std::vector<int> order;
    for (int i = 0; i < call.size; ++i) order.push_back((first + i) % call.size);
    return order;
  };
  const auto put = [&](std::size_t at, const Bytes& bytes) {
    if (!bytes.empty()) std::memcpy(before.data() + at * call.elem_bytes, bytes.data(), bytes.size());
  };
  switch (call.algorithm) {
    case Algorithm::kAllreduceRing:  // a chunk starts behind its owner
      for (int c = 0; c < call.size; ++c) {
        const std::size_t first = std::min(call.count, static_cast<std::size_t>(c) * call.chunk()),
                          n = std::min(call.chunk(), call.count - first);
        put(first, reduced(call, in, first, n, order_from((c + 1) % call.size)));
      }
      break;
    case Algorithm::kReduceScatterRing:
    case Algorithm::kReduceScatterHier:
    case Algorithm::kReduceScatterTree:
      put(0, reduced(call, in, call.block(rank).first, call.block(rank).length,
                     order_from((rank + 1) % call.size)));
      break;
    case Algorithm::kAllGatherRing:
    case Algorithm::kAllGatherHier:
    case Algorithm::kAllGatherTree:
      for (int r = 0; r < call.size; ++r) put(call.block(r).first, in[static_cast<std::size_t>(r)]);
      break;
    case Algorithm::kBroadcastChain:
    case Algorithm::kBroadcastTree:
      if (rank != call.root) put(0, in[static_cast<std::size_t>(call.root)]);
      break;
    case Algorithm::kReduceChain:
    case Algorithm::kReduceTree:
      if (rank == call.root)
        put(0, reduced(call, in, 0, call.count, order_from((call.root + 1) % call.size)));
      break;
    case Algorithm::kOneShot:
    case Algorithm::kTwoShot:
    case Algorithm::kAllreduceHier:
    case Algorithm::kAllreduceTree:
      put(0, reduced(call, in, 0, call.count, order_from(0)));
      break;
    case Algorithm::kAllToAll:
      for (int r = 0; r < call.size; ++r) {
        const Part sent = call.exchanged(r, true, rank);
        const std::byte* const at = in[static_cast<std::size_t>(r)].data() + sent.first * call.elem_bytes;
        put(call.exchanged(rank, false, r).first, Bytes(at, at + sent.length * call.elem_bytes));
      }
      break;
  }
  return before;
}

/// The padding of pairs is zero.
template <class T>
Bytes elements(std::size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(count * sizeof(T));
  for (std::size_t i = 0; i < count; ++i) {
    const T value = element<T>(random);
    std::byte* const at = bytes.data() + i * sizeof(T);
    if constexpr (requires { value.index; }) {
      std::memcpy(at + offsetof(T, value), &value.value, sizeof(value.value));
      std::memcpy(at + offsetof(T, index), &value.index, sizeof(value.index));
    } else {
      std::memcpy(at, &value, sizeof(T));
    }
  }
  return bytes;
}
/// The first element that differs, or -1. Padding may differ.
template <class T>
std::ptrdiff_t first_difference(const Bytes& a, const Bytes& b) {
  for (std::size_t i = 0; i < a.size() / sizeof(T); ++i) {
    T x, y;
    std::memcpy(&x, a.data() + i * sizeof(T), sizeof(T));
    std::memcpy(&y, b.data() + i * sizeof(T), sizeof(T));
    bool same;
    if constexpr (requires { x.index; })
      same = std::memcmp(&x.value, &y.value, sizeof(x.value)) == 0 &&
             std::memcmp(&x.index, &y.index, sizeof(x.index)) == 0;
    else
      same = std::memcmp(&x, &y, sizeof(T)) == 0;
    if (!same) return static_cast<std::ptrdiff_t>(i);
  }
  return -1;
}

/// Ranks with links between them, in the form of groups of threads of this process.
class HostWorld {
 public:
  /// hosts: by rank; what crosses between them waits for somebody who carries it. Empty: all on one.
  HostWorld(int size, int threads, const ChannelForm& form, std::vector<ChannelShape> shapes,
            std::vector<int> hosts = {})
      : threads_(threads), form_(form), layout_(form, size, std::move(shapes), std::move(hosts)) {
    std::vector<std::byte*> bases;
    for (int r = 0; r < size; ++r) {
      memory_.emplace_back(layout_.bytes(channels()));
      std::vector<FarEnd>& ends = far_ends_.emplace_back(layout_.far_ends(r, channels()));
      for (FarEnd& end : ends) end.on_gpu = end.link % 3 == 0;
      const FarBytes bytes = far_bytes(ends);
      far_on_host_.emplace_back(bytes.host), far_on_gpu_.emplace_back(bytes.gpu);
      place(ends, far_on_host_.back().data(), far_on_gpu_.back().data());
      bases.push_back(memory_.back().data());
    }
    for (int r = 0; r < size; ++r) {
      tables_.emplace_back(layout_.table_bytes(channels()));
      const auto table = layout_.table(bases, r, channels(), tables_.back().data(), far_ends_[index(r)]);
      std::memcpy(tables_.back().data(), table.data(), table.size());
    }
  }
  HostWorld(int size, int threads, int channels, const ChannelForm& form)
      : HostWorld(size, threads, form, plain_channels(size, channels)) {}

  int channels() const { return layout_.channels(); }
  /// Some with slots on the GPU.
  const std::vector<FarEnd>& far_ends(int rank) const { return far_ends_[index(rank)]; }
  int groups(Algorithm algorithm) const { return channels() * groups_of(algorithm); }
  /// Afterwards all waits end.
  void abandon() { store_release(&abandoned_, 1); }
  void be_patient(unsigned looks) { patience_ = looks; }
  const Channel& channel(int rank, int number) {
    return reinterpret_cast<const Channel*>(tables_[index(rank)].data())[number];
  }

  Task task(const Call& call, int rank, const std::vector<std::byte*>& in, const std::vector<std::byte*>& out,
            const Part* blocks) const {
    const auto r = static_cast<std::size_t>(rank);
    return call.task(rank, in[r], out[r], layout_.total_weight(links_of(call.algorithm), channels()), blocks);
  }
  /// The share of one group of groups(), by one of its threads.
  template <class Operation, class T, class Group>
  Outcome perform_group(Group& group, int number, const Task& task) {
    auto* const table = reinterpret_cast<Channel*>(tables_[static_cast<std::size_t>(task.rank)].data());
    const int halves = groups_of(task.algorithm);
    return steps::perform<Operation, T>(group, number % halves, task, table[number / halves], form_,
                                        {&abandoned_, patience_});
  }

  /// Whether the ranks [0, ranks) came to the end. As a host launches kernels: once all groups of a rank have
  /// ended, and one of them has left, all are launched again.
  template <class Operation, class T>
  bool perform(const Call& call, const std::vector<std::byte*>& in, const std::vector<std::byte*>& out,
               int ranks) {
    struct Rank {
      explicit Rank(int threads) : launch(threads) {}
      std::barrier<> launch;
      std::atomic<bool> leaves[2] = {false, false};  ///< in turn, so that one can be cleared
      std::vector<std::unique_ptr<HostGroup::Agreement>> agreements;
    };
    std::vector<std::vector<Part>> blocks;
    for (int r = 0; r < ranks; ++r) blocks.push_back(call.blocks(r));
    std::atomic<bool> all_done = true;
    std::vector<std::unique_ptr<Rank>> states;
    std::vector<std::jthread> workers;
    for (int r = 0; r < ranks; ++r) {
      Rank& state = *states.emplace_back(std::make_unique<Rank>(groups(call.algorithm) * threads_));
      for (int g = 0; g < groups(call.algorithm); ++g) {
        HostGroup::Agreement& agreement =
            *state.agreements.emplace_back(std::make_unique<HostGroup::Agreement>(threads_));
        for (int t = 0; t < threads_; ++t)
          workers.emplace_back([&, r, g, t] {
            HostGroup group(t, threads_, agreement);
            Task mine = task(call, r, in, out, blocks[static_cast<std::size_t>(r)].data());
            for (unsigned launch = 0;; ++launch) {
              const Outcome outcome = perform_group<Operation, T>(group, g, mine);
              if (outcome == Outcome::kLeft) state.leaves[launch % 2] = true;
              if (outcome == Outcome::kAbandoned) all_done = false;
              state.launch.arrive_and_wait();
              if (!state.leaves[launch % 2]) break;
              state.leaves[(launch + 1) % 2] = false;
              state.launch.arrive_and_wait();
              mine.resumes = true;
              if (t == 0) ++launches_;
            }
          });
      }
    }
    workers.clear();
    return all_done;
  }
  /// How often a group was launched again.
  unsigned launches() const { return launches_; }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  int threads_;
  ChannelForm form_;
  Layout layout_;
  std::vector<AlignedBytes> memory_, far_on_host_, far_on_gpu_, tables_;
  std::vector<std::vector<FarEnd>> far_ends_;  ///< by rank
  alignas(8) Word abandoned_ = 0;
  unsigned patience_ = 0;
  std::atomic<unsigned> launches_ = 0;
};

}  // namespace loom::device::steps
