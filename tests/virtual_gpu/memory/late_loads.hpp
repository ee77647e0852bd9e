// late_loads.hpp -- loads that may come late. They have no value yet, so they are not run but judged.
#pragma once

#include <atomic>
#include <bitset>
#include <vector>

#include "tests/virtual_gpu/memory/space.hpp"

namespace virtual_gpu::memory {

using Threads = std::bitset<1024>;  ///< of a block

/// PTX orders a load before another thread's store only by a release after the load that
/// the store's thread acquires. Where that is missing, both must at least be strong, and at a scope that has
/// both threads; then the load may be made again, as by who polls. All else is a race, and may give anything.
///
/// For memory from which one block loads, and to which others of the process store. By pieces of 16 bytes,
/// each of which one thread loads.
class LateLoads {
 public:
  explicit LateLoads(std::size_t bytes) : pieces_(bytes / kBytes + 1) {}

  static constexpr std::size_t kBytes = 16;
  static std::uint64_t now() { return clock; }

  /// After a load: it may not have ended.
  void open(std::size_t offset, bool strong) {
    pieces_[offset / kBytes].state = strong ? State::kOpen : State::kOpenWeakly;
  }
  /// Released. False: a store has come meanwhile, which the load might have seen.
  bool close(std::size_t offset) {
    Piece& piece = pieces_[offset / kBytes];
    piece.closed = ++clock;
    return piece.state.exchange(State::kNone) != State::kOvertaken;
  }
  /// Before a store, by a thread that acquired last at `acquired`. False: it races with a load.
  bool store(std::size_t offset, std::uint64_t acquired, bool strong) {
    Piece& piece = pieces_[offset / kBytes];
    State state = State::kOpen;
    if (!piece.state.compare_exchange_strong(state, State::kOvertaken) && state == State::kOpenWeakly)
      return false;
    return (strong || state != State::kOpen) && piece.closed <= acquired;
  }

 private:
  enum class State : std::uint8_t { kNone, kOpen, kOpenWeakly, kOvertaken };
  struct Piece {
    std::atomic<State> state{State::kNone};
    std::atomic<std::uint64_t> closed{0};
  };
  static inline std::atomic<std::uint64_t> clock{0};
  std::vector<Piece> pieces_;
};

/// Those of one block.
class OpenLoads {
 public:
  /// After the load: a store that it has seen does not count.
  void add(const Region& region, std::uint64_t address, unsigned thread, bool strong);
  void meet(const Threads& threads);
  /// What comes before a release by the thread; all of it, or what no other GPU reaches. Throws Error.
  void end(unsigned thread, bool all);
  void end_all();

 private:
  struct Load {
    LateLoads* in;
    std::size_t offset;
    bool this_gpu_only;
    Threads before;  ///< what these threads do now
  };
  static void end(const Load& load, unsigned thread);

  std::vector<Load> loads_;
};

}  // namespace virtual_gpu::memory
