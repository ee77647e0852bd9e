// grids.hpp -- ranks that are threads, on hosts and along rails.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "device/host/dbt_executor.hpp"
#include "device/host/split_rail_executor.hpp"
#include "links_between_all.hpp"

namespace loom::device {

inline int value_at(int rank, std::size_t i) {
  return static_cast<int>(i) * 3 + rank * 1000;
}
inline std::byte* bytes_of(std::vector<int>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

/// Ranks are distributed over the hosts at random, as they may be in a communicator.
class Grids {
 public:
  Grids(int hosts, int per_host)
      : hosts_(hosts), per_host_(per_host), ranks_(static_cast<std::size_t>(hosts * per_host)) {
    std::iota(ranks_.begin(), ranks_.end(), 0);
    std::shuffle(ranks_.begin(), ranks_.end(), std::mt19937(static_cast<unsigned>(hosts * 10 + per_host)));
    for (int host = 0; host < hosts; ++host) locals_.emplace_back(per_host, kLocal);
    for (int place = 0; place < per_host; ++place) {
      rails_.emplace_back(hosts, kRail);
      for (auto& trees : trees_) trees.emplace_back(hosts, kTree);
    }
  }
  int size() const { return hosts_ * per_host_; }
  int host(int rank) const { return seat(rank) / per_host_; }
  int place(int rank) const { return seat(rank) % per_host_; }
  Grid of(int rank) {
    return {ring(locals_[static_cast<std::size_t>(host(rank))], place(rank), per_host_), kLocal,
            ring(rails_[static_cast<std::size_t>(place(rank))], host(rank), hosts_), kRail, ranks_};
  }

  DbtLinks trees_of(int rank) {
    DbtLinks result{.neighbours = {}, .fifo = kTree};
    for (int tree = 0; tree < 2; ++tree) {
      const auto t = static_cast<std::size_t>(tree);
      const auto links = trees_[t][static_cast<std::size_t>(place(rank))].of(host(rank));
      const TreePlace place = double_tree(tree, host(rank), hosts_);
      const int hosts[] = {place.parent, place.child[0], place.child[1]};
      for (std::size_t i = 0; i < std::size(hosts); ++i)
        if (hosts[i] != kNobody)
          result.neighbours[t][i] = {hosts[i], links[static_cast<std::size_t>(hosts[i])]};
    }
    return result;
  }
  /// A broadcast or reduce, along the root's rail or by trees.
  void run_rooted(int rank, const Call& call, bool by_trees) {
    if (by_trees)
      loom::device::run(DbtExecutor(of(rank), trees_of(rank), call, host(call.root), place(call.root)));
    else
      loom::device::run(RootedExecutor(of(rank), call, host(call.root), place(call.root)));
  }

  /// body(rank, drive) in a thread for each rank.
  template <class Body>
  void run(Body&& body) {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size(); ++rank) threads.emplace_back([&, rank] { body(rank); });
  }

 private:
  static constexpr FifoShape kLocal{.slot_bytes = 4096, .slot_count = 4},
      kRail{.slot_bytes = 8192, .slot_count = 3}, kTree{.slot_bytes = 2048, .slot_count = 2};
  static RingLinks ring(const LinksBetweenAll& pairwise, int position, int size) {
    if (size == 1) return {};
    const auto links = pairwise.of(position);
    return {position, size, links[static_cast<std::size_t>((position + 1) % size)].send,
            links[static_cast<std::size_t>((position + size - 1) % size)].receive};
  }
  int seat(int rank) const {
    return static_cast<int>(std::find(ranks_.begin(), ranks_.end(), rank) - ranks_.begin());
  }

  int hosts_, per_host_;
  std::vector<int> ranks_;
  std::deque<LinksBetweenAll> locals_, rails_;
  std::array<std::deque<LinksBetweenAll>, 2> trees_;  ///< by tree and place
};

}  // namespace loom::device
