// late_loads.hpp -- loads that may come late. They have no value yet, so they are not run but judged.
#pragma once

#include <atomic>
#include <bitset>
#include <vector>

#include "tests/virtual_gpu/memory/space.hpp"

namespace virtual_gpu::memory {

using Threads = std::bitset<1024>;  ///< of a block

/// PTX orders a load before another thread's store only by a release after the load that
/// the store's thread acquires. Where that is missing, both must at least be strong, at a scope that has both
/// threads, and the load one that polls. All else is a race, and may give anything.
///
/// Who polls waits for the store that comes, and wants no more of the one before: that one's value has been
/// loaded and released since. So a load that nobody has released polls if another one of the same value was
/// released before, or if there is no store yet. That it is made again says nothing: a slot's next message is
/// looked for in the same place.
///
/// For memory from which one block loads, and to which others of the process store. By pieces of 16 bytes,
/// each of which one thread loads.
class LateLoads {
 public:
  explicit LateLoads(std::size_t bytes) : pieces_(bytes / kBytes + 1) {}

  static constexpr std::size_t kBytes = 16;
  /// Later than all before.
  static std::uint64_t now() { return ++clock; }

  /// After a load: it may not have ended.
  void open(std::size_t offset, bool strong) {
    pieces_[offset / kBytes].state = strong ? State::kOpen : State::kOpenWeakly;
  }
  /// Released.
  void close(std::size_t offset) {
    Piece& piece = pieces_[offset / kBytes];
    const State state = piece.state.exchange(State::kNone);
    if (state == State::kOvertaken) return;  // it polled
    const bool polled = piece.taken.exchange(true) && state == State::kOpen;
    if (!polled) piece.closed = now();
  }
  /// Before a store, by a thread that acquired last at `acquired`; what it stores to the piece until it
  /// acquires again is one store. False: it races with a load.
  bool store(std::size_t offset, std::uint64_t acquired, bool strong) {
    Piece& piece = pieces_[offset / kBytes];
    const bool goes_on = piece.stored.exchange(acquired + 1) == acquired + 1,
               polled = piece.taken.exchange(false);
    State state = State::kOpen;
    if (!piece.state.compare_exchange_strong(state, State::kOvertaken) && state == State::kOpenWeakly)
      return false;
    if (state == State::kOpen && !strong) return false;
    return goes_on || ((state != State::kOpen || polled) && piece.closed <= acquired);
  }

 private:
  enum class State : std::uint8_t {
    kNone,
    kOpen,
    kOpenWeakly,
    kOvertaken  ///< a store has come since the load
  };
  struct Piece {
    std::atomic<State> state{State::kNone};
    std::atomic<bool> taken{true};         ///< a load of what is there has been released
    std::atomic<std::uint64_t> closed{0};  ///< when a load that does not poll was released
    std::atomic<std::uint64_t> stored{0};  ///< 1 + when the thread of the latest store had acquired; 0: none
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
  /// What comes before a release by the thread; all of it, or what no other GPU reaches.
  void end(unsigned thread, bool all);
  void end_all();

 private:
  struct Load {
    LateLoads* in;
    std::size_t offset;
    bool this_gpu_only;
    Threads before;  ///< what these threads do now
  };

  std::vector<Load> loads_;
};

}  // namespace virtual_gpu::memory
