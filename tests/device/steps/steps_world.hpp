// steps_world.hpp -- the ranks of step code as groups of threads of this process, with ordinary memory in
// place of the GPUs'; and what they should find. Shared with the tests that run the same calls on a GPU.
#pragma once

#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "device/reduce/reduce.hpp"
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
  ReduceFn reduce;  ///< nullptr where nothing is reduced
  bool in_place = false;

  bool moves() const {
    return algorithm == Algorithm::kAllGatherRing || algorithm == Algorithm::kBroadcastChain;
  }
  bool has_blocks() const {
    return algorithm == Algorithm::kReduceScatterRing || algorithm == Algorithm::kAllGatherRing;
  }
  bool is_chain() const {
    return algorithm == Algorithm::kBroadcastChain || algorithm == Algorithm::kReduceChain;
  }
  /// A block, or a rank's chunk of an all-reduce in whole lines.
  std::size_t chunk() const {
    if (has_blocks()) return count;
    if (is_chain() || algorithm == Algorithm::kOneShot) return count;
    const std::size_t line = std::max<std::size_t>(1, 64 / elem_bytes),
                      ranks = static_cast<std::size_t>(size);
    return ((count + ranks - 1) / ranks + line - 1) / line * line;
  }
  std::size_t in_count() const {
    return algorithm == Algorithm::kReduceScatterRing ? count * static_cast<std::size_t>(size) : count;
  }
  std::size_t out_count() const {
    return algorithm == Algorithm::kAllGatherRing ? count * static_cast<std::size_t>(size) : count;
  }
  std::size_t total() const { return has_blocks() ? count * static_cast<std::size_t>(size) : count; }

  /// The part of channel c of `channels`.
  Task task(int rank, const void* in, void* out, int c, int channels) const {
    const std::size_t line = std::max<std::size_t>(1, 64 / elem_bytes),
                      all = static_cast<std::size_t>(channels);
    const std::size_t window = ((chunk() + all - 1) / all + line - 1) / line * line;
    return {.algorithm = algorithm,
            .protocol = protocol,
            .rank = rank,
            .size = size,
            .root = root,
            .in = in,
            .out = out,
            .count = total(),
            .chunk = chunk(),
            .window_first = window * static_cast<std::size_t>(c),
            .window_length = window};
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

/// What a rank's output is to be; of a rank that has none, what it was before.
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
      put(0, reduced(call, in, static_cast<std::size_t>(rank) * call.count, call.count,
                     order_from((rank + 1) % call.size)));
      break;
    case Algorithm::kAllGatherRing:
      for (int r = 0; r < call.size; ++r)
        put(static_cast<std::size_t>(r) * call.count, in[static_cast<std::size_t>(r)]);
      break;
    case Algorithm::kBroadcastChain:
      if (rank != call.root) put(0, in[static_cast<std::size_t>(call.root)]);
      break;
    case Algorithm::kReduceChain:
      if (rank == call.root)
        put(0, reduced(call, in, 0, call.count, order_from((call.root + 1) % call.size)));
      break;
    case Algorithm::kOneShot:
    case Algorithm::kTwoShot:
      put(0, reduced(call, in, 0, call.count, order_from(0)));
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

/// Ranks with links between them.
class HostWorld {
 public:
  HostWorld(int size, int threads, int channels, const ChannelForm& form)
      : size_(size), threads_(threads), channels_(channels), form_(form) {
    const Layout layout(form, size);
    std::vector<std::byte*> bases;
    for (int r = 0; r < size; ++r) {
      memory_.emplace_back(layout.bytes(channels));
      bases.push_back(memory_.back().data());
    }
    for (int r = 0; r < size; ++r)
      for (int c = 0; c < channels; ++c) links_.push_back(layout.channel(bases, r, c));
  }
  /// Afterwards all waits end.
  void abandon() { store_release(&abandoned_, 1); }

  /// Whether the ranks [0, ranks) came to the end; the buffers are of T, offset bytes off.
  template <class Operation, class T>
  bool perform(const Call& call, const std::vector<std::byte*>& in, const std::vector<std::byte*>& out,
               int ranks) {
    std::atomic<bool> all_done = true;
    std::vector<std::unique_ptr<HostGroup::Agreement>> meetings;
    std::vector<std::jthread> workers;
    for (int r = 0; r < ranks; ++r)
      for (int c = 0; c < channels_; ++c) {
        HostGroup::Agreement& agreement =
            *meetings.emplace_back(std::make_unique<HostGroup::Agreement>(threads_));
        for (int t = 0; t < threads_; ++t)
          workers.emplace_back([&, r, c, t] {
            HostGroup group(t, threads_, agreement);
            const Task task =
                call.task(r, in[static_cast<std::size_t>(r)], out[static_cast<std::size_t>(r)], c, channels_);
            if (!steps::perform<Operation, T>(
                    group, task, links_[static_cast<std::size_t>(r * channels_ + c)], form_, {&abandoned_}))
              all_done = false;
          });
      }
    workers.clear();
    return all_done;
  }

 private:
  int size_, threads_, channels_;
  ChannelForm form_;
  std::vector<AlignedBytes> memory_;
  std::vector<Channel> links_;
  alignas(8) Word abandoned_ = 0;
};

}  // namespace loom::device::steps
