// world.hpp -- ranks on the cores of a machine that is not here, in one thread and in virtual time: which
// cache lines they read that another core wrote last, from how far these come, and who waits for whom.
//
// A rank is a fiber. Code that runs as a rank reports its accesses to shared memory: by counted_accesses.cpp
// if it was compiled to do so, as loom's executors are, or by itself. The model is of coherence, not of
// capacity: caches keep all that has been in them.
//   - A line has the cores that hold a copy. A read by another core takes it from a core of the same
//     last-level cache, else from the core that wrote it last. A write takes it from all others.
//   - The cores of one cache answer requests for one line one after the other.
//   - Lines that follow each other are fetched many at a time, others a few at a time as long as a rank need
//   not
//     wait.
//   - A store does not keep its core waiting; the next ones become visible after it.
//   - A rank that has looked at a flag in vain sleeps until the flag's line is written.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "tests/cores/machine.hpp"

namespace loom::cores {

inline constexpr std::size_t kLineBytes = 64;
inline constexpr std::size_t kMostRanks = 256;

/// In nanoseconds.
struct Costs {
  /// Until a line that another core wrote has arrived, by Distance: the rounded medians of
  /// github.com/nviennot/core-to-core-latency for two EPYC 7R13 (23, 107, 197) and of two Xeon 8375C (51
  /// inside a socket), which measures a line that goes to and fro.
  std::array<double, kDistances> latency{40, 110, 110, 200};
  /// From one answer of a cache to the next for the same line. Not measured: an assumption, which the table
  /// in docs/results/cores.md varies.
  double served = 15;
  /// Lines in flight of one stream: Intel's optimization reference manual gives an L1 cache 10 (Skylake) to
  /// 16 (Sapphire Rapids) fill buffers.
  double stream = 10;
  /// Other lines in flight. An assumption: a look that finds the flag up is predicted, and what comes behind
  /// it begins before the flag's line has arrived.
  double misses = 4;
  /// To move or reduce a byte that is in the core's own caches: 32 GB/s.
  double byte = 0.03;
  /// A call of the kernel that reads another process's memory, beside the bytes. An assumption.
  double system_call = 500;
};

/// Of all ranks together, in one run.
struct Counts {
  double ns = 0;  ///< from the begin to the end of the last rank
  int waits = 0;  ///< the longest chain of waits for what another rank published
  std::array<std::uint64_t, kDistances>
      lines;                     ///< read, of those that another core wrote last; by its distance
  std::uint64_t most_lines = 0;  ///< of one rank
  std::uint64_t numa_bytes = 0;  ///< that came from another NUMA node

  std::uint64_t all_lines() const { return lines[0] + lines[1] + lines[2] + lines[3]; }
};

class World {
 public:
  explicit World(std::vector<Core> cores, const Costs& costs = {});
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int ranks() const noexcept { return static_cast<int>(ranks_.size()); }
  const Core& core(int rank) const { return cores_[static_cast<std::size_t>(rank)]; }
  const Costs& costs() const noexcept { return costs_; }

  /// Shared memory, zeroed, from the start of a page. It lives as long as this.
  std::byte* allocate(std::size_t bytes);
  template <class T>
  T* make() {
    return new (allocate(sizeof(T))) T;
  }

  /// All ranks begin body(rank) at the same time. Throws what it throws, and Error where nobody can go on.
  Counts run(const std::function<void(int rank)>& body);

  // For code that runs as a rank. Memory that is not from allocate() is the rank's own, and costs nothing.
  void read(const void* from, std::size_t bytes);
  void write(const void* to, std::size_t bytes);
  /// Before a look at a flag, and after it was written.
  void look(const void* flag) { access(flag, sizeof(std::uint64_t), Access::kLook); }
  void publish(const void* flag) { access(flag, sizeof(std::uint64_t), Access::kPublish); }
  /// Until the line is written that was looked at last.
  void wait();
  void spend(double ns);
  int self() const noexcept { return running_; }

  /// Of the rank that runs in this thread; nullptr: none does.
  static World* current() noexcept { return current_; }

 private:
  enum class Access { kRead, kWrite, kLook, kPublish };
  using Cores = std::bitset<kMostRanks>;

  /// Of the cores of one cache.
  struct Copy {
    int cache;
    double free_at;  ///< when it can answer next
  };
  struct Line {
    Cores holders;
    int writer = -1;
    int waits = 0;  ///< of the rank that published it, in the run
    int run = 0;
    bool is_awaited = false;
    double ready_at = 0;
    std::vector<Copy> copies;
  };
  static constexpr std::size_t kNoLine = ~std::size_t{0};
  struct Rank {
    double clock = 0, stored_at = 0;
    int waits = 0;
    std::uint64_t lines = 0;
    /// The line that comes next in each.
    std::array<std::size_t, 4> streams{kNoLine, kNoLine, kNoLine, kNoLine};
    std::size_t next_stream = 0;
    std::size_t looked_at = 0;  ///< line
    bool goes_on = false;       ///< has not waited for what it read last
    bool has_slept = false;     ///< since then
  };
  static constexpr std::size_t kLinesPerPage = 64;

  bool is_shared(const void* at) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(at) - memory_) < used_;
  }
  Line& line(std::size_t index);
  void access(const void* at, std::size_t bytes, Access access);
  void load(std::size_t index, bool is_look);
  void store(std::size_t index, bool is_flag);
  void take_turn();
  bool is_in_stream(Rank& rank, std::size_t index) const;
  double latency(Distance distance) const { return costs_.latency[static_cast<std::size_t>(distance)]; }

  std::vector<Core> cores_;
  Costs costs_;
  std::byte* memory_;
  std::size_t used_ = 0;
  std::vector<std::unique_ptr<std::array<Line, kLinesPerPage>>> pages_;
  std::unordered_map<std::size_t, std::vector<int>> awaiting_;  ///< by line
  std::vector<Rank> ranks_;
  std::set<std::pair<double, int>> ready_;  ///< ranks that can go on, by their clocks
  int running_ = -1;
  int run_ = 0;
  Counts counts_;
  inline static World* current_ = nullptr;
};

}  // namespace loom::cores
