// peer_calls.hpp -- calls by the algorithms of other components on the ranks of a World, as their
// documentation describes them (docs.open-mpi.org, "Tuning collectives"; the help texts of `ompi_info
// --all`), reduced to the cache lines that they need. They move no data. All that software does beside is
// left out, which favours them over loom's executors, whose every access is counted.
#pragma once

#include <map>
#include <vector>

#include "device/call.h"
#include "tests/cores/world.hpp"

namespace loom::cores {

enum class Peer {
  kTuned,  ///< messages through shared memory, above 4 KiB by single copy: trees, recursive doubling, rings
  kSm,     ///< flags along a tree of degree 4; a reduce's root reads all operands; 8 KiB at a time
  kXhc     ///< leaders of caches (of reductions), NUMA nodes and sockets; 16 KiB at a time, read in place
};

class PeerRanks {
 public:
  explicit PeerRanks(World& world);

  static bool takes(Peer peer, device::Collective collective);
  /// As LoomRanks::call().
  Counts call(Peer peer, device::Collective collective, std::size_t bytes);

 private:
  /// A rank's flags; each algorithm has its own.
  enum : std::size_t { kSmUp, kSmDown, kXhcReady, kXhcDown, kXhcDownWithCaches, kXhcRead, kFlags };
  struct Flag {
    std::uint64_t* word = nullptr;  ///< in a line of its own, with 56 bytes beside it
    std::uint64_t seen = 0;         ///< by the one who awaits it next
  };
  struct Box {
    Flag sent, done;
    std::byte* payload = nullptr;
  };
  /// A group of ranks, its leader first.
  using Members = std::vector<int>;

  static std::size_t self() { return static_cast<std::size_t>(World::current()->self()); }
  Flag make_flag();
  void signal(const Flag& flag);
  void await(const Flag& flag, std::uint64_t value);
  void move(std::size_t bytes) { world_.spend(static_cast<double>(bytes) * world_.costs().byte); }
  void read(const std::byte* from, std::size_t bytes);
  void write(std::byte* to, std::size_t bytes);

  Box& box(int from, int to);
  void send(int to, std::size_t bytes);
  void finish_send(int to, std::size_t bytes);
  void receive(int from, std::size_t bytes);
  void exchange(int to, int from, std::size_t bytes);
  void reduce(std::size_t bytes);

  void by_messages(device::Collective collective, std::size_t bytes);
  void along_tree(device::Collective collective, std::size_t bytes);
  void by_leaders(device::Collective collective, std::size_t bytes);
  std::vector<std::vector<Members>> levels_of(bool caches) const;
  std::byte* bank(int rank, std::size_t at) const { return banks_[static_cast<std::size_t>(rank)] + at; }

  World& world_;
  int ranks_;
  std::vector<std::byte*> banks_;  ///< by rank: its buffer, which others may read
  std::map<std::pair<int, int>, Box> boxes_;
  std::vector<std::array<Flag, kFlags>> flags_;        ///< by rank
  std::vector<std::array<std::uint64_t, kFlags>> up_;  ///< by rank: how often each of its flags was signalled
  std::vector<std::vector<Members>> with_caches_, without_caches_;  ///< by level: its groups
};

}  // namespace loom::cores
